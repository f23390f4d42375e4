"""Logging in by a token, and out; and the files that pages refer to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from flask import Response

import common
from common.errors import ForbiddenError, NotFoundError, TsferryError, UnauthorizedError
from receiver.operator.edges.tokens import hash_token
from receiver.web.routes import Body, Role
from receiver.web.server.head import RequestHead
from receiver.web.ui.drawing.page_templates import link, rendered, static_file
from receiver.web.ui.login_limits import TooManyLoginsError
from receiver.web.ui.page_call import PageCall, moved_to
from receiver.web.ui.page_routes import ALLOWED_ROLES, PageRoutes, check_origin, check_way

if TYPE_CHECKING:
    from receiver.web.call import Call

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_NEXT = re.compile(r"/ui/[\x21-\x7e]{0,2000}\Z")
_LONGEST_TOKEN: Final = 300
_OVER: Final = "The session is over: log in again."


@ROUTES.call("GET", "/ui", Role.PAGE, "To the page", reads=True)
def page_home(call: Call) -> Response:
    """To the page, for who leaves the last `/` out."""
    check_way(call)
    return moved_to()


@ROUTES.call("GET", "/", Role.PAGE, "To the page", reads=True)
def bare_address(call: Call) -> Response:
    """To the page, for who types the address of the server and nothing else."""
    check_way(call)
    return moved_to()


@ROUTES.call(
    "GET", "/ui/static/<name>", Role.PAGE, "What pages refer to", reads=True, displaced=True
)
def page_static(call: Call) -> Response:
    """A file of the page; it may be kept, for its address changes with it."""
    found = static_file(call.arguments["name"]) if call.site.config.page.enabled else None
    if found is None:
        raise NotFoundError("there is no such file here")
    content, kind, mark = found
    response = Response(content, 200, content_type=kind)
    response.set_etag(mark)
    if call.query("v") == mark:
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return response


@ROUTES.call("GET", "/ui/login", Role.PAGE, "Ask for a token", reads=True)
def login_page(call: Call) -> Response:
    """Ask for a token."""
    check_way(call)
    said = _OVER if call.query("why") == "over" else ""
    return _asked(call.query("next") or "", said=said)


@ROUTES.call(
    "POST", "/ui/login", Role.PAGE, "Take a token for a session", body=Body.SMALL, reads=True
)
def take_login(call: Call) -> Response:
    """Take a token for a session."""
    check_way(call)
    check_origin(call)
    form, keeps, peer = call.request.form, call.site.page, call.who.peer
    wanted = _next_of(form.get("next", ""))
    try:
        keeps.limits.check(peer)
        digest = hash_token(form.get("token", "")[:_LONGEST_TOKEN].strip())
        who = call.site.access.of_digest(digest, peer)
        if who.role not in ALLOWED_ROLES:
            raise ForbiddenError(
                f"a {who.role} token shows no pages; log in with an operator's, or a reader's"
            )
    except TooManyLoginsError as error:
        response = _asked(wanted, said=error.message, status=error.http_status)
        response.headers["Retry-After"] = f"{error.retry_after:.0f}"
        return response
    except (UnauthorizedError, ForbiddenError) as error:
        if keeps.limits.wrong(peer):
            head = RequestHead.from_environ(call.request.environ)
            call.site.audit.refused(head, "login", error.http_status, error.message)
        return _asked(wanted, said=_sentence(error), status=error.http_status)
    before = call.request.cookies.get(keeps.cookie)
    if before:
        keeps.sessions.end(before)
    secret = keeps.sessions.begin(digest, who.token_id or "")
    call.site.audit.done(who, "login", 303, {}, None)
    response = Response(status=303, headers={"Location": wanted})
    response.set_cookie(
        keeps.cookie,
        secret,
        max_age=round(call.site.config.page.session),
        path=keeps.cookie_path,
        secure=keeps.secure,
        httponly=True,
        samesite="Strict",
    )
    return response


@ROUTES.form("/ui/logout", "End the session")
def logout(page: PageCall) -> Response:
    """End the session."""
    keeps = page.call.site.page
    keeps.sessions.end(page.call.request.cookies.get(keeps.cookie, ""))
    response = moved_to("login")
    response.delete_cookie(
        keeps.cookie, path=keeps.cookie_path, secure=keeps.secure, httponly=True, samesite="Strict"
    )
    return response


def _asked(wanted: str, *, said: str, status: int = 200) -> Response:
    values: dict[str, Any] = {
        "page": None,
        "title": "Log in",
        "said": said,
        "wanted": _next_of(wanted),
        "navigation": (),
        "messages": [],
        "version": common.__version__,
    }
    return Response(rendered("login.html", values), status, mimetype="text/html")


def _next_of(text: str) -> str:
    """Where to go on: a page of ours, and nothing that a browser takes for another place."""
    return text if _NEXT.match(text) and "\\" not in text else link()


def _sentence(error: TsferryError) -> str:
    return error.message[:1].upper() + error.message[1:] + "."
