"""Background work: what waits, runs, has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.asked_work.background_tasks import TASK_STATES, background_totals, list_tasks
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_COUNT: Final = 50


@ROUTES.page("/ui/tasks", "Background tasks")
def tasks_page(page: PageCall) -> Response:
    """Background tasks."""
    state = page.query("state")
    limit = min(_COUNT, page.there.config.limits.max_page_items)
    found = list_tasks(
        page.there, state=state or None, after=page.query("after") or None, limit=limit
    )
    return page.shown(
        "tasks.html",
        "Tasks",
        found=found,
        state=state,
        states=TASK_STATES,
        totals=background_totals(page.there),
    )
