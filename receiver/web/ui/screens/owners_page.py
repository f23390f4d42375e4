"""Devices and who owns them, and the conflicts between edges that claim one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.edges.owners import list_owners
from receiver.operator.stored.quarantine import list_quarantine
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.metadata.state.table_rows import OwnerRow
    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_COUNT: Final = 50
_CONFLICTS: Final = 100


@ROUTES.page("/ui/owners", "Owners and conflicts")
def owners_page(page: PageCall) -> Response:
    """Owners and conflicts."""
    search, after = page.query("device").strip(), page.query("after")
    # Devices lie in the order of their names: a search is for how one begins.
    begin = after or (_before(search) if search else "")
    limit = min(_COUNT, page.there.config.limits.max_page_items)
    found = list_owners(page.there, after=begin or None, limit=limit)
    owners = [each for each in found.owners if each.device.startswith(search)]
    more = found.next if len(owners) == len(found.owners) else None
    claimed = [each for each in list_quarantine(page.engine) if each.device is not None]
    with page.engine.reading() as state:
        holders = {each.device: state.owners.get(each.device or "") for each in claimed}
        devices = len(state.owners)
    # Of a device that is free, or its own by now, the next round of the edge brings the file.
    conflicts = [
        each
        for each in claimed
        if (owner := holders[each.device]) is not None and owner.sender != each.sender
    ]
    shown = conflicts[:_CONFLICTS]
    return page.shown(
        "owners.html",
        "Owners and conflicts",
        owners=owners,
        next=more,
        search=search,
        conflicts=shown,
        conflict_count=len(conflicts),
        holders=holders,
        labels={
            each: page.label_of(each)
            for entry in shown
            for each in (entry.sender, _holder(holders[entry.device]))
        },
        devices=devices,
    )


def _holder(row: OwnerRow | None) -> str:
    return "" if row is None else row.sender


def _before(text: str) -> str:
    """What sorts right before everything that begins so."""
    return f"{text[:-1]}{chr(max(ord(text[-1]) - 1, 0))}\U0010ffff"
