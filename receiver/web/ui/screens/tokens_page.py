"""Tokens, without their secrets: for operators, as the call that lists them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.model.records import ANYONE, TOKEN_ROLES
from receiver.operator.edges.tokens import list_tokens
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.operator.views.token_views import TokenView
    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_COUNT: Final = 50


@ROUTES.page("/ui/tokens", "Tokens")
def tokens_page(page: PageCall) -> Response:
    """Tokens."""
    page.must_operate()
    search, role, first = page.query("q"), page.query("role"), page.place("from")
    every = list_tokens(page.engine)
    found = [
        each for each in every if role in ("", each.role) and _has(page, each, search.casefold())
    ]
    return page.shown(
        "tokens.html",
        "Tokens",
        tokens=[(each, _bound(page, each)) for each in found[first : first + _COUNT]],
        first=first,
        count=len(found),
        known=len(every),
        step=_COUNT,
        search=search,
        role=role,
        roles=TOKEN_ROLES,
        now=page.clock(),
    )


def _bound(page: PageCall, token: TokenView) -> list[tuple[str, str]]:
    """Whom a token is bound to: uuids of edges, where it is one, and names."""
    names = [token.sender] if token.sender else token.owners
    centre = centre_uuid(page.engine.uuid)
    words = {ANYONE: "all edges", centre: "the centre"}
    return [("", words[each]) if each in words else (each, page.label_of(each)) for each in names]


def _has(page: PageCall, token: TokenView, text: str) -> bool:
    if not text:
        return True
    label = page.label_of(token.sender) if token.sender else ""
    names = (token.id, token.note, token.sender or "", label, token.certificate or "")
    return any(text in each.casefold() for each in names)
