"""Who may come in, and as whom.

In this order: the address of the connection (never a header), the `Host` and `Origin` headers that
a browser sends, the certificate and the token. Tokens are kept as SHA-256; what is sent is hashed
and compared in constant time. A token that is revoked or expired stops working with the next
request, also on a connection that is open.

A client certificate is known by a name of its `subjectAltName` that is bound like a token, by one
name alone: with two nobody could say what it may do. It stands for itself; where a token comes with
it, both have to open the same. Otherwise a token that was stolen would do on any machine that has
some certificate, or a certificate would do more with the token of somebody else. A certificate that
is bound to nothing lets nobody in, also with a token. The token of the day of the commands on this
machine needs none: whoever can read it is whoever runs the server.

Without tokens: with `auth.require = "auto"`, and as long as no token of the role was ever made,
whoever comes from this machine may send and read (with `listen.insecure` from elsewhere too). The
first token closes that door for good, whatever becomes of it. While the door is open a page
in a browser on this machine is the danger: one that has its own name resolve to 127.0.0.1 would
pass for the same origin. So without a token the `Host` must be an address or `localhost`.
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from common import wire
from common.config import is_loopback
from common.errors import ForbiddenError, UnauthorizedError
from receiver.metadata.model.records import OPERATOR, READER, SENDER, STORAGE_NODE, WORKER, WRITER
from receiver.operator.edges.tokens import hash_token
from receiver.principal import Principal
from receiver.web.routes import Role

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import TokenRow
    from receiver.web.routes import Route
    from receiver.web.server import PeerCertificate, RequestHead

__all__ = ["Access", "is_of_host"]

_ROLES = {
    Role.SENDER: (SENDER,),
    Role.READER: (READER, OPERATOR, WORKER),
    Role.WORKER: (WORKER, OPERATOR),
    Role.WRITER: (WRITER, OPERATOR),
    Role.NODE: (STORAGE_NODE,),
    Role.SQL: (READER, OPERATOR),
    Role.OPERATOR: (OPERATOR,),
}
_OPERATING = frozenset({Role.OPERATOR, Role.SQL, Role.WRITER, Role.PAGE})
_TOKENLESS = {Role.SENDER: SENDER, Role.READER: READER}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_NAMED = 5
_WANTED = (
    'without a client certificate nobody is let in (listen.client_auth = "required"): client_cert '
    "and client_key at the sender"
)
NOBODY = "nobody"
"""Role of whoever makes a call that needs no name."""
LOCAL_OPERATOR = "local-operator"
"""Id of the token that `serve` writes for the commands on this machine."""


class Access:
    """Judges requests by their heads."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._engine = engine
        self._clock = clock
        self._hosts = frozenset(host.lower() for host in config.listen.hosts)
        self._local_operator: str | None = None

    def accept_operator(self, token: str) -> None:
        """Take this token as an operator's, as long as this process lives."""
        self._local_operator = hash_token(token)

    def admit(self, head: RequestHead, route: Route | None) -> Principal:
        """Who asks.

        Args:
            head: the request.
            route: the call that it is for; None if there is no such call.

        Raises:
            ForbiddenError: the address, the host, the origin or the role is not allowed.
            UnauthorizedError: a token is missing, unknown or expired.
        """
        operating = route is not None and route.role in _OPERATING
        if head.peer not in self._config.listen.allow and not (
            operating and head.from_this_machine
        ):
            raise ForbiddenError(f"the address {head.peer} is not on the list of this receiver")
        self._check_host(head)
        self._check_origin(head)
        if route is None or route.role in (Role.PUBLIC, Role.PAGE):
            wanted = self._config.listen.wants_certificates and head.certificate is None
            if wanted and route is not None and route.role is Role.PAGE:
                raise UnauthorizedError(_WANTED)
            return Principal(NOBODY, None, (), None, head.peer)
        who = self._who(head, route.role)
        if who.role not in _ROLES[route.role]:
            raise ForbiddenError(f"a {who.role} token may not do this; it takes {route.role.value}")
        named = head.header(wire.SENDER_HEADER)
        if route.role is Role.SENDER and named is not None:
            who.must_send_for(named)
        return who

    # -- what a browser sends ------------------------------------------------------------------

    def _check_host(self, head: RequestHead) -> None:
        if not self._hosts:
            return
        host = (head.header("Host") or "").lower()
        if host not in self._hosts and _name(host) not in self._hosts:
            raise ForbiddenError("this receiver does not answer to that Host (listen.hosts)")

    def _check_origin(self, head: RequestHead) -> None:
        if head.method in _SAFE:
            return
        origin = head.header("Origin")
        foreign = origin is not None and not is_of_host(origin, head.header("Host") or "")
        if foreign or head.header("Sec-Fetch-Site") in ("cross-site", "same-site"):
            raise ForbiddenError("a page of another origin may not call this receiver")

    # -- tokens ----------------------------------------------------------------------------------

    def _who(self, head: RequestHead, role: Role) -> Principal:
        by_token = self._by_token(head)
        if by_token is not None and by_token.is_local:
            return by_token
        if head.certificate is None:
            if self._config.listen.wants_certificates:
                raise UnauthorizedError(_WANTED)
            return by_token or self._without_token(head, role)
        bound = self._by_certificate(head.certificate, head.peer)
        if by_token is not None and not by_token.may_what(bound):
            raise ForbiddenError(
                f"the token {by_token.token_id} and the certificate (bound as {bound.token_id}) "
                "are not for the same: send one of them, or have both bound to the same role, "
                "sender, scope and limits"
            )
        return by_token or bound

    def _by_token(self, head: RequestHead) -> Principal | None:
        given = head.header("Authorization")
        if given is None:
            return None
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise UnauthorizedError("expected the header Authorization: Bearer <token>")
        return self.of_digest(hash_token(token.strip()), head.peer)

    def _by_certificate(self, shown: PeerCertificate, peer: str) -> Principal:
        if shown.until <= self._clock():  # since its connection was made
            raise UnauthorizedError("the certificate has ended: connect with a new one")
        with self._engine.reading() as state:
            rows = [state.token_table.by_certificate(name) for name in shown.names]
        bound = [row for row in rows if row is not None]
        if not bound:
            names = ", ".join(shown.names[:_NAMED])
            raise UnauthorizedError(
                f"no name of the certificate is bound here ({names}): on the receiver, "
                f"tsferry-receiver token create --certificate {shown.names[0]}"
                if names
                else "the certificate has no DNS name and no URI (subjectAltName) that counts; its "
                "common name is not looked at"
            )
        if len(bound) > 1:
            raise ForbiddenError(
                "several names of the certificate are bound, one may be: "
                + ", ".join(f"{row.certificate} ({row.id})" for row in bound[:_NAMED])
            )
        return self._of_row(bound[0], bound[0].hash, peer)

    def of_digest(self, digest: str, peer: str) -> Principal:
        """Whose token it is that has this digest.

        Args:
            digest: see `hash_token`.
            peer: address of whoever came with it, now or when a session began.

        Raises:
            UnauthorizedError: it is unknown, was revoked or has expired.
        """
        if self._local_operator and hmac.compare_digest(digest, self._local_operator):
            return Principal(OPERATOR, None, (), LOCAL_OPERATOR, peer, is_local=True)
        with self._engine.reading() as state:
            row = state.token_table.by_hash(digest)
        return self._of_row(row, digest, peer)

    def _of_row(self, row: TokenRow | None, digest: str, peer: str) -> Principal:
        if row is None or not hmac.compare_digest(row.hash, digest):
            raise UnauthorizedError("the token is not known here, or was revoked")
        if row.expires is not None and row.expires <= self._clock():
            raise UnauthorizedError(f"the token {row.id} has expired")
        return Principal(
            row.role,
            row.sender,
            tuple(row.scope),
            row.id,
            peer,
            owners=row.owners,
            may_overwrite=row.allow_deletes,
        )

    def _without_token(self, head: RequestHead, role: Role) -> Principal:
        name = _TOKENLESS.get(role)
        if name is None or not self._open_to(head, name):
            raise UnauthorizedError(
                f"this needs {role.value}: Authorization: Bearer <token> (on the receiver: "
                "tsferry-receiver token create)"
            )
        # An upload made without a token belongs to the sender that the request names.
        return Principal(name, head.header(wire.SENDER_HEADER), (), None, head.peer)

    def _open_to(self, head: RequestHead, role: str) -> bool:
        if self._config.auth.require != "auto":
            return False
        with self._engine.reading() as state:
            if role in state.token_table.roles:
                return False
        if not is_loopback(head.peer):
            return self._config.listen.insecure
        return _is_own_name(_name(head.header("Host") or "localhost"))


def is_of_host(origin: str, host: str) -> bool:
    """Whether an `Origin` header names this `Host`; one that is no address names none."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _name(host: str) -> str:
    """A `Host` header without its port."""
    if host.startswith("["):
        return host.partition("]")[0][1:]
    return host.partition(":")[0]


def _is_own_name(name: str) -> bool:
    """Whether no resolver can make this name ours: an address, or `localhost`."""
    if is_loopback(name):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
