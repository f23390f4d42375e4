"""What a file says of series, as the schema takes it in: read from its bytes, before any decision.

The devices of a file are named once more here, as paths of the tree
(`receiver.metadata.model.paths.device_nodes`): a table-model device stands below a storage group of
its database, whatever the directory's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.tsfile import read_outlines
from receiver.metadata.model import records
from receiver.metadata.model.paths import (
    IllegalPathError,
    device_name,
    device_nodes,
    format_path,
    parse_lax,
    parse_pattern,
    parse_stored,
)
from receiver.metadata.model.types import TYPE_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from common.tsfile import Outline, Tail, TsFileSource
    from receiver.metadata.model.paths import Nodes, Pattern
    from receiver.metadata.schema import Schema

__all__ = ["Refusal", "Registering", "read_series"]

_MANY_NAMES = 1 << 14


class _Shared:
    """Keeps one copy of what devices of a file have in common: they mostly have the same series."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._codes: dict[bytes, bytes] = {}

    def names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(self._names) > _MANY_NAMES:
            return names
        return self._names.setdefault(names, names)

    def codes(self, codes: bytes) -> bytes:
        return self._codes.setdefault(codes, codes)


def read_series(source: TsFileSource, tail: Tail, sg: str) -> Sequence[records.LoadedDevice]:
    """The series of a file, device by device, in the file's order.

    Devices without series (a file may name such) are left out.

    Args:
        source: the file.
        tail: of it, complete.
        sg: the storage group that its directory names: the database of a table-model file.

    Raises:
        OSError: the file cannot be read.
        Corrupt: a chunk is not what the index says.
        IllegalPathError: a device has a name that is no path.
    """
    shared = _Shared()
    return tuple(
        _loaded(_path(device.name_in(sg)), device.aligned, outlines, shared)
        for device, outlines in read_outlines(source, tail)
        if outlines
    )


def _path(device: str) -> str:
    path = format_path(device_nodes(device))
    parse_stored(path)  # files may name devices that the schema could never name again
    return path


