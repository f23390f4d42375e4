"""The index tree: from its root nodes to the runs of series of each device.

A node is: uvarint number of children, children (key, int64 offset), int64 end, byte type. Child k
stands between its offset and the next one's; children are written before their parents. Device
nodes (v4: segments as key; v3: a path) lead to one measurement root a device, measurement nodes to
runs of TimeseriesMetadata. Source: apache/tsfile, ``MetadataIndexNode``.

A file that lies can waste no time here: every byte of the index may be visited once, which an
honest tree never exceeds, so cycles and shared children end at once and all work is linear in
what is really there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from common.tsfile.layout import (
    INTERNAL_DEVICE,
    INTERNAL_MEASUREMENT,
    LEAF_DEVICE,
    LEAF_MEASUREMENT,
)
from common.tsfile.primitives import INT64, Malformed, read_int64, read_uvarint, read_vstr

__all__ = ["DeviceEntry", "IndexKey", "IndexNode", "IndexTree", "SeriesRun", "read_node"]

IndexKey: TypeAlias = tuple[str | None, ...]
"""Of a device in v4 its segments, of one in v3 its path, of a measurement its name."""
SeriesRun: TypeAlias = tuple[int, int]
"""Begin and end of TimeseriesMetadata, as positions in the index."""

_MAX_DEPTH: Final = 32  # two children a node would make 4 billion leaves
_LEAST_CHILD: Final = 9  # an empty key and an offset


class IndexNode(NamedTuple):
    """A node as it stands in the file; its offsets are not checked yet."""

    keys: list[IndexKey]
    offsets: list[int]
    end: int
    kind: int


class DeviceEntry(NamedTuple):
    """A device, and where its series are."""

    key: IndexKey
    runs: tuple[SeriesRun, ...]


def read_node(buf: bytes, pos: int, *, segmented: bool) -> tuple[IndexNode, int]:
    """Read the node at ``pos``; return it and the position behind it.

    Args:
        buf: what holds the node.
        pos: where it begins.
        segmented: whether keys are lists of segments (device level, v4).
    """
    number, at = read_uvarint(buf, pos)
    if number * _LEAST_CHILD > len(buf) - at:
        raise Malformed(f"an index node of {number} children, more than there is room for", pos)
    keys, offsets = [], []
    for _ in range(number):
        key, at = _read_segments(buf, at) if segmented else _read_name(buf, at)
        keys.append(key)
        offsets.append(INT64(buf, at)[0])
        at += 8
    end, at = read_int64(buf, at)
    return IndexNode(keys, offsets, end, buf[at]), at + 1


def _read_name(buf: bytes, pos: int) -> tuple[IndexKey, int]:
    name, at = read_vstr(buf, pos)
    if name is None:
        raise Malformed("an index key without a name", pos)
    return (name,), at


def _read_segments(buf: bytes, pos: int) -> tuple[IndexKey, int]:
    number, at = read_uvarint(buf, pos)
    if number > len(buf) - at:
        raise Malformed(f"a device of {number} segments, more than there is room for", pos)
    segments: list[str | None] = []
    for _ in range(number):
        segment, at = read_vstr(buf, at)
        segments.append(segment)
    while segments and segments[-1] is None:  # as Java: trailing nulls are no part of an id
        segments.pop()
    if segments and segments[0] is None:
        raise Malformed("a device without a first segment", pos)
    return tuple(segments) or ("",), at


@dataclasses.dataclass(slots=True)
class IndexTree:
    """The index of one file, in memory.

    Attributes:
        buf: the file from its meta offset to its TsFileMetadata.
        base: the meta offset.
        segmented: whether device keys are lists of segments (v4).
        strict: whether a child's key must be the first of the child's own keys.
    """

    buf: bytes
    base: int
    segmented: bool
    strict: bool
    _left: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._left = len(self.buf)

    def devices(self, root: IndexNode) -> Iterator[DeviceEntry]:
        """Yield the devices below a root of TsFileMetadata, in the file's order.

        Raises:
            Malformed, IndexError, struct.error: the tree is broken.
        """
        yield from self._devices(root, len(self.buf), 0)

    def _devices(self, node: IndexNode, limit: int, depth: int) -> Iterator[DeviceEntry]:
        if node.kind not in (INTERNAL_DEVICE, LEAF_DEVICE):
            raise Malformed(f"a node of type {node.kind} at the device level", limit)
        for key, begin, end in self._children(node, limit, depth):
            if node.kind == LEAF_DEVICE:
                child = self._node(begin, end, segmented=False)
                runs = tuple(self._runs(child, begin, depth + 1))
                if not runs:
                    raise Malformed(f"device {key} without series", begin)
                yield DeviceEntry(key, runs)
            else:
                child = self._node(begin, end, segmented=self.segmented)
                self._check_key(key, child, begin)
                yield from self._devices(child, begin, depth + 1)

    def _runs(self, node: IndexNode, limit: int, depth: int) -> Iterator[SeriesRun]:
        if node.kind not in (INTERNAL_MEASUREMENT, LEAF_MEASUREMENT):
            raise Malformed(f"a node of type {node.kind} at the measurement level", limit)
        for key, begin, end in self._children(node, limit, depth):
            if node.kind == LEAF_MEASUREMENT:
                self._visit(end - begin, begin)
                if self.strict and read_vstr(self.buf, begin + 1)[0] != key[0]:
                    raise Malformed(f"the run of {key[0]!r} begins with another series,", begin)
                yield begin, end
            else:
                child = self._node(begin, end, segmented=False)
                self._check_key(key, child, begin)
                yield from self._runs(child, begin, depth + 1)

    def _children(
        self, node: IndexNode, limit: int, depth: int
    ) -> Iterator[tuple[IndexKey, int, int]]:
        """Yield key, begin and end of each child; all lie before ``limit``, one behind another."""
        if depth > _MAX_DEPTH:
            raise Malformed(f"an index of more than {_MAX_DEPTH} levels", limit)
        if not node.offsets:
            return
        previous = 1  # position 0 is the separator
        ends = [offset - self.base for offset in (*node.offsets[1:], node.end)]
        for key, offset, end in zip(node.keys, node.offsets, ends, strict=True):
            begin = offset - self.base
            if not previous <= begin < end <= limit:
                raise Malformed(f"an index child from {offset} to {end + self.base}, named", limit)
            yield key, begin, end
            previous = end

    def _node(self, begin: int, end: int, *, segmented: bool) -> IndexNode:
        node, behind = read_node(self.buf, begin, segmented=segmented)
        if behind > end:
            raise Malformed("an index node reaches beyond its end", begin)
        self._visit(behind - begin, begin)
        return node

    def _check_key(self, key: IndexKey, child: IndexNode, begin: int) -> None:
        if self.strict and child.keys[:1] != [key]:
            raise Malformed(f"the index child of {key} does not begin with it,", begin)

    def _visit(self, size: int, at: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Malformed("the index leads to the same bytes twice,", at)
