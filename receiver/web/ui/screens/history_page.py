"""The commits of the kept history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.operator.commit_history import list_commits
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()


@ROUTES.page("/ui/history", "Commits")
def history_page(page: PageCall) -> Response:
    """Commits, the newest first."""
    before = page.place("before")
    found = list_commits(page.engine, before=before or None)
    return page.shown("history.html", "History", found=found, before=before)