def _loaded(
    device: str, aligned: bool, outlines: Sequence[Outline], shared: _Shared
) -> records.LoadedDevice:
    names, types, encodings, compressions, lasts = zip(*outlines, strict=True)
    return records.LoadedDevice(
        device=device,
        aligned=aligned,
        names=shared.names(names),
        types=shared.codes(bytes(types)),
        encodings=shared.codes(bytes(encodings)),
        compressions=shared.codes(bytes(compressions)),
        lasts=lasts,
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a file cannot be taken in as it is.

    Attributes:
        reason: in words, with the object's name.
        device: the device that it is about, as files name it.
        hold: the schema or the file has to change; otherwise there is only no room now.
    """

    reason: str
    device: str | None = None
    hold: bool = True


class Registering:
    """What the files of one task do to the schema, file by file: the first one of two wins.

    What is found here is what the rules of the engine would refuse. They look in any case when the
    commit is made, so nothing is guarded: a race that was lost is decided again. And so the first
    decision may trust: most files contradict nothing, and to look at all their series twice would
    take twice as long.
    """

    def __init__(
        self, schema: Schema, *, level: int, max_memory: int | None, trusting: bool = False
    ) -> None:
        """Begin with the schema as it is; it must stand still as long as this is used.

        Args:
            schema: committed.
            level: nodes below root of a storage group that is made here; 0: the one that the
                file's directory names.
            max_memory: bytes that the schema may take, None for no limit.
            trusting: leave it to the rules of the engine to find what contradicts.
        """
        self._schema = schema
        self._level = level
        self._trusting = trusting
        self._max_memory = max_memory
        self._memory = schema.memory() if max_memory is not None else 0
        self._made = _Made()
        self._deleted: list[Pattern] = []

    def assume(self, ops: Iterable[records.Op]) -> None:
        """What stands in the commit before any file makes this."""
        for op in ops:
            if isinstance(op, records.StorageGroupSet):
                self._made.add_group(parse_stored(op.path))
            elif isinstance(op, records.SeriesCreated):
                device = parse_stored(op.device)
                self._made.add_series(device, dict(zip(op.names, op.types, strict=True)))
            elif isinstance(op, records.SeriesDeleted):
                self._deleted.append(parse_pattern(op.pattern))

    def take(
        self, physical: str, sg: str, devices: Sequence[records.LoadedDevice]
    ) -> list[records.Op] | Refusal:
        """The operations that register a file, behind its `FileLoaded`; or why it is refused.

        Args:
            physical: of the file.
            sg: the storage group that its directory names.
            devices: from `read_series`.
        """
        made = _Made(self._made)
        home = _directory(sg)
        for device in devices:
            nodes = parse_stored(device.device)
            refusal = self._place(nodes, home, made)
            if refusal is None and not self._trusting:
                refusal = self._check(device, nodes, made)
            if refusal is not None:
                return refusal
        ops: list[records.Op] = [
            records.StorageGroupSet(format_path(each), if_missing=True) for each in made.own_groups
        ]
        if (refusal := self._no_room(ops, made)) is not None:
            return refusal
        self._made.update(made)
        return [*ops, records.SeriesLoaded(physical, devices)]

    # -- storage groups --

    def _place(self, nodes: Nodes, home: Nodes | None, made: _Made) -> Refusal | None:
        """Find the storage group of a device, or make it."""
        if self._schema.storage_group_of(nodes) is not None or made.holds(nodes):
            return None
        for length in range(self._depth(nodes, home), len(nodes) + 1):
            group = nodes[:length]
            if not (self._schema.has_storage_group_below(group) or made.has_group_below(group)):
                made.add_group(group)
                return None
        return Refusal(
            f"device {format_path(nodes)} lies in no storage group, and there is one below it; "
            "storage groups do not nest",
            device_name(nodes),
        )

    def _depth(self, nodes: Nodes, home: Nodes | None) -> int:
        """Nodes of the storage group that is made for a device that lies in none, at least.

        A database is one; of the tree, the one that the directory names, or so many nodes as the
        configuration says. A directory that is no part of the path decides nothing: then it is
        the first node below root, as in Apache IoTDB. Where that would hold another storage group
        (two sites have cut the same tree at different depths) it is one node more.
        """
        if nodes[1:2] and nodes[1].startswith("/"):
            return 2
        if self._level == 0 and home is not None and nodes[: len(home)] == home:
            return max(2, len(home))
        return max(2, min(1 + (self._level or 1), len(nodes)))

    # -- series --

    def _check(self, device: records.LoadedDevice, nodes: Nodes, made: _Made) -> Refusal | None:
        is_there, over = self._series_above(nodes, made)
        if over is not None:
            return Refusal(
                f"device {device.device} would lie below the series {format_path(over)}",
                device_name(nodes),
            )
        names, types = device.names, device.types
        own = made.types_of(nodes)
        for name, code in zip(names, types, strict=True) if own else ():
            if own.get(name, code) != code:
                return _mismatch((*nodes, name), "leaf", own[name], code)
        missing: Sequence[int] = range(len(names))
        differing: Sequence[int] = ()
        if is_there:
            missing, differing = self._schema.compare(nodes, names, types)
        new = list(missing)
        for at in differing:
            if not self._gives_way((*nodes, names[at]), own):
                return self._committed(nodes, names[at], types[at])
            new.append(at)
        has_below = made.is_inner(nodes)
        for at in new:
            if has_below and made.is_inner((*nodes, names[at])):
                return _mismatch((*nodes, names[at]), "internal", None, types[at])
        made.add_series(nodes, {names[at]: types[at] for at in new if names[at] not in own})
        return None

    def _gives_way(self, nodes: Nodes, own: Mapping[str, int]) -> bool:
        """Whether what is committed under a path is deleted by the commit at hand."""
        return nodes[-1] in own or any(each.matches(nodes) for each in self._deleted)

    def _committed(self, device: Nodes, name: str, code: int) -> Refusal:
        (row,) = self._schema.existing_rows(device, [name])
        kind = self._schema.kind(row)
        there = self._schema.type_of(row) if kind == "leaf" else None
        return _mismatch((*device, name), kind, there, code)

    def _series_above(self, nodes: Nodes, made: _Made) -> tuple[bool, Nodes | None]:
        """Whether a device's node is there, and the series (or alias) that it would lie below."""
        for length in range(len(nodes), 1, -1):
            if made.type_of(nodes[: length - 1], nodes[length - 1]) is not None:
                return False, nodes[:length]
        for length in range(len(nodes), 1, -1):
            kind = self._schema.kind_at(nodes[:length])
            if kind in ("leaf", "alias"):
                return False, nodes[:length]
            if kind is not None:
                return length == len(nodes), None
        return False, None

    def _no_room(self, groups: Sequence[records.Op], made: _Made) -> Refusal | None:
        """Whether what is new would take more memory than there may be."""
        if self._max_memory is None or self._trusting:
            return None
        new = records.SeriesLoaded("", made.new_series())
        cost = sum(self._schema.cost_of(op) for op in (*groups, new))
        if cost and self._memory + cost > self._max_memory:
            return Refusal(
                f"its new series need {cost} bytes, the schema has {self._memory} of "
                f"metadata.max_memory = {self._max_memory}; once more when there is room",
                hold=False,
            )
        self._memory += cost
        return None


class _Made:
    """What is made in a commit before it is committed; of one file, over what others have made."""

    def __init__(self, before: _Made | None = None) -> None:
        self._before = before
        self.own_groups: list[Nodes] = []
        self._groups: set[Nodes] = set()
        self._types: dict[Nodes, dict[str, int]] = {}
        self._inner: set[Nodes] = set()

    def holds(self, nodes: Nodes) -> bool:
        """Whether a path lies in a storage group."""
        inside = bool(self._groups) and any(
            nodes[:length] in self._groups for length in range(2, len(nodes) + 1)
        )
        return inside or (self._before is not None and self._before.holds(nodes))

    def has_group_below(self, nodes: Nodes) -> bool:
        """Whether a storage group lies below a path."""
        below = any(each[: len(nodes)] == nodes for each in self._groups)
        return below or (self._before is not None and self._before.has_group_below(nodes))

    def add_group(self, nodes: Nodes) -> None:
        """A storage group that the file makes."""
        self._groups.add(nodes)
        self.own_groups.append(nodes)

    def type_of(self, device: Nodes, name: str) -> int | None:
        """The type of a series, None if none was made."""
        found = self._types.get(device, {}).get(name)
        if found is None and self._before is not None:
            return self._before.type_of(device, name)
        return found

    def types_of(self, device: Nodes) -> Mapping[str, int]:
        """The series of a device, by name."""
        own = self._types.get(device, {})
        return own if self._before is None else {**self._before.types_of(device), **own}

    def add_series(self, device: Nodes, types: Mapping[str, int]) -> None:
        """Series that the file makes, by name, with their device; what is there stays."""
        if types:
            self._types[device] = {**types, **self._types.get(device, {})}
        for length in range(len(device), 1, -1):
            if device[:length] in self._inner:
                break
            self._inner.add(device[:length])

    def new_series(self) -> list[records.LoadedDevice]:
        """All series that the file makes."""
        return [
            records.LoadedDevice(
                format_path(device),
                False,
                tuple(types),
                codes := bytes(types.values()),
                codes,
                codes,
                (None,) * len(types),
            )
            for device, types in self._types.items()
        ]

    def is_inner(self, nodes: Nodes) -> bool:
        """Whether a device was made here, or something below."""
        return nodes in self._inner or (self._before is not None and self._before.is_inner(nodes))

    def update(self, file: _Made) -> None:
        """The file is taken."""
        self._groups |= file._groups
        self._inner |= file._inner
        for device, types in file._types.items():
            self._types.setdefault(device, {}).update(types)


def _directory(sg: str) -> Nodes | None:
    try:
        return parse_lax(sg)
    except IllegalPathError:
        return None  # a database, or any other name: it is no part of a path


def _mismatch(nodes: Nodes, kind: str, there: int | None, code: int) -> Refusal:
    path = format_path(nodes)
    if kind == "leaf" and there is not None:
        before, here = TYPE_TEXTS[there], TYPE_TEXTS[code]
        reason = f"series {path} is {before} in the schema, {here} in the file"
    elif kind == "alias":
        reason = f"series {path} of the file has the name of another series' alias"
    else:
        reason = f"series {path} of the file has the place of a node with others below it"
    return Refusal(reason, device_name(nodes[:-1]))
