"""What a foreign schema changes here: decided from committed state, done in the commit of a task.

A sender's word counts for its own devices, and for those that nobody owns: series, aliases, tags
and attributes, and their deletion. Of storage groups and TTLs it makes what is missing; it deletes
none and shortens none. A series that is there with another type stays. What cannot be done is
reported with its reason, and never keeps the rest from being done.

A deletion that may have been told before takes nothing that holds loaded data: whoever told the
whole log once more did not mean what came since.

Nothing here touches the disk, but for tags that are read to be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET

from common.errors import DamagedError, TsferryError
from common.formats.schemaitems import Altered, Dropped, Group, GroupDropped, Item, SeriesItem
from receiver.load.schema.groups import GroupPlan, Refused
from receiver.metadata.commit.draft import acceptable
from receiver.metadata.model import records
from receiver.metadata.model.alterations import check_labels
from receiver.metadata.model.paths import IllegalPathError, Nodes, format_path, parse_stored
from receiver.metadata.model.tag_layout import layout
from receiver.metadata.model.types import TYPE_TEXTS, check_codes

if TYPE_CHECKING:
    from receiver.load.schema.authority import Authority
    from receiver.metadata.commit.draft import Draft
    from receiver.metadata.commit.guards import Guard
    from receiver.metadata.schema import Schema

__all__ = ["SchemaChange", "decide_schema"]

_TagsAndAttributes = tuple[Mapping[str, str], Mapping[str, str]]
T = TypeVar("T")

_OLD = "it holds loaded data, and its deletion may be an old one; delete it here, if it is meant"


@dataclass
class SchemaChange:
    """All that a schema does.

    Attributes:
        ops: in the order in which they are to be committed.
        guards: on the owners that were looked at.
        applied: things that are now as the schema has them, changed or not.
        failed: (path or line, reason) of the others.
    """

    ops: list[records.Op] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    applied: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def decide_schema(
    draft: Draft,
    items: Iterable[Item],
    authority: Authority,
    *,
    level: int,
    tag_bytes: int,
    tags_of: Callable[[int], _TagsAndAttributes],
    trust: bool = False,
) -> SchemaChange:
    """Decide what items do, and take it into a draft of the commit.

    Args:
        draft: nothing stands before it in the commit.
        items: no thing twice.
        authority: whose they are.
        level: nodes below root of a storage group that is made because it is missing.
        tag_bytes: tags and attributes of one series, at most.
        tags_of: reads tags and attributes at an offset of the tlog.
        trust: whether to leave it to the commit to refuse what breaks a rule, all together; then
            the draft has not taken all.
    """
    decision = _Decision(draft, authority, level, tag_bytes, tags_of)
    decision.take(items)
    return decision.finish(trust=trust)


@dataclass
class _Change:
    """What a series that is there gets."""

    path: Nodes
    alias: str | None
    had: str | None


class _Decision:
    def __init__(
        self,
        draft: Draft,
        authority: Authority,
        level: int,
        tag_bytes: int,
        tags_of: Callable[[int], _TagsAndAttributes],
    ) -> None:
        self.draft = draft
        self.committed: Schema = draft.state.schema
        self.authority = authority
        self.groups = GroupPlan(draft, authority, level, self._take_op)
        self.tag_bytes = tag_bytes
        self.tags_of = tags_of
        self.change = SchemaChange()
        self.new: dict[Nodes, list[SeriesItem]] = {}
        self.created: list[records.Op] = []
        self.aliases: list[_Change] = []
        self.tags: list[records.Op] = []

    # -- items -------------------------------------------------------------------------------

    def take(self, items: Iterable[Item]) -> None:
        devices: dict[Nodes, list[tuple[Nodes, SeriesItem]]] = {}
        altered: list[tuple[Nodes, Altered]] = []
        for item in items:
            path = self._parsed(item)
            if path is None:
                continue
            if isinstance(item, SeriesItem):
                devices.setdefault(path[:-1], []).append((path, item))
            elif isinstance(item, Altered):
                altered.append((path, item))
            else:
                self._try(path, item)
        for device, series in devices.items():
            self._device(device, series)
        for path, item in altered:
            self._try(path, item)
        self._free_aliases()
        new = {device: self._makeable(device, each) for device, each in self.new.items()}
        new = {device: each for device, each in new.items() if each}
        places = {path for device, each in new.items() for path in _places(device, each)}
        for device, each in new.items():
            self._create(device, each, places)

    def _parsed(self, item: Item) -> Nodes | None:
        try:
            path = parse_stored(item.path)
            least = 3 if isinstance(item, SeriesItem | Altered) else 2
            if len(path) < least:
                raise IllegalPathError(f"{item.path} is too short a path")
        except IllegalPathError as error:
            self._fail(item.path, error.message)
            return None
        return path

    def _try(self, path: Nodes, item: Group | GroupDropped | Dropped | Altered) -> None:
        try:
            match item:
                case Group():
                    self.groups.take(path, item)
                case GroupDropped():
                    self.groups.dropped(path)
                case Dropped():
                    self._dropped(path, item)
                case Altered():
                    self._altered(path, item)
        except Refused as why:
            self._fail(item.path, str(why))
        else:
            self.change.applied += 1

    def _take_op(self, op: records.Op) -> None:
        """Take an operation that others are decided by.

        Raises:
            Refused: it breaks a rule.
        """
        error = self.draft.attempt([op])
        if error is not None:
            raise Refused(error.message)
        self.change.ops.append(op)

    def _fail(self, path: str, why: str) -> None:
        self.change.failed.append((path, why))

    # -- series ------------------------------------------------------------------------------

    def _allowed(self, device: Nodes) -> None:
        why = self.authority.refusal(device)
        if why is not None:
            raise Refused(why)

    def _dropped(self, path: Nodes, item: Dropped) -> None:
        row = self.committed.series.find(path, alias=False)
        if row < 0:
            self.groups.dropped(path)
            return
        self._allowed(path[:-1])
        if item.old and self.committed.series.heat(row) is not None:
            raise Refused(_OLD)
        self._take_op(records.SeriesDeleted(item.path))

    def _altered(self, path: Nodes, item: Altered) -> None:
        row = self.committed.series.find(path, alias=False)
        if row < 0:
            raise Refused("there is no such series here")
        self._allowed(path[:-1])
        self._alter(path, row, item)

    def _device(self, device: Nodes, series: Sequence[tuple[Nodes, SeriesItem]]) -> None:
        """The series of one device: those that are there as they are, the others to be made."""
        try:
            self._allowed(device)
        except Refused as why:
            for _, item in series:
                self._fail(item.path, str(why))
            return
        changed = self.draft.schema.touches(device)
        rows = self.committed.devices.rows(device, [path[-1] for path, _ in series])
        for (path, item), row in zip(series, rows, strict=True):
            try:
                gone = changed and row >= 0 and self.draft.schema.kind(path) is None
                if row < 0 or gone or self._gives_way(row, item):
                    _need_codes(path, item)
                    self.new.setdefault(device, []).append(self._with_good_tags(item))
                else:
                    self._alter(path, row, item)
            except Refused as why:
                self._fail(item.path, str(why))
            else:
                self.change.applied += 1

    def _gives_way(self, row: int, item: SeriesItem) -> bool:
        """Whether the series is made as new: what is there is none, or is deleted first.

        Raises:
            Refused: it is a series of another type, and stays.
        """
        if self.committed.nodes.kind(row) != "leaf":
            return True  # and it may be gone when the series is made
        there = self.committed.series.type_of(row)
        if there == item.type:
            return False
        if not item.replaces:
            raise Refused(
                f"it has type {TYPE_TEXTS[there]} here, {TYPE_TEXTS[item.type]} in the schema"
            )
        self._take_op(records.SeriesDeleted(item.path))
        return True

    # -- new series: all that gives way is gone from the draft ---------------------------------

    def _makeable(self, device: Nodes, items: Sequence[SeriesItem]) -> list[SeriesItem]:
        """The series of a device that can be made, in a storage group."""
        try:
            self._may_be_device(device)
        except Refused as why:
            self._fail_all(items, str(why))
            return []
        names = [parse_stored(each.path)[-1] for each in items]
        taken = set(self.draft.schema.taken(device, names))
        for at in sorted(taken):
            kind = self.draft.schema.kind((*device, names[at]))
            what = "is an alias" if kind == "alias" else "is a node with others below it"
            self._fail_all([items[at]], f"its name {what} here")
        new = [item for at, item in enumerate(items) if at not in taken]
        try:
            if new:
                self.groups.need(device)
        except Refused as why:
            self._fail_all(new, f"its device has no storage group here: {why}")
            return []
        return new

    def _fail_all(self, items: Sequence[SeriesItem], why: str) -> None:
        self.change.applied -= len(items)
        for item in items:
            self._fail(item.path, why)

    def _may_be_device(self, device: Nodes) -> None:
        for depth in range(len(device), 1, -1):
            kind = self.draft.schema.kind(device[:depth])
            if kind in ("leaf", "alias"):
                raise Refused(f"it would lie below the series {format_path(device[:depth])}")
            if kind is not None:
                return

    def _with_free_alias(self, device: Nodes, item: SeriesItem, places: set[Nodes]) -> SeriesItem:
        """The series, without its alias if a node, series or other alias has that name."""
        if not item.alias:
            return item
        alias = (*device, item.alias)
        if alias in places or self.draft.schema.kind(alias) is not None:
            self._fail(item.path, f"its alias {item.alias!r} is taken in its device")
            return _without(item, alias=UNSET)
        places.add(alias)
        return item

    def _create(self, device: Nodes, new: Sequence[SeriesItem], places: set[Nodes]) -> None:
        """Plan the new series of a device in one operation.

        Args:
            device: its nodes.
            new: its series.
            places: where nodes, series and aliases are made.
        """
        items = [self._with_free_alias(device, item, places) for item in new]
        there = self.draft.schema.aligned(device)
        self.created.append(
            records.SeriesCreated(
                device=format_path(device),
                names=[parse_stored(each.path)[-1] for each in items],
                types=bytes(each.type for each in items),
                encodings=bytes(each.encoding for each in items),
                compressions=bytes(each.compression for each in items),
                aligned=items[0].aligned if there is None else there,
                aliases=_column([each.alias or None for each in items]),
                tags=_column([each.tags or {} for each in items]),
                attributes=_column([each.attributes or {} for each in items]),
                props=_column([each.props for each in items]),
            )
        )

    def _with_good_tags(self, item: SeriesItem) -> SeriesItem:
        """The series, without its tags and attributes if they are too many, or illegal."""
        if not (item.tags or item.attributes):
            return item
        why = self._bad_tags(records.TagsSet(item.path, item.tags or {}, item.attributes or {}))
        if why is None:
            return item
        self._fail(item.path, f"made without its tags: {why}")
        return _without(item, tags=UNSET, attributes=UNSET)

    def _bad_tags(self, op: records.TagsSet) -> str | None:
        """Why a series cannot have these tags and attributes; None: it can."""
        try:
            check_labels(op.path, op.tags, op.attributes)
            layout([op], 0, limit=self.tag_bytes)
        except TsferryError as error:
            return error.message
        return None

    def _alter(self, path: Nodes, row: int, item: SeriesItem | Altered) -> None:
        if item.alias is UNSET and item.tags is UNSET and item.attributes is UNSET:
            return
        there = self.committed.series.describe(row)
        if item.alias is not UNSET and item.alias != there.alias:
            self.aliases.append(_Change(path, item.alias or None, there.alias))
        if item.tags is UNSET and item.attributes is UNSET:
            return
        wanted = (item.tags or {}, item.attributes or {})
        if wanted != self._tags_now(there.tags_at):
            op = records.TagsSet(item.path, *wanted)
            why = self._bad_tags(op)
            if why:
                raise Refused(why)
            self.tags.append(op)

    def _tags_now(self, offset: int) -> _TagsAndAttributes | None:
        try:
            return self.tags_of(offset)
        except DamagedError:
            return None  # what is written now takes its place

    # -- all together ------------------------------------------------------------------------

    def finish(self, *, trust: bool) -> SchemaChange:
        change = self.change
        ops = [*self.created, *self._named(), *self.tags]
        taken, refused = (ops, []) if trust else acceptable(self.draft, ops)
        change.ops += taken
        for path, why in refused:
            self._fail(path, why)
        change.applied = max(0, change.applied - len(refused))
        change.guards = self.authority.guards
        return change

    def _free_aliases(self) -> None:
        """Aliases go first that other series of their devices get, as a name or as an alias."""
        wanted = {(*each.path[:-1], each.alias) for each in self.aliases if each.alias}
        for device, items in self.new.items():
            wanted.update(_places(device, items))
            wanted.update((*device, item.alias) for item in items if item.alias)
        for each in self.aliases:
            if each.had and (*each.path[:-1], each.had) in wanted:
                with suppress(Refused):
                    self._take_op(records.AliasSet(format_path(each.path), None))
                    each.had = None

    def _named(self) -> list[records.Op]:
        return [
            records.AliasSet(format_path(each.path), each.alias)
            for each in self.aliases
            if each.alias or each.had
        ]


def _need_codes(path: Nodes, item: SeriesItem) -> None:
    codes = (bytes((each,)) for each in (item.type, item.encoding, item.compression))
    try:
        check_codes(format_path(path[:-1]), path[-1:], *codes)
    except TsferryError as error:
        raise Refused(error.message) from error


def _places(device: Nodes, items: Sequence[SeriesItem]) -> Iterator[Nodes]:
    """The paths of nodes and series that are made with the new series of a device."""
    yield from (device[:end] for end in range(2, len(device) + 1))
    yield from (parse_stored(item.path) for item in items)


def _without(item: SeriesItem, **changes: Any) -> SeriesItem:
    return msgspec.structs.replace(item, **changes)


def _column(values: list[T]) -> list[T] | None:
    return values if any(values) else None
