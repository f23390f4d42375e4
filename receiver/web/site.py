"""What one receiver application carries: its node, who may call it, and what it is doing."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from werkzeug.exceptions import HTTPException
from werkzeug.routing import RequestRedirect

import common
from common.durable import Tree
from common.errors import TsferryError
from receiver.metadata.query.cursors import Cursors
from receiver.metrics.request_tallies import NodeStanding, RequestTallies
from receiver.operator.client import TOKEN_FILE
from receiver.web.access import Access
from receiver.web.audit import AuditLog
from receiver.web.handlers.tus import method_of
from receiver.web.longpoll import LongPolls
from receiver.web.routes import Body, Route
from receiver.web.ui.page_state import PageState

if TYPE_CHECKING:
    from pathlib import Path

    from werkzeug.routing import Map

    from receiver.config import ReceiverConfig
    from receiver.metrics.receiver_readings import ReceiverReadings
    from receiver.principal import Principal
    from receiver.web.call import ReadingSide
    from receiver.web.server import RequestHead

__all__ = ["Site"]

_SMALL_BODY = 64 * 2**10


class Site:
    """Hangs at `app.extensions["tsferry"]`.

    Attributes:
        config: of the receiver.
        node: the receiver, or a node that follows one.
        routes: all calls.
        access: judges who may call.
        page: what the web page keeps.
        openapi: gives the description of the calls, as JSON.
        polls: calls that wait for the end of a task.
        cursors: answers to SQL of which there is more.
        requests: what is counted of requests.
        audit: hears who changed what, and who was refused.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        node: ReadingSide,
        routes: tuple[Route, ...],
        url_map: Map,
        openapi: Callable[[], bytes],
        *,
        owns_node: bool,
    ) -> None:
        self.config = config
        self.node = node
        self.routes = routes
        self.access = Access(config, node.engine, clock=node.clock)
        self.page = PageState(config, node.engine, node.clock)
        self.openapi = openapi
        self.polls = LongPolls(
            config.listen.threads // 2, is_over=lambda: node.displaced() is not None
        )
        self.cursors = Cursors()
        self.requests = RequestTallies()
        self.audit = AuditLog(time.monotonic)
        self._readings: ReceiverReadings | None = None
        self._making = threading.Lock()
        self._of_endpoint = {route.name: route for route in routes}
        self._adapter = url_map.bind("tsferry.invalid")
        self._owns_node = owns_node
        self._closing = threading.Lock()
        self._closed = False

    def match(self, head: RequestHead) -> tuple[Route | None, Mapping[str, str]]:
        """The call that a request is for, and the variable parts of its path."""
        try:
            endpoint, arguments = self._adapter.match(head.path, method_of(head))
        except (HTTPException, RequestRedirect):
            return None, {}
        return self._of_endpoint.get(endpoint), arguments

    def admit(self, head: RequestHead, route: Route | None) -> Principal:
        """Who asks; see `Access.admit`.

        Raises:
            NotTheWriterError: the call changes something, and this is a node that only reads. It
                is said before any token is looked at: a new one may not have come here yet.
        """
        elsewhere = self.node.not_the_writer()
        if elsewhere is not None and route is not None and not route.reads:
            self.access.admit(head, None)
            raise elsewhere
        return self.access.admit(head, route)

    def gate(self, head: RequestHead) -> int:
        """How long the body of a request may be; raises an error of ours to refuse it.

        The server asks this before it reads the body; the application judges again when it is
        called, so it is as safe behind another server.
        """
        route, _ = self.match(head)
        try:
            self.admit(head, route)
        except TsferryError as error:  # the application never hears of it
            self.requests.refused(None if route is None else route.name, error.http_status)
            if error.http_status in (401, 403):
                name = None if route is None else route.name
                self.audit.refused(head, name, error.http_status, error.message)
            raise
        limits = {
            Body.NONE: _SMALL_BODY,  # some clients send an empty object along
            Body.SMALL: _SMALL_BODY,
            Body.LARGE: self.config.listen.max_request_bytes,
            Body.BLOCK: self.config.limits.max_chunk_bytes,
        }
        return _SMALL_BODY if route is None else limits[route.body]

    def give_operator_token(self) -> Path:
        """Make a token for the commands on this machine, and write it where only they read it.

        Returns:
            the file. The token is worthless when this process ends.
        """
        token = secrets.token_urlsafe(32)
        self.access.accept_operator(token)
        directory = self.config.schema_dir
        with Tree(directory) as tree:
            tree.write_atomic(TOKEN_FILE, token.encode() + b"\n", mode=0o600)
        return directory / TOKEN_FILE

    def measures(self) -> bytes:
        """What a monitoring system scrapes."""
        from receiver.metrics.receiver_readings import ReceiverReadings

        with self._making:
            if self._readings is None:
                self._readings = ReceiverReadings(
                    self.node.operator,
                    self.requests,
                    self._standing,
                    most_edges=self.config.metrics.edges,
                )
        return self._readings.text()

    def _standing(self) -> NodeStanding:
        follows = self.node.follows()
        return NodeStanding(
            problem=self.node.problem(),
            concerns=len(self.node.concerns()),
            version=common.__version__,
            behind=None if follows is None else follows.behind,
        )

    def close(self) -> None:
        """Let nobody wait any more, and close the node; closing twice is harmless."""
        self.polls.close()
        with self._closing:
            if not self._closed and self._owns_node:
                self.node.close()
            self._closed = True
