"""How pages are entered: each with its row, behind the checks that all of them need.

Who may connect at all the access layer has judged (`receiver.web.access`). Here: whether there is a
page, whether what is typed can be read on the way, and whose session it is. What changes something
comes by POST, from a form of our own: with the session's word, and from our own origin.
"""

from __future__ import annotations

import functools
import hmac
from collections.abc import Callable
from typing import Final

from flask import Response, g

from common.errors import ForbiddenError, NotFoundError, UnauthorizedError, UsageError
from receiver.metadata.model.records import OPERATOR, READER
from receiver.web.access import is_of_host
from receiver.web.call import Call
from receiver.web.routes import Body, Role, Routes
from receiver.web.server.head import RequestHead
from receiver.web.ui.page_call import PageCall, moved_to

__all__ = ["ALLOWED_ROLES", "PageRoutes", "check_origin", "check_way"]

ALLOWED_ROLES: Final = (OPERATOR, READER)
"""Roles of tokens that people log in with."""
_LONGEST_QUERY: Final = 4096
PageHandler = Callable[[PageCall], Response]


class QueryTooLongError(UsageError):
    """The query is longer than any that the page makes."""

    http_status = 414


class PageRoutes(Routes):
    """The rows of a module of pages."""

    def page(self, path: str, summary: str) -> Callable[[PageHandler], PageHandler]:
        """Decorate what shows a page to whoever is logged in."""

        def enter(handler: PageHandler) -> PageHandler:
            @functools.wraps(handler)
            def handle(call: Call) -> Response:
                check_way(call)
                try:
                    page = _with_session(call)
                except UnauthorizedError:
                    return _to_login(call)
                return handler(page)

            self.call("GET", path, Role.PAGE, summary, reads=True)(handle)
            return handler

        return enter

    def form(self, path: str, summary: str) -> Callable[[PageHandler], PageHandler]:
        """Decorate what a form is sent to by whoever is logged in."""

        def enter(handler: PageHandler) -> PageHandler:
            @functools.wraps(handler)
            def handle(call: Call) -> Response:
                check_way(call)
                check_origin(call)
                try:
                    page = _with_session(call)
                except UnauthorizedError:
                    return _to_login(call)
                _check_word(page)
                return handler(page)

            self.call("POST", path, Role.PAGE, summary, body=Body.SMALL, reads=True)(handle)
            return handler

        return enter


def check_way(call: Call) -> None:
    """See that the page may be asked for in this way.

    Raises:
        NotFoundError: it is switched off.
        ForbiddenError: over plain HTTP, from another machine.
        QueryTooLongError: nobody means so much.
    """
    config = call.site.config
    if not config.page.enabled:
        raise NotFoundError("there is no page here (page.enabled)")
    head = RequestHead.from_environ(call.request.environ)
    if not (config.listen.tls or config.page.insecure or head.from_this_machine):
        raise ForbiddenError(
            "over plain HTTP the page is for the receiver's own machine: a token could be read on "
            "the way. Give the receiver a certificate (listen.tls_cert), or come by a tunnel: "
            f"ssh -L 8765:127.0.0.1:{config.listen.port} <receiver>"
        )
    if len(call.request.query_string) > _LONGEST_QUERY:
        raise QueryTooLongError(f"the query is longer than {_LONGEST_QUERY} bytes")


def check_origin(call: Call) -> None:
    """See that a form is one of ours: browsers say where it is from with every POST.

    Raises:
        ForbiddenError: it is not, or nothing is said.
    """
    origin, host = call.request.headers.get("Origin", ""), call.request.headers.get("Host", "")
    if not origin or not is_of_host(origin, host):
        raise ForbiddenError("a form is taken from the page itself, and from nowhere else")


def _check_word(page: PageCall) -> None:
    given = page.call.request.form.get("csrf", "")
    if not hmac.compare_digest(given.encode(), page.session.csrf.encode()):
        raise ForbiddenError("the form is not of this session: go back, load the page again")


def _with_session(call: Call) -> PageCall:
    keeps = call.site.page
    secret = call.request.cookies.get(keeps.cookie, "")
    session = keeps.sessions.find(secret) if secret else None
    if session is None:
        raise UnauthorizedError("nobody is logged in")
    try:
        who = call.site.access.of_digest(session.digest, call.who.peer)
    except UnauthorizedError:
        keeps.sessions.end(secret)
        raise
    if who.role not in ALLOWED_ROLES:
        raise UnauthorizedError(f"a {who.role} token shows no pages")
    g.page = PageCall(call, who, session)
    return g.page  # type: ignore[no-any-return]


def _to_login(call: Call) -> Response:
    """A session that is over, or none: to the login, and back from there."""
    had = call.site.page.cookie in call.request.cookies
    wanted = call.request.full_path.rstrip("?") if call.request.method == "GET" else ""
    return moved_to("login", next=wanted, why="over" if had else "")
