"""Digests: MD5 proves a whole file across systems, xxh3 guards blocks on the wire and on disk.

MD5 always travels as 32 lower-case hex digits (as a number it would lose its leading zeros).
xxh3 digests are in canonical, big-endian form.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed import ReadableBuffer

__all__ = [
    "is_md5",
    "md5",
    "md5_of_fd",
    "read_blocks",
    "xxh3_64",
    "xxh3_64_of_128",
    "xxh3_128",
    "xxh3_128_of",
]

_MD5 = re.compile(r"[0-9a-f]{32}\Z")
BLOCK = 1 << 20
_LARGE = 240
"""Bytes of which xxh3 is made in another way; xxHash's specification, "large inputs"."""


def is_md5(text: str) -> bool:
    """Whether `text` is an MD5 in full lower-case hex."""
    return _MD5.match(text) is not None


def md5(data: ReadableBuffer = b"") -> hashlib._Hash:
    """An MD5 object; the digest identifies content and guards against accidents, not attackers."""
    return hashlib.md5(data, usedforsecurity=False)


def read_blocks(fd: int, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The bytes `[start, end)` of `fd` (to its end by default) in blocks, by `pread`."""
    at = start
    while end is None or at < end:
        want = BLOCK if end is None else min(BLOCK, end - at)
        block = os.pread(fd, want, at)
        if not block:
            return
        yield block
        at += len(block)


def md5_of_fd(fd: int) -> str:
    """MD5 of a whole open file, in hex."""
    digest = md5()
    for block in read_blocks(fd):
        digest.update(block)
    return digest.hexdigest()


def xxh3_64(data: ReadableBuffer) -> str:
    """xxh3-64, 16 hex digits."""
    return xxhash.xxh3_64_hexdigest(data)


def xxh3_64_of_128(digest: bytes, size: int) -> str | None:
    """xxh3-64 of so many bytes whose xxh3-128 is known; None where it does not follow from that.

    Of large inputs it is the lower half, by xxHash's specification.
    """
    return digest[8:].hex() if size > _LARGE else None


def xxh3_128(data: ReadableBuffer) -> bytes:
    """xxh3-128, the 16 bytes of the canonical digest (what tus `Upload-Checksum` carries)."""
    return xxhash.xxh3_128_digest(data)


def xxh3_128_of(pieces: Iterable[ReadableBuffer]) -> bytes:
    """The same of bytes that come in pieces."""
    digest = xxhash.xxh3_128()
    for each in pieces:
        digest.update(each)
    return digest.digest()
