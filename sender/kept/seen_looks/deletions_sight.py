"""What was seen of a deletion file, and what of it the receiver has."""

from __future__ import annotations

from typing import Final

import msgspec

from common.listed import KnownRecords

__all__ = ["LONGEST_PART", "DeletionsSight", "SeenRecords"]

LONGEST_PART: Final = 256 << 10
"""Bytes of a part of a deletion file, but for a single record that is longer."""


class SeenRecords(msgspec.Struct, frozen=True, array_like=True):
    """What was seen of a deletion file before it was cut; see `DeletionsSight`."""

    size: int
    digest: str
    marks: tuple[tuple[int, int], ...]


class DeletionsSight(msgspec.Struct, frozen=True, array_like=True):
    """What was seen of a deletion file.

    Attributes:
        identity: (size, mtime_ns, inode) of it.
        size: bytes of its whole records.
        digest: xxh3-128 (hex) of these.
        marks: (bytes, look): up to there, that look is the last one that could have seen what it
            did not see; 0 for none.
        told: bytes that are committed at the receiver.
        known: xxh3-128 (hex) of what the receiver has; empty where an earlier version told it.
        there: bytes that the receiver has, where these are others than what was told of this file:
            it was written anew, or its content has another name with a deletion file of its own.
        most: bytes that it had when it was told before it was written anew, or cut.
        kept: of how many marks it was told that readers are not to apply them; -1 where that is not
            known, as of what an earlier version told.
        uncut: what was seen of it before it was cut, while it has less: it may be whole again.
    """

    identity: tuple[int, int, int]
    size: int
    digest: str
    marks: tuple[tuple[int, int], ...]
    told: int = 0
    known: str = ""
    there: int = 0
    most: int = 0
    kept: int = -1
    uncut: SeenRecords | None = None

    @property
    def at_receiver(self) -> KnownRecords | None:
        """What the receiver has of it, None for nothing."""
        if self.there:
            return KnownRecords(self.there, self.known)
        if not self.told:
            return None
        whole = self.digest if self.told == self.size else ""
        return KnownRecords(self.told, self.known or whole)
