"""What came of a try to deliver an event."""

from __future__ import annotations

import msgspec

__all__ = ["DeliveryOutcome"]


class DeliveryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a try.

    Attributes:
        ok: whether the event was taken.
        text: what came of it, for people: an exit code, an HTTP status, what is wrong.
        retry_after: seconds for which the other side wants to be left alone; None if it says none.
        gone: whether the other side wants no event any more.
    """

    ok: bool
    text: str
    retry_after: float | None = None
    gone: bool = False
