"""One edge: all that is known of it, what waits for somebody, and what can be done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import NotFoundError
from receiver.operator.edges.fleet import edge_row
from receiver.operator.edges.lost import list_lost
from receiver.operator.stored.deletes import list_held_deletes
from receiver.operator.stored.file_search import FileSearch, search_files
from receiver.operator.stored.quarantine import list_quarantine
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_SHOWN: Final = 10


@ROUTES.page("/ui/edge/<sender>", "One edge")
def edge_page(page: PageCall) -> Response:
    """One edge."""
    sender = page.call.arguments["sender"]
    row = edge_row(page.there, sender)
    if row is None:
        raise NotFoundError(f"no sender {sender[:60]!a} has been here")
    rates = page.call.site.page.rates
    level = rates.follow()
    return page.shown(
        "edge.html",
        f"Edge {row.view.label or sender[:8]}",
        edge=row.view,
        troubles=row.troubles,
        rate=rates.of(sender),
        level=level,
        quarantined=list_quarantine(page.engine, sender),
        held=[each for each in list_held_deletes(page.engine) if each.sender == sender],
        lost=list_lost(page.engine, sender),
        files=search_files(page.there, FileSearch(sender=sender, state="live", count=_SHOWN)),
        limit=_SHOWN,
    )
