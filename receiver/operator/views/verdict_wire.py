"""What verifications say of loaded files and of compactions, and what became of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from common.wire import Struct

__all__ = [
    "BadCompaction",
    "ComparedOutput",
    "ProvedCompaction",
    "VerdictEntry",
    "VerdictsAnswer",
    "VerdictsRequest",
]


class VerdictEntry(Struct, frozen=True, kw_only=True):
    """What a verification found of a loaded file.

    Attributes:
        physical: its name at the receiver.
        md5: of the content that was judged, 32 lower-case hex digits.
        bad: why it goes to quarantine; None if every point was proved.
        as_sent: of a bad file, whether its bytes are those that were loaded: then it is put on
            hold, else it is mended from who has it whole, or its sender is asked for it again.
    """

    physical: str
    md5: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    bad: str | None = None
    as_sent: bool = False


class BadCompaction(Struct, frozen=True, kw_only=True):
    """A compaction whose merged files are not what readers get of its inputs.

    Attributes:
        id: of it.
        reason: what was found.
    """

    id: int
    reason: str


class ComparedOutput(Struct, frozen=True, kw_only=True):
    """A merged file that was compared with what it stands for.

    Attributes:
        physical: its path beneath the data directory.
        size: bytes that were read.
        md5: of those, 32 hex digits.
    """

    physical: str
    size: int
    md5: str


class ProvedCompaction(Struct, frozen=True, kw_only=True):
    """A compaction whose merged files are what readers get of its inputs.

    Attributes:
        id: of it.
        outputs: all of its merged files; it counts for these bytes only.
    """

    id: int
    outputs: list[ComparedOutput]


class VerdictsRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/verdicts`: at most 10,000, recorded in one commit."""

    verdicts: list[VerdictEntry]
    """One for each file."""
    compactions: list[BadCompaction] = msgspec.field(default_factory=list)
    """That are dissolved: their inputs are read in their place."""
    proved_compactions: list[ProvedCompaction] = msgspec.field(default_factory=list)
    """That were compared with what they stand for, and are right."""


class VerdictsAnswer(Struct, frozen=True, kw_only=True):
    """What became of verdicts; asked again with the same ones, the answer is the same.

    Attributes:
        verified: files that are verified as of now.
        quarantined: files that are in quarantine, put there now or before.
        stale: verdicts about files that are gone, hidden or of other content by now.
        dissolved: compactions that are read no more, as of now or before.
        mended: bad files that are here as they were loaded, from a storage node or the object
            store. They are not verified by that.
        compactions_verified: of those that were proved, such as hold with these very files.
    """

    verified: int = 0
    quarantined: int = 0
    stale: int = 0
    dissolved: int = 0
    mended: int = 0
    compactions_verified: int = 0
