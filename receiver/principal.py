"""Who asks: what the access layer has found out about a request, and what that allows."""

from __future__ import annotations

from dataclasses import dataclass

from common.errors import ForbiddenError
from receiver.metadata.model.records import OPERATOR, READER, SENDER, STORAGE_NODE, WORKER, WRITER

__all__ = ["Principal"]


@dataclass(frozen=True)
class Principal:
    """Whoever is behind a request.

    Attributes:
        role: `sender`, `reader`, `operator`, `worker`, `writer` or `node`.
        sender: the one uuid that a sender token is bound to; None where the receiver wants no
            tokens (loopback) and any uuid may be spoken for.
        scope: device patterns that may be written (`root.siteA.**`); empty: all.
        token_id: id of the token, or of the certificate that is bound; None without either.
        peer: the real address of the other end, without its port.
        owners: of a writer, uuids of those whose devices it may load, or `*`.
        may_overwrite: of a writer, whether what it loads may stand above what is there.
        is_local: whether it has the rights of whoever the server runs as, on this machine.
    """

    role: str
    sender: str | None
    scope: tuple[str, ...]
    token_id: str | None
    peer: str
    owners: tuple[str, ...] = ()
    may_overwrite: bool = True
    is_local: bool = False

    def may_what(self, other: Principal) -> bool:
        """Whether this may do the same as another one, and no more and no less."""
        return _rights(self) == _rights(other)

    def must_send_for(self, sender: str) -> None:
        """Raise `ForbiddenError` unless this may speak for the sender `sender`."""
        if self.role != SENDER:
            raise ForbiddenError(f"a {self.role} token cannot send files; use a sender token")
        if self.sender is not None and self.sender != sender:
            raise ForbiddenError(f"this token is not for sender {sender}")

    def must_read(self) -> None:
        """Raise `ForbiddenError` unless this may read the catalogue."""
        if self.role not in (READER, OPERATOR, WORKER):
            raise ForbiddenError(f"a {self.role} token cannot read the catalogue")

    def must_operate(self) -> None:
        """Raise `ForbiddenError` unless this is an operator."""
        if self.role != OPERATOR:
            raise ForbiddenError("this needs an operator token")

    def must_work(self) -> None:
        """Raise `ForbiddenError` unless this may do background tasks."""
        if self.role not in (WORKER, OPERATOR):
            raise ForbiddenError(f"a {self.role} token cannot do background tasks")

    def must_keep(self) -> None:
        """Raise `ForbiddenError` unless this is a storage node."""
        if self.role != STORAGE_NODE:
            raise ForbiddenError(f"a {self.role} token is none of a storage node")

    def must_write(self) -> None:
        """Raise `ForbiddenError` unless this may load rows of jobs."""
        if self.role not in (WRITER, OPERATOR):
            raise ForbiddenError(f"a {self.role} token cannot load rows; use a writer's")

    def upload_owner(self, sender: str) -> str:
        """To whom an upload belongs: the token that made it; without tokens the sender."""
        return f"token:{self.token_id}" if self.token_id is not None else f"sender:{sender}"


def _rights(of: Principal) -> tuple[object, ...]:
    return of.role, of.sender, frozenset(of.scope), frozenset(of.owners), of.may_overwrite
