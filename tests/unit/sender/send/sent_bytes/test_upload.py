from __future__ import annotations

import base64
import hashlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from common import wire
from common.errors import (
    BusyError,
    ConflictError,
    DigestError,
    ForbiddenError,
    NotATsFileError,
    NotFoundError,
    OffsetError,
    ProtocolError,
    StoppedError,
    TsferryError,
    UnreachableError,
)
from sender.send.calls import UploadState
from sender.send.connection.backoff import Backoff, Tries
from sender.send.sent_bytes.upload import ChangedWhileSentError, ReceivedFile, RunningMd5, TusUpload
from sender.send.task_calls import TaskCalls
from tests.support.scripted_receiver import (
    Alter,
    Answer,
    Drop,
    Reply,
    Stall,
    html,
    lie_about_offset,
    problem,
    redirect,
)
from tests.unit.sender.conftest import make_client

TASK = "1" * 32
PATH = "sequence/root.a/0/0/1-1-0-0.tsfile"
CONTENT = random.Random(4).randbytes(100_000)


class Bytes:
    """A file in memory."""

    def __init__(self, data: bytes = CONTENT, path: str = PATH) -> None:
        self.data, self.path, self.size = data, path, len(data)
        self.good = True
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.data[offset : offset + length]

    def unchanged(self) -> bool:
        return self.good


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def upload(receiver, client, pauses):
    client.start_task(TASK, wire.StartRequest(engine="e" * 32))

    def sleep(seconds: float) -> bool:
        pauses.append(seconds)
        return False

    def make(content: Bytes | None = None, **settings) -> TusUpload:
        tries = Tries(5, Backoff(first=1, chance=lambda: 0.0), sleep)
        ears = {key: settings.pop(key) for key in ("stop", "sent") if key in settings}
        calls = TaskCalls(client, TASK, "1.x", tries, **ears)
        return TusUpload(calls, content or Bytes(), **({"block_bytes": 30_000} | settings))

    return make


def test_a_file_travels_in_checked_blocks_and_arrives_whole(receiver, upload):
    result = upload().run()
    assert receiver.received[PATH] == CONTENT
    assert result == ReceivedFile(__import__("hashlib").md5(CONTENT).hexdigest(), 100_000, None)
    assert receiver.count("PATCH") == 4
    assert all(r.headers["tsferry-epoch"] == "1.x" for r in receiver.requests[1:])


def test_a_broken_transfer_goes_on_from_the_last_checked_block(receiver, upload):
    receiver.fault("PATCH", Drop(late=True), Drop())
    result = upload().run()
    assert receiver.received[PATH] == CONTENT
    # The first answer was lost, the block was not: HEAD says so and nothing is sent twice.
    offsets = [r.headers["upload-offset"] for r in receiver.requests if r.method == "PATCH"]
    assert offsets[:3] == ["0", "30000", "30000"]
    arrived = sum(len(r.body) for r in receiver.requests if r.method == "PATCH")
    assert result.sent == arrived + 30_000


def test_a_resumed_file_starts_at_the_receivers_offset(receiver, upload):
    receiver.fault("PATCH", *(Drop() for _ in range(0)))
    begun = upload(stop=Countdown(3))
    with pytest.raises(StoppedError):
        begun.run()
    record = receiver.uploads["1".zfill(32)]
    assert 0 < len(record.data) < len(CONTENT)
    at = len(record.data)
    result = upload(begin=UploadState("1".zfill(32), at)).run()
    assert result.resumed == at
    assert result.sent == len(CONTENT) - at
    assert receiver.received[PATH] == CONTENT


class Countdown:
    def __init__(self, passes: int) -> None:
        self.left = passes

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_read_timeout_in_the_middle_of_a_big_file_costs_one_block(receiver, upload, client):
    release = threading.Event()
    hasty = make_client(receiver.url, read_timeout=1.0)  # a busy machine takes its time
    receiver.fault("PATCH", Alter(lambda reply: reply), Stall(release))
    sending = upload()
    sending.client = hasty
    result = sending.run()
    release.set()
    assert receiver.received[PATH] == CONTENT
    assert result.sent == len(CONTENT) + 30_000


def test_a_file_is_left_after_max_retries_with_growing_pauses(receiver, upload, pauses):
    receiver.fault("PATCH", *(Drop() for _ in range(100)))
    with pytest.raises(UnreachableError):
        upload().run()
    assert pauses == [0.5, 1, 2, 4, 8]


def test_progress_gives_the_tries_back(receiver, upload, pauses):
    for _ in range(25):  # more breaks than tries, but each block gets through in the end
        receiver.fault("PATCH", Drop(late=True))
    assert upload(block_bytes=4_000).run()
    assert receiver.received[PATH] == CONTENT
    assert max(pauses) == 0.5


