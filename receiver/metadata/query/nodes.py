"""Sources of all that is not a series: devices, storage groups, nodes of the tree, tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from common.config.upload_rules import upload_text
from receiver.metadata.model.paths import MANY, ONE, Nodes, Pattern, device_name, format_path
from receiver.metadata.query import questions as ask
from receiver.metadata.query.ordering import Ahead, by_path, first_by_text, take_ahead
from receiver.metadata.query.row_source import (
    LabelsAt,
    Look,
    Row,
    RowSource,
    TakenRows,
    same,
    short,
    text_of,
)
from receiver.metadata.query.searching import (
    RowNumbers,
    ancestors,
    distinct,
    select,
    storage_groups,
    tag_keys,
    tag_pairs,
)
from receiver.metadata.query.timeseries import run_of, series_meant
from receiver.metadata.schema.looked_up.pattern_walk import has_leaves, walk
from receiver.metadata.schema.tree_columns.growing_columns import view

if TYPE_CHECKING:
    from receiver.metadata.model.engine_options import EngineOptions
    from receiver.metadata.schema import DeviceRow
    from receiver.metadata.schema.looked_up.pattern_walk import WantedNodes
    from receiver.metadata.state.state import State

__all__ = [
    "COUNT_DEVICES",
    "COUNT_NODES",
    "COUNT_STORAGE_GROUPS",
    "SHOW_CHILD_NODES",
    "SHOW_CHILD_PATHS",
    "SHOW_DEVICES",
    "SHOW_STORAGE_GROUPS",
    "SHOW_TAG_KEYS",
    "SHOW_TAG_VALUES",
    "SHOW_TTL",
    "SHOW_UPLOAD",
]

_DEVICES: Final = 50
"""Devices under one hold of the lock: of the past, all series of a device are looked at."""
_CHILDREN: Final = 200


def _take_nodes(
    look: Look, pattern: Pattern, wanted: WantedNodes, position: Any, count: int
) -> TakenRows:
    """Rows of nodes that match, in path order."""
    is_run = pattern.steps[-1] is MANY or (wanted == "node" and pattern.steps[-1] is ONE)
    if is_run and len(pattern.prefix) == len(pattern.steps) - 1:
        with look as (state, at):
            tree = state.schema.tree
            after = None if position is None else tree.nodes(position)
            met = walk(tree, pattern, at, wanted, after)
            rows = [row for _, row in zip(range(count), met)]  # noqa: B905  # so many at most
        return TakenRows(rows, rows[-1] if rows else position, len(rows) == count)

    def search(last: int | None, most: int) -> tuple[list[int], int | None]:
        rows = by_path(look, select(look, pattern, wanted), run_of(pattern), wanted, last, most)
        return rows, rows[-1] if rows else last

    return take_ahead(position, count, search)


# -- devices ---------------------------------------------------------------------------------------


def _take_devices(look: Look, asked: ask.ShowDevices, position: Any, count: int) -> TakenRows:
    pattern = asked.pattern
    if not pattern.is_path:
        return _take_nodes(look, pattern, "device", position, count)
    if position is None:  # itself, and all below it
        with look as (state, at):
            row = state.schema.devices.find(pattern.prefix, at)
        if row is not None:
            return TakenRows([row.row], row.row, True)
    return _take_nodes(look, pattern.below(), "device", position, count)


def _describe_devices(
    state: State, rows: Sequence[int], at: int | None
) -> Sequence[tuple[DeviceRow, str | None]]:
    found = [state.schema.devices.describe(row, at) for row in rows]
    return [(row, _owner(state, row.nodes, at)) for row in found]


def _owner(state: State, nodes: Nodes, at: int | None) -> str | None:
    """Whose a device is; who had it before the present owner is not kept here."""
    owner = state.owners.get(device_name(nodes))
    if owner is None or (at is not None and owner.since > at):
        return None
    return owner.sender


def _show_device(described: tuple[DeviceRow, str | None], _: LabelsAt) -> Row:
    row, owner = described
    return row.path, text_of(row.storage_group), row.aligned, row.series, row.created, owner


def _count_devices(look: Look, asked: ask.CountDevices) -> list[Row]:
    pattern = asked.pattern
    own = 0
    if pattern.is_path:
        with look as (state, at):
            own = state.schema.devices.find(pattern.prefix, at) is not None
        pattern = pattern.below()
    elif pattern == ask.ALL:
        with look as (state, at):
            if at is None:
                return [(state.schema.columns.device_count,)]
    return [(own + len(select(look, pattern, "device")),)]


# -- storage groups --------------------------------------------------------------------------------


def _take_groups(
    look: Look,
    asked: ask.ShowStorageGroups | ask.ShowTtl | ask.ShowUpload,
    position: Ahead | None,
    count: int,
) -> TakenRows:
    named = () if isinstance(asked, ask.ShowStorageGroups) else asked.groups
    patterns = named or (asked.pattern,)

    def search(last: int | None, most: int) -> tuple[list[int], int | None]:
        rows = by_path(look, storage_groups(look, patterns), ask.ALL, "node", last, most)
        return rows, rows[-1] if rows else last

    return take_ahead(position, count, search)


def _describe_groups(
    state: State, rows: Sequence[int], at: int | None
) -> Sequence[tuple[Nodes, int | None, int]]:
    tree, ttls = state.schema.tree, state.schema.columns.ttls
    found = []
    for row in rows:
        ttl = ttls.get(tree.ref[row], at, -1)
        found.append((tree.nodes(row), None if ttl < 0 else ttl, tree.created[row]))
    return found


def _show_group(described: tuple[Nodes, int | None, int], _: LabelsAt) -> Row:
    nodes, ttl, created = described
    return format_path(nodes), ttl, created


def _show_ttl(described: tuple[Nodes, int | None, int], _: LabelsAt) -> Row:
    nodes, ttl, _created = described
    return format_path(nodes), ttl


def _take_uploads(
    look: Look, asked: ask.ShowUpload, position: Ahead | None, count: int
) -> TakenRows:
    taken = _take_groups(look, asked, position, count)
    return taken._replace(rows=[(row, look.options) for row in taken.rows])


def _describe_uploads(
    state: State, rows: Sequence[tuple[int, EngineOptions]], _: int | None
) -> Sequence[tuple[str, str | None, str | None]]:
    found: list[tuple[str, str | None, str | None]] = []
    for row, options in rows:
        path = format_path(state.schema.tree.nodes(row))
        if options.upload is None:
            found.append((path, None, None))
        elif options.before_ack:
            found.append((path, upload_text(0), "before_ack"))
        else:
            is_said = state.upload_times.of(path) is not None
            after = state.upload_times.after(path, options.upload)
            found.append((path, upload_text(after), "statement" if is_said else "configuration"))
    return found


def _count_groups(look: Look, asked: ask.CountStorageGroups) -> list[Row]:
    return [(len(storage_groups(look, (asked.pattern,))),)]


# -- nodes -----------------------------------------------------------------------------------------


def _children(pattern: Pattern) -> Pattern:
    return Pattern((*pattern.steps, ONE))


def _take_children(look: Look, asked: ask.ShowChildPaths, position: Any, count: int) -> TakenRows:
    return _take_nodes(look, _children(asked.pattern), "node", position, count)


def _describe_children(
    state: State, rows: Sequence[int], at: int | None
) -> Sequence[tuple[Nodes, str]]:
    return [(state.schema.tree.nodes(row), _kind(state, row, at)) for row in rows]


def _kind(state: State, row: int, at: int | None) -> str:
    """As Apache IoTDB names them, from the root down."""
    tree = state.schema.tree
    kind = state.schema.nodes.kind(row)
    if kind == "storage_group":
        return "STORAGE GROUP"
    if kind == "leaf":
        return "TIMESERIES"
    if tree.storage_group(row) < 0:
        return "SG INTERNAL"
    return "DEVICE" if has_leaves(tree, row, at) else "INTERNAL"


def _show_child(row: tuple[Nodes, str], _: LabelsAt) -> Row:
    nodes, kind = row
    return format_path(nodes), kind


def _take_names(
    look: Look, asked: ask.ShowChildNodes, position: Ahead | None, count: int
) -> TakenRows:
    """Names as numbers, each once, in their order."""

    def search(last: Any, most: int) -> tuple[list[int], Any]:
        rows = select(look, _children(asked.pattern), "node")
        with look as (state, _):
            numbers: RowNumbers = view(state.schema.tree.name)[rows]
        return first_by_text(look, distinct(numbers), _names, last, most)

    return take_ahead(position, count, search)


def _names(state: State, numbers: Sequence[int]) -> list[str]:
    return state.schema.tree.names.texts(numbers)


def _describe_names(state: State, numbers: Sequence[int], _: int | None) -> Sequence[tuple[str]]:
    return [(name,) for name in _names(state, numbers)]


def _count_nodes(look: Look, asked: ask.CountNodes) -> list[Row]:
    pattern = asked.pattern.below() if asked.pattern.is_path else asked.pattern
    return [(len(distinct(ancestors(look, select(look, pattern, "node"), asked.level))),)]


# -- tags ------------------------------------------------------------------------------------------


def _tagged(look: Look, pattern: Pattern) -> Pattern:
    return pattern if pattern == ask.ALL else series_meant(look, pattern)


def _take_keys(look: Look, asked: ask.ShowTagKeys, position: Ahead | None, count: int) -> TakenRows:
    def search(last: Any, most: int) -> tuple[list[int], Any]:
        numbers = tag_keys(look, _tagged(look, asked.pattern))
        return first_by_text(look, numbers, _names, last, most)

    return take_ahead(position, count, search)


def _take_values(
    look: Look, asked: ask.ShowTagValues, position: Ahead | None, count: int
) -> TakenRows:
    def search(last: Any, most: int) -> tuple[list[int], Any]:
        pairs = tag_pairs(look, _tagged(look, asked.pattern), asked.key)
        return first_by_text(look, pairs, _pairs, last, most)

    return take_ahead(position, count, search)


def _pairs(state: State, pairs: Sequence[int]) -> list[tuple[str, str]]:
    text, index = state.schema.tree.names.text, state.schema.index
    return [(text(index.key[pair]), text(index.value[pair])) for pair in pairs]


def _describe_values(
    state: State, pairs: Sequence[int], _: int | None
) -> Sequence[tuple[str, str]]:
    return _pairs(state, pairs)


# -- their sources ---------------------------------------------------------------------------------

SHOW_DEVICES: Final = RowSource(
    ("devices", "storage group", "isAligned", "timeseries", "created", "owner"),
    _take_devices,
    _describe_devices,
    _show_device,
    step=_DEVICES,
)
SHOW_CHILD_PATHS: Final = RowSource(
    ("child paths", "node types"), _take_children, _describe_children, _show_child, step=_CHILDREN
)
SHOW_CHILD_NODES: Final = RowSource(("child nodes",), _take_names, _describe_names, same)
SHOW_STORAGE_GROUPS: Final = RowSource(
    ("storage group", "ttl", "created"), _take_groups, _describe_groups, _show_group
)
SHOW_TTL: Final = RowSource(("storage group", "ttl"), _take_groups, _describe_groups, _show_ttl)
SHOW_UPLOAD: Final = RowSource(
    ("storage group", "upload", "set by"), _take_uploads, _describe_uploads, same
)
COUNT_DEVICES: Final = short(("count(devices)",), _count_devices)
COUNT_STORAGE_GROUPS: Final = short(("count(storage group)",), _count_groups)
COUNT_NODES: Final = short(("count(nodes)",), _count_nodes)
SHOW_TAG_KEYS: Final = RowSource(("tag key",), _take_keys, _describe_names, same)
SHOW_TAG_VALUES: Final = RowSource(("tag key", "tag value"), _take_values, _describe_values, same)
