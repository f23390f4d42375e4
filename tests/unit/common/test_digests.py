"""Digests: in full, in canonical form, of exactly the bytes asked for."""

from __future__ import annotations

import hashlib
import os

import pytest

from common import digests


@pytest.fixture
def fd(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(os.urandom(2 * digests.BLOCK + 7))
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_an_md5_keeps_its_leading_zeros():
    assert digests.md5(b"363").hexdigest() == "00411460f7c92d2124a67ea0f4cb5f85"
    assert digests.is_md5("00411460f7c92d2124a67ea0f4cb5f85")


@pytest.mark.parametrize(
    "text", ["", "0" * 31, "0" * 33, "0" * 32 + "\n", "A" * 32, "g" * 32, "\u0661" * 32, "0x" * 16]
)
def test_what_is_no_md5_is_told(text):
    assert not digests.is_md5(text)


def test_xxh3_is_in_canonical_big_endian_form():
    """The values of the reference implementation's own command line tool for no input."""
    assert digests.xxh3_64(b"") == "2d06800538d394c2"
    assert digests.xxh3_128(b"").hex() == "99aa06d3014798d86001c324468d497f"


@pytest.mark.parametrize("size", [0, 1, 16, 17, 128, 240, 241, 1024, 1025, 100_000])
def test_xxh3_64_is_taken_from_the_128_bits_only_where_it_is_their_lower_half(size):
    data = os.urandom(size)
    found = digests.xxh3_64_of_128(digests.xxh3_128(data), size)
    assert found == (digests.xxh3_64(data) if size > 240 else None)


def test_the_digest_of_a_file_is_that_of_its_bytes(fd):
    content = os.pread(fd, 1 << 30, 0)
    assert digests.md5_of_fd(fd) == hashlib.md5(content).hexdigest()
    assert digests.md5_of_fd(fd) == digests.md5_of_fd(fd)  # whatever the position
    assert os.lseek(fd, 0, os.SEEK_CUR) == 0


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, None), (0, 0), (0, 1), (5, 5), (5, digests.BLOCK + 5), (digests.BLOCK, None),
     (1, 1 << 40), (1 << 40, None), (7, 3)],
)  # fmt: skip
def test_a_range_is_read_in_bounded_blocks(fd, start, end):
    content = os.pread(fd, 1 << 30, 0)
    blocks = list(digests.read_blocks(fd, start=start, end=end))
    assert b"".join(blocks) == content[start:end]
    assert all(0 < len(block) <= digests.BLOCK for block in blocks)
