from __future__ import annotations

import pytest

from common.wire import TaskMark
from sender.kept import identity
from sender.kept.receiver_file import Receiver, ReceiverFile
from tests.support.site import ENDPOINT


@pytest.fixture
def sync(tmp_path):
    with identity.open_sync_dir(tmp_path) as sync:
        yield sync


def test_what_is_remembered_survives_a_restart(sync):
    mark = TaskMark(task="a" * 32, commit=1 << 62)
    ReceiverFile.open(sync, ENDPOINT).update(
        engine="e", epoch="3.x", last_task=mark, newest_commit=5
    )
    again = ReceiverFile.open(sync, ENDPOINT)
    assert again.now == Receiver(engine="e", epoch="3.x", last_task=mark, newest_commit=5)
    again.update(epoch="4.y", last_round={"sent": 3})
    assert ReceiverFile.open(sync, ENDPOINT).now.last_task == mark
    assert ReceiverFile.open(sync, ENDPOINT).now.last_round == {"sent": 3}


def test_at_first_there_is_nothing_and_nothing_is_written(sync, tmp_path):
    memory = ReceiverFile.open(sync, ENDPOINT)
    assert memory.now == Receiver()
    assert memory.problem is None
    memory.update(engine=None)
    assert not (tmp_path / "sync" / ENDPOINT).exists()


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"[]", b'{"version":2}', b"\xff\xfe"])
def test_a_damaged_memory_is_a_first_contact_with_a_message(sync, tmp_path, content):
    ReceiverFile.open(sync, ENDPOINT).update(epoch="3.x")
    (tmp_path / "sync" / ENDPOINT / "receiver.json").write_bytes(content)
    memory = ReceiverFile.open(sync, ENDPOINT)
    assert memory.now == Receiver()
    assert "tsferry-receiver senders accept" in memory.problem
    memory.update(epoch="4.z")
    assert ReceiverFile.open(sync, ENDPOINT).now.epoch == "4.z"
    assert ReceiverFile.open(sync, ENDPOINT).problem is None
