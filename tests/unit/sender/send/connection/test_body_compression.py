"""Whether bodies are compressed: by what a sample becomes, and by what the line takes."""

from __future__ import annotations

import random

import msgspec
import pytest

from common import wire, zstd
from common.config import Timetable
from common.errors import DigestError, ProtocolError
from common.network.bandwidth import Bandwidth
from sender.config import TransferConfig
from sender.send.connection.body_compression import BodyCompression
from tests.support.scripted_receiver import Answer, problem
from tests.unit.sender.conftest import make_client
from tests.unit.sender.send.test_calls import ask

TASK = "1" * 32
NOISE = random.Random(1).randbytes(1 << 20)
HALF = bytearray(1 << 20)
HALF[1::2] = NOISE[1::2]
HALF = bytes(HALF)
MIB = float(1 << 20)


def of(mode: str, *, rate: float | None = None, limit: object = None, speed: float = 200 * MIB):
    """One whose line takes `rate`, and whose processor compresses `speed` bytes a second."""
    timetable = Timetable() if limit is None else Timetable.parse(limit)
    bandwidth = Bandwidth(timetable, sleep=lambda _: False)
    if rate is not None:
        with bandwidth.travelling(1 << 20) as heard:
            heard(rate)
    clock = iter(range(1_000_000))
    made = BodyCompression(mode, bandwidth, lambda: next(clock) * (1 << 16) / speed)
    made.offered(["zstd"])
    return made


def test_a_slow_line_has_what_shrinks_compressed():
    small = of("auto", rate=10 * MIB).compressed(HALF)
    assert small is not None
    assert len(small) < 0.7 * len(HALF)
    assert zstd.codec().decompress(small) == HALF


@pytest.mark.parametrize(
    ("settings", "body"),
    [
        ({"rate": 1000 * MIB}, HALF),
        ({"rate": 80 * MIB}, HALF),
        ({"rate": 10 * MIB}, NOISE),
        ({"rate": None}, HALF),
        ({"rate": 10 * MIB, "speed": 5 * MIB}, HALF),
        ({"rate": 10 * MIB}, HALF[:1000]),
    ],
    ids=["loopback", "lan", "compressed inside", "line not known", "slow processor", "small"],
)
def test_what_does_not_pay_goes_as_it_is(settings, body):
    assert of("auto", **settings).compressed(body) is None


def test_a_line_that_is_kept_slow_is_a_slow_one():
    assert of("auto", rate=1000 * MIB, limit="1MiB/s").compressed(HALF) is not None


def test_it_is_judged_again_as_the_line_changes():
    made = of("auto", rate=1000 * MIB)
    assert made.compressed(HALF) is None
    for _ in range(12):
        with made._bandwidth.travelling(1 << 20) as heard:
            heard(10 * MIB)
    assert made.compressed(HALF) is not None
    assert made.compressed(NOISE) is None


def test_connections_that_share_a_line_are_one_line():
    bandwidth = Bandwidth(Timetable(), sleep=lambda _: False)
    with (
        bandwidth.travelling(1 << 20),
        bandwidth.travelling(1 << 20),
        bandwidth.travelling(100),
        bandwidth.travelling(1 << 20) as heard,
    ):
        heard(5.0)
    assert bandwidth.line_rate() == 15.0


@pytest.mark.parametrize("size", [0, 1000])
def test_small_bodies_say_nothing_of_the_line(size):
    bandwidth = Bandwidth(Timetable(), sleep=lambda _: False)
    with bandwidth.travelling(size) as heard:
        heard(5.0)
    assert bandwidth.line_rate() is None


def test_whoever_wants_it_has_it_on_any_line_and_nothing_grows():
    made = of("zstd")
    assert made.compressed(HALF) is not None
    assert made.compressed(NOISE) is None
    middle = len(NOISE) // 2
    shrinks_in_the_middle = NOISE[:middle] + bytes(1 << 15) + NOISE[middle:]
    assert made.compressed(shrinks_in_the_middle) is None


def test_off_and_not_offered_and_no_library_are_off(monkeypatch):
    assert of("off", rate=1.0).compressed(HALF) is None
    made = of("zstd")
    made.offered([])
    assert made.compressed(HALF) is None
    made.offered(["br", "zstd"])
    assert made.compressed(HALF) is not None
    monkeypatch.setattr(zstd, "codec", lambda: None)
    made.offered(["zstd"])
    assert made.compressed(HALF) is None


