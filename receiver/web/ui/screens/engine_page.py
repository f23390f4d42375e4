"""The metadata engine, the disks, the clock and the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from common.hooks.hooks_config import shown_address
from receiver.operator.directories import RunningReceiver
from receiver.operator.status import short_status
from receiver.web.ui.page_routes import PageRoutes
from receiver.web.ui.screens.fleet_page import bucket_of

if TYPE_CHECKING:
    from flask import Response

    from common.hooks.event_queue import QueueStanding
    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()


@ROUTES.page("/ui/engine", "The engine and the disks")
def engine_page(page: PageCall) -> Response:
    """The engine and the disks."""
    node = page.call.site.node
    status = short_status(page.there, node.problem())
    return page.shown(
        "engine.html",
        "Engine and disks",
        status=replace(status, follows=node.follows()),
        failed=page.engine.failed,
        backend=page.call.site.config.metadata.backend,
        schema_dir=str(page.call.site.config.schema_dir),
        bucket=bucket_of(page),
        url=page.call.site.config.storage.url,
        hooks=_hooks(page),
    )


def _hooks(page: PageCall) -> list[tuple[str, str, QueueStanding | None]]:
    """Ways out by which somebody is told of what happens, to where, and how it stands with each."""
    there, config = page.there, page.call.site.config.hooks
    known = {}
    if isinstance(there, RunningReceiver) and there.hooks is not None:
        known = {each.way: each for each in there.hooks.standings()}
    ways = []
    if config.command:
        ways.append(("command", config.command[0], known.get("command")))
    if config.webhook is not None:
        ways.append(("webhook", shown_address(config.webhook), known.get("webhook")))
    return ways