@pytest.mark.parametrize("fault", [Drop(), Answer(problem(BusyError))])
def test_where_every_block_breaks_or_finds_no_room_smaller_ones_go(receiver, upload, client, fault):
    content = Bytes(random.Random(1).randbytes(1_000_000))
    receiver.fault("PATCH", fault, fault, fault)
    upload(content, block_bytes=500_000).run()
    sizes = [len(r.body) for r in receiver.requests if r.method == "PATCH" and r.body]
    assert sizes[0] == 65_536
    assert sizes[1] == 131_072
    assert receiver.received[PATH] == content.data


def test_a_block_damaged_on_the_way_is_sent_again(receiver, upload):
    damaged = problem(DigestError, "block", status=wire.CHECKSUM_MISMATCH)
    receiver.fault("PATCH", Answer(damaged))
    upload().run()
    assert receiver.count("POST /files") == 1
    assert receiver.received[PATH] == CONTENT


def test_a_wrong_whole_digest_begins_afresh_with_no_stale_bytes(receiver, upload):
    receiver.fault("PATCH", *(Alter(lambda r: r) for _ in range(3)), Answer(problem(DigestError)))
    upload().run()
    assert receiver.count("POST /files") == 2
    assert receiver.count("DELETE /files") == 1
    assert receiver.received[PATH] == CONTENT


def test_a_whole_digest_that_never_agrees_ends(receiver, upload, pauses):
    receiver.fault("PATCH", *(Answer(problem(DigestError)) for _ in range(100)))
    with pytest.raises(DigestError):
        upload().run()
    assert len(pauses) == 5


def test_a_digest_that_is_known_is_told_and_not_computed(receiver, upload, monkeypatch):
    monkeypatch.setattr(RunningMd5, "take", lambda *_: pytest.fail("it is known"))
    known = hashlib.md5(CONTENT).hexdigest()
    assert upload(md5=known).run() == ReceivedFile(known, 100_000, None)
    assert receiver.received[PATH] == CONTENT
    told = base64.b64encode(bytes.fromhex(known)).decode()
    assert receiver.requests[-1].headers["repr-digest"] == f"md5=:{told}:"


def test_a_digest_that_is_known_and_wrong_ends_the_upload_at_once(receiver, upload, pauses):
    receiver.fault("PATCH", *(Answer(problem(DigestError)) for _ in range(100)))
    with pytest.raises(DigestError):
        upload(md5="0" * 32).run()
    assert pauses == []
    assert receiver.count("DELETE /files") == 1


@pytest.mark.parametrize("offset", [0, 1, 29_999, 99_999_999, -1, 2**63, "9" * 5000, "", "x"])
def test_a_receiver_that_lies_about_offsets_gets_a_fresh_start(receiver, upload, offset):
    receiver.fault("PATCH", Alter(lie_about_offset(offset)))
    upload().run()
    assert receiver.count("POST /files") == 2
    assert receiver.received[PATH] == CONTENT


@pytest.mark.parametrize("offset", [30_001, 99_999, 100_001])
def test_an_offset_beyond_what_was_sent_is_a_lie(receiver, upload, offset):
    receiver.fault("PATCH", Drop())
    receiver.fault("HEAD", Alter(lie_about_offset(offset)))
    upload().run()
    assert receiver.count("POST /files") == 2
    assert receiver.received[PATH] == CONTENT


def test_lies_without_end_get_to_an_end(receiver, upload, pauses):
    receiver.fault("PATCH", *(Alter(lie_about_offset(7)) for _ in range(1000)))
    with pytest.raises(ProtocolError):
        upload().run()
    assert len(pauses) == 5


def test_a_receiver_that_forgets_its_progress_over_and_over_gets_to_an_end(receiver, upload):
    def forget(reply: Reply) -> Reply:
        for record in receiver.uploads.values():
            record.data.clear()
        return reply

    for _ in range(1000):
        receiver.fault("PATCH", Alter(forget), Drop())
    with pytest.raises(TsferryError):
        upload(block_bytes=60_000).run()
    assert receiver.count("PATCH") < 50


@pytest.mark.parametrize("reply", [redirect("http://127.0.0.1:9/"), html(200), html(400)])
def test_foreign_answers_to_a_new_upload_end_at_once(receiver, upload, reply, pauses):
    receiver.fault("POST /files", *(Answer(reply) for _ in range(50)))
    with pytest.raises(ProtocolError):
        upload().run()
    assert pauses == []


def test_a_server_error_is_tried_again(receiver, upload):
    receiver.fault("POST /files", Answer(html(500)), Answer(problem(TsferryError, "oops")))
    receiver.fault("PATCH", Answer(html(502)), Answer(html(503)))
    upload().run()
    assert receiver.received[PATH] == CONTENT


