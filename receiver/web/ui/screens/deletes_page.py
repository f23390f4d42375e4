"""Deletions of edges that wait for somebody to let them through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.stored.deletes import list_held_deletes
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_PATHS: Final = 20


@ROUTES.page("/ui/deletes", "Held deletions")
def deletes_page(page: PageCall) -> Response:
    """Held deletions."""
    lists = list_held_deletes(page.engine)
    return page.shown(
        "deletes.html",
        "Held deletions",
        lists=lists,
        labels={each: page.label_of(each) for each in {held.sender for held in lists}},
        most=_PATHS,
    )
