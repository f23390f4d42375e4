"""A schema log, or a piece of one, reduced to its end state.

What was created and deleted again leaves one deletion; what was deleted and created again leaves
one series. So the same log may be told as often as one likes, from any place on: nothing that it
once said and took back is done again on the way.

A deletion covers what is below its path too: `1,<path>` of a storage group deletes all of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from common.formats import tlogtext
from common.formats.schemaitems import Altered, Dropped, Group, GroupDropped, Item, SeriesItem
from receiver.metadata.model.paths import Nodes, format_path
from receiver.metadata.text import mlog_text
from receiver.metadata.text.mlog_text import BadLine

__all__ = ["Reduced", "reduce_text"]

_Texts = dict[str, str] | UnsetType
_NO_PROPS: dict[str, str] = {}
"""Of all series without any: there may be millions."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What a log says in the end.

    Attributes:
        items: groups first, then what is gone, then series by path, those of a device together.
        failed: (record, reason) of what cannot be understood.
        untagged: series with tags in a tlog that was not given.
    """

    items: list[Item]
    failed: list[tuple[str, str]]
    untagged: int = 0


def reduce_text(
    data: bytes,
    slots: Mapping[int, bytes | memoryview] | None,
    *,
    start: int = 0,
    news: int = 0,
) -> Reduced:
    """The end state of whole lines of a text log.

    Args:
        data: of the log, from the beginning of a line on.
        slots: what is in the tlog, by offset; None: there is no tlog.
        start: offset of `data` in the log.
        news: offset of the log behind which deletions have not been told before.
    """
    tree = _Tree(slots, news)
    bad: list[tuple[str, str]] = []
    for at, found in mlog_text.iter_lines(data, start=start):
        if isinstance(found, BadLine):
            bad.append(_failure(found))
        else:
            tree.play(found, at)
    items = list(tree.items())
    return Reduced(items, bad + tree.failed, tree.untagged)


def _failure(line: BadLine) -> tuple[str, str]:
    return line.text, f"line at offset {line.offset}: {line.reason}"


@dataclass(slots=True)
class _Made:
    """A series as the log made it; `order` says when."""

    order: int
    record: mlog_text.CreateSeries
    remade: bool


@dataclass(slots=True)
class _Said:
    """What the log says of a series behind its creation, or of one that was there before."""

    order: int
    offset: int | None = None
    alias: tuple[str | None] | None = None


@dataclass(slots=True)
class _Gone:
    """The newest deletion of a path."""

    order: int
    at: int
    group: bool


@dataclass
class _Tree:
    """The log, played; orders tell what came first, so no deletion has to look for its victims."""

    slots: Mapping[int, bytes | memoryview] | None
    news: int
    untagged: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    order: int = 0
    made: dict[Nodes, _Made] = field(default_factory=dict)
    said: dict[Nodes, _Said] = field(default_factory=dict)
    gone: dict[Nodes, _Gone] = field(default_factory=dict)
    groups: dict[Nodes, int] = field(default_factory=dict)
    ttls: dict[Nodes, tuple[int, int | None]] = field(default_factory=dict)
    aligned: dict[Nodes, int] = field(default_factory=dict)

    # -- playing -----------------------------------------------------------------------------

    def play(self, record: mlog_text.MlogRecord, at: int) -> None:
        """Take in what the line at an offset says."""
        self.order += 1
        path = record.path
        match record:
            case mlog_text.CreateSeries():
                self._create(record)
            case mlog_text.DeletePath():
                self.gone[path] = _Gone(self.order, at, self._stands(self.groups.get(path), path))
            case mlog_text.DeleteStorageGroup():
                self.gone[path] = _Gone(self.order, at, group=True)
            case mlog_text.SetStorageGroup():
                self.groups[path] = self.order
            case mlog_text.TtlLine():
                self.ttls[path] = (self.order, record.ttl)
            case mlog_text.ChangeOffset():
                self._saying(path).offset = record.offset
            case mlog_text.ChangeAlias():
                self._saying(path).alias = (record.alias,)
            case mlog_text.AlignedDevice():
                self.aligned[path] = self.order

    def _create(self, record: mlog_text.CreateSeries) -> None:
        path = record.path
        before = self.made.get(path)
        if before is not None and self._stands(before.order, path):
            if before.record != record:
                self.failed.append((format_path(path), "the log makes it twice; the first counts"))
            return
        gone = self.gone.get(path)
        remade = gone is not None and gone.at >= self.news
        self.made[path] = _Made(self.order, record, remade)
        said = self.said.get(path)
        if said is not None and not self._stands(said.order, path):
            del self.said[path]  # of the one that was deleted; else it was there all along

    def _saying(self, path: Nodes) -> _Said:
        said = self.said.get(path)
        if said is None or not self._stands(said.order, path):
            said = self.said[path] = _Said(self.order)
        said.order = self.order
        return said

    def _stands(self, order: int | None, path: Nodes) -> bool:
        """Whether nothing that was deleted later takes with it what was said then of a path."""
        if order is None:
            return False
        if not self.gone:
            return True
        for depth in range(1, len(path) + 1):
            gone = self.gone.get(path[:depth])
            if gone is not None and gone.order > order:
                return False
        return True

    # -- the end -----------------------------------------------------------------------------

    def items(self) -> Iterator[Item]:
        """All that is true at the end."""
        yield from self._groups()
        series = {path: each for path, each in self.made.items() if self._stands(each.order, path)}
        yield from self._gone(series)
        for path in sorted(series):
            yield self._series(path, series[path])
        for path in sorted(self.said):
            said = self.said[path]
            if path not in series and self._stands(said.order, path):
                yield self._altered(path, said)

    def _groups(self) -> Iterator[Item]:
        for path in sorted(self.groups.keys() | self.ttls.keys()):
            there = self._stands(self.groups.get(path), path)
            order, ttl = self.ttls.get(path, (None, None))
            if self._stands(order, path):
                yield Group(path=format_path(path), ttl=ttl)
            elif there:
                yield Group(path=format_path(path))

    def _gone(self, series: Mapping[Nodes, object]) -> Iterator[Item]:
        for path in sorted(self.gone):
            gone = self.gone[path]
            if gone.group:
                if not self._stands(self.groups.get(path), path):
                    yield GroupDropped(path=format_path(path))
            elif path not in series:
                yield Dropped(path=format_path(path), old=gone.at < self.news)

    def _series(self, path: Nodes, made: _Made) -> Item:
        record = made.record
        said = self.said.get(path)
        alias = record.alias or (None if made.remade else UNSET)
        offset = record.offset if record.offset >= 0 else None
        if said is not None:
            alias = said.alias[0] if said.alias else alias
            offset = offset if said.offset is None else said.offset
        text = format_path(path)
        tags, attributes = self._tags(text, offset)
        if made.remade and offset is None:
            tags, attributes = {}, {}
        return SeriesItem(
            path=text,
            type=record.type,
            encoding=record.encoding,
            compression=record.compression,
            aligned=self._stands(self.aligned.get(path[:-1]), path[:-1]),
            alias=alias,
            props=dict(record.props) if record.props else _NO_PROPS,
            tags=tags,
            attributes=attributes,
            replaces=made.remade,
        )

    def _altered(self, path: Nodes, said: _Said) -> Item:
        text = format_path(path)
        tags, attributes = self._tags(text, said.offset)
        alias = said.alias[0] if said.alias else UNSET
        return Altered(path=text, alias=alias, tags=tags, attributes=attributes)

    def _tags(self, path: str, offset: int | None) -> tuple[_Texts, _Texts]:
        """Tags and attributes at an offset of the tlog; nothing is said where there are none."""
        nothing = (UNSET, UNSET)
        if offset is None:
            return nothing
        if offset < 0:
            return {}, {}
        if self.slots is None:
            self.untagged += 1
            return nothing
        slot = self.slots.get(offset)
        if slot is None:
            self.failed.append((path, f"its tags, offset {offset} of the tlog, did not come"))
            return nothing
        try:
            found = tlogtext.read_slot(slot)
        except tlogtext.TlogSlotError as error:
            self.failed.append((path, f"its tags, offset {offset} of the tlog: {error.message}"))
            return nothing
        return found.tags, found.attributes
