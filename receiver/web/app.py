"""The Flask application: routes, access before each call, problem documents for all that fails."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from flask import Flask, Response, current_app, g, request
from werkzeug.routing import Map, Rule

from common import wire
from common.errors import GoneError, NotFoundError, TsferryError
from receiver.metadata.model.errors import FencedError
from receiver.node import Node
from receiver.web import openapi, problems
from receiver.web.call import Call, ReadingSide
from receiver.web.handlers import (
    background_calls,
    compact_calls,
    content_calls,
    copy_calls,
    file_calls,
    health,
    heartbeat_calls,
    load_calls,
    log_calls,
    metrics_calls,
    node_calls,
    operating,
    sender_calls,
    sql,
    sync,
    table_calls,
    tus,
    txn_calls,
    write_calls,
)
from receiver.web.routes import Role
from receiver.web.server import RequestHead
from receiver.web.site import Site
from receiver.web.ui.page_answers import as_page, is_of_pages
from receiver.web.ui.screens.every_page import PAGES

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.web.routes import Route

__all__ = ["EXTENSION", "close", "create_app", "site_of"]

log = logging.getLogger(__name__)

EXTENSION = "tsferry"
ROUTES = (
    *sync.ROUTES,
    *compact_calls.ROUTES,
    *content_calls.ROUTES,
    *tus.ROUTES,
    *operating.ROUTES,
    *sender_calls.ROUTES,
    *file_calls.ROUTES,
    *load_calls.ROUTES,
    *write_calls.ROUTES,
    *log_calls.ROUTES,
    *sql.ROUTES,
    *txn_calls.ROUTES,
    *background_calls.ROUTES,
    *table_calls.ROUTES,
    *node_calls.ROUTES,
    *heartbeat_calls.ROUTES,
    *copy_calls.ROUTES,
    *health.ROUTES,
    *metrics_calls.ROUTES,
    *openapi.ROUTES,
)
_IS_NOT_THERE = (NotFoundError, GoneError)
EVERYTHING = (*ROUTES, *PAGES)
"""What is routed; `/openapi.json` has what programs call."""


def create_app(
    config: ReceiverConfig,
    node: ReadingSide | None = None,
    *,
    clock: Callable[[], float] = time.time,
    anew: Callable[[], None] = lambda: None,
) -> Flask:
    """The receiver as a WSGI application, with its engine; `close` it when it is done with.

    Args:
        config: of the receiver.
        node: an open receiver to be used; without one it is opened here, and closed by `close`.
        clock: seconds since the epoch, of the receiver that is opened here.
        anew: called when a node that follows has to be closed and opened again.

    Raises:
        LockedError: another process has the receiver's directories open.
        DamagedError: a log is damaged in the middle.
    """
    app = Flask("tsferry", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = config.listen.max_request_bytes
    app.url_map = _urls()
    app.view_functions.update({route.name: _view(route) for route in EVERYTHING})
    app.json.sort_keys = False  # type: ignore[attr-defined]
    problems.register(app)
    app.before_request(_judge)
    app.after_request(_finish)
    app.wsgi_app = _Methods(app.wsgi_app)  # type: ignore[method-assign]
    opened = node or _open(config, clock, anew)
    app.extensions[EXTENSION] = Site(
        config, opened, EVERYTHING, app.url_map, _description, owns_node=node is None
    )
    return app


def _open(
    config: ReceiverConfig, clock: Callable[[], float], anew: Callable[[], None]
) -> ReadingSide:
    if config.follow.url is None:
        return Node.open(config, clock=clock)
    from receiver.follower.read_node import ReadNode

    return ReadNode.open(config, clock=clock, anew=anew)


@functools.cache
def _urls() -> Map:
    """Which call a path is: the same for every application, and most of what making one takes."""
    rules = (Rule(each.path, endpoint=each.name, methods=[each.method]) for each in EVERYTHING)
    return Map(rules, strict_slashes=True, merge_slashes=False)


@functools.cache
def _description() -> bytes:
    return msgspec.json.encode(openapi.document(ROUTES))


def site_of(app: Flask) -> Site:
    """What the application carries."""
    site = app.extensions[EXTENSION]
    assert isinstance(site, Site)
    return site


def close(app: Flask) -> None:
    """End the receiver inside an application; closing twice is harmless."""
    site_of(app).close()


class _Methods:
    """Puts the method of `X-HTTP-Method-Override` in the place of the request's own."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if "HTTP_X_HTTP_METHOD_OVERRIDE" in environ:
            environ["REQUEST_METHOD"] = tus.method_of(RequestHead.from_environ(environ))
        return self._application(environ, start_response)


def _judge() -> None:
    g.begun = time.perf_counter()
    site = site_of(current_app)
    head = RequestHead.from_environ(request.environ)
    route, _ = site.match(head)
    g.call = None if route is None else route.name
    g.is_change = route is not None and route.changes
    g.who = site.admit(head, route)


def _view(route: Route) -> Callable[..., Response]:
    def view(**arguments: str) -> Response:
        site = site_of(current_app)
        is_change = g.is_change or (route.role is Role.PAGE and route.method == "POST")
        if is_change:
            _must_be_master(site, route)
        try:
            answer = route.handler(Call(site, g.who, request, arguments))
        except TsferryError as error:  # "there is none" is an answer, too
            if isinstance(error, FencedError) or not is_change:
                _must_be_master(site, route)
            if isinstance(error, _IS_NOT_THERE) and route.role is not Role.PAGE:
                # It may be there by now where another one leads.
                _must_be_master(site, route, always=True)
            raise
        # Last: what was read while this still was the master was so when it was asked. A change
        # that was made is etcd's word: nobody is told that it was not.
        if not (is_change or g.get("asked")):
            _must_be_master(site, route)
        return answer

    return view


def _must_be_master(site: Site, route: Route, *, always: bool = False) -> None:
    if route.role is Role.PUBLIC or (route.displaced and not always):
        return
    displaced = site.node.displaced()
    if displaced is not None:
        raise displaced


def _told(response: Response) -> None:
    """Have the audit log hear of a change, and of what was refused."""
    status, page = response.status_code, g.get("page")
    who = g.get("who") if page is None else page.who
    site, refused = site_of(current_app), g.get("refused")
    if status in (401, 403) and refused is not None:
        token = None if who is None else who.token_id
        head = RequestHead.from_environ(request.environ)
        site.audit.refused(head, g.get("call"), status, refused, token)
    elif who is not None and (g.get("is_change") or g.get("asked") is not None):
        about = g.get("made") or request.view_args or {}
        site.audit.done(who, g.call, status, about, g.get("asked"))


def _finish(response: Response) -> Response:
    log.debug(
        "answered",
        extra={
            "method": request.method,
            "path": request.path,
            "status": response.status_code,
            "peer": request.remote_addr,
        },
    )
    _told(response)
    site_of(current_app).requests.done(
        g.get("call"),
        response.status_code,
        request.content_length or 0,
        time.perf_counter() - g.get("begun", time.perf_counter()),
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    if request.path == tus.FILES or request.path.startswith(tus.FILES + "/"):
        response.headers["Tus-Resumable"] = wire.TUS_VERSION
    if response.status_code == 204:
        response.headers.pop("Content-Type", None)
    return as_page(request, response) if is_of_pages(request.path) else response
