"""One call as its handler sees it: who asks, for which sender, with what."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from flask import Request, Response

from common import wire
from common.errors import ForbiddenError, ProtocolError, UsageError
from common.names import is_sender_uuid, is_task_id
from receiver.web.server.body_decompression import EncodingError
from receiver.web.server.whole_body import WholeBody

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.metadata.query.cursors import Cursors
    from receiver.node import Node
    from receiver.operator.directories import RunningReceiver
    from receiver.principal import Principal
    from receiver.web.longpoll import LongPolls

__all__ = ["Call", "CallSite", "MediaTypeError", "json_answer"]

T = TypeVar("T")

_NUMBER = re.compile(r"[0-9]{1,19}\Z")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?\Z")
_LARGEST = (1 << 63) - 1
_MOST = 10**9


class MediaTypeError(ProtocolError):
    """The body is of another type than the call takes."""

    http_status = 415


class CallSite(Protocol):
    """What a handler may use of the application; see `receiver.web.site`.

    Attributes:
        config: of the receiver.
        node: the receiver.
        openapi: gives the description of the calls, as JSON.
        polls: calls that wait for the end of a task.
        cursors: answers to SQL of which there is more.
    """

    config: ReceiverConfig
    node: Node
    openapi: Callable[[], bytes]
    polls: LongPolls
    cursors: Cursors


@dataclass(frozen=True)
class Call:
    """A request that was let in.

    Attributes:
        site: the application's own things.
        who: who asks.
        request: Flask's.
        arguments: the variable parts of the path.
    """

    site: CallSite
    who: Principal
    request: Request
    arguments: Mapping[str, str]

    @property
    def node(self) -> Node:
        """The receiver."""
        return self.site.node

    @property
    def operator(self) -> RunningReceiver:
        """The receiver as operators have it.

        Raises:
            ForbiddenError: whoever asks is none.
        """
        self.who.must_operate()
        return self.site.node.operator

    @property
    def sender(self) -> str:
        """The sender that this call is about: of the header, or the one that the token is for.

        Raises:
            ProtocolError: neither says.
            ForbiddenError: the token is another sender's.
        """
        named = self.request.headers.get(wire.SENDER_HEADER, self.who.sender)
        if named is None:
            raise ProtocolError(f"the header {wire.SENDER_HEADER} is missing")
        if not is_sender_uuid(named):
            raise ProtocolError(f"{wire.SENDER_HEADER}: expected 32 lower-case hex digits")
        self.who.must_send_for(named)
        return named

    @property
    def epoch(self) -> str | None:
        """The epoch that the call belongs to."""
        return self.request.headers.get(wire.EPOCH_HEADER)

    @property
    def task(self) -> str:
        """The task in the path."""
        task = self.arguments["task"]
        if not is_task_id(task):
            raise ProtocolError("a task id is 32 lower-case hex digits")
        return task

    def body(self, kind: type[T]) -> T:
        """The JSON of the request as a struct.

        Raises:
            MediaTypeError: it does not say that it is JSON. (A form of a foreign page could not.)
            ProtocolError: it is no such struct.
        """
        if self.request.mimetype != "application/json":
            raise MediaTypeError("expected Content-Type: application/json")
        return wire.decode(self.request.get_data(), kind, "request")

    def content(self) -> memoryview:
        """The bytes of the body, without a copy where they came in one piece.

        Raises:
            EncodingError: they came in a coding that is not taken here.
            ProtocolError: they came compressed, and are not what was said.
        """
        sent = self.request.environ["wsgi.input"]
        if isinstance(sent, WholeBody):
            sent.decompress()
            return sent.whole()
        if self.request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise EncodingError("a body with a Content-Encoding says its Content-Length")
        return memoryview(self.request.get_data())

    def query(self, name: str) -> str | None:
        """A member of the query; empty counts as absent.

        Raises:
            UsageError: it comes twice; nobody can tell which one is meant.
        """
        values = self.request.args.getlist(name)
        if len(values) > 1:
            raise UsageError(f"{name}: comes {len(values)} times")
        return values[0] or None if values else None

    def number(self, name: str, what: str) -> int | None:
        """A whole number of the query, if it has one: digits, as in a header.

        Args:
            name: of the member.
            what: is expected, for the message.
        """
        text = self.query(name)
        if text is None and name not in self.request.args:
            return None
        if not _NUMBER.match(text or "") or int(text or "") > _LARGEST:
            raise UsageError(f"{name}: expected {what}")
        return int(text or "")

    def seconds(self, name: str) -> float:
        """A time of the query, 0 if it has none: digits, and perhaps a fraction."""
        text = self.query(name)
        if text is None and name not in self.request.args:
            return 0.0
        if not _SECONDS.match(text or ""):
            raise UsageError(f"{name}: expected a number of seconds")
        return float(text or "")

    def limit(self) -> int | None:
        """`limit` of the query, if it has one."""
        what = "a number from 1 up"
        found = self.number("limit", what)
        if found is not None and not 1 <= found < _MOST:
            raise UsageError(f"limit: expected {what}")
        return found

    def must_be(self, sender: str) -> None:
        """Refuse a body that speaks for another sender than the header."""
        if sender != self.sender:
            raise ForbiddenError(f"the body names another sender than {wire.SENDER_HEADER}")


def json_answer(value: wire.Struct, status: int = 200) -> Response:
    """A struct as the answer."""
    return Response(msgspec.json.encode(value), status, mimetype="application/json")
