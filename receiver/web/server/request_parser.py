"""The request parser: waitress' own, stricter, and with a gate between headers and body.

Stricter, because two programs that disagree on where a request ends can be played against each
other: a length together with chunks is refused, so is a `Transfer-Encoding` from HTTP/1.0, and
thousands of headers.

The gate is asked as soon as the headers are complete. What it refuses (address, token, length) is
answered at once, and its body is never kept.

A body longer than one request may hold in memory is cut, where the gate's owner allows it: a stock
tus client sends a file of gigabytes in one PATCH. Each piece becomes a PATCH of its own at the
next offset, the client sees the answer of the last one (or of the first that failed). So what
arrived of a broken PATCH is on the disk, all but the last piece of it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser, ParsingError, get_header_lines
from waitress.receiver import ChunkedReceiver, FixedStreamReceiver
from waitress.utilities import BadRequest

from common.errors import BusyError, ProtocolError, TooLargeError, TsferryError
from common.text_numbers import whole_number
from receiver.web.server.body_decompression import EncodingError, decompressed_size
from receiver.web.server.head import PeerCertificate, RequestHead
from receiver.web.server.in_order import Block
from receiver.web.server.refusal import ServerRefusal
from receiver.web.server.whole_body import WholeBody

if TYPE_CHECKING:
    from receiver.web.server.host import Host

__all__ = ["Parser", "Rest"]

log = logging.getLogger(__name__)

MAX_HEADER_LINES = 200
MAX_CHUNK_LINE = 1024
MAX_TRAILER = 8192


@dataclass(slots=True)
class Rest:
    """What is still to come of a body that is taken in pieces.

    Attributes:
        first: the parser that read the headers.
        offset: `Upload-Offset` of the next piece.
        left: bytes from there to the end of the body.
    """

    first: Parser
    offset: int
    left: int


class Connection(Protocol):
    """The connection that a request comes by.

    Attributes:
        server: that it belongs to.
        addr: of the peer, as a socket has it.
        local: our own end.
        owner: whose request came by it last, see `RequestHead.owner`.
        unread: set where the peer may still send a body that nobody will read.
        rest: what is still to come of a body in pieces.
        rest_digest: the whole body's digest, where a piece brought it.
        certificate: that the peer has shown, verified.
        is_outdated: whether that would have to be verified again.
    """

    server: Host
    addr: tuple[Any, ...]
    local: str
    owner: str
    unread: bool
    rest: Rest | None
    rest_digest: str | None
    certificate: PeerCertificate | None

    @property
    def is_outdated(self) -> bool:
        """See above."""


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress is untyped
    """One request of one channel."""

    body_bytes_received: int
    command: str
    content_length: int
    error: Any
    empty: bool
    expect_continue: bool
    headers_finished: bool
    body_rcv: Any
    completed: bool
    headers: dict[str, str]
    path = ""
    """Until the request line is read; waitress logs it when a peer leaves before that."""

    more = False
    """Whether this is a piece, and not the last, of a body that is taken in pieces."""

    def __init__(self, adj: Any, channel: Connection) -> None:
        super().__init__(adj)
        self.channel = channel
        self.began = time.monotonic()
        self.limit = 0
        self._judged = False
        self._size: int | None = None
        self._counted = 0
        self._whose = ""
        self._whole: WholeBody | None = None
        self.block: Block | None = None

    # -- reading ---------------------------------------------------------------------------

    def received(self, data: bytes) -> int:
        """Take bytes from the connection; returns how many belong to this request."""
        consumed: int = super().received(data)
        # Whoever reads a compressed body makes room for what it becomes, beside what came.
        more = self._size if self.completed and self._size is not None else 0
        self._count(self.body_bytes_received + more)
        if self.headers_finished and not self._judged:
            self._judged = True
            self._judge()
        elif self.body_rcv is not None and not self.error:
            self._check_body()
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        """Parse request line and headers; waitress turns `ParsingError` into 400."""
        _require_one_coding(header_plus)
        _require_once(header_plus)
        if header_plus.count(b"\r\n") > MAX_HEADER_LINES:
            raise ParsingError(f"more than {MAX_HEADER_LINES} headers")
        try:
            super().parse_header(header_plus)
        except ValueError as error:  # lengths of 5,000 digits, URLs that urllib refuses
            raise ParsingError(f"request line or header: {error}") from error
        if "TRANSFER_ENCODING" in self.headers:
            raise ParsingError("Transfer-Encoding needs HTTP/1.1")
        if self.chunked:
            if "CONTENT_LENGTH" in self.headers:
                raise ParsingError("both Content-Length and Transfer-Encoding")
            self.body_rcv = _Chunks(OverflowableBuffer(self.adj.inbuf_overflow))

    def _count(self, size: int) -> None:
        """Have so many bytes counted as those that this request holds in memory."""
        self.channel.server.memory.take(size - self._counted, self._whose)
        self._counted = size

    def _belongs_to(self, whose: str) -> None:
        """Have what came with the headers, and all that comes, counted as somebody's."""
        came = self._counted
        self._count(0)
        self._whose = self.channel.owner = whose
        self._count(came)

    def _receive_whole(self, size: int) -> None:
        self.block = self._as_block(self._size or size)
        self._whole = WholeBody(size, self.channel.server.spares, self._size)
        self.body_rcv = FixedStreamReceiver(size, self._whole)

    def room(self) -> memoryview | None:
        """Where the next bytes of the body belong; None: they are to be parsed."""
        return None if self._whole is None or self.completed else self._whole.room()

    def close(self) -> None:
        """Drop the body."""
        self._count(0)
        self.body_bytes_received = 0
        super().close()

    # -- judging ---------------------------------------------------------------------------

    def head(self) -> RequestHead:
        """This request as the gate sees it."""
        return RequestHead(
            peer=self.channel.addr[0],
            local=self.channel.local,
            method=self.command,
            path=self.route_path,
            headers=self.headers,
            certificate=self.channel.certificate,
        )

    @property
    def route_path(self) -> str:
        """The path as the application will see it."""
        return "/" + self.path.lstrip("/")

    def _judge(self) -> None:
        if self.error or self.empty:
            return
        if self.body_rcv is None:
            self.expect_continue = False  # there is nothing to go on with
        try:
            self._must_be_current()
            self.limit = self.channel.server.gate(self.head())
            self._belongs_to(self.head().owner)
            self._check_connections()
            self._size = decompressed_size(self.headers) if self.body_rcv is not None else None
            if self._size is not None:
                self._check_compressed(self._size)
            elif self.content_length > self.limit:
                self._take_in_pieces()
            self._check_memory(self.content_length + (self._size or 0))
            if self.body_rcv is not None and not self.chunked and not self.body_bytes_received:
                self._receive_whole(self.content_length)
        except TsferryError as error:
            self.refuse(error)

    def _must_be_current(self) -> None:
        if self.channel.is_outdated:
            raise BusyError("certificates were read anew: connect again", retry_after=1.0)

    def _check_body(self) -> None:
        try:
            if self.body_bytes_received > self.limit:
                raise TooLargeError(f"the body is larger than {self.limit} bytes")
            self._check_memory(0)
        except TsferryError as error:
            self.refuse(error)

    def _check_compressed(self, size: int) -> None:
        """Judge a body that comes compressed by what it becomes: all of it has to be in memory."""
        if self.chunked:
            raise EncodingError("a body with a Content-Encoding says its Content-Length")
        if max(size, self.content_length) > self.limit:
            raise TooLargeError(
                f"the body has {size} bytes, compressed {self.content_length}; at most "
                f"{self.limit} are taken"
            )

    def _check_memory(self, coming: int) -> None:
        if not self.channel.server.memory.has_room(coming, self._whose):
            raise BusyError("too many requests are arriving at once", retry_after=2.0)

    def _check_connections(self) -> None:
        """Nobody keeps more than half of them busy: a connection that trickles stays for hours."""
        server, half = self.channel.server, self.channel.server.options.connection_limit // 2
        if len(server.channels) <= half:
            return
        busy = (each for each in list(server.channels.values()) if each.owner == self._whose)
        if sum(not each.evictable for each in busy) > max(1, half):
            raise BusyError("too many connections of this peer are at work", retry_after=2.0)

    def refuse(self, error: TsferryError) -> None:
        """Answer with this error; what comes of the body is thrown away."""
        log.debug(
            "refused: %s",
            error.message,
            extra={"method": self.command, "path": self.path, "peer": self.channel.addr[0]},
        )
        self.error = ServerRefusal.of(error)
        self.completed = True
        self.expect_continue = False
        self.channel.unread = True

    def _as_block(self, size: int) -> Block | None:
        offset = self._offset
        below = self.channel.server.options.split_below
        if self._method != "PATCH" or not self.route_path.startswith(below):
            return None
        if offset is None:
            return None
        return Block(self.route_path, offset, offset + size)

    @property
    def _offset(self) -> int | None:
        return whole_number(self.headers.get("UPLOAD_OFFSET", ""), 18)

    @property
    def _method(self) -> str:
        """What is asked for, as the application sees it."""
        override = self.headers.get("X_HTTP_METHOD_OVERRIDE")
        return self.command if override is None else override.strip().upper()

    # -- bodies in pieces --------------------------------------------------------------------

    def _take_in_pieces(self) -> None:
        options = self.channel.server.options
        if self._method != "PATCH" or not self.route_path.startswith(options.split_below):
            raise TooLargeError(f"the body has {self.content_length} bytes, at most {self.limit}")
        if "UPLOAD_CHECKSUM" in self.headers:
            raise TooLargeError(
                "a body with a checksum counts whole or not at all, so it has at most "
                f"{self.limit} bytes: send smaller chunks, or no checksum"
            )
        offset = self._offset
        if offset is None:
            raise ProtocolError("Upload-Offset: expected a number of bytes")
        self._become_piece(Rest(self, offset, self.content_length))

    def _become_piece(self, rest: Rest) -> None:
        size = min(rest.left, self.channel.server.options.piece_bytes)
        self.limit = self.content_length = size
        self.headers["UPLOAD_OFFSET"] = str(rest.offset)
        self.headers["CONTENT_LENGTH"] = str(size)
        self._receive_whole(size)
        self.more = rest.left > size
        if self.more:
            # The file's digest belongs to its end.
            digest = self.headers.pop("REPR_DIGEST", None)
            self.channel.rest = Rest(self, rest.offset + size, rest.left - size)
            self.channel.rest_digest = digest or self.channel.rest_digest
        elif self.channel.rest_digest is not None:
            self.headers["REPR_DIGEST"] = self.channel.rest_digest
            self.channel.rest_digest = None

    @classmethod
    def piece(cls, adj: Any, channel: Connection, rest: Rest) -> Parser:
        """The parser for the next piece of a body whose headers were read before."""
        parser = cls(adj, channel)
        first = rest.first
        for name in ("command", "version", "path", "query", "fragment", "request_uri"):
            setattr(parser, name, getattr(first, name))
        parser.url_scheme = first.url_scheme
        parser.connection_close = first.connection_close
        parser.headers = {k: v for k, v in first.headers.items() if k != "EXPECT"}
        parser.headers_finished = parser._judged = True
        parser._whose = first._whose
        parser._become_piece(rest)
        try:
            parser._must_be_current()
        except BusyError as error:
            parser.refuse(error)
        return parser


