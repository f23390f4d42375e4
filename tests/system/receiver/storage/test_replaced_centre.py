"""A replaced centre that wakes up under the old address is sent nothing and believed nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.durable import Tree
from sender.kept.receiver_file import ReceiverFile
from sender.kept.seen_incarnations import ReplacedCentreError
from sender.round.freed_files.freeing import ReceiverWord
from sender.round.look import dry_run
from tests.support.copying_centre import CopyingCentre
from tests.support.edge import Edge
from tests.support.faultproxy import FaultProxy
from tests.support.looking import in_sync
from tests.support.procs import children, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    """The one address under which the edge knows its centre."""
    made = FaultProxy(("127.0.0.1", 1))
    yield made
    made.close()


def port(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rpartition(":")[2])


def rest(edge: Edge) -> None:
    for _ in range(10):
        report = edge.round()
        assert report.error is None, report.error
        if report.quiet:
            return


def test_a_paused_centre_that_another_took_over_from_is_refused_under_its_address(
    tmp_path: Path, proxy: FaultProxy
) -> None:
    with children(tmp_path) as processes:
        old = CopyingCentre(tmp_path / "centre", processes, before_ack=False)
        there = port(old.start())
        proxy.target = there
        edge = Edge(tmp_path / "edge", proxy.url)
        edge.write(1)
        rest(edge)
        newest = int(old.call("storage", "status")["newest"])
        wait_until(lambda: int(old.call("storage", "status")["shipped"]) >= newest, "shipped")
        assert old.server is not None
        os.kill(old.server.pid, signal.SIGSTOP)

        second = tmp_path / "second"
        second.mkdir()
        new = CopyingCentre(second / "centre", processes, before_ack=False, store=old.store)
        new.restore()
        proxy.target = port(new.start())
        edge.write(2)
        rest(edge)
        last = edge.write(3)
        rest(edge)

        proxy.target = there
        os.kill(old.server.pid, signal.SIGCONT)
        edge.write(4)
        listed = edge.listed
        report = edge.round()
        assert isinstance(report.error, ReplacedCentreError)
        assert report.sent == 0
        assert "incarnation 1 " in str(report.error)
        assert "--accept-receiver" in str(report.error)
        assert edge.listed == listed
        remote = edge.remote()
        try:
            with pytest.raises(ReplacedCentreError):
                dry_run(remote, accept_source=False)
            with remote.sync_tree() as sync:
                known = ReceiverFile.open(sync, remote.directory).now
            with pytest.raises(ReplacedCentreError):  # nothing is freed on its word
                ReceiverWord.asked(remote, known)
        finally:
            remote.close()

        proxy.target = port(f"http://127.0.0.1:{new.port}")
        rest(edge)
        new.stop()
        in_sync(edge, new.root)
        assert last in edge.listed

        # The operator may know better: the old one goes on, and what it lacks comes again.
        proxy.target = there
        report = edge.round(accept_receiver=True)
        assert report.error is None, report.error
        rest(edge)
        wait_until(lambda: old.call("storage", "status")["fenced"], "fenced")
        assert old.call("storage", "status")["trouble"] == "fenced"
        old.stop()
        in_sync(edge, old.root)

        # Its copies are the other's until it takes over; from then on they are its own, whole.
        old.call("storage", "takeover")
        old.start()
        newest = int(old.call("storage", "status")["newest"])
        wait_until(lambda: int(old.call("storage", "status")["shipped"]) >= newest, "shipped")
        wait_until(lambda: not old.call("storage", "status")["waiting_files"], "uploaded")
        newest = int(old.call("storage", "status")["newest"])
        wait_until(lambda: int(old.call("storage", "status")["shipped"]) >= newest, "shipped")
        old.lose_all()
        assert old.restore() == set()
        in_sync(edge, old.root)
    with Tree(edge.schema / "sync") as sync:
        marks = ReceiverFile.open(sync, remote.directory).now.incarnations
    assert [each.number for each in marks] == [1], "as it was accepted"
