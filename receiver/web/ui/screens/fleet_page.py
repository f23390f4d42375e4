"""All edges: how each is, what it has left, and how much came lately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.directories import RunningReceiver
from receiver.operator.edges.fleet import EDGE_ORDERS, list_fleet
from receiver.operator.status import short_status
from receiver.operator.stored.storage import running_storage
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.operator.views.status_views import StorageView
    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES", "bucket_of"]

ROUTES = PageRoutes()
_ORDERS: Final = (
    ("label", "Edge"),
    ("trouble", "State"),
    ("heard", "Heard"),
    ("complete", "Complete until"),
    ("pending", "Pending"),
    ("files", "Files"),
    ("bytes", "Size"),
    ("version", "Version"),
)
"""What edges are sorted by, as the columns are called."""


@ROUTES.page("/ui/", "All edges")
def fleet_page(page: PageCall) -> Response:
    """All edges."""
    asked = page.list_asked(EDGE_ORDERS)
    found = list_fleet(page.there, asked)
    rates = page.call.site.page.rates
    level = rates.follow()
    return page.shown(
        "fleet.html",
        "Fleet",
        found=found,
        rates={each.view.uuid: rates.of(each.view.uuid) for each in found.edges},
        level=level,
        asked=asked,
        orders=_ORDERS,
        status=short_status(page.there, page.call.answering.problem()),
        bucket=bucket_of(page),
    )


def bucket_of(page: PageCall) -> StorageView | None:
    """How the copies in the object store are; None without one, and while it was not reached.

    What is counted in the catalogue in its place then would look at every file.
    """
    there = page.there
    if not isinstance(there, RunningReceiver) or there.storage is None:
        return None
    return running_storage(there) if there.storage.progress().incarnation else None
