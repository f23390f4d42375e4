"""What a forwarding centre hands up of what lies below it: looks, origins, ends."""

from __future__ import annotations

from enum import StrEnum

from common.wire.base import Count, Struct


class LooksBelow(Struct, frozen=True, kw_only=True):
    """Where a file stands at a centre below: what that one's readers rank it by."""

    engine: str
    """uuid of that centre's metadata engine, by whose commits looks are numbered there."""
    first: Count
    closed: Count
    """The first look there that had it closed."""
    last: Count = 0
    """The last look that had it; 0 while its sender has it."""
    loaded: Count
    """The commit that loaded it."""
    physical: str
    """Its name there."""


class OriginEntry(Struct, frozen=True, kw_only=True):
    """Where a file that a forwarding centre hands up comes from."""

    sender: str
    """uuid of the edge."""
    path: str
    """At the edge."""
    below: list[LooksBelow]
    """At each centre on the way, from the edge on."""


class EndMeaning(StrEnum):
    """What it means at the centre above that a forwarding centre has a file no more."""

    RETIRED = "retired"
    """Nobody deleted it: it stays there, whatever became of the copy."""
    DELETED = "deleted"
    """Its edge is a mirror, and has it no more; it is deleted if the forwarder is one too."""
    EVERYWHERE = "everywhere"
    """An operator below deleted it everywhere."""


class EndBelow(Struct, frozen=True, kw_only=True):
    """The end of a forwarded file, as it was told to the centre below."""

    path: str
    last: Count = 0
    """The last look that had it there, where `origin` is not known any more."""
    origin: OriginEntry | None = None
    """With the last looks that had it."""
    meaning: EndMeaning = EndMeaning.RETIRED
    """What it means there: still visible, deleted, or deleted by an operator at all places."""