def _require_one_coding(header_plus: bytes) -> None:
    """Refuse a body that is chunked twice, or not quite: waitress takes it for chunked once."""
    codings = b""
    for line in get_header_lines(header_plus):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"transfer-encoding":
            codings += b"," * bool(codings) + value
    found = [each.strip(b" \t").lower() for each in codings.split(b",")]
    if codings and found != [b"chunked"] and set(found) <= {b"chunked", b""}:
        raise ParsingError("Transfer-Encoding: expected chunked, once")


_ONCE = frozenset({b"host", b"content-length", b"authorization", b"origin", b"sec-fetch-site"})
"""Headers that decide who may do what, or where a body ends: of two, others may see the other."""


def _require_once(header_plus: bytes) -> None:
    """Refuse such a header that comes twice (RFC 9112, 3.2, for `Host`): waitress joins them."""
    seen = set()
    for line in get_header_lines(header_plus):
        name = line.partition(b":")[0].lower()
        if name in _ONCE:
            if name in seen:
                raise ParsingError(f"{name.decode()}: expected once")
            seen.add(name)


class _Chunks(ChunkedReceiver):  # type: ignore[misc]  # waitress is untyped
    """Chunked bodies whose framing stays small: no endless chunk line, no endless trailer."""

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        if len(self.control_line) > MAX_CHUNK_LINE or len(self.trailer) > MAX_TRAILER:
            self.error = BadRequest("chunk framing is too long")
        return consumed
