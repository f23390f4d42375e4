"""Storage groups as tables, and their tablets: how much of which time there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.group_content import GroupContent, content_of_group
from receiver.operator.table_lists import list_tables, list_tablets
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.operator.table_views import TabletView
    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_COUNT: Final = 100


@ROUTES.page("/ui/groups", "Storage groups")
def groups_page(page: PageCall) -> Response:
    """Storage groups."""
    at = page.query("at")
    with page.engine.reading() as state:
        columns = state.schema.columns
        series, devices = columns.series_count, columns.device_count
        lives = {row.path: row.ttl for row in state.schema.groups.rows()}
    limit = min(_COUNT, page.there.config.limits.max_page_items)
    found = list_tables(page.there, at=at or None, after=page.query("after") or None, limit=limit)
    return page.shown(
        "groups.html",
        "Storage groups",
        found=found,
        at=at,
        series=series,
        devices=devices,
        lives=lives,
        most=max((each.size for each in found.tables), default=0),
    )


@ROUTES.page("/ui/groups/<table>", "One storage group")
def group_page(page: PageCall) -> Response:
    """One storage group: its tablets."""
    at = page.query("at")
    limit = min(_COUNT, page.there.config.limits.max_page_items)
    found = list_tablets(
        page.there,
        page.call.arguments["table"],
        at=at or None,
        after=page.query("after") or None,
        limit=limit,
    )
    content = GroupContent(points=None)
    if not at:
        content = content_of_group(page.engine, found.name, _files_of(page, found.name))
    return page.shown(
        "group.html",
        f"Storage group {found.name}",
        found=found,
        at=at,
        series=content.series,
        points={each.id: _points_in(each, content.points) for each in found.tablets},
        days=page.call.site.config.partition_interval / 86_400,
        most=max((each.size for each in found.tablets), default=0),
    )


def _files_of(page: PageCall, name: str) -> int:
    with page.engine.reading() as state:
        return state.file_table.by_partition.of(name, -(1 << 63), 1 << 63).files


def _points_in(tablet: TabletView, points: dict[int, int] | None) -> int | None:
    if points is None:
        return None
    return sum(many for number, many in points.items() if tablet.begin <= number < tablet.end)