def test_a_line_of_this_machine_needs_no_library(monkeypatch):
    asked = []
    monkeypatch.setattr(zstd, "codec", lambda: asked.append(1))
    assert of("auto", rate=2000 * MIB).compressed(HALF) is None
    assert of("auto").compressed(HALF) is None
    assert asked == []
    assert of("auto", rate=1.0).compressed(HALF) is None
    assert asked == [1]


def test_what_is_wanted_and_not_installed_is_said_at_the_start(monkeypatch):
    config = TransferConfig(compression="zstd")
    assert list(config.check()) == []
    monkeypatch.setattr(zstd, "codec", lambda: None)
    assert [each.key for each in config.check()] == ["compression"]
    assert list(TransferConfig().check()) == [], "auto does without"


# -- at a receiver -------------------------------------------------------------------------------


@pytest.fixture
def client(receiver):
    made = make_client(receiver.url, compression="zstd")
    yield made
    made.close()


def takes_zstd(receiver):
    receiver.limits = msgspec.structs.replace(receiver.limits, encodings=["zstd"])


def begin(client):
    ask(client)
    client.start_task(TASK, wire.StartRequest(engine="e" * 32))
    return client.create_upload(TASK, "1.x", "sequence/root.a/0/0/1-1-0-0.tsfile", len(HALF) * 2)


def test_a_block_goes_compressed_to_who_takes_it_and_counts_as_it_was(receiver, client):
    takes_zstd(receiver)
    upload = begin(client)
    assert client.patch_upload(upload.id, "1.x", 0, HALF) == len(HALF)
    came = receiver.requests[-1]
    assert came.body == HALF
    assert 0 < came.compressed < 0.7 * len(HALF)


def test_an_older_receiver_gets_bytes_as_they_are(receiver, client):
    upload = begin(client)
    assert client.patch_upload(upload.id, "1.x", 0, HALF) == len(HALF)
    assert "content-encoding" not in receiver.requests[-1].headers


def test_a_block_that_is_not_understood_goes_again_as_it_is(receiver, client):
    takes_zstd(receiver)
    upload = begin(client)
    receiver.fault("PATCH", Answer(problem(ProtocolError, "what is that?", status=400)))
    assert client.patch_upload(upload.id, "1.x", 0, HALF) == len(HALF)
    assert "content-encoding" not in receiver.requests[-1].headers
    assert client.batch(TASK, "1.x", batch()).results[0].problem is None
    assert receiver.requests[-1].compressed, "the next is compressed again"


def test_a_receiver_that_lost_its_library_is_not_asked_again(receiver, client):
    takes_zstd(receiver)
    begin(client)
    receiver.fault("POST .*/batch", Answer(problem(ProtocolError, "no such coding", status=415)))
    for _ in range(2):
        assert client.batch(TASK, "1.x", batch()).results[0].problem is None
        assert "content-encoding" not in receiver.requests[-1].headers
    assert receiver.count("POST .*/batch") == 3
    ask(client)
    client.batch(TASK, "1.x", batch())
    assert "content-encoding" not in receiver.requests[-1].headers


def test_a_block_that_was_damaged_on_the_way_is_for_the_upload_to_judge(receiver, client):
    takes_zstd(receiver)
    upload = begin(client)
    damaged = problem(DigestError, "damaged", status=wire.CHECKSUM_MISMATCH)
    receiver.fault("PATCH", Answer(damaged))
    with pytest.raises(DigestError):
        client.patch_upload(upload.id, "1.x", 0, HALF)
    assert receiver.count("PATCH") == 1


def test_the_limit_of_the_line_counts_what_travels(receiver):
    takes_zstd(receiver)
    client = make_client(receiver.url, compression="zstd")
    taken: list[int] = []
    client.bandwidth.take = taken.append  # type: ignore[method-assign]
    upload = begin(client)
    taken.clear()
    client.patch_upload(upload.id, "1.x", 0, HALF)
    assert sum(taken) == receiver.requests[-1].compressed
    client.close()


def test_the_kernel_says_what_the_line_takes(receiver, client):
    upload = begin(client)
    client.patch_upload(upload.id, "1.x", 0, HALF)
    rate = client.bandwidth.line_rate()
    assert rate is not None
    assert rate > 1 * MIB


def batch() -> bytes:
    entry = wire.BatchEntry(
        path="sequence/root.a/0/0/2-2-0-0.tsfile", size=len(HALF), md5="", xxh3=""
    )
    return wire.encode_batch([(entry, HALF)])
