"""The lines of `sync --jsonl`; `docs/json.md` is made of these types."""

from __future__ import annotations

from typing import Literal, TypedDict

from sender.round.round_words.shown_rounds import RoundShown

__all__ = ["EndedLine", "LoadedLine", "PlannedLine", "RefusedLine", "SentLine"]


class PlannedLine(TypedDict):
    """What the round is about to do.

    Attributes:
        event: what happened.
        at: when.
        receiver: its name.
        tasks: of the round.
        files: that are to be sent.
        bytes: of these.
        gone: files whose end is to be told.
    """

    event: Literal["planned"]
    at: float
    receiver: str
    tasks: int
    files: int
    bytes: int
    gone: int


class SentLine(TypedDict):
    """The receiver has a file whole, and checked; it is not loaded yet.

    Attributes:
        event: what happened.
        at: when.
        receiver: its name.
        file: its path below its data directory.
        bytes: of the file.
    """

    event: Literal["sent"]
    at: float
    receiver: str
    file: str
    bytes: int


class LoadedLine(TypedDict):
    """A file is committed at the receiver.

    Attributes:
        event: what happened.
        at: when.
        receiver: its name.
        file: its path below its data directory.
        already: whether it was there before, and did not travel.
    """

    event: Literal["loaded"]
    at: float
    receiver: str
    file: str
    already: bool


class RefusedLine(TypedDict):
    """A file was not loaded.

    Attributes:
        event: what happened.
        at: when.
        receiver: its name.
        file: its path below its data directory.
        kind: of the refusal.
        device: of a conflict; null for none.
    """

    event: Literal["refused"]
    at: float
    receiver: str
    file: str
    kind: Literal["conflict", "quarantined", "refused", "expired", "failed"]
    reason: str
    device: str | None


class EndedLine(RoundShown):
    """The round with this receiver is over; all that `sync --json` writes is here as well.

    Attributes:
        event: what happened.
        at: when.
    """

    event: Literal["ended"]
    at: float
