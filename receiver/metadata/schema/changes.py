"""What commits do to the schema: they were validated, and nothing here refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from receiver.metadata.model.paths import MANY, Nodes, Pattern, parse_stored
from receiver.metadata.schema.looked_up.blocks import rows_below
from receiver.metadata.schema.looked_up.matching import select_series
from receiver.metadata.schema.many_devices import MANY_DEVICES, load_together
from receiver.metadata.schema.memory import ALIAS_BYTES, INNER_BYTES, LEAF_BYTES, TAG_BYTES
from receiver.metadata.schema.tree_columns.ended import NODE, OFFSET, POSTING, TTL
from receiver.metadata.schema.tree_columns.growing_columns import BATCH, view
from receiver.metadata.schema.tree_columns.node_tree import (
    ALIAS,
    ALIGNED,
    INTERNAL,
    KIND,
    LEAF,
    ROOT_ROW,
    STORAGE_GROUP,
)
from receiver.metadata.schema.tree_columns.series_codes import series_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from receiver.metadata.model.records import LoadedDevice
    from receiver.metadata.schema.tree_columns.schemacolumns import SchemaColumns

__all__ = ["TreeChanges"]


class TreeChanges:
    """Applying operations; `ts` is the timestamp of their commit."""

    __slots__ = ("_columns", "_index", "_tree")

    def __init__(self, columns: SchemaColumns) -> None:
        self._columns = columns
        self._tree = columns.tree
        self._index = columns.index

    # -- storage groups ---------------------------------------------------------------------------

    def set_storage_group(self, nodes: Nodes, ts: int) -> None:
        """A new storage group; the nodes above it are made where they are missing."""
        parent = self._make_inner(nodes[:-1], ts)
        self._add_inner(parent, nodes[-1], STORAGE_GROUP, ts)
        self._columns.storage_group_count += 1

    def delete_storage_group(self, nodes: Nodes, ts: int) -> int:
        """A storage group goes with all below it, and the empty nodes above; gives its series."""
        row = self._tree.find(nodes)
        count = self.delete_series(Pattern((*nodes, MANY)), ts)
        rows = np.array([row], np.int32)
        self._end_inner(rows, ts)
        self._prune(view(self._tree.parent)[rows], ts)
        self._columns.storage_group_count -= 1
        return count

    def set_ttl(self, nodes: Nodes, ttl: int | None, ts: int) -> None:
        """How long files of a storage group are kept, in milliseconds; None for ever."""
        inner = self._tree.ref[self._tree.find(nodes)]
        before = self._columns.ttls.put(inner, -1 if ttl is None else ttl, ts)
        if before >= 0:
            self._columns.ended.put(TTL, before, ts)

    # -- series -----------------------------------------------------------------------------------

    def create_series(
        self,
        device: Nodes,
        names: Sequence[str],
        types: bytes,
        encodings: bytes,
        compressions: bytes,
        ts: int,
        *,
        aligned: bool = False,
        aliases: Sequence[str | None] | None = None,
        tags: Sequence[dict[str, str]] | None = None,
        props: Sequence[dict[str, str]] | None = None,
        offsets: Sequence[int] | None = None,
        stamps: Sequence[int] | None = None,
    ) -> None:
        """New series of one device, in its storage group; the device is made if it is missing.

        Args:
            device: its nodes.
            names: bare measurement names; none of them is there, none twice.
            types: TSDataType codes, one byte each.
            encodings: TSEncoding codes, one byte each.
            compressions: CompressionType codes, one byte each.
            ts: of the commit.
            aligned: for a device without series; others stay as they are.
            aliases: of each, None for none.
            tags: of each, for the index.
            props: of each.
            offsets: of each, where its tags and attributes are in the tag log; -1 for none.
            stamps: timestamps of the commits that made each, `ts` is the first of them; for a
                replay, which takes many commits together.
        """
        rows = self._make_leaves(device, names, types, encodings, compressions, ts, aligned)
        if stamps is not None:
            view(self._tree.created)[rows] = stamps
        if aliases:
            for row, alias in zip(rows, aliases, strict=True):
                if alias is not None:
                    self._put_alias(row, alias, ts)
        if tags:
            for row, own in zip(rows, tags, strict=True):
                if own:
                    self._put_tags(row, own, ts)
        if props:
            for row, own in zip(rows, props, strict=True):
                if own:
                    self._columns.memory += self._columns.props.put(row, own)
        if offsets:
            for row, offset in zip(rows, offsets, strict=True):
                if offset >= 0:
                    self._columns.offsets.put(row, offset, ts)

    def load_devices(self, devices: Sequence[LoadedDevice], ts: int) -> None:
        """What a loaded file has, device by device; see `load_series`."""
        if len(devices) >= MANY_DEVICES:
            devices = load_together(self._columns, devices, ts, partial(self._make_inner, ts=ts))
        for each in devices:
            self.load_series(
                parse_stored(each.device),
                each.names,
                each.types,
                each.encodings,
                each.compressions,
                each.lasts,
                ts,
                aligned=each.aligned,
            )

    def load_series(
        self,
        device: Nodes,
        names: Sequence[str],
        types: bytes,
        encodings: bytes,
        compressions: bytes,
        lasts: Sequence[int | None],
        ts: int,
        *,
        aligned: bool = False,
    ) -> int:
        """What a loaded file has of a device: missing series are made, heat grows.

        Args:
            device: as in `create_series`, as the next four and `aligned`.
            names: a series that is there keeps its type.
            types: see there.
            encodings: see there.
            compressions: see there.
            lasts: newest time of each, None without points.
            ts: of the commit.
            aligned: see there.

        Returns:
            how many were made.
        """
        parent = self._tree.find_inner(device)
        rows = rows_below(self._tree, parent, names)
        made = 0
        if -1 in rows:
            missing = [row < 0 for row in rows]
            new = self._make_leaves(
                device,
                list(compress(names, missing)),
                bytes(compress(types, missing)),
                bytes(compress(encodings, missing)),
                bytes(compress(compressions, missing)),
                ts,
                aligned,
            )
            made = len(new)
            fresh = iter(new)
            rows = [next(fresh) if row < 0 else row for row in rows]
            parent = self._tree.parent[new[0]]
        ended = self._columns.has_ended(ts)
        self._columns.heats.raise_to(parent, rows, lasts, ts, ended=ended)
        return made

    def delete_series(self, pattern: Pattern, ts: int) -> int:
        """All series that match go, with their aliases and the nodes that are empty then.

        The storage group stays. Gives how many went.
        """
        if pattern.is_path:
            row = self._tree.find(pattern.prefix)
            found = row >= 0 and self._tree.kind[row] & KIND == LEAF
            rows = np.array([row] if found else [], np.int32)
        else:
            rows = select_series(self._tree, pattern)
        if len(rows):
            self._end_leaves(rows, ts)
        return len(rows)

    def delete_paths(self, paths: Sequence[Nodes], ts: int) -> int:
        """The same as `delete_series` with each of these paths, in one go."""
        tree = self._tree
        found = dict.fromkeys(map(tree.find, paths))
        rows = [row for row in found if row >= 0 and tree.kind[row] & KIND == LEAF]
        if rows:
            self._end_leaves(np.array(rows, np.int32), ts)
        return len(rows)

    def set_alias(self, nodes: Nodes, alias: str | None, ts: int) -> None:
        """The other name of a series in its device; None takes it away."""
        tree = self._tree
        row = tree.find(nodes)
        newest = tree.alias[row] if row < len(tree.alias) else -1
        if newest >= 0 and not tree.deleted[newest]:
            if alias is not None and tree.names.text(tree.name[newest]) == alias:
                return
            self._end_aliases(np.array([newest], np.int32), ts)
        if alias is not None:
            self._put_alias(row, alias, ts)
        else:
            # The row of the alias will be collected: what stays says when the series was changed.
            self._put_offset(row, self._columns.offsets.get(row, None, -1), ts)

    def set_tags(self, nodes: Nodes, tags: Mapping[str, str], offset: int, ts: int) -> None:
        """All tags of a series from now on; `offset` of them and its attributes in the tag log."""
        row = self._tree.find(nodes)
        ended, left = self._index.end_others(row, tags, ts)
        for posting in ended:
            self._columns.ended.put(POSTING, posting, ts)
            self._columns.memory -= TAG_BYTES + self._index.value_length(posting)
        self._put_tags(row, left, ts)
        self._put_offset(row, offset, ts)

    # -- making -----------------------------------------------------------------------------------

    def _make_inner(self, nodes: Nodes, ts: int) -> int:
        tree = self._tree
        row = tree.known(nodes)
        if row >= 0:
            return row
        parent = self._make_inner(nodes[:-1], ts)
        row = tree.child(parent, tree.names.intern(nodes[-1]))
        if row < 0:
            row = self._add_inner(parent, nodes[-1], INTERNAL, ts)
        tree.remember(nodes, row)
        return row

    def _add_inner(self, parent: int, node: str, kind: int, ts: int) -> int:
        names = self._tree.names
        name = names.intern(node)
        self._columns.memory += INNER_BYTES + names.lengths[name]
        return self._tree.add(parent, name, kind, -1, ts)

    def _make_leaves(
        self,
        device: Nodes,
        names: Sequence[str],
        types: bytes,
        encodings: bytes,
        compressions: bytes,
        ts: int,
        aligned: bool,
    ) -> list[int]:
        tree = self._tree
        parent = self._make_inner(device, ts)
        if not tree.leaves[tree.ref[parent]]:
            self._columns.device_count += 1
            kind = tree.kind[parent] & KIND
            tree.kind[parent] = kind | ALIGNED if aligned else kind
        kind = LEAF | tree.kind[parent] & ALIGNED
        if len(names) == 1:  # most often
            number = tree.names.intern(names[0])
            code = types[0] | encodings[0] << 8 | compressions[0] << 16
            self._columns.series_count += 1
            self._columns.memory += LEAF_BYTES + tree.names.lengths[number]
            return [tree.add(parent, number, kind, code, ts)]
        numbers = tree.names.intern_many(names)
        self._columns.series_count += len(numbers)
        if len(numbers) < BATCH:
            lengths = tree.names.lengths
            self._columns.memory += sum(LEAF_BYTES + lengths[number] for number in numbers)
        else:
            self._columns.memory += LEAF_BYTES * len(numbers)
            self._columns.memory += int(view(tree.names.lengths)[numbers].sum())
        return tree.add_leaves(
            parent, numbers, kind, series_codes(types, encodings, compressions), ts
        )

    def _put_alias(self, row: int, alias: str, ts: int) -> None:
        tree = self._tree
        name = tree.names.intern(alias)
        tree.set_alias(row, tree.add(tree.parent[row], name, ALIAS, row, ts))
        self._columns.memory += ALIAS_BYTES + tree.names.lengths[name]

    def _put_tags(self, row: int, tags: Mapping[str, str], ts: int) -> None:
        self._columns.memory += TAG_BYTES * len(tags) + self._index.add(row, tags, ts)

    def _put_offset(self, row: int, offset: int, ts: int) -> None:
        before = self._columns.offsets.put(row, offset, ts)
        if before >= 0:
            self._columns.ended.put(OFFSET, before, ts)

    # -- ending: what is below goes into the queue of history before what is above ----------------

    def _end_leaves(self, rows: NDArray[np.int32], ts: int) -> None:
        tree = self._tree
        named = rows[rows < len(tree.alias)]
        if len(named):
            aliases = view(tree.alias)[named]
            aliases = aliases[aliases >= 0]
            self._end_aliases(aliases[view(tree.deleted)[aliases] == 0], ts)
        postings = self._index.end(rows, ts)
        if len(postings):
            lengths = self._index.value_lengths(postings)
            self._columns.memory -= TAG_BYTES * len(postings) + int(lengths.sum())
            self._columns.ended.put_many(POSTING, postings, ts)
        self._columns.memory -= self._columns.props.bytes_of(rows)
        view(tree.deleted)[rows] = ts
        self._columns.ended.put_many(NODE, rows, ts)
        self._columns.series_count -= len(rows)
        self._columns.memory -= LEAF_BYTES * len(rows) + self._name_bytes(rows)
        parents, counts = np.unique(view(tree.parent)[rows], return_counts=True)
        inner = view(tree.ref)[parents]
        view(tree.leaves)[inner] -= counts.astype(np.int32)
        view(tree.live)[inner] -= counts.astype(np.int32)
        self._columns.device_count -= int(np.count_nonzero(view(tree.leaves)[inner] == 0))
        self._prune(parents, ts, counted=True)

    def _end_aliases(self, rows: NDArray[np.int32], ts: int) -> None:
        if len(rows):
            view(self._tree.deleted)[rows] = ts
            self._columns.ended.put_many(NODE, rows, ts)
            self._columns.memory -= ALIAS_BYTES * len(rows) + self._name_bytes(rows)

    def _end_inner(self, rows: NDArray[Any], ts: int) -> None:
        view(self._tree.deleted)[rows] = ts
        self._columns.ended.put_many(NODE, rows, ts)
        self._columns.memory -= INNER_BYTES * len(rows) + self._name_bytes(rows)
        self._tree.forget_places()

    def _prune(self, rows: NDArray[Any], ts: int, *, counted: bool = False) -> None:
        """These nodes lost a child: those that are empty now go, up to the storage group or root.

        Args:
            rows: of the nodes, one for each child where they were not counted.
            ts: of the commit.
            counted: their columns say already that the children are gone.
        """
        tree = self._tree
        while True:
            live = view(tree.live)
            if not counted:
                rows, counts = np.unique(rows, return_counts=True)
                live[view(tree.ref)[rows]] -= counts.astype(np.int32)
            counted = False
            empty = live[view(tree.ref)[rows]] == 0
            empty &= (view(tree.kind)[rows] & KIND == INTERNAL) & (rows != ROOT_ROW)
            rows = rows[empty]
            if not len(rows):
                return
            del live
            self._end_inner(rows, ts)
            rows = view(tree.parent)[rows]

    def _name_bytes(self, rows: NDArray[Any]) -> int:
        return int(view(self._tree.names.lengths)[view(self._tree.name)[rows]].sum())
