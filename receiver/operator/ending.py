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
_CRL_SOON: Final = 86400.0
"""The same of a list of what is revoked, which is made anew in days."""


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
    if (own := view.certificate_until) is not None and own - now < SOON:
        found.append(f"the certificate {_ends(own, now)} on {_day(own)}")
    if (ca := view.client_ca_until) is not None and ca - now < SOON:
        found.append(f"the certificate of listen.client_ca {_ends(ca, now)} on {_day(ca)}")
    if (crl := view.client_crl_until) is not None and crl - now < _CRL_SOON:
        found.append(f"the list of listen.client_crl {_ends(crl, now)} on {_day(crl)}")
    ending = [each for each in view.tokens_ending if each.expires > now]
    if ending:
        first = ending[0]
        what = f"{len(ending)} tokens end" if len(ending) > 1 else "a token ends"
        note = f" ({first.note})" if first.note else ""
        found.append(f"{what} within 30 days: {first.id}{note} on {_day(first.expires)}")
    return found


def _ends(until: float, now: float) -> str:
    return "has ended" if until <= now else "ends"


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
