"""All pages, in the order of the navigation."""

from __future__ import annotations

from typing import Final

from receiver.web.ui.actions import confirming_page
from receiver.web.ui.screens import (
    deletes_page,
    edge_page,
    engine_page,
    files_page,
    fleet_page,
    groups_page,
    history_page,
    login_page,
    lost_page,
    nodes_page,
    owners_page,
    quarantine_page,
    retired_page,
    tasks_page,
    tokens_page,
    verification_page,
)

__all__ = ["PAGES"]

PAGES: Final = (
    *login_page.ROUTES,
    *fleet_page.ROUTES,
    *edge_page.ROUTES,
    *files_page.ROUTES,
    *groups_page.ROUTES,
    *owners_page.ROUTES,
    *quarantine_page.ROUTES,
    *deletes_page.ROUTES,
    *retired_page.ROUTES,
    *lost_page.ROUTES,
    *tasks_page.ROUTES,
    *history_page.ROUTES,
    *verification_page.ROUTES,
    *nodes_page.ROUTES,
    *tokens_page.ROUTES,
    *engine_page.ROUTES,
    *confirming_page.ROUTES,
)
