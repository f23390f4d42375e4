"""What ends soon: tokens, and the certificates that this receiver and its edges show."""

from __future__ import annotations

import datetime
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from common.network.certificates import is_exchanged
from receiver.metadata.model.records import ANYONE
from receiver.operator.edges.lateness import presences
from receiver.operator.views.token_views import EdgeCertificateEnding, TokenEnding
from receiver.transfer import epochs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.wire import Heartbeat
    from receiver.config import ListenConfig
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import TokenRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.operator.views.status_views import StatusView

__all__ = [
    "SOON",
    "certificate_trouble",
    "edge_certificates_ending",
    "ended_tokens",
    "ending_concerns",
    "exchanged_concerns",
    "tokens_ending",
]

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


def ended_tokens(tokens: Iterable[TokenRow], now: float) -> list[TokenRow]:
    """Those that have ended, and in whose place is no other.

    A sender's is replaced by one of the same sender; another one's, of which nothing says who has
    it, by one of the same role and the same note; and by such a one alone as may do all that the
    one could that has ended. One look at each, however many there are.
    """
    past: list[TokenRow] = []
    live: dict[tuple[str, str], set[_Rights]] = defaultdict(set)
    for row in tokens:
        if row.expires is not None and row.expires <= now:
            past.append(row)
        elif (name := row.sender or row.note) != "":
            live[row.role, name].add(_Rights.of(row))
    return [
        row
        for row in past
        if not any(
            each.has_all_of(_Rights.of(row))
            for each in live.get((row.role, row.sender or row.note), ())
        )
    ]


class _Rights(NamedTuple):
    """What a token may do, beside its role."""

    scope: frozenset[str]
    owners: frozenset[str]
    allow_deletes: bool

    @classmethod
    def of(cls, row: TokenRow) -> _Rights:
        return cls(frozenset(row.scope), frozenset(row.owners), row.allow_deletes)

    def has_all_of(self, other: _Rights) -> bool:
        covers = not self.scope or (bool(other.scope) and other.scope <= self.scope)
        loads = ANYONE in self.owners or other.owners <= self.owners
        return covers and loads and (self.allow_deletes or not other.allow_deletes)


def edge_certificates_ending(
    there: ReceiverDirectories, state: State, now: float
) -> list[EdgeCertificateEnding]:
    """Client certificates of edges that end within 30 days or have ended, the first one first.

    By the last heartbeat of each: an edge whose certificate has ended is heard no more.
    """
    found = []
    for row, known in presences(there, state.senders.values()):
        beat = None if known.last is None else known.last.beat
        until = None if beat is None else beat.client_certificate_until
        if until is not None and until - now < SOON and not epochs.is_removed(row):
            found.append(EdgeCertificateEnding(sender=row.uuid, label=row.label, expires=until))
    return sorted(found, key=lambda each: each.expires)


def certificate_trouble(beat: Heartbeat, now: float) -> str | None:
    """What is to be said of the client certificate of an edge, by its last heartbeat."""
    until = beat.client_certificate_until
    if until is None or until - now >= SOON:
        return None
    return f"its client certificate {_ends(until, now)} on {_day(until)}"


def ending_concerns(view: StatusView, now: float) -> list[str]:
    """What is to be said of them; a token that has ended opens nothing, and is no concern."""
    found = []
    if (own := view.certificate_until) is not None and own - now < SOON:
        found.append(f"the certificate {_ends(own, now)} on {_day(own)}")
    if (ca := view.client_ca_until) is not None and ca - now < SOON:
        found.append(f"the certificate of listen.client_ca {_ends(ca, now)} on {_day(ca)}")
    if (crl := view.client_crl_until) is not None and crl - now < _CRL_SOON:
        found.append(f"the list of listen.client_crl {_ends(crl, now)} on {_day(crl)}")
    if view.edge_certificates_ending:
        edge = view.edge_certificates_ending[0]
        which = (
            f"edge {edge.label or edge.sender} {_ends(edge.expires, now)} on {_day(edge.expires)}"
        )
        more = len(view.edge_certificates_ending) - 1
        others = f"; {more} more within 30 days" if more else ""
        found.append(f"the client certificate of {which}{others}")
    ending = [each for each in view.tokens_ending if each.expires > now]
    if ending:
        first = ending[0]
        what = f"{len(ending)} tokens end" if len(ending) > 1 else "a token ends"
        note = f" ({first.note})" if first.note else ""
        found.append(f"{what} within 30 days: {first.id}{note} on {_day(first.expires)}")
    return found


def exchanged_concerns(listen: ListenConfig) -> list[str]:
    """Files of TLS that are not those that clients are shown, or judged by."""
    files = {
        "tls_cert": listen.tls_cert,
        "client_ca": listen.client_ca,
        "client_crl": listen.client_crl,
    }
    return [
        f"listen.{key} = {path} is not what is in use of it: a reload takes it (systemctl reload "
        "tsferry-receiver), or the log says why it does not"
        for key, path in files.items()
        if is_exchanged(path)
    ]


def _ends(until: float, now: float) -> str:
    return "has ended" if until <= now else "ends"


def _day(seconds: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):  # an edge said so
        return f"{seconds:g}"
