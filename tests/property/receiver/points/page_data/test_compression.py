from __future__ import annotations

import lzma
import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.tsfile import Compression
from receiver.points.page_data.compression import BadCompression, UnsupportedCompression, decompress
from tests.support import tiers
from tests.support.compressors import COMPRESSORS, lzo

QUICK = settings(max_examples=tiers.examples(25), database=None)
EVERY = pytest.mark.parametrize("code", COMPRESSORS, ids=lambda code: code.name)
PAGES = st.one_of(
    st.binary(max_size=200),
    st.tuples(st.binary(min_size=1, max_size=30), st.integers(1, 200)).map(
        lambda drawn: drawn[0] * drawn[1]
    ),
    st.lists(st.sampled_from([b"on", b"off", b"21.5", b"\0" * 9, b"~"]), max_size=300).map(
        b"".join
    ),
)


def run(code: int, packed: bytes, size: int) -> bytes:
    return decompress(code, np.frombuffer(packed, np.uint8), size).tobytes()


@EVERY
@QUICK
@given(raw=PAGES)
def test_what_was_compressed_comes_back(code: Compression, raw: bytes) -> None:
    assert run(code, COMPRESSORS[code](raw), len(raw)) == raw


@EVERY
@settings(QUICK, max_examples=tiers.examples(8))
@given(raw=PAGES.filter(len))
def test_another_size_than_the_header_says_is_an_error(code: Compression, raw: bytes) -> None:
    packed = COMPRESSORS[code](raw)
    for size in {0, len(raw) - 1, len(raw) + 1, len(raw) + 70000, 3 * len(raw) + 5}:
        with pytest.raises(BadCompression):
            run(code, packed, size)


@EVERY
@settings(QUICK, max_examples=tiers.examples(6))
@given(raw=PAGES.filter(len))
def test_a_stream_that_ends_early_is_an_error_at_every_byte(code: Compression, raw: bytes) -> None:
    packed = COMPRESSORS[code](raw)
    for length in range(min(len(packed), 300)):
        with pytest.raises(BadCompression):
            run(code, packed[:length], len(raw))


@EVERY
def test_bytes_behind_the_stream_are_an_error(code: Compression) -> None:
    raw = b"readings " * 40
    packed = COMPRESSORS[code](raw)
    for tail in (b"\0", b"\xff", b"\0\0\0\0", packed):
        with pytest.raises(BadCompression):
            run(code, packed + tail, len(raw))


@EVERY
def test_garbage_is_an_error_or_of_the_size_asked_for(code: Compression) -> None:
    chance = random.Random(code)
    packed = COMPRESSORS[code](b"a reading and another reading, 21.50 and 21.75 " * 30)
    for _ in range(600):
        broken = bytearray(packed)
        for _ in range(chance.choice((1, 1, 2, 9))):
            at = chance.randrange(len(broken))
            broken[at] = chance.choice((broken[at] ^ 1 << chance.randrange(8), 0, 255))
        if chance.random() < 0.2:
            broken = bytearray(chance.randbytes(chance.randrange(60)))
        size = chance.choice((47 * 30, 0, 17, 100_000))
        try:
            out = run(code, bytes(broken), size)
        except (BadCompression, UnsupportedCompression):
            continue
        assert len(out) == size


@EVERY
def test_a_bomb_takes_no_more_than_its_page_may(code: Compression) -> None:
    packed = COMPRESSORS[code](bytes(200_000 if code == Compression.LZO else 3_000_000))
    with pytest.raises(BadCompression):
        run(code, packed, 1000)


def test_an_uncompressed_page_is_not_copied() -> None:
    data = np.arange(100, dtype=np.uint8)
    out = decompress(Compression.UNCOMPRESSED, data[10:50], 40)
    assert np.shares_memory(out, data)
    assert not out.flags.writeable


