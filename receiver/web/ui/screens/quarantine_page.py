"""Files that were refused, or found bad after they were loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.stored.quarantine import list_quarantine
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_COUNT: Final = 50


@ROUTES.page("/ui/quarantine", "Quarantine")
def quarantine_page(page: PageCall) -> Response:
    """Quarantine."""
    edge, search, first = page.query("edge"), page.query("path"), page.place("from")
    sender = page.edge_named(edge) if edge else None
    entries = [each for each in list_quarantine(page.engine, sender) if search in each.path]
    shown = entries[first : first + _COUNT]
    return page.shown(
        "quarantine.html",
        "Quarantine",
        entries=shown,
        first=first,
        count=len(entries),
        step=_COUNT,
        edge=edge,
        search=search,
        labels={each: page.label_of(each) for each in {entry.sender for entry in shown}},
    )
