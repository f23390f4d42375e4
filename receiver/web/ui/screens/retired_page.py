"""Files that their edges have no more: retired, or superseded by others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.stored.retired import GONE_STATES, list_retired, retired_totals, show_retired
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_COUNT: Final = 50
_RANGES: Final = 200


@ROUTES.page("/ui/retired", "Retired files")
def retired_page(page: PageCall) -> Response:
    """Retired files."""
    state = page.chosen("state", GONE_STATES)
    limit = min(_COUNT, page.there.config.limits.max_page_items)
    found = list_retired(page.there, state=state, after=page.query("after") or None, limit=limit)
    return page.shown(
        "retired.html",
        "Retired",
        found=found,
        state=state,
        states=GONE_STATES,
        totals=retired_totals(page.there),
        labels={each: page.label_of(each) for each in {file.sender for file in found.files}},
    )


@ROUTES.page("/ui/retired/file", "A retired file")
def retired_file_page(page: PageCall) -> Response:
    """What of a retired file exists nowhere else, or what a superseded one rests on."""
    file = show_retired(page.there, page.query("physical"))
    return page.shown(
        "retired_file.html",
        "Retired file",
        file=file,
        label=page.label_of(file.sender),
        ranges=_RANGES,
    )
