"""What every answer below `/ui/` has: headers that keep a page to itself, and errors as pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flask import Response, g

import common
from common import wire
from common.decoders import from_json
from receiver.web.ui.drawing.page_templates import HOME, rendered
from receiver.web.ui.page_call import NAVIGATION

if TYPE_CHECKING:
    from flask import Request

    from receiver.web.ui.page_call import PageCall

__all__ = ["as_page", "is_of_pages"]

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    # Same-origin, so that browsers say the origin of a form; nobody else learns an address.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_NOT_HERE: Final = {
    404: "there is no such page here",
    405: "the page is not asked for with this method",
}


def is_of_pages(path: str) -> bool:
    """Whether an address is one of the page's."""
    return path == HOME.rstrip("/") or path.startswith(HOME)


def as_page(request: Request, response: Response) -> Response:
    """The answer as a browser shows it: a problem document becomes a page with the same words."""
    if response.mimetype == wire.PROBLEM_TYPE:
        problem = from_json(response.get_data(), wire.Problem)
        unmatched = request.url_rule is None
        detail = _NOT_HERE.get(problem.status) if unmatched else None
        response.set_data(_error(problem, detail or problem.detail or problem.title))
        response.mimetype = "text/html"
    response.headers.pop("WWW-Authenticate", None)  # a browser would ask for a password
    for name, value in _HEADERS.items():
        response.headers[name] = value
    return response


def _error(problem: wire.Problem, detail: str) -> str:
    page: PageCall | None = g.get("page")
    return rendered(
        "error.html",
        {
            "page": page,
            "title": f"{problem.status}: {problem.title}",
            "detail": detail,
            "problem": problem,
            "navigation": NAVIGATION,
            "messages": [],
            "version": common.__version__,
        },
    )
