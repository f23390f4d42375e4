from __future__ import annotations

import time

import pytest

from common import wire
from common.errors import (
    DigestError,
    NoSpaceError,
    NotATsFileError,
    ProtocolError,
    StoppedError,
    UnauthorizedError,
)
from sender.send.connection.backoff import Backoff, Tries
from sender.send.sent_bytes.batch import BatchSender
from sender.send.sent_bytes.upload import ChangedWhileSentError, ReceivedFile
from sender.send.task_calls import TaskCalls
from tests.support.scripted_receiver import Alter, Answer, Drop, Reply, html, problem
from tests.unit.sender.send.sent_bytes.test_upload import TASK, Bytes, Countdown


def name(number: int) -> str:
    return f"sequence/root.a/0/0/{number}-1-0-0.tsfile"


@pytest.fixture
def files():
    return [Bytes(b"%05d" % n * 100, name(n)) for n in range(10)]


@pytest.fixture
def batch(receiver, client):
    client.start_task(TASK, wire.StartRequest(engine="e" * 32))

    def make(body_bytes: int = 1 << 20, stop=lambda: False) -> BatchSender:
        tries = Tries(5, Backoff(chance=lambda: 0.0), lambda _: False)
        return BatchSender(TaskCalls(client, TASK, "1.x", tries, stop), body_bytes)

    return make


def fates(results):
    return {content.path: type(outcome) for content, outcome in results}


def test_small_files_travel_in_one_request(receiver, batch, files):
    assert set(fates(batch().run(files)).values()) == {ReceivedFile}
    assert receiver.count("POST /tasks/.*/batch") == 1
    assert receiver.received == {each.path: each.data for each in files}


def test_a_body_is_never_larger_than_told(receiver, batch, files):
    assert len(fates(batch(10_000).run(files))) == 10
    assert receiver.count("POST /tasks/.*/batch") == 5
    assert max(len(r.body) for r in receiver.requests) < 10_000


def test_one_bad_file_does_not_sink_the_batch(receiver, batch, files):
    bad = {3: ("not-a-tsfile", True), 5: ("digest-mismatch", False)}

    def change(reply: Reply) -> Reply:
        results = []
        for number, path in enumerate(map(name, range(10))):
            slug, quarantined = bad.get(number, (None, False))
            found = None if slug is None else wire.Problem(type=f"urn:tsferry:{slug}")
            results.append(wire.BatchResult(path=path, problem=found, quarantined=quarantined))
        reply.body = wire.encode(wire.BatchAnswer(results=results))
        return reply

    receiver.fault("POST /tasks/.*/batch", Alter(change))
    found = fates(batch().run(files))
    assert found.pop(name(3)) is NotATsFileError
    assert set(found.values()) == {ReceivedFile}  # the damaged one was sent again
    assert receiver.count("POST /tasks/.*/batch") == 2


def test_a_file_that_changed_stays_out_of_the_batch(receiver, batch, files):
    files[2].good = False
    found = fates(batch().run(files))
    assert found.pop(name(2)) is ChangedWhileSentError
    assert set(found.values()) == {ReceivedFile}
    assert name(2) not in receiver.received


def test_a_broken_line_costs_the_batch_a_retry(receiver, batch, files):
    receiver.fault("POST /tasks/.*/batch", Drop(), Drop(late=True))
    assert set(fates(batch().run(files)).values()) == {ReceivedFile}


def test_each_file_is_left_after_max_retries(receiver, batch, files):
    receiver.fault("POST /tasks/.*/batch", *(Answer(problem(DigestError)) for _ in range(99)))
    assert set(fates(batch().run(files)).values()) == {DigestError}
    assert receiver.count("POST /tasks/.*/batch") == 6


def test_a_batch_that_is_refused_is_sent_file_by_file_to_find_the_one(receiver, batch, files):
    receiver.fault("POST /tasks/.*/batch", Answer(html(400)), Alter(lambda r: r), Answer(html(400)))
    found = fates(batch().run(files))
    assert found.pop(name(1)) is ProtocolError
    assert set(found.values()) == {ReceivedFile}


def test_files_find_room_that_all_of_them_together_do_not(receiver, batch):
    files = [Bytes(bytes([n]) * 30_000, name(n)) for n in range(10)]
    full = Answer(problem(NoSpaceError, retry_after=30))
    receiver.fault("POST /tasks/.*/batch", full, full)
    began = time.monotonic()
    assert set(fates(batch().run(files)).values()) == {ReceivedFile}
    assert time.monotonic() - began < 20  # nothing was waited for
    assert receiver.count("POST /tasks/.*/batch") >= 2 + 4  # of a quarter of them at most


def test_a_full_receiver_is_waited_for_once_and_each_file_is_tried(receiver, batch):
    files = [Bytes(bytes([n]) * 60_000, name(n)) for n in range(10)]
    full = Answer(problem(NoSpaceError))
    receiver.fault("POST /tasks/.*/batch", *[full] * 14)
    found = fates(batch().run(files))
    # Halved until one is alone, which is tried six times; then once each, until there is room.
    halved = receiver.count("POST /tasks/.*/batch") - 6 - 9
    assert halved in (3, 4)
    assert [found[name(n)] for n in (0, 8, 9)] == [NoSpaceError, ReceivedFile, ReceivedFile]


def test_some_files_find_no_room_and_another_is_damaged_on_the_way(receiver, batch):
    files = [Bytes(bytes([n]) * 30_000, name(n)) for n in range(10)]
    problems = {3: NoSpaceError.slug, 5: DigestError.slug}

    def change(reply: Reply) -> Reply:
        found = {n: wire.Problem(type=f"urn:tsferry:{slug}") for n, slug in problems.items()}
        results = [wire.BatchResult(path=name(n), problem=found.get(n)) for n in range(10)]
        reply.body = wire.encode(wire.BatchAnswer(results=results))
        return reply

    receiver.fault("POST /tasks/.*/batch", Alter(change))
    assert set(fates(batch().run(files)).values()) == {ReceivedFile}
    assert receiver.count("POST /tasks/.*/batch") == 2


def test_a_revoked_token_ends_it_at_once(receiver, batch, files):
    receiver.fault("POST /tasks/.*/batch", Answer(problem(UnauthorizedError)))
    with pytest.raises(UnauthorizedError):
        list(batch().run(files))
    assert receiver.count("POST /tasks/.*/batch") == 1


def test_answers_about_other_files_are_not_believed(receiver, batch, files):
    def change(reply: Reply) -> Reply:
        reply.body = reply.body.replace(b"/0-1-0-0", b"/7-1-0-0")
        return reply

    receiver.fault("POST /tasks/.*/batch", *(Alter(change) for _ in range(99)))
    found = fates(batch().run(files))
    assert found[name(0)] is ProtocolError


def test_a_stop_ends_between_two_requests(batch, files):
    with pytest.raises(StoppedError):
        list(batch(10_000, Countdown(2)).run(files))


def test_a_stop_during_a_pause_sends_nothing_more(receiver, client, files):
    client.start_task(TASK, wire.StartRequest(engine="e" * 32))
    receiver.fault("POST /tasks/.*/batch", Drop(), Drop())
    tries = Tries(5, Backoff(chance=lambda: 0.0), lambda _: True)
    with pytest.raises(StoppedError):
        list(BatchSender(TaskCalls(client, TASK, "1.x", tries), 1 << 20).run(files))
    assert receiver.received == {}
