"""A storage node over HTTP: access before each call, problem documents for all that fails."""

from __future__ import annotations

import hmac
import secrets
import time
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, RequestRedirect, Rule

from common.durable import Tree
from common.errors import ForbiddenError, UnauthorizedError
from receiver.operator.client import TOKEN_FILE
from receiver.storagenode.node_web.cache_calls import CACHE_ROUTES
from receiver.storagenode.node_web.node_calls import BLOCK_BODY, NODE_ROUTES, NodeCall, NodeCallRole
from receiver.storagenode.node_web.tablet_calls import TABLET_ROUTES
from receiver.storagenode.node_web.upload_calls import UPLOAD_ROUTES
from receiver.storagenode.storage_node import StorageNode
from receiver.web import problems
from receiver.web.audit import AuditLog
from receiver.web.server import RequestHead

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver.config import ReceiverConfig
    from receiver.storagenode.node_web.node_calls import NodeRoute

__all__ = ["ServedNode"]

_EXTENSION = "tsferry-node"
_ROUTES = (*NODE_ROUTES, *TABLET_ROUTES, *UPLOAD_ROUTES, *CACHE_ROUTES)
_SMALL_BODY = 1 << 16


class ServedNode:
    """A storage node with its application; see `receiver.web.serving.Served`.

    Attributes:
        node: that is served.
        application: by WSGI.
    """

    def __init__(self, config: ReceiverConfig, anew: Callable[[], None]) -> None:
        """Open the node; `anew` is never called, for nothing of it is exchanged while it runs.

        Args:
            config: with `node.master`.
            anew: see `receiver.web.serving.MakesServed`.

        Raises:
            ConfigError, LockedError, DamagedError, UsageError: see `StorageNode.open`.
        """
        self.node = StorageNode.open(config)
        self._allow = config.listen.allow
        self._hosts = frozenset(host.lower() for host in config.listen.hosts)
        self._token = ""
        self._audit = AuditLog(time.monotonic)
        self.handshake_refused = self._audit.handshake_refused
        self._routes = {each.name: each for each in _ROUTES}
        rules = (Rule(each.path, endpoint=each.name, methods=[each.method]) for each in _ROUTES)
        urls = Map(rules, strict_slashes=True, merge_slashes=False)
        self._adapter = urls.bind("tsferry.invalid")
        self.application = self._app(urls, config)

    def _app(self, urls: Map, config: ReceiverConfig) -> Flask:
        app = Flask("tsferry-node", static_folder=None)
        app.config["MAX_CONTENT_LENGTH"] = config.listen.max_request_bytes
        app.url_map = urls
        app.view_functions.update({each.name: self._view(each) for each in _ROUTES})
        app.extensions[_EXTENSION] = self
        problems.register(app)
        app.before_request(_judge)
        app.after_request(_finish)
        return app

    def _view(self, route: NodeRoute) -> Callable[..., Response]:
        def view(**arguments: str) -> Response:
            self.node.working.add(1)
            try:
                return route.handler(NodeCall(self.node, request, arguments))
            finally:
                self.node.working.add(-1)

        return view

    # -- who may come in ---------------------------------------------------------------------

    def gate(self, head: RequestHead) -> int:
        """How long the body of a request may be; raises an error of ours to refuse it."""
        route = self._match(head)
        self.admit(head, route)
        if route is None:
            return _SMALL_BODY
        block = self.node.config.limits.max_chunk_bytes
        return block if route.most == BLOCK_BODY else route.most

    def admit(self, head: RequestHead, route: NodeRoute | None) -> None:
        """Let a request in.

        Raises:
            ForbiddenError: the address or the host is not allowed.
            UnauthorizedError: the key or the token is missing, or is not this node's.
        """
        ours = route is not None and route.role is NodeCallRole.OPERATOR
        if head.peer not in self._allow and not (ours and head.from_this_machine):
            raise ForbiddenError(f"the address {head.peer} is not on the list of this node")
        if self._hosts and (head.header("Host") or "").lower() not in self._hosts:
            raise ForbiddenError("this node does not answer to that Host (listen.hosts)")
        if route is None or route.role in (NodeCallRole.PUBLIC, NodeCallRole.TICKET):
            return
        key = self.node.call_key if route.role is NodeCallRole.MASTER else self._token
        scheme, _, given = (head.header("Authorization") or "").partition(" ")
        told = given.strip().encode("latin-1", "replace")
        if scheme.lower() != "bearer" or not key or not hmac.compare_digest(told, key.encode()):
            raise UnauthorizedError(f"this is for {route.role.value}")

    def _match(self, head: RequestHead) -> NodeRoute | None:
        try:
            endpoint, _ = self._adapter.match(head.path, head.method)
        except (HTTPException, RequestRedirect):
            return None
        return self._routes.get(str(endpoint))

    def judge(self, environ: dict[str, Any]) -> None:
        """The same for the application, which is as safe behind another server."""
        head = RequestHead.from_environ(environ)
        self.admit(head, self._match(head))

    # -- life --------------------------------------------------------------------------------

    def give_operator_token(self) -> Path:
        """Make a token for the commands on this machine; returns the file that it is in."""
        self._token = secrets.token_urlsafe(32)
        directory = self.node.config.schema_dir
        with Tree(directory) as tree:
            tree.write_atomic(TOKEN_FILE, self._token.encode() + b"\n", mode=0o600)
        return directory / TOKEN_FILE

    def listening(self, url: str) -> None:
        """Speak to the master from now on."""
        self.node.begin(url)

    @property
    def measures(self) -> None:
        """None: what a node is like its master tells."""

    def stop_waiting(self) -> None:
        """No call of a node waits for anything."""

    def close(self) -> None:
        """Close the node; closing twice is harmless."""
        self.node.close()


def _judge() -> None:
    served = current_app.extensions[_EXTENSION]
    assert isinstance(served, ServedNode)
    served.judge(request.environ)


def _finish(response: Response) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    if response.status_code == 204:
        response.headers.pop("Content-Type", None)
    return response
