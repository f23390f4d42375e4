"""Which rounds of the daemon look at every file."""

from __future__ import annotations

import contextlib
import os
import time

import pytest

from common.errors import NoSpaceError
from sender.config import DaemonConfig
from sender.daemon.receiver_loop import ReceiverLoop, Request
from sender.round.round import RoundOptions
from sender.round.round_words.round_report import RoundReport
from tests.support.edge import Edge


class Daemon:
    """Its rounds with one receiver, one after the other, at times of the test."""

    def __init__(self, receiver, root, **settings) -> None:
        receiver.looks = 0
        settings["daemon"] = DaemonConfig(look_period=3600.0)
        self.edge = Edge(root, receiver.url, **settings)
        self.now = 0.0
        self.watched = True
        self.loop = ReceiverLoop(
            self.edge.remote(), watched=lambda: self.watched, clock=lambda: self.now
        )
        self.loop.remote.scanner.scan = self._counted(self.loop.remote.scanner.scan)
        self.scans = 0

    def _counted(self, scan):
        def counted(*args, **more):
            self.scans += 1
            return scan(*args, **more)

        return counted

    def looks(self, request=None) -> bool:
        """Do a round; whether it looked at the files."""
        before = self.scans
        self.now += 60
        self.loop._round(request)
        assert self.loop.last.error is None
        return self.scans > before


@pytest.fixture
def daemon(receiver, tmp_path):
    daemon = Daemon(receiver, tmp_path / "edge")
    daemon.edge.write(1)
    assert daemon.looks(), "the first: it loads the file"
    assert daemon.looks(), "what it left is looked at once more"
    yield daemon
    daemon.loop.remote.close()


def test_where_no_change_is_told_only_the_receiver_is_asked(daemon):
    assert [daemon.looks() for _ in range(5)] == [False] * 5
    assert daemon.loop.last.looked


def test_a_round_that_ended_early_is_not_called_done(daemon, caplog):
    report = RoundReport("dc1", error=NoSpaceError("no room"), sent=2)
    with caplog.at_level("INFO", "sender.daemon.receiver_loop"):
        daemon.loop._finish(report, begin=0.0)
    (line,) = caplog.records
    assert (line.levelname, line.message) == ("ERROR", "dc1: the round ended early: no room")
    assert line.sent == 2


def test_a_try_of_nothing_in_particular_names_nothing(daemon, caplog):
    for what in ("", "a/b.tsfile"):
        daemon.loop.remote._tell(what, NoSpaceError("busy"), 1.5)
    first, second = caplog.records
    assert first.message == "dc1: another try in 1.5 s: busy"
    assert (hasattr(first, "what"), second.what) == (False, "a/b.tsfile")


def test_a_change_is_looked_at(daemon):
    assert not daemon.looks()
    daemon.edge.write(2)
    daemon.loop.changed()
    assert daemon.looks()
    assert daemon.loop.last.sent == 1


def test_where_nobody_watches_every_round_looks(daemon):
    daemon.watched = False
    assert daemon.looks()


def test_every_file_is_looked_at_now_and_then(daemon):
    assert [daemon.looks() for _ in range(61)].count(True) == 1


def test_who_asks_for_a_round_has_every_file_looked_at(daemon):
    assert not daemon.looks()
    assert daemon.looks(Request(RoundOptions(), lambda progress: None))


def test_after_a_round_that_failed_every_file_is_looked_at(daemon, receiver):
    receiver.token = "another"
    assert daemon.loop.last.complete_until is not None
    with pytest.raises(AssertionError):
        daemon.looks()
    assert daemon.loop.last.complete_until is None, "nobody looked at what came since"
    receiver.token = None
    assert daemon.looks()
    assert daemon.loop.last.complete_until is not None


def test_a_change_that_is_told_as_a_round_begins_is_looked_at_by_the_next(daemon):
    daemon.loop._watched = lambda: daemon.loop.changed() or True
    assert not daemon.looks()
    daemon.loop._watched = lambda: True
    assert daemon.looks()


def test_the_next_look_comes_when_a_file_that_waits_will_have_rested(receiver, tmp_path):
    daemon = Daemon(receiver, tmp_path / "edge", closed_by="tail", quiet_seconds=50.0)
    with contextlib.closing(daemon.loop.remote):
        file = daemon.edge.data / daemon.edge.write(1)
        written = int(time.time()) - 3
        os.utime(file, (written,) * 2)
        rested = time.time() - written
        assert daemon.looks()
        assert daemon.loop.last.waiting == 1
        looked = time.time() - written  # at a moment between the two
        assert 50 - looked <= daemon.loop._due - daemon.now <= 50 - rested
        os.utime(file, (time.time() - 50,) * 2)
        assert daemon.looks()
        assert daemon.loop.last.sent == 1
        assert daemon.loop._due == daemon.now + 60


@pytest.mark.parametrize(
    ("rests_in", "took", "next_in"),
    [(7.0, 0.0, 7.0), (0.01, 0.0, 1.0), (0.01, 2.0, 18.0), (7.0, 30.0, 30.0), (500.0, 0.0, 60.0)],
    ids=["then", "not at once", "nine times its length", "by the period", "not later than that"],
)
def test_files_that_rest_never_make_rounds_of_all_the_time(daemon, rests_in, took, next_in):
    begin, daemon.now = daemon.now, daemon.now + took
    daemon.loop._finish(RoundReport("dc1"), begin, daemon.now + rests_in)
    assert daemon.loop._due - daemon.now == pytest.approx(next_in)