def test_an_xz_header_that_wants_gigabytes_is_not_obeyed() -> None:
    small = lzma.compress(b"x" * 100, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 4096}])
    head = bytearray(small[12:24])  # block header: size, flags, LZMA2, one byte of properties
    assert head[2:4] == b"\x21\x01"
    head[4] = 36  # 2 << (36 // 2 + 11): 1 GiB
    head[8:12] = zlib.crc32(bytes(head[:8])).to_bytes(4, "little")
    with pytest.raises(UnsupportedCompression, match="memory"):
        run(Compression.LZMA2, small[:12] + bytes(head) + small[24:], 100)


@pytest.mark.parametrize("code", [4, 5, 6, 10, 255, -1])
def test_a_number_without_a_writer_is_not_read(code: int) -> None:
    with pytest.raises(UnsupportedCompression):
        run(code, b"", 0)


def lz4_sequence(literals: bytes, distance: int = 0, length: int = 0) -> bytes:
    """Literals, and a match of ``length`` bytes unless it is 0."""

    def rest(number: int) -> bytes:
        return (
            b"" if number < 15 else b"\xff" * ((number - 15) // 255) + bytes([(number - 15) % 255])
        )

    more = length - 4 if length else 0
    head = bytes([min(len(literals), 15) << 4 | min(more, 15)]) + rest(len(literals))
    tail = distance.to_bytes(2, "little") + rest(more) if length else b""
    return head + literals + tail


@pytest.mark.parametrize("distance", [*range(1, 34), 255, 65535])
def test_lz4_matches_at_every_distance_and_up_to_the_last_byte(distance: int) -> None:
    noise = random.Random(7).randbytes(distance)
    for length in (4, 5, 15, 16, 17, 18, 19, 31, 32, 33, 64, 300):
        for end in (b"twelve bytes", b"the end" * 5):
            packed = lz4_sequence(noise, distance, length) + lz4_sequence(end)
            raw = noise + (noise * (length // distance + 1))[:length] + end
            assert run(Compression.LZ4, packed, len(raw)) == raw
            for size in (len(raw) - 1, len(raw) + 1):
                with pytest.raises(BadCompression):
                    run(Compression.LZ4, packed, size)


@pytest.mark.parametrize("distance", [6, 7, 65535])
def test_an_lz4_match_before_the_first_byte_is_an_error(distance: int) -> None:
    packed = lz4_sequence(b"abcde", distance, 20) + lz4_sequence(b"twelve bytes")
    with pytest.raises(BadCompression, match="LZ4"):
        run(Compression.LZ4, packed, 37)


def test_an_lz4_block_that_ends_with_a_match_is_not_whole() -> None:
    with pytest.raises(BadCompression, match="LZ4"):
        run(Compression.LZ4, lz4_sequence(b"abcde", 2, 20), 25)


@pytest.mark.parametrize(
    "distance",
    [1, 2, 8, 1024, 1025, 2048, 2049, 3072, 3073, 16383, 16384, 16385, 32767, 32768, 47_000],
)
def test_lzo_matches_at_every_distance(distance: int) -> None:
    noise = random.Random(5).randbytes(48_000)
    for length in (3, 4, 8, 9, 33, 34, 300):
        head = noise[: max(distance, length)]
        raw = head + head[-distance:][:length] + b"end"
        packed = lzo(raw, skip=len(head))
        assert len(packed) < len(head) + 300 // 255 + len(head) // 255 + 20
        assert run(Compression.LZO, packed, len(raw)) == raw


def test_lzo_of_the_cpp_library_comes_back() -> None:
    # A page of it: 40 times (TS_2DIFF), then 40 INT64 (PLAIN) that grow by one every nine.
    packed = bytes.fromhex(
        "1618000000274c00e10001292c0061000720261d000820261d000920261d000a20261d000b361c00110000"
    )
    page = run(Compression.LZO, packed, 345)
    values = np.frombuffer(page[25:], ">i8").tolist()
    assert values == [7 + index // 9 for index in range(40)]
