"""What ends soon: tokens, and the certificate that this receiver shows."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

from receiver.operator.views import TokenEnding

if TYPE_CHECKING:
    from receiver.metadata.state.state import State
    from receiver.operator.views import StatusView

__all__ = ["SOON", "ending_concerns", "tokens_ending"]

SOON: Final = 30 * 86400.0
"""Seconds before its end from which on something is named."""


def tokens_ending(state: State, now: float) -> list[TokenEnding]:
    """Tokens that end within 30 days, in that order; those that have ended stand last."""
    found = [
        TokenEnding(id=row.id, role=row.role, note=row.note, sender=row.sender, expires=row.expires)
        for row in state.tokens.values()
        if row.expires is not None and row.expires - now < SOON
    ]
    return sorted(found, key=lambda each: (each.expires <= now, each.expires))


def ending_concerns(view: StatusView, now: float) -> list[str]:
    """What is to be said of them; a token that has ended opens nothing, and is no concern."""
    found = []
    if view.certificate_until is not None and view.certificate_until - now < SOON:
        ended = "has ended" if view.certificate_until <= now else "ends"
        found.append(f"the certificate {ended} on {_day(view.certificate_until)}")
    ending = [each for each in view.tokens_ending if each.expires > now]
    if ending:
        first = ending[0]
        what = f"{len(ending)} tokens end" if len(ending) > 1 else "a token ends"
        note = f" ({first.note})" if first.note else ""
        found.append(f"{what} within 30 days: {first.id}{note} on {_day(first.expires)}")
    return found


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
