"""The body of a request as it comes: in pieces, bounded, with or without a checksum."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Protocol

import xxhash

from common.digests import md5
from common.errors import DigestError, ProtocolError

__all__ = ["Checksum", "Stream", "checker", "pieces"]

Checksum = tuple[str, bytes]
"""Name of the algorithm as tus has it, and the raw digest."""

PIECE = 1 << 20


class Stream(Protocol):
    """What a body is read from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; nothing at the end."""
        ...


def _sha1() -> Hash:
    import hashlib

    return hashlib.sha1(usedforsecurity=False)


class Hash(Protocol):
    """A digest that grows."""

    def update(self, data: bytes, /) -> None:
        """More bytes."""
        ...

    def digest(self) -> bytes:
        """The raw digest."""
        ...


_ALGORITHMS: dict[str, Callable[[], Hash]] = {
    "xxh3_128": xxhash.xxh3_128,
    "md5": md5,
    "sha1": _sha1,
}


def checker(checksum: Checksum) -> Hash:
    """A digest for a checksum's algorithm.

    Raises:
        ProtocolError: it is none of those that are known here.
    """
    make = _ALGORITHMS.get(checksum[0])
    if make is None:
        raise ProtocolError(
            f"checksum algorithm {checksum[0][:40]!a}; known are {', '.join(_ALGORITHMS)}"
        )
    return make()


def pieces(stream: Stream, length: int, checksum: Checksum | None = None) -> Iterator[bytes]:
    """Exactly `length` bytes in pieces; after the last one the checksum is compared.

    Raises:
        ProtocolError: the body ends early.
        DigestError: the bytes are not those of the checksum.
    """
    check = checker(checksum) if checksum is not None else None
    left = length
    while left:
        piece = stream.read(min(PIECE, left))
        if not piece:
            raise ProtocolError(f"the body ended {left} bytes before its length of {length}")
        left -= len(piece)
        if check is not None:
            check.update(piece)
        yield piece
    if check is not None and checksum is not None and check.digest() != checksum[1]:
        raise DigestError(
            f"the block's {checksum[0]} is {base64.b64encode(check.digest()).decode()}, "
            f"{base64.b64encode(checksum[1]).decode()} was said; nothing of it counts"
        )
