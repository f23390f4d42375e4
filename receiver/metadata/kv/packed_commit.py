"""A commit that is too large for one transaction of etcd, packed into a few keys.

Packed it is one msgpack text, [removals, saves], cut into parts. A marker makes all of it true at
once; until it is unpacked into the keys themselves, whoever reads lays it over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Self

import msgspec

from common.errors import DamagedError
from receiver.metadata.etcd.messages import PART_SIZE

__all__ = ["Batch", "digest_of", "outermost"]

_decoder = msgspec.msgpack.Decoder(tuple[list[str], dict[str, str]])


class Batch:
    """Prefixes whose keys go, then keys with their values."""

    def __init__(self, removals: Sequence[str], saves: Mapping[str, str]) -> None:
        self.removals = outermost(removals)
        self.saves = saves

    def lay_over(self, key: str, value: str | None) -> str | None:
        """The value of a key after the batch, given the one before."""
        if key in self.saves:
            return self.saves[key]
        return None if any(map(key.startswith, self.removals)) else value

    def lay_over_all(self, prefix: str, found: Mapping[str, str]) -> dict[str, str]:
        """The keys that begin with a prefix after the batch, given those before; not in order."""
        kept = {
            key: value
            for key, value in found.items()
            if not any(map(key.startswith, self.removals))
        }
        saved = {key: value for key, value in self.saves.items() if key.startswith(prefix)}
        return kept | saved

    def pack(self) -> list[bytes]:
        """The parts."""
        packed = msgspec.msgpack.encode((self.removals, self.saves))
        return [packed[at : at + PART_SIZE] for at in range(0, len(packed), PART_SIZE)]

    @classmethod
    def unpack(cls, parts: Iterable[bytes], digest: str, what: str) -> Self:
        """The batch of these parts.

        Raises:
            DamagedError: they are not those that gave the digest.
        """
        packed = b"".join(parts)
        if digest_of([packed]) != digest:
            raise DamagedError(f"{what} does not match its digest", extra={"key": what})
        return cls(*_decoder.decode(packed))

    def pieces(self, size: int) -> Iterator[dict[str, str]]:
        """The saves, in pieces of at most `size` keys and about `PART_SIZE` bytes."""
        piece: dict[str, str] = {}
        held = 0
        for key, value in self.saves.items():
            weight = len(key.encode()) + len(value.encode())
            if piece and (len(piece) == size or held + weight > PART_SIZE):
                yield piece
                piece, held = {}, 0
            piece[key] = value
            held += weight
        if piece:
            yield piece


def digest_of(parts: Iterable[bytes]) -> str:
    """The digest that a marker has of its parts, in hex."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def outermost(prefixes: Iterable[str]) -> list[str]:
    """The prefixes that no other one covers, in order."""
    kept: list[str] = []
    for prefix in sorted(set(prefixes)):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return kept
