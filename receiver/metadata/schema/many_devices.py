"""Many devices of one load all at once: new ones are made with their series, known ones get warmer.

One by one a new device costs some fifty microseconds and a known one twenty, most of it for each of
its rows by itself; of a hundred thousand readers would see nothing for seconds. Here each column is
filled by one step.
"""

from __future__ import annotations

from array import array
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from receiver.metadata.model.paths import Nodes, parse_stored
from receiver.metadata.schema.looked_up.blocks import find_blocks
from receiver.metadata.schema.memory import INNER_BYTES, LEAF_BYTES
from receiver.metadata.schema.tree_columns.growing_columns import Ints, reach, view
from receiver.metadata.schema.tree_columns.heat import COLD
from receiver.metadata.schema.tree_columns.node_tree import (
    ALIGNED,
    INTERNAL,
    KIND,
    LEAF,
    STORAGE_GROUP,
)
from receiver.metadata.schema.tree_columns.series_codes import series_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from receiver.metadata.model.records import LoadedDevice
    from receiver.metadata.schema.tree_columns.node_tree import NodeTree
    from receiver.metadata.schema.tree_columns.schemacolumns import SchemaColumns

__all__ = ["MANY_DEVICES", "load_together"]

MANY_DEVICES: Final = 64
"""From so many on one step for all takes less than one for each."""
_QUOTE: Final = "`"


class _Leaves(NamedTuple):
    """The series of all devices, one behind the other, as columns."""

    counts: Ints
    names: Ints
    codes: Ints
    lasts: Ints


def load_together(
    columns: SchemaColumns,
    devices: Sequence[LoadedDevice],
    ts: int,
    make_inner: Callable[[Nodes], int],
) -> Sequence[LoadedDevice]:
    """Make those that never were, with their series; raise the heat of known ones.

    Args:
        columns: of the schema.
        devices: of a load, checked.
        ts: of the commit.
        make_inner: gives the row of an inner node, which it makes if it is not there.

    Returns:
        the others, in their order: what is there with other series, or was there once, or comes a
        second time.
    """
    above, numbers = _places(columns, devices, make_inner)
    rows = columns.tree.index.find_many(above, numbers)
    _, firsts = np.unique(above.astype(np.int64) << 32 | numbers, return_index=True)
    first = np.zeros(len(rows), bool)
    first[firsts] = True
    fresh, known = first & (rows < 0), first & (rows >= 0)
    done = np.zeros(len(rows), bool)
    if np.count_nonzero(fresh) >= MANY_DEVICES:
        _make(columns, _only(devices, fresh), above[fresh], numbers[fresh], ts)
        done |= fresh
    if np.count_nonzero(known) >= MANY_DEVICES and not columns.has_ended(ts):
        done[known] = _warm(columns, _only(devices, known), rows[known], ts)
    return _only(devices, ~done)


def _only(devices: Sequence[LoadedDevice], which: NDArray[np.bool_]) -> Sequence[LoadedDevice]:
    return devices if which.all() else list(compress(devices, which.tolist()))