@pytest.mark.parametrize("kind", [NotATsFileError, ConflictError, ForbiddenError])
def test_a_refused_file_is_not_sent_again(receiver, upload, kind, pauses):
    receiver.fault("PATCH", Answer(problem(kind, "because", device="root.a.d1")))
    with pytest.raises(kind) as caught:
        upload().run()
    assert pauses == []
    assert caught.value.extra["device"] == "root.a.d1"


def test_an_upload_that_expired_begins_afresh(receiver, upload):
    receiver.fault("PATCH", Alter(lambda r: r), Answer(problem(NotFoundError)))
    upload().run()
    assert receiver.count("POST /files") == 2
    assert receiver.received[PATH] == CONTENT


def test_a_task_that_is_gone_ends_the_upload(receiver, upload):
    receiver.fault("POST /files", Answer(problem(NotFoundError, "no such task")))
    with pytest.raises(NotFoundError):
        upload().run()


def test_the_lost_answer_to_the_last_block_sends_nothing_again(receiver, upload):
    receiver.fault("PATCH", *(Alter(lambda r: r) for _ in range(3)), Drop(late=True))
    upload().run()
    assert [r.headers["upload-offset"] for r in receiver.requests if r.method == "PATCH"] == [
        "0",
        "30000",
        "60000",
        "90000",
        "100000",
    ]
    assert receiver.received[PATH] == CONTENT


def test_an_upload_that_was_taken_in_meanwhile_is_asked_for_before_it_is_sent_again(
    receiver, upload
):
    def taken_in(reply: Reply) -> Reply:
        receiver.uploads.clear()
        return reply

    receiver.fault("PATCH", *(Alter(lambda r: r) for _ in range(3)), Alter(taken_in))
    receiver.faults[-1][1][-1].after = lambda *a: taken_in(a[2]) and True
    upload(ask=lambda: PATH in receiver.received).run()
    assert receiver.count("POST /files") == 1


def test_a_file_that_changes_while_it_is_sent_is_dropped(receiver, upload):
    content = Bytes()

    def change(size: int) -> None:
        content.good = False

    with pytest.raises(ChangedWhileSentError):
        upload(content, sent=change).run()
    assert PATH not in receiver.received


def test_a_file_that_got_shorter_is_dropped(receiver, upload):
    content = Bytes()
    content.data = content.data[:50_000]
    with pytest.raises(ChangedWhileSentError):
        upload(content).run()


def test_a_stop_ends_between_two_blocks(receiver, upload):
    with pytest.raises(StoppedError):
        upload(stop=Countdown(2)).run()
    assert receiver.count("PATCH") == 2


def test_the_bytes_of_a_file_are_read_once(upload):
    content = Bytes()
    upload(content).run()
    assert sum(length for _, length in content.reads) == content.size


# -- several blocks on their way ------------------------------------------------------------


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_blocks_go_ahead_of_answers_and_arrive_in_order(receiver, upload, pool):
    result = upload(pool=pool, block_bytes=7_000).run()
    assert receiver.received[PATH] == CONTENT
    assert result.md5 == hashlib.md5(CONTENT).hexdigest()
    offsets = [int(r.headers["upload-offset"]) for r in receiver.requests if r.method == "PATCH"]
    assert sorted(set(offsets)) == list(range(0, 100_000, 7_000))


def test_a_block_that_overtakes_the_one_before_it_costs_no_patience(receiver, upload, pool, pauses):
    early = Answer(problem(OffsetError, "early"))
    receiver.fault("PATCH", *[Alter(lambda reply: reply)] * 4, early)
    upload(pool=pool, block_bytes=7_000).run()
    assert receiver.received[PATH] == CONTENT
    assert pauses == []


@pytest.mark.parametrize("fault", [Drop(), Drop(late=True)])
def test_what_breaks_while_blocks_are_on_their_way_goes_on_from_what_is_there(
    receiver, upload, pool, fault
):
    whole = [Alter(lambda reply: reply)] * 3
    receiver.fault("PATCH", *whole, fault)
    upload(pool=pool, block_bytes=7_000).run()
    assert receiver.received[PATH] == CONTENT


def test_a_file_that_changes_while_blocks_are_on_their_way_is_given_up(receiver, upload, pool):
    content = Bytes()
    sending = upload(content, pool=pool, block_bytes=7_000)
    receiver.fault("PATCH", *[Alter(lambda reply: reply)] * 4, Alter(spoil(content)))
    with pytest.raises(ChangedWhileSentError):
        sending.run()
    assert PATH not in receiver.received


def spoil(content):
    def change(reply: Reply) -> Reply:
        content.good = False
        return reply

    return change
