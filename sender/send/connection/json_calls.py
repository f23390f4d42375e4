"""Requests to one endpoint of a receiver, whose bodies and answers are JSON; lists in pages."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

from common import wire
from common.errors import ProtocolError
from common.network.bandwidth import Bandwidth
from sender.send.connection.transport import Endpoint, HttpReply, Transport, media_type, seen

__all__ = ["JsonCalls"]

T = TypeVar("T", bound=wire.Struct)


class JsonCalls:
    """What all calls to a receiver have in common; threads may share it.

    Each raises what the receiver's answer says (`Transport.send`), and `ProtocolError` for one that
    no receiver gives.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        bandwidth: Bandwidth,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self.bandwidth = bandwidth
        self._transport = Transport(endpoint, bandwidth, clock)
        self._ticket: dict[str, str] = {}

    def with_ticket(self, ticket: str) -> Self:
        """The same, with the same connections, for what a ticket is for."""
        other = copy.copy(self)
        other._ticket = {wire.TICKET_HEADER: ticket}
        return other

    def close(self) -> None:
        """Close the connections of all threads."""
        self._transport.close()

    def send(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> HttpReply:
        """See `Transport.send`."""
        return self._transport.send(
            method, path, headers={**self._ticket, **(headers or {})}, **more
        )

    def json(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: wire.Struct | None = None,
        *,
        epoch: str | None = None,
        longer: float = 0.0,
    ) -> T:
        """One request with an answer of a kind.

        Args:
            method: of HTTP.
            path: below `/sync/v1`, with the query.
            kind: of the answer.
            body: of the request.
            epoch: of the task it belongs to.
            longer: seconds that the answer may take beyond the usual.
        """
        content = None if body is None else wire.encode(body)
        outcomes = issubclass(kind, wire.TaskAnswer)
        return self.decoded(
            self.send(method, path, body=content, epoch=epoch, longer=longer, outcomes=outcomes),
            kind,
        )

    def decoded(self, reply: HttpReply, kind: type[T]) -> T:
        """An answer as what it is to be."""
        if not media_type(reply).endswith("json"):
            raise ProtocolError(f"{reply.where}: is no tsferry receiver: {seen(reply)}")
        return wire.decode(reply.body, kind, reply.where)

    def pages(
        self,
        path: str,
        kind: type[T],
        limit: int,
        more: Mapping[str, str] | None = None,
        *,
        after: str | None = None,
    ) -> Iterator[Any]:
        """All pages of a list, of `limit` entries each, behind `after` where that is given."""
        while True:
            query = {"limit": str(limit), **(more or {})}
            query |= {} if after is None else {"after": after}
            page: Any = self.json("GET", f"{path}?{urlencode(query)}", kind)
            yield page
            if page.next is None:
                return
            if page.next == after or not page.entries:
                raise ProtocolError(f"{self.endpoint.url}{path}: the pages do not end")
            after = page.next
