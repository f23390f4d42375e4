"""What a file says of series, as the schema takes it in: read from its bytes, before any decision.

The devices of a file are named once more here, as paths of the tree
(`receiver.metadata.model.paths.device_nodes`): a table-model device stands below a storage group of
its database, whatever the directory's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from common.errors import TsferryError
from common.tsfile import read_outlines
from common.tsfile.device_names import bare_measurement
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    AliasTakenError,
    MemoryLimitError,
    SchemaConflictError,
    SeriesNestedError,
    StorageGroupNestedError,
)
from receiver.metadata.model.paths import (
    IllegalPathError,
    device_name,
    device_nodes,
    format_path,
    parse_lax,
    parse_stored,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from common.tsfile import Device, Outline, Tail, TsFileOrigin
    from receiver.metadata.commit.draft import Draft
    from receiver.metadata.model.paths import Nodes

__all__ = ["Registering", "SeriesRefusal", "read_series"]

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


def read_series(source: TsFileOrigin, tail: Tail, sg: str) -> Sequence[records.LoadedDevice]:
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
        _loaded(device, _path(device.name_in(sg)), outlines, shared)
        for device, outlines in read_outlines(source, tail)
        if outlines
    )


@lru_cache(maxsize=1 << 12)
def _path(device: str) -> str:
    """Of a device as files name it: thousands of files have the same few."""
    path = format_path(device_nodes(device))
    parse_stored(path)  # files may name devices that the schema could never name again
    return path


def _loaded(
    device: Device, path: str, outlines: Sequence[Outline], shared: _Shared
) -> records.LoadedDevice:
    names, types, encodings, compressions, lasts = zip(*outlines, strict=True)
    return records.LoadedDevice(
        device=path,
        aligned=device.aligned,
        names=shared.names(names if device.is_table else _bare(names)),
        types=shared.codes(bytes(types)),
        encodings=shared.codes(bytes(encodings)),
        compressions=shared.codes(bytes(compressions)),
        lasts=lasts,
    )


def _bare(names: tuple[str, ...]) -> tuple[str, ...]:
    """As the schema has them; one that is there both ways in one file keeps its back-ticks."""
    if not any(each.startswith("`") for each in names):
        return names
    taken = set(names)
    found = []
    for each in names:
        bare = bare_measurement(each)
        found.append(each if bare in taken else bare)
        taken.add(found[-1])
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SeriesRefusal:
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

    A file is tried on a draft of the commit. The rules look once more when the commit is made, so
    nothing is guarded: a race that was lost is decided again. And so the first decision may trust:
    most files contradict nothing, and to look at all their series twice would take twice as long.
    """

    def __init__(
        self, draft: Draft, *, level: int, trusting: bool = False, creates: bool = True
    ) -> None:
        """Begin with what stands in the commit before any file.

        Args:
            draft: of the commit.
            level: nodes below root of a storage group that is made here; 0: the one that the
                file's directory names.
            trusting: leave it to the commit to find what contradicts.
            creates: make series that are not there; without it their file is refused.
        """
        self._draft = draft
        self._level = level
        self._creates = creates
        self._trusting = trusting

    def play(self, ops: Sequence[records.Op]) -> None:
        """Take operations that stand before those of files that come."""
        if ops and not self._trusting:
            self._draft.take(ops)

    def take(
        self,
        physical: str,
        sg: str,
        devices: Sequence[records.LoadedDevice],
        *,
        before: Sequence[records.Op] = (),
    ) -> list[records.Op] | SeriesRefusal:
        """The operations that register a file, behind its `FileLoaded`; or why it is refused.

        Args:
            physical: of the file.
            sg: the storage group that its directory names.
            devices: from `read_series`.
            before: what is committed of the file before its series.
        """
        if not self._creates and (unknown := self._unknown(devices)) is not None:
            return unknown
        ops: list[records.Op] = []
        series = records.SeriesLoaded(physical, devices)
        try:
            if self._trusting and all(self._group_of(each) is not None for each in devices):
                return [series]  # nothing for the draft to take
            with self._draft.all_or_nothing():
                ops += self._groups(_directory(sg), devices)
                if not self._trusting:
                    self._draft.take([*before, series])
        except TsferryError as error:
            return _refusal(error)
        return [*ops, series]

    def _unknown(self, devices: Iterable[records.LoadedDevice]) -> SeriesRefusal | None:
        """Why a file with series that are not in the schema is refused; None if it has none."""
        for device in devices:
            nodes = parse_stored(device.device)
            for name in device.names:
                path = (*nodes, name)
                if self._draft.schema.group_of(nodes) is None or (
                    self._draft.schema.kind(path) != "leaf"
                ):
                    return SeriesRefusal(
                        f"series {format_path(path)} is not in the schema, and "
                        "metadata.auto_create_schema is off: create it, then retry the file",
                        device_name(nodes),
                    )
        return None

    def _groups(
        self, home: Nodes | None, devices: Iterable[records.LoadedDevice]
    ) -> Iterator[records.Op]:
        """Make the storage groups that devices need and have not."""
        for device in devices:
            if self._group_of(device) is None:
                nodes = parse_stored(device.device)
                op = records.StorageGroupSet(format_path(self._place(nodes, home)), if_missing=True)
                self._draft.take([op])
                yield op

    def _group_of(self, device: records.LoadedDevice) -> Nodes | None:
        return self._draft.schema.group_of(parse_stored(device.device))

    def _place(self, nodes: Nodes, home: Nodes | None) -> Nodes:
        """The storage group that is made for a device that lies in none."""
        for length in range(self._depth(nodes, home), len(nodes) + 1):
            if self._draft.schema.group_below(nodes[:length]) is None:
                return nodes[:length]
        path = format_path(nodes)
        raise StorageGroupNestedError(
            f"device {path} lies in no storage group, and there is one below it; "
            "storage groups do not nest",
            extra={"path": path},
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


def _directory(sg: str) -> Nodes | None:
    try:
        return parse_lax(sg)
    except IllegalPathError:
        return None  # a database, or any other name: it is no part of a path


def _refusal(error: TsferryError) -> SeriesRefusal:
    """What the rules say of a file, in the words of whoever has to mend it."""
    match error:
        case MemoryLimitError(extra={"needed": cost, "used": used, "limit": limit}):
            return SeriesRefusal(
                f"its new series need {cost} bytes, the schema has {used} of "
                f"metadata.max_memory = {limit}; once more when there is room",
                hold=False,
            )
        case StorageGroupNestedError(extra={"path": str(path)}):
            return SeriesRefusal(error.message, device_name(parse_stored(path)))
        case SchemaConflictError(extra={"series": str(path), "expected": there, "found": here}):
            reason = f"series {path} is {there} in the schema, {here} in the file"
            return SeriesRefusal(reason, device_name(parse_stored(path)[:-1]))
        case SchemaConflictError(extra={"series": str(device)}, __cause__=cause):
            return SeriesRefusal(
                _contradiction(error, device, cause), device_name(parse_stored(device))
            )
    return SeriesRefusal(error.message)


def _contradiction(error: TsferryError, device: str, cause: BaseException | None) -> str:
    match cause:
        case SeriesNestedError(extra={"other": other}):
            return f"device {device} would lie below the series {other}"
        case SeriesNestedError(extra={"path": path}):
            return f"series {path} of the file has the place of a node with others below it"
        case AliasTakenError(extra={"name": str(name)}):
            path = format_path((*parse_stored(device), name))
            return f"series {path} of the file has the name of another series' alias"
    return error.message
