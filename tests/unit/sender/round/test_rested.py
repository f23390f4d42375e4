"""A round after one that found nothing to do, where no change was told of."""

from __future__ import annotations

import errno

import pytest

from common import wire
from common.wire import History
from sender.round.round import Round
from tests.support.edge import Edge
from tests.support.tsfile_bytes import build

LOOKED = "0123456789abcdef" * 2


@pytest.fixture
def edge(receiver, tmp_path):
    receiver.looks = 0
    return Edge(tmp_path / "edge", receiver.url)


def a_round(edge, rested=None):
    """The report, and what the round leaves."""
    remote = edge.remote()
    lock = remote.lock()
    try:
        one = Round(remote, rested=rested)
        return one.run(), one.rested
    finally:
        lock.release()
        remote.close()


def at_rest(edge):
    report, rested = a_round(edge)
    assert rested is None, "it had something to do"
    assert report.sent
    report, rested = a_round(edge)
    assert rested is not None
    return report, rested


def test_it_asks_the_receiver_and_looks_at_no_file(edge, receiver):
    edge.write(1)
    before, rested = at_rest(edge)
    edge.write(2)  # of which nobody told
    receiver.verified = wire.VerifiedFiles(files=1, verified=1)
    receiver.requests.clear()
    report, after = a_round(edge, rested)
    assert receiver.names() == ["POST /check", "POST /listed"]
    assert after is rested
    assert report.looked
    assert report.verified == receiver.verified
    shown = report.as_json() | {"seconds": 0, "verified": None}
    assert shown == before.as_json() | {"seconds": 0, "verified": None}
    assert a_round(edge)[0].sent == 1


def test_without_what_was_left_every_file_is_looked_at(edge, receiver):
    edge.write(1)
    at_rest(edge)
    edge.write(2)
    assert a_round(edge)[0].sent == 1


def _disagrees(receiver):
    receiver.agrees = False


def _wants(receiver):
    path = next(iter(receiver.loaded))
    receiver.wanted = [wire.Wanted(path=path, md5=LOOKED, reason="bad", size=1)]


def _holds(receiver):
    path = next(iter(receiver.loaded))
    receiver.held = [wire.Wanted(path=path, md5=LOOKED, reason="bad", size=1)]


def _is_another(receiver):
    receiver.history = History.REWOUND


def _begins_anew(receiver):
    receiver.anew = True


def _has_records_to_hold(receiver):
    held = wire.HeldRecords(group="root.a", files=1, reason="many")
    receiver.held_records = [held]


NEWS = [_disagrees, _wants, _holds, _is_another, _begins_anew, _has_records_to_hold]


@pytest.mark.parametrize("news", NEWS)
def test_news_of_the_receiver_are_looked_into(edge, receiver, news):
    edge.write(1)
    _, rested = at_rest(edge)
    edge.write(2)
    news(receiver)
    report, after = a_round(edge, rested)
    assert after is not rested
    assert report.sent == 1 or report.error is not None


def test_a_deletion_file_that_grows_is_looked_at(edge, receiver):
    path = edge.write(1)
    beside = edge.data / f"{path}.mods"
    beside.write_bytes(b"")
    _, rested = at_rest(edge)
    edge.write(2)
    assert a_round(edge, rested)[1] is rested
    beside.write_bytes(b"DELETION,root.a.d1.s1,0,1\n")
    assert a_round(edge, rested)[1] is not rested
    assert receiver.count("POST /tasks/[0-9a-f]+/deletions")


def test_what_waits_for_its_rest_is_looked_at_again(receiver, tmp_path):
    receiver.looks = 0
    edge = Edge(tmp_path / "edge", receiver.url, closed_by="tail", quiet_seconds=3600)
    edge.put(edge.path(1), build({"root.a.d1": {"s1": [(1, 1)]}}), resource=None)
    report, rested = a_round(edge)
    assert report.waiting == 1
    assert rested is None


def test_what_could_not_be_read_is_looked_at_again(edge, monkeypatch):
    edge.write(1)

    def fails(fd):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("sender.select.file_verdicts.read_status", fails)
        a_round(edge)  # in which the receiver was not known before
        report, rested = a_round(edge)
    assert report.waiting == 1
    assert rested is None
    assert a_round(edge, rested)[0].sent == 1


def test_an_open_file_keeps_nobody_looking(edge):
    edge.write(1)
    edge.put(edge.path(2), b"TsFile", resource=None)
    report, _ = at_rest(edge)
    assert report.waiting == 1


def test_after_an_error_every_file_is_looked_at(edge, receiver):
    edge.write(1)
    _, rested = at_rest(edge)
    receiver.token = "another"
    report, after = a_round(edge, rested)
    assert report.error is not None
    assert after is None
