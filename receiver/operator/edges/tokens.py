"""Tokens: made once, shown once, kept as a hash; and certificates that are bound like tokens."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from common.errors import ConflictError, NotFoundError, UsageError
from common.names import is_sender_uuid
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.model.certificate_names import name_to_bind
from receiver.operator.centre.load_owners import uuid_of
from receiver.operator.views.token_views import TokenMade, TokenView
from receiver.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.metadata.engine import Engine

__all__ = ["hash_token", "list_tokens", "make_token", "require_tokens", "revoke_token"]


_WRITING = (records.SENDER, records.WRITER)


def hash_token(token: str) -> str:
    """What is stored of a token; it is random enough that no salt is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def make_token(
    engine: Engine,
    role: str,
    *,
    sender: str | None = None,
    scope: Iterable[str] = (),
    note: str = "",
    expires: float | None = None,
    lasts: float | None = None,
    allow_deletes: bool = True,
    owners: Iterable[str] = (),
    certificate: str | None = None,
) -> TokenMade:
    """Commit a new token; it expires at a time, or so many seconds from now.

    The name of a certificate is bound in the same way to what whoever shows such a one may do. It
    has the hash of something that nobody was told, so that as a token it opens nothing.

    Args:
        engine: that knows it.
        role: what it is for.
        sender: uuid that a sender's token is for.
        scope: patterns of devices that a sender or a writer may write; none: all.
        note: for people.
        expires: seconds since the epoch.
        lasts: seconds from now; goes before `expires`.
        allow_deletes: see `records.TokenPut`.
        owners: of a writer, those whose devices it may load: uuids or labels, `centre`, or `*` for
            all; none: the centre.
        certificate: name of a client certificate, in the place of a token.

    Raises:
        UsageError: role, sender and scope do not fit together, or that is no name.
        NotFoundError: there is no such sender.
        ConflictError: a certificate of that name is bound already.
    """
    patterns = list(scope)
    known = next((each for each in records.TOKEN_ROLES if each == role), None)
    if known is None:
        raise UsageError(f"role {role[:40]!a}: expected one of {', '.join(records.TOKEN_ROLES)}")
    if (role == records.SENDER) is not (sender is not None):
        raise UsageError("a sender token, and no other, is bound to a sender's uuid")
    if sender is not None and not is_sender_uuid(sender):
        raise UsageError(f"{sender[:60]!a} is no sender uuid (32 lower-case hex digits)")
    if patterns and role not in _WRITING:
        raise UsageError("only the token of a sender or a writer has a scope")
    if not allow_deletes and role not in _WRITING:
        raise UsageError("only a sender token can forbid deletes, and a writer's to overwrite")
    Scope.asked(patterns)
    name = None if certificate is None else _unbound(engine, name_to_bind(certificate))
    loads_for = _loads_for(engine, role, list(owners))
    if lasts is not None:
        expires = engine.clock() + lasts
    token_id = secrets.token_hex(4)
    token = f"tsf_{token_id}_{secrets.token_urlsafe(32)}"
    made = records.TokenPut(
        id=token_id,
        role=known,
        hash=hash_token(token),
        sender=sender,
        scope=patterns,
        note=note,
        expires=expires,
        allow_deletes=allow_deletes,
        owners=loads_for,
        certificate=name,
    )
    engine.commit([made])
    return TokenMade(
        id=token_id,
        token=token if name is None else "",
        role=role,
        sender=sender,
        scope=patterns,
        note=note,
        expires=expires,
        allow_deletes=allow_deletes,
        owners=loads_for,
        certificate=name,
    )


def _unbound(engine: Engine, name: str) -> str:
    with engine.reading() as state:
        row = state.token_table.by_certificate(name)
    if row is not None:
        raise ConflictError(
            f"the certificate {name} is bound already, to a {row.role}: tsferry-receiver token "
            f"revoke {row.id}, then bind it anew"
        )
    return name


def _loads_for(engine: Engine, role: str, names: list[str]) -> list[str]:
    """The uuids of those whose devices a writer may load; a label that changes later is no key."""
    if role != records.WRITER:
        if names:
            raise UsageError("only a writer's token says whose devices it may load")
        return []
    centre = centre_uuid(engine.uuid)
    with engine.reading() as state:
        found = [
            each if each == records.ANYONE else uuid_of(state, centre, each)
            for each in names or [centre]
        ]
    return list(dict.fromkeys(found))


def require_tokens(engine: Engine) -> None:
    """Have every role need a token from now on, as if there had been one and it was revoked.

    In one commit: cut off, none of them is open and another closed.
    """
    ops: list[records.Op] = []
    for role in records.TOKEN_ROLES:
        lost = secrets.token_hex(4)
        made = records.TokenPut(
            id=lost,
            role=role,
            hash=hash_token(secrets.token_urlsafe(32)),
            sender="0" * 32 if role == records.SENDER else None,
            scope=[],
            note="never handed out",
            expires=None,
            owners=[records.ANYONE] if role == records.WRITER else [],
        )
        ops += [made, records.TokenRevoke(lost)]
    engine.commit(ops)


def list_tokens(engine: Engine) -> list[TokenView]:
    """All tokens that are not revoked, the oldest first."""
    with engine.reading() as state:
        rows = sorted(state.tokens.values(), key=lambda row: row.created)
        seconds = state.clock.times.seconds
    return [
        TokenView(
            id=row.id,
            role=row.role,
            sender=row.sender,
            scope=list(row.scope),
            note=row.note,
            expires=row.expires,
            allow_deletes=row.allow_deletes,
            owners=list(row.owners),
            certificate=row.certificate,
            created=row.created,
            created_at=seconds(row.created),
        )
        for row in rows
    ]


def revoke_token(engine: Engine, token_id: str) -> None:
    """The token is worth nothing from now on.

    Raises:
        NotFoundError: there is no such token.
    """
    with engine.reading() as state:
        known = token_id in state.tokens
    if not known:
        raise NotFoundError(f"there is no token {token_id[:40]!a}")
    engine.commit([records.TokenRevoke(token_id)])
