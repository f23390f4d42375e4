"""`GET /schema/changes`: what became of the schema since a commit, as items, page by page.

What was touched is found in the log; what became of it is read from the tree as of one commit, the
same for all pages. Where history does not reach back, or nothing is known yet, it is the whole.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from msgspec import UNSET

from common.errors import UsageError
from common.formats.schemaitems import Dropped, Group, GroupDropped, Item, SchemaChanges, SeriesItem
from common.text_numbers import whole_number
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.paths import (
    MANY,
    ROOT,
    Nodes,
    Pattern,
    format_path,
    parse_pattern,
    parse_stored,
)

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.schema import Schema, SeriesRow

__all__ = ["SchemaReader"]

K = TypeVar("K")
T = TypeVar("T")

_ALL = Pattern((ROOT, MANY))
_KEPT = 4
"""Questions whose findings are kept for their next pages."""
_AT_ONCE = 2000
"""Series that are looked at without letting a commit in between."""


@dataclass
class _Touched:
    """What commits between two times have to do with; the second is `until`."""

    until: int
    groups: set[Nodes] = field(default_factory=set)
    ended: set[Nodes] = field(default_factory=set)
    series: set[Nodes] = field(default_factory=set)
    loaded: set[Nodes] = field(default_factory=set)
    deleted: list[Pattern] = field(default_factory=list)

    def see(self, op: records.Op) -> None:
        match op:
            case records.StorageGroupSet() | records.TtlSet():
                self.groups.add(parse_stored(op.path))
            case records.StorageGroupDeleted():
                self.ended.add(parse_stored(op.path))
            case records.SeriesCreated():
                device = parse_stored(op.device)
                self.series.update((*device, name) for name in op.names)
            case records.AliasSet() | records.TagsSet():
                self.series.add(parse_stored(op.path))
            case records.SeriesDeleted():
                self.deleted.append(parse_pattern(op.pattern))
            case records.SeriesLoaded():
                for each in op.devices:
                    device = parse_stored(each.device)
                    self.loaded.update((*device, name) for name in each.names)


@dataclass(frozen=True)
class _Findings:
    """The answer to a question, but for what is said of each series."""

    groups: list[Item]
    series: list[Nodes]


class SchemaReader:
    """Answers with pages of items; safe from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[int, int], _Findings] = OrderedDict()
        self._touched: OrderedDict[int, _Touched] = OrderedDict()

    def page(self, after: int, cursor: str | None, limit: int) -> SchemaChanges:
        """A page.

        Args:
            after: the commit that is known; 0 for none.
            cursor: `next` of the page before.
            limit: items, at most; storage groups come all in the first.

        Raises:
            UsageError: the cursor is none.
            HistoryGoneError: the pages were asked for too slowly; begin anew.
        """
        if cursor is not None:
            return self._next(after, _Cursor.parse(cursor), limit)
        with self._engine.reading() as state:
            until = state.newest
        if after and after <= until:
            try:
                found = self._find(after, until)
            except HistoryGoneError:
                pass
            else:
                return self._changed(after, until, found, 0, limit)
        return self._whole(until, None, limit)

    def _next(self, after: int, cursor: _Cursor, limit: int) -> SchemaChanges:
        if cursor.path is not None:
            return self._whole(cursor.until, cursor.path, limit)
        found = self._find(after, cursor.until)
        return self._changed(after, cursor.until, found, cursor.index, limit)

    def every(self, limit: int = 5000, *, at: int | None = None) -> Iterator[Item]:
        """All items of the whole schema as it is now, or was, for those who hold the engine.

        Raises:
            HistoryGoneError: `at` is before the kept history.
        """
        page = self.page(0, None, limit) if at is None else self._whole(at, None, limit)
        yield from page.items
        while page.next is not None:
            page = self.page(0, page.next, limit)
            yield from page.items

    # -- the whole ---------------------------------------------------------------------------

    def _whole(self, until: int, behind: Nodes | None, limit: int) -> SchemaChanges:
        with self._engine.reading() as state:
            self._engine.check_answerable(until)
            items: list[Item] = []
            if behind is None:
                items += [_group(each.path, each.ttl) for each in state.schema.groups.rows(until)]
            found = state.schema.series.match(_ALL, until, behind, min(limit, _AT_ONCE))
            rows = state.schema.series.describe_many(found, until)
        items += [self._series(row) for row in rows]
        following = None
        if len(rows) == min(limit, _AT_ONCE):
            following = str(_Cursor(until, path=rows[-1].nodes))
        return self._answer(0, until, items, following)

    # -- what changed ------------------------------------------------------------------------

    def _find(self, after: int, until: int) -> _Findings:
        with self._lock:
            known = self._found.get((after, until))
            if known is not None:
                self._found.move_to_end((after, until))
                return known
        touched = self._looked_through(after, until)
        found = self._sorted(touched, after, until)
        with self._lock:
            _keep(self._found, (after, until), found)
            _keep(self._touched, after, touched)
        return found

    def _looked_through(self, after: int, until: int) -> _Touched:
        """What the log tells; who asks from the same time again costs only what came since."""
        with self._lock:
            touched = self._touched.pop(after, None)  # it is changed: nobody else has it meanwhile
        if touched is None or touched.until > until:
            touched = _Touched(after)
        for commit in self._engine.log_since(touched.until):
            if commit.ts > until:
                break
            for op in commit.ops:
                touched.see(op)
        touched.until = until
        return touched

    def _sorted(self, touched: _Touched, after: int, until: int) -> _Findings:
        series = touched.series
        with self._engine.reading() as state:
            self._engine.check_answerable(after)
            schema = state.schema
            for pattern in touched.deleted:
                if pattern.is_path:
                    series.add(pattern.prefix)
                else:
                    series.update(map(schema.tree.nodes, schema.series.match(pattern, after)))
            there = {each.nodes: each for each in schema.groups.rows(until)}
            groups: list[Item] = [
                _group(format_path(each), there[each].ttl)
                for each in sorted(touched.groups & there.keys())
            ]
            groups += [
                GroupDropped(path=format_path(each))
                for each in sorted(touched.ended - there.keys())
            ]
            touched.deleted.clear()
        series.update(self._new(touched.loaded - series, after, until))
        touched.loaded.clear()
        return _Findings(groups, sorted(series))

    def _new(self, loaded: Iterable[Nodes], after: int, until: int) -> Iterator[Nodes]:
        """Of the series of loaded files, those that they made."""
        for piece in _pieces(list(loaded)):
            with self._engine.reading() as state:
                for nodes in piece:
                    row = state.schema.series.find(nodes, until, alias=False)
                    if row >= 0 and state.schema.series.describe(row, until).created > after:
                        yield nodes

    def _changed(
        self, after: int, until: int, found: _Findings, index: int, limit: int
    ) -> SchemaChanges:
        items = list(found.groups) if index == 0 else []
        end = index + min(limit, _AT_ONCE)
        with self._engine.reading() as state:
            self._engine.check_answerable(after)
            for nodes in found.series[index:end]:
                item = self._became(state.schema, nodes, after, until)
                if item is not None:
                    items.append(item)
        following = str(_Cursor(until, index=end)) if end < len(found.series) else None
        return self._answer(after, until, items, following)

    def _became(self, schema: Schema, nodes: Nodes, after: int, until: int) -> Item | None:
        before = schema.series.find(nodes, after, alias=False)
        row = schema.series.find(nodes, until, alias=False)
        if row < 0:
            return None if before < 0 else Dropped(path=format_path(nodes))
        return self._series(schema.series.describe(row, until), replaces=before not in (-1, row))

    # -- items -------------------------------------------------------------------------------

    def _series(self, row: SeriesRow, *, replaces: bool = False) -> Item:
        tags, attributes = self._engine.tags_of(row.tags_at)
        return SeriesItem(
            path=row.path,
            type=row.type,
            encoding=row.encoding,
            compression=row.compression,
            aligned=row.aligned,
            alias=row.alias,
            props=row.props,
            tags=tags,
            attributes=attributes,
            tags_at=row.tags_at,
            replaces=replaces,
        )

    def _answer(
        self, after: int, until: int, items: list[Item], following: str | None
    ) -> SchemaChanges:
        return SchemaChanges(
            engine=self._engine.uuid, after=after, commit=until, items=items, next=following
        )


