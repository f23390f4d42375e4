"""The rules of storage groups, series, aliases, tags and TTL: a part of `rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.commit.pace import paced
from receiver.metadata.commit.series_rules.schema_checks import (
    alias_taken,
    check_alias,
    check_lengths,
    check_series,
    check_ttl,
    check_upload,
)
from receiver.metadata.commit.series_rules.schema_draft import SchemaDraft
from receiver.metadata.model import records
from receiver.metadata.model.alterations import check_labels
from receiver.metadata.model.errors import (
    AliasTakenError,
    AlignmentError,
    RefusedCommitError,
    SchemaConflictError,
    SchemaRefusedError,
    SeriesExistsError,
    SeriesMissingError,
    SeriesNestedError,
    StorageGroupExistsError,
    StorageGroupMissingError,
    StorageGroupNestedError,
)
from receiver.metadata.model.paths import (
    IllegalPathError,
    Nodes,
    Pattern,
    format_path,
    parse_pattern,
    parse_stored,
    quote_node,
)
from receiver.metadata.model.types import TYPE_TEXTS

if TYPE_CHECKING:
    from receiver.metadata.commit.pace import Pace
    from receiver.metadata.commit.touched import Touched
    from receiver.metadata.schema import NodeKind, Schema

__all__ = ["SchemaRules"]


class SchemaRules:
    """The rules, for one commit.

    Attributes:
        draft: the schema as the commit has changed it so far.
        touched: keys of the commit, filled as it is examined.
        notes: whether those of the series that it makes are wanted as well.
        keeps: whether operations follow, so that what is done has to be remembered.
        cost: bytes by which the schema grows so far; counted (`counts`) only where there is a
            limit.
    """

    __slots__ = ("_pace", "cost", "counts", "draft", "keeps", "notes", "touched")

    def __init__(
        self,
        schema: Schema,
        touched: Touched,
        *,
        notes: bool = True,
        keeps: bool = True,
        counts: bool = False,
        pace: Pace | None = None,
    ) -> None:
        self.draft = SchemaDraft(schema)
        self.touched = touched
        self.notes = notes
        self.keeps = keeps
        self.counts = counts
        self._pace = pace
        self.cost = 0

    # -- storage groups ----------------------------------------------------------------------

    def storage_group_set(self, op: records.StorageGroupSet) -> None:
        """A storage group is made, or is there where that is enough."""
        nodes = parse_stored(op.path)
        there = self.draft.group_of(nodes)
        if there is not None and op.if_missing:
            return
        if len(nodes) < 2:
            raise StorageGroupNestedError(
                f"{op.path} cannot be a storage group: one is root.<name> at least",
                extra={"path": op.path},
            )
        if there == nodes:
            raise StorageGroupExistsError(
                f"the storage group {op.path} is there already", extra={"path": op.path}
            )
        if there is not None:
            raise _nested(op.path, "would lie in", there)
        below = self.draft.group_below(nodes)
        if below is not None:
            raise _nested(op.path, "would have in it", below)
        if self.keeps:
            self.draft.add_group(nodes)
        self.touched.exclusive = True
        self._count(op)

    def _count(self, op: records.Op) -> None:
        if self.counts:
            self.cost += self.draft.schema.memory.cost_of(op)

    def storage_group_deleted(self, op: records.StorageGroupDeleted) -> None:
        """A storage group goes, with all that is below it."""
        nodes = self._need_group(op.path)
        if self.keeps:
            self.draft.remove_group(nodes)
        self.touched.sweep()

    def ttl_set(self, op: records.TtlSet) -> None:
        """Files of a storage group are kept so long."""
        self._need_group(op.path)
        check_ttl(op.path, op.ttl)
        self.touched.written.add(("storage_group", op.path))

    def upload_set(self, op: records.UploadSet) -> None:
        """Files of a storage group go into the object store then."""
        self._need_group(op.path)
        check_upload(op.path, op.after)
        self.touched.written.add(("storage_group", op.path))

    def _need_group(self, path: str) -> Nodes:
        nodes = parse_stored(path)
        if self.draft.group_of(nodes) != nodes:
            raise StorageGroupMissingError(
                f"there is no storage group {path}", extra={"path": path}
            )
        return nodes

    # -- making series -----------------------------------------------------------------------

    def series_created(self, op: records.SeriesCreated) -> None:
        """Series of one device are made."""
        device, path, names = parse_stored(op.device), op.device, op.names
        aliases = check_series(op, device)
        is_new, known = self._need_place(path, device, names[0])
        if known is None:
            self._make_aligned(path, op.aligned)
            self.touched.read.add((path, not op.aligned))
        elif known != op.aligned:
            raise _misaligned(path, known)
        if not is_new:
            self._need_free(path, device, names, aliases)
        self._writes(path, names)
        if aliases:
            self.touched.written.update([(path, alias) for _, alias in aliases])
        if self.keeps:
            self.draft.add(device, names, op.types, aligned=op.aligned)
            for position, alias in aliases:
                self.draft.set_alias((*device, names[position]), None, alias)
        self._count(op)

    def _need_place(self, path: str, device: Nodes, name: str) -> tuple[bool, bool | None]:
        """See that a device can have series.

        Args:
            path: of the device.
            device: its nodes.
            name: of a series, for the message.

        Returns:
            whether it is new, so that nothing is below it; and whether the series that it has
            share one time column, None if it has none.
        """
        if self.draft.touches(device):
            return self._need_drafted_place(path, device, name)
        depth, kind, grouped, aligned = self.draft.schema.nodes.reach(device)
        if kind in ("leaf", "alias"):
            raise _below_series(path, device[:depth], kind)
        if not grouped:
            raise _no_group(path, device, name)
        if depth == len(device):
            return False, aligned
        for end in range(len(device), depth, -1):
            self.touched.shared.add((format_path(device[: end - 1]), device[end - 1]))
        return True, None

    def _need_drafted_place(self, path: str, device: Nodes, name: str) -> tuple[bool, bool | None]:
        group = self.draft.group_of(device)
        if group is None:
            raise _no_group(path, device, name)
        for end in range(len(device), len(group) - 1, -1):
            kind = self.draft.kind(device[:end])
            if kind in ("leaf", "alias"):
                raise _below_series(path, device[:end], kind)
            if kind is not None:
                break
            self.touched.shared.add((format_path(device[: end - 1]), device[end - 1]))
        return (False, self.draft.aligned(device)) if end == len(device) else (True, None)

    def _writes(self, path: str, names: Sequence[str]) -> None:
        if self.notes:
            self.touched.written.update([(path, name) for name in names])

    def _make_aligned(self, path: str, aligned: bool) -> None:
        """A device has its first series: whoever wants it otherwise waits for the next batch."""
        self.touched.shared.add((path, aligned))

    def _need_free(
        self, path: str, device: Nodes, names: Sequence[str], aliases: Sequence[tuple[int, str]]
    ) -> None:
        for position in self.draft.taken(device, names):
            raise self._name_taken(path, device, names[position])
        if aliases:
            texts = [alias for _, alias in aliases]
            for position in self.draft.taken(device, texts):
                raise self._alias_taken(path, device, texts[position])

    def _name_taken(self, path: str, device: Nodes, name: str) -> SchemaRefusedError:
        kind = self.draft.kind((*device, name))
        series = f"{path}.{quote_node(name)}"
        if kind == "leaf":
            return SeriesExistsError(
                f"the series {series} is there already", extra={"path": series}
            )
        if kind == "alias":
            return alias_taken(path, name, "is the alias of another series there")
        return SeriesNestedError(
            f"{series} cannot be a series: there are nodes below it", extra={"path": series}
        )

    def _alias_taken(self, path: str, device: Nodes, alias: str) -> AliasTakenError:
        return alias_taken(path, alias, f"is {_what(self.draft.kind((*device, alias)))} there")

    # -- changing series ---------------------------------------------------------------------

    def series_deleted(self, op: records.SeriesDeleted) -> None:
        """All series that match go, one at least."""
        pattern = parse_pattern(op.pattern)
        if pattern.text != op.pattern:
            raise RefusedCommitError(
                f"SeriesDeleted: {op.pattern!r} is not its stored form, which is {pattern.text}"
            )
        draft = self.draft
        found = (
            draft.has_path(pattern.prefix) if pattern.is_path else draft.has_series(pattern.steps)
        )
        if not found:
            raise self._nothing_to_delete(pattern)
        if self.keeps:
            self.draft.delete(pattern)
        self.touched.sweep()

    def _nothing_to_delete(self, pattern: Pattern) -> SeriesMissingError:
        extra: dict[str, object] = {"path": pattern.text}
        if not pattern.is_path:
            return SeriesMissingError(f"no series matches {pattern.text}", extra=extra)
        why = f"there is no series {pattern.text}"
        if self.draft.has_series(pattern.below().steps):
            why += f"; {pattern.below().text} would mean all that are below it"
        return SeriesMissingError(why, extra=extra)

    def alias_set(self, op: records.AliasSet) -> None:
        """A series has another alias from now on, or none."""
        nodes = self._need_series(op.path)
        device, name, alias = nodes[:-1], nodes[-1], op.alias
        path, before = format_path(device), self.draft.alias_of(nodes)
        if alias is not None and alias != before:
            if alias == name:
                raise alias_taken(path, alias, "is the name of the series itself")
            check_alias(op.path, alias)
            check_lengths(path, device, [alias])
            if self.draft.kind((*device, alias)) is not None:
                raise self._alias_taken(path, device, alias)
        touched = [each for each in (name, before, alias) if each is not None]
        self.touched.written.update([(path, each) for each in touched])
        if self.keeps:
            self.draft.set_alias(nodes, before, alias)

    def tags_set(self, op: records.TagsSet) -> None:
        """A series has these tags and attributes from now on."""
        nodes = self._need_series(op.path)
        check_labels(op.path, op.tags, op.attributes)
        self.touched.written.add((format_path(nodes[:-1]), nodes[-1]))

    def _need_series(self, path: str) -> Nodes:
        nodes = parse_stored(path)
        if self.draft.kind(nodes) != "leaf":
            raise SeriesMissingError(f"there is no series {path}", extra={"path": path})
        return nodes

    # -- what a loaded file has --------------------------------------------------------------

    def series_loaded(self, op: records.SeriesLoaded, file: str, sender: str) -> None:
        """Series of a file are there, with the same types, or are made.

        Args:
            op: says which.
            file: path of the file at its sender.
            sender: its uuid.
        """
        extra: dict[str, object] = {"path": file, "sender": sender}
        keeps = self.keeps
        for number, device in enumerate(paced(op.devices, self._pace), 1):
            self.keeps = keeps or number < len(op.devices)
            try:
                self._device_loaded(device)
            except StorageGroupMissingError:
                raise
            except _OtherType as other:
                raise other.conflict(device.device, extra) from None
            except (SchemaRefusedError, IllegalPathError) as error:
                raise SchemaConflictError(
                    f"{file}: {error.message}", extra={"series": device.device, **extra}
                ) from error

    def _device_loaded(self, loaded: records.LoadedDevice) -> None:
        device, path, names = parse_stored(loaded.device), loaded.device, loaded.names
        count = len(names)
        even = count == len(loaded.types) == len(loaded.encodings) == len(loaded.compressions)
        if not even or not count == len(loaded.lasts) == len(set(names)) or not count:
            raise RefusedCommitError(
                f"SeriesLoaded: {path} has columns of different length, a name twice, or none"
            )
        is_new, known = self._need_place(path, device, names[0])
        missing = self._missing(path, device, loaded, is_new=is_new)
        if missing:
            if known is None:
                self._make_aligned(path, loaded.aligned)
            new = [names[each] for each in missing]
            check_lengths(path, device, new)
            self._writes(path, new)
            if self.counts:
                # Of what the commit has made before nothing is counted again.
                own = loaded if len(new) == count else msgspec.structs.replace(loaded, names=new)
                self._count(records.SeriesLoaded("", [own]))
            if self.keeps:
                types = [loaded.types[each] for each in missing]
                self.draft.add(device, new, types, aligned=loaded.aligned)

    def _missing(
        self, path: str, device: Nodes, loaded: records.LoadedDevice, *, is_new: bool
    ) -> Sequence[int]:
        """Positions of the series that are to be made; the others have the same type."""
        names, types = loaded.names, loaded.types
        if is_new:
            return range(len(names))
        if self.draft.touches(device):
            if self.draft.has_made(device, names, types):  # as the files of a task mostly have
                return ()
            for position, name in enumerate(names):
                self._need_type(path, device, name, types[position])
            return [
                position
                for position, name in enumerate(names)
                if self.draft.kind((*device, name)) is None
            ]
        missing, differing = self.draft.schema.devices.compare(device, names, types)
        for position in differing:
            self._need_type(path, device, names[position], types[position])
        return missing

    def _need_type(self, path: str, device: Nodes, name: str, found: int) -> None:
        kind = self.draft.kind((*device, name))
        if kind is None:
            return
        if kind != "leaf":
            raise self._name_taken(path, device, name)
        expected = self.draft.type_of((*device, name))
        if expected != found:
            raise _OtherType(name, expected, found)


def _no_group(path: str, device: Nodes, name: str) -> StorageGroupMissingError:
    if len(device) < 2:
        why = f"{path}.{quote_node(name)} would stand directly below root, in no storage group"
    else:
        why = f"{path} lies in no storage group; set one for it"
    return StorageGroupMissingError(why, extra={"path": path})


def _below_series(path: str, above: Nodes, kind: NodeKind) -> SeriesNestedError:
    text = format_path(above)
    return SeriesNestedError(
        f"{path} cannot have series: {text} is {_what(kind)} itself",
        extra={"path": path, "other": text},
    )


def _misaligned(path: str, aligned: bool) -> AlignmentError:
    return AlignmentError(
        f"the device {path} is there, and its series "
        + ("share one time column" if aligned else "have time columns of their own"),
        extra={"path": path},
    )


def _nested(path: str, how: str, other: Nodes) -> StorageGroupNestedError:
    return StorageGroupNestedError(
        f"the storage group {path} {how} the storage group {format_path(other)}",
        extra={"path": path, "other": format_path(other)},
    )


def _what(kind: NodeKind | None) -> str:
    return {"leaf": "a series", "alias": "the alias of a series"}.get(kind or "", "a node")


class _OtherType(Exception):
    """A series of a file has another type than in the schema."""

    def __init__(self, name: str, expected: int, found: int) -> None:
        super().__init__(name)
        self._name = name
        self._expected = TYPE_TEXTS[expected]
        self._found = TYPE_TEXTS[found]

    def conflict(self, device: str, extra: dict[str, object]) -> SchemaConflictError:
        series = f"{device}.{quote_node(self._name)}"
        return SchemaConflictError(
            f"{extra['path']}: the series {series} has the type {self._found} in the file, "
            f"{self._expected} in the schema",
            extra={**extra, "series": series, "expected": self._expected, "found": self._found},
        )
