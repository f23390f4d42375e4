"""Whether a daemon runs is seen by who may write nothing, too."""

from __future__ import annotations

import errno

import pytest

from common.durable import Tree
from common.errors import ReadOnlyDiskError
from sender.daemon.processes import LOCK, Running, running


@pytest.mark.parametrize(
    "error",
    [ReadOnlyDiskError("read-only"), PermissionError(errno.EACCES, "Permission denied", LOCK)],
    ids=["a read-only disk", "another user"],
)
def test_a_daemon_is_seen_where_nothing_can_be_written(tmp_path, monkeypatch, error):
    with Tree(tmp_path) as sync:
        assert running(sync) is None
        held = sync.lock(LOCK)

        def refused(rel: str) -> None:
            raise error

        monkeypatch.setattr(sync, "lock", refused)
        assert running(sync) == Running(None)
        held.release()
        assert running(sync) is None
