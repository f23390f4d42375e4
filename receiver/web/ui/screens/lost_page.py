"""Files that neither side has any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.edges.lost import list_lost
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_COUNT: Final = 50


@ROUTES.page("/ui/lost", "Lost files")
def lost_page(page: PageCall) -> Response:
    """Lost files."""
    edge, first = page.query("edge"), page.place("from")
    files = list_lost(page.engine, page.edge_named(edge) if edge else None)
    shown = files[first : first + _COUNT]
    return page.shown(
        "lost.html",
        "Lost",
        files=shown,
        first=first,
        count=len(files),
        step=_COUNT,
        edge=edge,
        labels={each: page.label_of(each) for each in {file.sender for file in shown}},
    )
