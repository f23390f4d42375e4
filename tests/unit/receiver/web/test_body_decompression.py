"""Compressed bodies: one frame of the size that was said, or nothing."""

from __future__ import annotations

import random

import pytest

from common import zstd
from common.errors import ProtocolError
from receiver.web.server.body_decompression import EncodingError, decompress, decompressed_size
from receiver.web.server.whole_body import Spares, WholeBody

ZSTD = zstd.codec()
CONTENT = random.Random(1).randbytes(400_000) + bytes(400_000)
FRAME = ZSTD.compress(CONTENT, 1)
DICTIONARY = ZSTD.ZstdDict(b"tsferry" * 100, is_raw=True)
WIDE = {ZSTD.CompressionParameter.window_log: 27}


def wide_frame() -> bytes:
    made = ZSTD.ZstdCompressor(options=WIDE)
    return made.compress(CONTENT) + made.flush()


def unpack(frame: bytes, size: int = len(CONTENT)) -> bytes:
    into = bytearray(size)
    decompress(memoryview(frame), memoryview(into))
    return bytes(into)


def test_a_frame_becomes_what_it_was():
    assert unpack(FRAME) == CONTENT


BAD = {
    "nothing": (b"", "ends before"),
    "no frame": (b"hello, world", "no frame"),
    "cut": (FRAME[:-1], "ends before"),
    "cut in its head": (FRAME[:5], "ends before"),
    "a byte behind it": (FRAME + b"x", "behind the frame"),
    "much behind it": (FRAME + bytes(1 << 20), "behind the frame"),
    "a second frame": (FRAME + FRAME, "behind the frame"),
    "two that are as long together": (
        ZSTD.compress(CONTENT[:400_000]) + ZSTD.compress(CONTENT[400_000:]),
        "400000 bytes, 800000 were said",
    ),
    "longer than said": (ZSTD.compress(CONTENT + b"x"), "more than the 800000"),
    "a bomb": (ZSTD.compress(bytes(1 << 28), 1), "more than the 800000"),
    "shorter than said": (ZSTD.compress(CONTENT[1:]), "799999 bytes, 800000"),
    "a frame to be skipped": (b"\x50\x2a\x4d\x18\x03\0\0\0abc", "becomes 0 bytes"),
    "one of a dictionary": (ZSTD.compress(CONTENT, zstd_dict=ZSTD.finalize_dict(
        DICTIONARY, [b"tsferry" * 9] * 9, 1000, 1)), "no frame"),
    "one of a wide window": (wide_frame(), "no frame"),
    "a reserved bit": (FRAME[:4] + bytes([FRAME[4] | 8]) + FRAME[5:], "no frame"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_the_one_frame_of_its_size_is_refused(name):
    frame, said = BAD[name]
    with pytest.raises(ProtocolError, match=said):
        unpack(frame)


def test_no_damage_makes_more_than_was_said():
    chance = random.Random(2)
    for _ in range(300):
        frame = bytearray(FRAME[: chance.randrange(1, 2000)])
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
        with pytest.raises(ProtocolError):
            unpack(bytes(frame))


@pytest.mark.parametrize(
    ("coding", "size", "found"),
    [(None, None, None), ("identity", "x", None), ("zstd", "17", 17), (" ZSTD ", "1", 1)],
)
def test_the_head_says_the_size(coding, size, found):
    given = {"CONTENT_ENCODING": coding, "TSFERRY_DECOMPRESSED_SIZE": size}
    headers = {key: value for key, value in given.items() if value is not None}
    assert decompressed_size(headers) == found


@pytest.mark.parametrize("size", [None, "", "0", "-1", "1e3", "0x10", "1" * 19])
def test_a_size_that_is_none_is_refused(size):
    headers = {"CONTENT_ENCODING": "zstd"} | ({"TSFERRY_DECOMPRESSED_SIZE": size} if size else {})
    with pytest.raises(ProtocolError, match="Tsferry-Decompressed-Size"):
        decompressed_size(headers)


@pytest.mark.parametrize("coding", ["gzip", "zstd, zstd", "br", "\xff"])
def test_another_coding_is_refused(coding):
    with pytest.raises(EncodingError) as caught:
        decompressed_size({"CONTENT_ENCODING": coding, "TSFERRY_DECOMPRESSED_SIZE": "1"})
    assert caught.value.http_status == 415


def test_without_the_library_it_is_another_coding(monkeypatch):
    monkeypatch.setattr(zstd, "codec", lambda: None)
    with pytest.raises(EncodingError):
        decompressed_size({"CONTENT_ENCODING": "zstd", "TSFERRY_DECOMPRESSED_SIZE": "1"})


def test_a_body_is_decompressed_once_in_memory_that_serves_again():
    spares = Spares()
    body = WholeBody(len(FRAME), spares, len(CONTENT))
    body.append(FRAME)
    body.decompress()
    body.decompress()
    with body.whole() as whole:
        assert bytes(whole) == CONTENT
        memory = whole.obj
    body.close()
    assert WholeBody(len(CONTENT), spares).room().obj is memory


def test_a_body_that_is_refused_gives_its_memory_back():
    spares = Spares()
    body = WholeBody(12, spares, 1 << 20)
    body.append(b"hello, world")
    with pytest.raises(ProtocolError):
        body.decompress()
    body.close()
    assert (spares._lent, len(spares._free)) == (set(), 1)
