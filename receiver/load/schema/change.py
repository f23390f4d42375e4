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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from common.errors import DamagedError, TsferryError
from common.schemaitems import UNSET, Altered, Dropped, Group, GroupDropped, Item, Series
from receiver.load.schema.acceptance import acceptable
from receiver.load.schema.groups import GroupPlan, Refused
from receiver.metadata.model import records
from receiver.metadata.model.alterations import check_labels
from receiver.metadata.model.paths import IllegalPathError, Nodes, format_path, parse_stored
from receiver.metadata.model.tag_layout import layout
from receiver.metadata.model.types import TYPE_TEXTS, check_codes

if TYPE_CHECKING:
    from receiver.load.schema.authority import Authority
    from receiver.metadata.commit.guards import Guard
    from receiver.metadata.schema import Schema
    from receiver.metadata.state.state import State

__all__ = ["KEPT_FAILURES", "SchemaChange", "decide_schema"]

KEPT_FAILURES = 100
"""Failures that are kept with their reasons; of the others only the number."""

Tags = tuple[Mapping[str, str], Mapping[str, str]]
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
    state: State,
    items: Iterable[Item],
    authority: Authority,
    *,
    level: int,
    tag_bytes: int,
    tags_of: Callable[[int], Tags],
    trust: bool = False,
) -> SchemaChange:
    """Decide what items do to committed state.

    Args:
        state: committed.
        items: no thing twice.
        authority: whose they are.
        level: nodes below root of a storage group that is made because it is missing.
        tag_bytes: tags and attributes of one series, at most.
        tags_of: reads tags and attributes at an offset of the tlog.
        trust: whether to leave it to the engine to refuse what breaks a rule, all together.
    """
    decision = _Decision(state, authority, level, tag_bytes, tags_of)
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
        state: State,
        authority: Authority,
        level: int,
        tag_bytes: int,
        tags_of: Callable[[int], Tags],
    ) -> None:
        self.state = state
        self.schema: Schema = state.schema
        self.authority = authority
        self.groups = GroupPlan(state.schema, authority, level)
        self.tag_bytes = tag_bytes
        self.tags_of = tags_of
        self.change = SchemaChange()
        self.deletions: dict[Nodes, None] = {}
        self.created: list[records.Op] = []
        self.aliases: list[_Change] = []
        self.tags: list[records.Op] = []

    # -- items -------------------------------------------------------------------------------

    def take(self, items: Iterable[Item]) -> None:
        devices: dict[Nodes, list[tuple[Nodes, Series]]] = {}
        altered: list[tuple[Nodes, Altered]] = []
        for item in items:
            path = self._parsed(item)
            if path is None:
                continue
            if isinstance(item, Series):
                devices.setdefault(path[:-1], []).append((path, item))
            elif isinstance(item, Altered):
                altered.append((path, item))
            else:
                self._try(path, item)
        for device, series in devices.items():
            self._device(device, series)
        for path, each in altered:
            self._try(path, each)

    def _parsed(self, item: Item) -> Nodes | None:
        try:
            path = parse_stored(item.path)
            least = 3 if isinstance(item, Series | Altered) else 2
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

    def _fail(self, path: str, why: str) -> None:
        self.change.failed.append((path, why))

    # -- series ------------------------------------------------------------------------------

    def _allowed(self, device: Nodes) -> None:
        why = self.authority.refusal(device)
        if why is not None:
            raise Refused(why)

    def _dropped(self, path: Nodes, item: Dropped) -> None:
        row = self.schema.find_series(path, alias=False)
        if row < 0:
            self.groups.dropped(path)
            return
        self._allowed(path[:-1])
        if item.old and self.schema.heat(row) is not None:
            raise Refused(_OLD)
        self.deletions[path] = None

    def _altered(self, path: Nodes, item: Altered) -> None:
        row = self.schema.find_series(path, alias=False)
        if row < 0:
            raise Refused("there is no such series here")
        self._allowed(path[:-1])
        self._alter(path, row, item)

    def _device(self, device: Nodes, series: Sequence[tuple[Nodes, Series]]) -> None:
        """The series of one device: what is missing in one operation, the others one by one."""
        try:
            self._allowed(device)
            self._may_be_device(device)
        except Refused as why:
            for _, item in series:
                self._fail(item.path, str(why))
            return
        new: list[tuple[str, Series]] = []
        rows = self.schema.existing_rows(device, [path[-1] for path, _ in series])
        for (path, item), row in zip(series, rows, strict=True):
            try:
                if row >= 0 and not self._gives_way(path, row, item):
                    self._alter(path, row, item)
                else:
                    new.append((path[-1], self._makeable(path, item)))
            except Refused as why:
                self._fail(item.path, str(why))
            else:
                self.change.applied += 1
        if new:
            self._create(device, new)

    def _may_be_device(self, device: Nodes) -> None:
        for depth in range(len(device), 1, -1):
            kind = self.schema.kind_at(device[:depth])
            if kind in ("leaf", "alias") and device[:depth] not in self.deletions:
                raise Refused(f"it would lie below the series {format_path(device[:depth])}")
            if kind is not None:
                return

    def _gives_way(self, path: Nodes, row: int, item: Series) -> bool:
        """Whether what is there under the name is deleted first.

        Raises:
            Refused: it is not, and it is no series of this type.
        """
        kind = self.schema.kind(row)
        if kind != "leaf":
            what = "is an alias" if kind == "alias" else "is a node with others below it"
            raise Refused(f"its name {what} here")
        if path in self.deletions:
            return True
        there = self.schema.type_of(row)
        if there == item.type:
            return False
        if not item.replaces:
            raise Refused(
                f"it has type {TYPE_TEXTS[there]} here, {TYPE_TEXTS[item.type]} in the schema"
            )
        self.deletions[path] = None
        return True

    def _makeable(self, path: Nodes, item: Series) -> Series:
        codes = (bytes((each,)) for each in (item.type, item.encoding, item.compression))
        try:
            check_codes(format_path(path[:-1]), (path[-1],), *codes)
        except TsferryError as error:
            raise Refused(error.message) from error
        if item.alias and self._is_taken((*path[:-1], item.alias)):
            self._fail(item.path, f"its alias {item.alias!r} is taken in its device")
            return _without(item, alias=UNSET)
        return item

    def _is_taken(self, path: Nodes) -> bool:
        return self.schema.kind_at(path) is not None and path not in self.deletions

    def _create(self, device: Nodes, new: Sequence[tuple[str, Series]]) -> None:
        try:
            self.groups.need(device)
        except Refused as why:
            self.change.applied -= len(new)
            for _, item in new:
                self._fail(item.path, f"its device has no storage group here: {why}")
            return
        items = [item for _, item in new]
        there = self.schema.device(device)
        op = records.SeriesCreated(
            device=format_path(device),
            names=[name for name, _ in new],
            types=bytes(each.type for each in items),
            encodings=bytes(each.encoding for each in items),
            compressions=bytes(each.compression for each in items),
            aligned=items[0].aligned if there is None else there.aligned,
            aliases=_column([each.alias or None for each in items]),
            tags=_column([each.tags or {} for each in items]),
            attributes=_column([each.attributes or {} for each in items]),
            props=_column([each.props for each in items]),
        )
        if op.tags or op.attributes:
            op = self._with_good_tags(op, items)
        self.created.append(op)

    def _with_good_tags(
        self, op: records.SeriesCreated, items: Sequence[Series]
    ) -> records.SeriesCreated:
        """The operation without the tags of those that have too many, or illegal ones."""
        tags, attributes = list(op.tags or ()), list(op.attributes or ())
        for at, item in enumerate(items):
            if not (item.tags or item.attributes):
                continue
            why = self._bad_tags(records.TagsSet(item.path, item.tags or {}, item.attributes or {}))
            if why:
                self._fail(item.path, f"made without its tags: {why}")
                for column in (tags, attributes):
                    if column:
                        column[at] = {}
        return msgspec.structs.replace(op, tags=_column(tags), attributes=_column(attributes))

    def _bad_tags(self, op: records.TagsSet) -> str | None:
        """Why a series cannot have these tags and attributes; None: it can."""
        try:
            check_labels(op.path, op.tags, op.attributes)
            layout([op], 0, limit=self.tag_bytes)
        except TsferryError as error:
            return error.message
        return None

    def _alter(self, path: Nodes, row: int, item: Series | Altered) -> None:
        if item.alias is UNSET and item.tags is UNSET and item.attributes is UNSET:
            return
        there = self.schema.series(row)
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

    def _tags_now(self, offset: int) -> Tags | None:
        try:
            return self.tags_of(offset)
        except DamagedError:
            return None  # what is written now takes its place

    # -- all together ------------------------------------------------------------------------

    def finish(self, *, trust: bool) -> SchemaChange:
        change = self.change
        ops: list[records.Op] = [
            records.SeriesDeleted(format_path(each)) for each in self.deletions
        ]
        ops += self.groups.ops
        ops += self._freed()
        ops += self.created
        ops += self._named()
        ops += self.tags
        change.ops, refused = (ops, []) if trust else acceptable(self.state, ops)
        for path, why in refused:
            self._fail(path, why)
        change.applied = max(0, change.applied - len(refused))
        change.guards = self.authority.guards
        return change

    def _freed(self) -> list[records.Op]:
        """Aliases that go first, because another series of the device gets them."""
        wanted = {(*each.path[:-1], each.alias) for each in self.aliases if each.alias}
        for op in self.created:
            assert isinstance(op, records.SeriesCreated)
            device = parse_stored(op.device)
            wanted.update((*device, name) for name in op.names)
            wanted.update((*device, alias) for alias in op.aliases or () if alias)
        return [
            records.AliasSet(format_path(each.path), None)
            for each in self.aliases
            if each.had and each.alias and (*each.path[:-1], each.had) in wanted
        ]

    def _named(self) -> list[records.Op]:
        return [records.AliasSet(format_path(each.path), each.alias) for each in self.aliases]


def _without(item: Series, **changes: Any) -> Series:
    return msgspec.structs.replace(item, **changes)


def _column(values: list[T]) -> list[T] | None:
    return values if any(values) else None
