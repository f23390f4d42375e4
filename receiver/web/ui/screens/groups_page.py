"""Storage groups: their tablets, how much of which time there is, and their trees of series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import UsageError
from common.text_numbers import signed_number
from receiver.metadata.model.paths import is_outside_tree, parse_stored
from receiver.metadata.model.types import COMPRESSION_TEXTS, ENCODING_TEXTS, TYPE_TEXTS
from receiver.metadata.query.row_source import Look
from receiver.metadata.sql.executing import moment
from receiver.operator.namespace.group_partitions import partition_window
from receiver.operator.namespace.group_tree import count_series, tree_level
from receiver.operator.namespace.table_lists import list_tables, list_tablets, table_named
from receiver.web.ui.drawing.points_chart import points_chart
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow
    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_COUNT: Final = 100
_FIRST_NODES: Final = 20
"""Nodes of the tree on the page of a group."""
_WINDOW: Final = 120
"""Partitions of a chart: over two years of weeks."""
_CODES: Final = {
    "type": TYPE_TEXTS,
    "encoding": ENCODING_TEXTS,
    "compression": COMPRESSION_TEXTS,
}


@ROUTES.page("/ui/groups", "Storage groups")
def groups_page(page: PageCall) -> Response:
    """Storage groups."""
    at = page.query("at")
    with page.engine.reading() as state:
        columns = state.schema.columns
        series, devices = columns.series_count, columns.device_count
        lives = {_directory(row.path): row.ttl for row in state.schema.groups.rows()}
    limit = _most(page)
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
    """One storage group: points by time, the top of its tree, its tablets."""
    at, after = page.query("at"), page.query("after")
    found = list_tablets(
        page.there,
        page.call.arguments["table"],
        at=at or None,
        after=after or None,
        limit=_most(page),
    )
    window = None if at else partition_window(page.engine, found.name, width=_WINDOW)
    return page.shown(
        "group.html",
        f"Storage group {found.name}",
        found=found,
        at=at,
        series=None if at else count_series(page.engine, found.name),
        tree=tree_level(page.engine, found.name, at=at or None, limit=_FIRST_NODES),
        codes=_CODES,
        window=window,
        chart=None if window is None else points_chart(window, _interval(page)),
        interval=_interval(page),
        most=max((each.size for each in found.tablets), default=0),
    )


@ROUTES.page("/ui/groups/<table>/partitions", "Time partitions of a storage group")
def partitions_page(page: PageCall) -> Response:
    """Time partitions of a storage group: files, bytes and points of each."""
    table = _table(page)
    window = partition_window(page.engine, table.name, _until(page), width=_WINDOW)
    return page.shown(
        "group_partitions.html",
        f"Time partitions of {table.name}",
        table=table,
        window=window,
        chart=points_chart(window, _interval(page)),
        interval=_interval(page),
        most=max((each.points for each in window.totals.values()), default=0),
    )


@ROUTES.page("/ui/groups/<table>/tree", "A node of a storage group")
def tree_page(page: PageCall) -> Response:
    """A node of a storage group: what stands below it, and its series."""
    at = page.query("at")
    table = _table(page)
    node = page.query("node")
    tree = tree_level(
        page.engine,
        table.name,
        node or None,
        at=at or None,
        after=page.query("after") or None,
        limit=_most(page),
    )
    return page.shown(
        "group_tree.html",
        tree.above[-1][1] if tree is not None else f"Tree of {table.name}",
        table=table,
        at=at,
        node=node,
        tree=tree,
        codes=_CODES,
    )


def _directory(path: str) -> str:
    """What the directory of a storage group is called, by its path in the schema."""
    nodes = parse_stored(path)
    return nodes[1][1:] if is_outside_tree(nodes) else path


def _table(page: PageCall) -> LoadedTableRow:
    look = Look(page.engine, page.engine.at(moment(page.query("at") or None)))
    return table_named(look, page.call.arguments["table"])


def _until(page: PageCall) -> int | None:
    text = page.query("until")
    if not text:
        return None
    number = signed_number(text)
    if number is None:
        raise UsageError("until: expected the number of a partition")
    return number


def _most(page: PageCall) -> int:
    return min(_COUNT, page.there.config.limits.max_page_items)


def _interval(page: PageCall) -> float:
    return page.call.site.config.partition_interval
