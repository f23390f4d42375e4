"""One call as its handler sees it: who asks, for which sender, with what."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from flask import Request, Response, g

from common import wire
from common.errors import ForbiddenError, ProtocolError, TsferryError, UsageError
from common.names import is_sender_uuid, is_task_id
from common.text_numbers import whole_number
from receiver.node import Node
from receiver.operator.centre.load_owners import rights_of
from receiver.web.server.body_decompression import EncodingError
from receiver.web.server.whole_body import WholeBody

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine
    from receiver.metadata.query.cursors import Cursors
    from receiver.operator.centre.centre_writes import CentreWrites
    from receiver.operator.centre.load_owners import LoadRights
    from receiver.operator.centre.loaded_content import LoadedContent
    from receiver.operator.directories import ReceiverDirectories, RunningReceiver
    from receiver.operator.views.log_file_views import FollowView, LogFilesView
    from receiver.principal import Principal
    from receiver.transfer.said_lists.listing import Listing
    from receiver.transfer.schemachanges import SchemaReader
    from receiver.web.audit import AuditLog
    from receiver.web.longpoll import LongPolls
    from receiver.web.ui.page_state import PageState

__all__ = ["Call", "CallSite", "MediaTypeError", "ReadingSide", "body_content", "json_answer"]

T = TypeVar("T")

_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?\Z")
_LARGEST = (1 << 63) - 1
_MOST = 10**9


class MediaTypeError(ProtocolError):
    """The body is of another type than the call takes."""

    http_status = 415


class ReadingSide(Protocol):
    """What a receiver and a node that follows one have in common: they answer questions."""

    @property
    def engine(self) -> Engine:
        """The metadata engine."""

    @property
    def listing(self) -> Listing:
        """Pages of the catalogue."""

    @property
    def content(self) -> LoadedContent:
        """Bytes of loaded files."""

    @property
    def schema_reader(self) -> SchemaReader:
        """What became of the schema."""

    @property
    def operator(self) -> ReceiverDirectories:
        """What operators' questions are put to."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds since the epoch."""

    def problem(self) -> str | None:
        """Why it should not be asked now, None if it may."""

    def concerns(self) -> list[str]:
        """What is not as it should be, in numbers."""

    def not_the_writer(self) -> TsferryError | None:
        """What whoever comes to write is told; None: it takes what they have."""

    def displaced(self) -> TsferryError | None:
        """Why another process may have gone on in its place, unknown here; None: none has."""

    def follows(self) -> FollowView | None:
        """Where a node that follows stands; None of a receiver."""

    def log_files(self, lsn: int, ts: int) -> LogFilesView:
        """The files of the engine, for nodes that follow; see `stored.log_files`."""

    def reach(self, ts: int | None) -> None:
        """Wait a moment until a question about this time can be answered.

        Raises:
            Transient: it cannot yet.
        """

    def close(self) -> None:
        """Let go of everything."""


class TokenJudge(Protocol):
    """Knows tokens; see `receiver.web.access`."""

    def of_digest(self, digest: str, peer: str) -> Principal:
        """Whose token it is that has this digest.

        Raises:
            UnauthorizedError: it is unknown, was revoked or has expired.
        """


class CallSite(Protocol):
    """What a handler may use of the application; see `receiver.web.site`.

    Attributes:
        config: of the receiver.
        node: the receiver, or a node that follows one.
        page: what the web page keeps.
        openapi: gives the description of the calls, as JSON.
        polls: calls that wait for the end of a task.
        cursors: answers to SQL of which there is more.
        audit: hears who changed what, and who was refused.
    """

    config: ReceiverConfig
    node: ReadingSide
    page: PageState
    openapi: Callable[[], bytes]
    polls: LongPolls
    cursors: Cursors
    audit: AuditLog

    def measures(self) -> bytes:
        """What a monitoring system scrapes."""

    @property
    def access(self) -> TokenJudge:
        """Knows tokens."""


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
    def answering(self) -> ReadingSide:
        """The receiver, or a node that follows one: for calls that only read."""
        return self.site.node

    @property
    def node(self) -> Node:
        """The receiver.

        Raises:
            NotTheWriterError: this is a node that follows one.
        """
        node = self.site.node
        if not isinstance(node, Node):
            raise node.not_the_writer() or AssertionError
        return node

    @property
    def looked_at(self) -> ReceiverDirectories:
        """The receiver as operators look at it, or a node: for calls that only read.

        Raises:
            ForbiddenError: whoever asks is none.
        """
        self.who.must_operate()
        return self.site.node.operator

    @property
    def operator(self) -> RunningReceiver:
        """The receiver as operators have it.

        Raises:
            ForbiddenError: whoever asks is none.
            NotTheWriterError: this is a node that follows one.
        """
        self.who.must_operate()
        return self.node.operator

    @property
    def rights(self) -> LoadRights | None:
        """What whoever asks may load; None of an operator.

        Raises:
            ForbiddenError: nothing.
        """
        return rights_of(self.who)

    @property
    def writes(self) -> CentreWrites:
        """The writes of jobs.

        Raises:
            ForbiddenError: whoever asks is no writer.
            NotTheWriterError: this is a node that follows one.
        """
        self.who.must_write()
        return self.node.operator.writes

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
        taken = wire.decode(self.request.get_data(), kind, "request")
        if g.get("is_change"):
            self.audited(taken)
        return taken

    def audited(self, asked: object, **made: str) -> None:
        """Have the audit log hear what was asked for, and what was made of it; no secrets.

        Args:
            asked: a text, or a struct.
            made: names of what there is by it, in the place of the variable parts of the path.
        """
        g.asked = asked
        if made:
            g.made = made

    def content(self) -> memoryview:
        """The bytes of the body, without a copy where they came in one piece.

        Raises:
            EncodingError: they came in a coding that is not taken here.
            ProtocolError: they came compressed, and are not what was said.
        """
        return body_content(self.request)

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
        number = whole_number(text or "")
        if number is None or number > _LARGEST:
            raise UsageError(f"{name}: expected {what}")
        return number

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


def body_content(request: Request) -> memoryview:
    """See `Call.content`."""
    sent = request.environ["wsgi.input"]
    if isinstance(sent, WholeBody):
        sent.decompress()
        return sent.whole()
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise EncodingError("a body with a Content-Encoding says its Content-Length")
    return memoryview(request.get_data())


def json_answer(value: wire.Struct, status: int = 200) -> Response:
    """A struct as the answer."""
    return Response(msgspec.json.encode(value), status, mimetype="application/json")
