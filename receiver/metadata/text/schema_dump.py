r"""A schema in the text forms of Apache IoTDB: as a log that makes it, and as its tree.

The tree has a line for each node, the children before their parent:

    0,<name>,<children>
    1,<name>,<TTL>,<children>                   a storage group
    2,<name>,<alias>,<type>,<encoding>,<compression>,<k:v;k:v;>,<tlog offset>,<children>

Names stand as in a path, in back-ticks where they need them. The tree is for people: line breaks
and other characters that a terminal would obey are written out, as ``\n``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from common.console.terminal import printable
from common.formats.schemaitems import Group, Item, SeriesItem
from common.formats.tlogtext import SLOT, write_slot
from receiver.metadata.model.paths import Nodes, parse_stored, quote_node
from receiver.metadata.text import mlog_text
from receiver.metadata.text.mlog_text import (
    AlignedDevice,
    CreateSeries,
    MlogRecord,
    SetStorageGroup,
    TtlLine,
)

__all__ = ["Slots", "log_lines", "log_records", "tree_lines"]

Place = Callable[[SeriesItem], int]


class Slots:
    """A tlog in the making, and where each series has its slot.

    A slot is as long as those of the database, or a multiple of that.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._at = 0

    def place(self, series: SeriesItem) -> int:
        """The offset of a new slot with tags and attributes; -1 for a series without any."""
        if not (series.tags or series.attributes):
            return -1
        content = write_slot(series.tags or {}, series.attributes or {}, None)
        slot = content.ljust(-(-len(content) // SLOT) * SLOT, b"\0")
        at = self._at
        self._pieces.append(slot)
        self._at += len(slot)
        return at

    def content(self) -> bytes:
        """The whole tlog."""
        return b"".join(self._pieces)


def log_records(items: Iterable[Item], place: Place) -> Iterator[MlogRecord]:
    """The operations that make a schema.

    Args:
        items: of a whole schema: storage groups first, series by path.
        place: tells where the tags of a series are in the tlog.
    """
    last: Nodes | None = None
    for item in items:
        path = parse_stored(item.path)
        if isinstance(item, Group):
            yield SetStorageGroup(path)
            if isinstance(item.ttl, int):
                yield TtlLine(path, item.ttl)
        elif isinstance(item, SeriesItem):
            if path[:-1] != last and item.aligned:
                yield AlignedDevice(path[:-1])
            last = path[:-1]
            yield CreateSeries(
                path,
                item.type,
                item.encoding,
                item.compression,
                item.props,
                item.alias or None,
                place(item),
            )


def log_lines(records: Iterable[MlogRecord]) -> Iterator[str]:
    """Lines of a log, each with its end: in the plain form, unless a record needs the wider one.

    Which it is shows at the end only, so all lines are held until then.
    """
    lines: list[str] = []
    odd: dict[int, MlogRecord] = {}
    for number, record in enumerate(records):
        lines.append(mlog_text.print_line(record))
        if mlog_text.needs_wide(record):
            odd[number] = record
    if odd:
        yield f"{mlog_text.HEADER}\n"
    for number, line in enumerate(lines):
        if odd:
            record = odd.get(number) or mlog_text.parse_line(line)
            line = mlog_text.print_line(record, wide=True)
        yield f"{line}\n"


# -- the tree ------------------------------------------------------------------------------------


@dataclass
class _Node:
    """A node whose children are still coming."""

    name: str
    children: int = 0
    ttl: int | None = None
    group: bool = False

    def line(self) -> str:
        name = _shown(self.name)
        if not self.group:
            return f"0,{name},{self.children}\n"
        ttl = mlog_text.FOREVER if self.ttl is None else self.ttl
        return f"1,{name},{ttl},{self.children}\n"


def tree_lines(items: Iterable[Item], place: Place) -> Iterator[str]:
    """Lines of the tree, each with its end.

    Args:
        items: as for `log_records`.
        place: tells where the tags of a series are in the tlog.
    """
    rest = iter(items)
    groups: list[tuple[Nodes, Group | SeriesItem]] = []
    first: list[tuple[Nodes, Group | SeriesItem]] = []
    for item in rest:
        if isinstance(item, Group):
            groups.append((parse_stored(item.path), item))
        elif isinstance(item, SeriesItem):
            first.append((parse_stored(item.path), item))
            break
    series = ((parse_stored(each.path), each) for each in rest if isinstance(each, SeriesItem))
    every = heapq.merge(
        sorted(groups, key=itemgetter(0)), _chained(first, series), key=itemgetter(0)
    )
    yield from _walk(every, place)


def _chained(
    first: list[tuple[Nodes, Group | SeriesItem]], rest: Iterable[tuple[Nodes, Group | SeriesItem]]
) -> Iterator[tuple[Nodes, Group | SeriesItem]]:
    yield from first
    yield from rest


def _walk(every: Iterable[tuple[Nodes, Group | SeriesItem]], place: Place) -> Iterator[str]:
    open_nodes = [_Node("root")]
    path: Nodes = ("root",)
    for nodes, item in every:
        inner = nodes if isinstance(item, Group) else nodes[:-1]
        shared = _shared(path, inner)
        yield from _close(open_nodes, shared)
        for name in inner[shared:]:
            open_nodes[-1].children += 1
            open_nodes.append(_Node(name))
        path = inner
        if isinstance(item, Group):
            open_nodes[-1].group = True
            open_nodes[-1].ttl = item.ttl if isinstance(item.ttl, int) else None
        else:
            open_nodes[-1].children += 1
            yield _leaf(nodes[-1], item, place(item))
    yield from _close(open_nodes, 0)


def _close(open_nodes: list[_Node], keep: int) -> Iterator[str]:
    while len(open_nodes) > keep:
        yield open_nodes.pop().line()


def _shared(one: Nodes, other: Nodes) -> int:
    """How many nodes two paths begin with together."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _leaf(name: str, item: SeriesItem, offset: int) -> str:
    alias = _shown(item.alias) if item.alias else ""
    props = printable("".join(f"{key}:{value};" for key, value in item.props.items()))
    codes = f"{item.type},{item.encoding},{item.compression}"
    return f"2,{_shown(name)},{alias},{codes},{props},{offset},0\n"


def _shown(name: str) -> str:
    return printable(quote_node(name))