def _group(path: str, ttl: int | None) -> Item:
    return Group(path=path, ttl=UNSET if ttl is None else ttl)


def _keep(kept: OrderedDict[K, T], key: K, value: T) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _KEPT:
        kept.popitem(last=False)


def _pieces(nodes: Sequence[Nodes]) -> Iterator[Sequence[Nodes]]:
    for at in range(0, len(nodes), _AT_ONCE):
        yield nodes[at : at + _AT_ONCE]


@dataclass(frozen=True)
class _Cursor:
    """Where the next page begins: behind a path, or at an index of what was found."""

    until: int
    index: int = 0
    path: Nodes | None = None

    def __str__(self) -> str:
        if self.path is None:
            return f"c {self.until} {self.index}"
        return f"w {self.until} {format_path(self.path)}"

    @classmethod
    def parse(cls, text: str) -> _Cursor:
        """The cursor of a text.

        Raises:
            UsageError: it is none.
            IllegalPathError: it has a path that is none.
        """
        kind, _, rest = text.partition(" ")
        said, _, place = rest.partition(" ")
        until, index = whole_number(said), whole_number(place)
        if until is not None and kind == "w":
            return cls(until, path=parse_stored(place))
        if until is not None and kind == "c" and index is not None:
            return cls(until, index=index)
        raise UsageError("cursor: expected `next` of the page before")