def _places(
    columns: SchemaColumns, devices: Sequence[LoadedDevice], make_inner: Callable[[Nodes], int]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The row above each device, which is made if need be, and the number of its name.

    All above are made before any device is: one of these may be above another one.
    """
    rows: dict[str, int] = {}
    found = array("i")
    names: list[str] = []
    for each in devices:
        text = each.device
        if _QUOTE in text:
            nodes = parse_stored(text)
            found.append(make_inner(nodes[:-1]))
            names.append(nodes[-1])
            continue
        above, _, name = text.rpartition(".")
        row = rows.get(above)
        if row is None:
            row = rows[above] = make_inner(parse_stored(above))
        found.append(row)
        names.append(name)
    numbers = np.array(columns.tree.names.intern_many(names), np.int32)
    return view(found).astype(np.int32), numbers


def _make(
    columns: SchemaColumns,
    devices: Sequence[LoadedDevice],
    above: NDArray[np.int32],
    numbers: NDArray[np.int32],
    ts: int,
) -> None:
    tree, leaves = columns.tree, _leaves(columns, devices)
    counts, names = view(leaves.counts).astype(np.int32), view(leaves.names).astype(np.int32)
    aligned = np.fromiter((each.aligned for each in devices), np.uint8, len(devices)) * ALIGNED
    inner = tree.new_inners(len(devices))
    rows = _add_rows(tree, above, numbers, aligned | INTERNAL, inner, ts)
    _put_below(tree, above, rows)
    series = _add_rows(
        tree, np.repeat(rows, counts), names, np.repeat(aligned | LEAF, counts), leaves.codes, ts
    )
    _fill(tree, inner, series, counts)
    reach(columns.heats.now, int(series.max()) + 1, COLD)
    view(columns.heats.now)[series] = view(leaves.lasts)
    lengths = view(tree.names.lengths)
    columns.memory += len(rows) * INNER_BYTES + int(lengths[numbers].sum())
    columns.memory += len(series) * LEAF_BYTES + int(lengths[names].sum())
    columns.device_count += len(rows)
    columns.series_count += len(series)


def _warm(
    columns: SchemaColumns, devices: Sequence[LoadedDevice], rows: NDArray[np.int32], ts: int
) -> NDArray[np.bool_]:
    """Raise the heat of devices whose series are all there, side by side; of which that is so."""
    tree, leaves = columns.tree, _leaves(columns, devices)
    counts, names = view(leaves.counts).astype(np.int32), view(leaves.names).astype(np.int32)
    begins = find_blocks(tree, rows, names, counts)
    kinds = view(tree.kind)[rows] & KIND
    found: NDArray[np.bool_] = (begins >= 0) & ((kinds == INTERNAL) | (kinds == STORAGE_GROUP))
    if found.any():
        lasts = view(leaves.lasts)[np.repeat(found, counts)]
        found[found] = columns.heats.raise_blocks(
            rows[found], begins[found], counts[found], lasts, ts
        )
    return found


def _leaves(columns: SchemaColumns, devices: Sequence[LoadedDevice]) -> _Leaves:
    made = _Leaves(array("i"), array("i"), array("i"), array("q"))
    known: dict[Any, tuple[Ints, Ints]] = {}  # most devices of a load have the same series
    for each in devices:
        shape = (tuple(each.names), each.types, each.encodings, each.compressions)
        found = known.get(shape)
        if found is None:
            numbers = array("i", columns.tree.names.intern_many(each.names))
            found = known[shape] = numbers, series_codes(*shape[1:])
        made.names.extend(found[0])
        made.codes.extend(found[1])
        made.counts.append(len(found[0]))
        if None in each.lasts:
            made.lasts.extend([COLD if last is None else last for last in each.lasts])
        else:
            made.lasts.extend(each.lasts)  # type: ignore[arg-type]
    return made


def _add_rows(
    tree: NodeTree,
    parents: NDArray[np.int32],
    names: NDArray[np.int32],
    kinds: NDArray[Any],
    refs: Ints,
    ts: int,
) -> NDArray[np.int32]:
    """Rows that live from a commit on; nothing has been under these names."""
    rows, there = tree.take_rows(len(names))
    view(tree.parent)[there] = parents
    view(tree.name)[there] = names
    view(tree.kind)[there] = kinds
    view(tree.depth)[there] = view(tree.depth)[parents] + 1
    view(tree.created)[there] = ts
    view(tree.deleted)[there] = 0
    view(tree.ref)[there] = view(refs)
    tree.index.put_new(parents, names, rows)
    return rows


def _put_below(tree: NodeTree, above: NDArray[np.int32], rows: NDArray[np.int32]) -> None:
    """Link new devices below what is above each, before the children that are there."""
    order = np.argsort(above, kind="stable")
    rows, above = rows[order], above[order]
    begins = np.flatnonzero(np.diff(above, prepend=-1))
    ends = np.append(begins[1:], len(rows)) - 1
    inner = view(tree.ref)[above[begins]]
    heads = view(tree.first)[inner]
    after, before = view(tree.next), view(tree.prev)
    after[rows[:-1]] = rows[1:]
    before[rows[1:]] = rows[:-1]
    before[rows[begins]] = -1
    after[rows[ends]] = heads
    before[heads[heads >= 0]] = rows[ends][heads >= 0]
    view(tree.first)[inner] = rows[begins]
    view(tree.live)[inner] += (ends - begins + 1).astype(np.int32)
    for parent, begin, end in zip(
        above[begins].tolist(), begins.tolist(), ends.tolist(), strict=True
    ):
        if tree.order.keeps(parent):
            tree.order.added(parent, rows[begin : end + 1].tolist())


def _fill(
    tree: NodeTree, inner: Ints, series: NDArray[np.int32], counts: NDArray[np.int32]
) -> None:
    """Link the series of each device, which has none yet."""
    ends = np.cumsum(counts)
    begins = ends - counts
    after, before = view(tree.next), view(tree.prev)
    after[series[:-1]] = series[1:]
    before[series[1:]] = series[:-1]
    before[series[begins]] = -1
    after[series[ends - 1]] = -1
    where = view(inner)
    view(tree.first)[where] = series[begins]
    view(tree.live)[where] = counts
    view(tree.leaves)[where] = counts
