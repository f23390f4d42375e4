"""A file of `PackedFiles`, looked at in place: each field is read when it is asked for."""

# ruff: noqa: D102 - what its properties are, `FileRow` says

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, cast

import msgspec

from receiver.metadata.model.records import ManifestMeta, ResourceMeta
from receiver.metadata.state.packed_files import (
    DIGESTS,
    MD5_AT,
    NO_MANIFEST,
    NO_RESOURCE,
    NO_ROOT,
    REGISTERED,
    RESOURCE_AT,
    RETIRED,
    ROOT_AT,
    TAIL_AT,
    TASK_AT,
)
from receiver.metadata.state.ranges import PackedDevices
from receiver.metadata.state.table_rows import FileRow, FileState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from receiver.metadata.state.packed_files import PackedFiles
    from receiver.metadata.state.ranges import Devices

__all__ = ["EndedFile", "PackedFile", "packed_row", "packed_rows", "whole"]

_STATES = (FileState.LIVE, FileState.RETIRED)
"""By that flag; a member of an enumeration is looked up slowly."""


class PackedFile:
    """What answers as a `FileRow` does; it is none, so that none has to be made.

    It is that of one table, which never changes: whoever has it may keep it.
    """

    __slots__ = ("_at", "_of")

    def __init__(self, files: PackedFiles, number: int) -> None:
        self._of = files
        self._at = number

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedFile):
            if self._of is other._of and type(self) is type(other) is PackedFile:
                return self._at == other._at
            return self is other or self.whole() == other.whole()
        return self.whole() == other if isinstance(other, FileRow) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.whole())

    def __repr__(self) -> str:
        return repr(self.whole())

    def whole(self) -> FileRow:
        """The same as an object of its own."""
        of, at = self._of, self._at
        flags, first, series, points = of.flags[at], of.firsts[at], of.series[at], of.points[at]
        digests = of.digests[at * DIGESTS : (at + 1) * DIGESTS].hex()
        stem = of.stem(at)
        resource = manifest = None
        if not flags & NO_RESOURCE:
            resource = ResourceMeta(of.resources[at], digests[96:128])
        if not flags & NO_MANIFEST:
            root = "" if flags & NO_ROOT else digests[128:160]
            manifest = ManifestMeta(series, points, root)
        return FileRow(
            sender=of.texts.senders[of.senders[at]],
            path=f"{stem}.tsfile",
            physical=f"{stem}.{digests[160:]}.tsfile",
            size=of.sizes[at],
            md5=digests[:32],
            tail=digests[32:64],
            version=of.versions[at],
            devices=self.devices,
            first=first,
            last=of.lasts[at],
            series=series,
            points=points,
            task=digests[64:96],
            resource=resource,
            manifest=manifest,
            data_dir=of.texts.data_dirs[of.data_dirs[at]],
            state=_STATES[flags & RETIRED],
            retired=bool(flags & RETIRED),
            registered=bool(flags & REGISTERED),
            verified=of.verified[at],
            first_look=of.first_looks[at],
            closed_look=of.closed_looks[at],
            last_look=of.last_looks[at],
            created=of.created[at],
            changed=of.changed[at],
        )

    @property
    def devices(self) -> Devices:
        of, at = self._of, self._at
        times = of.entries[of.ends[at] + of.name_sizes[at] : of.ends[at + 1]]
        first = of.firsts[at]
        ids = of.id_arrays[of.sets[at]]
        return PackedDevices(of.names, ids, first, of.lasts[at] - first, times)

    @property
    def sender(self) -> str:
        return self._of.texts.senders[self._of.senders[self._at]]

    @property
    def path(self) -> str:
        return self._of.path(self._at)

    @property
    def physical(self) -> str:
        return self._of.physical(self._at)

    @property
    def size(self) -> int:
        return self._of.sizes[self._at]

    @property
    def md5(self) -> str:
        return MD5_AT.text(self._of.digests, self._at)

    @property
    def tail(self) -> str:
        return TAIL_AT.text(self._of.digests, self._at)

    @property
    def version(self) -> int:
        return self._of.versions[self._at]

    @property
    def first(self) -> int:
        return self._of.firsts[self._at]

    @property
    def last(self) -> int:
        return self._of.lasts[self._at]

    @property
    def series(self) -> int:
        return self._of.series[self._at]

    @property
    def points(self) -> int:
        return self._of.points[self._at]

    @property
    def task(self) -> str:
        return TASK_AT.text(self._of.digests, self._at)

    @property
    def resource(self) -> ResourceMeta | None:
        of, at = self._of, self._at
        if of.flags[at] & NO_RESOURCE:
            return None
        return ResourceMeta(of.resources[at], RESOURCE_AT.text(of.digests, at))

    @property
    def manifest(self) -> ManifestMeta | None:
        of, at = self._of, self._at
        flags = of.flags[at]
        if flags & NO_MANIFEST:
            return None
        root = "" if flags & NO_ROOT else ROOT_AT.text(of.digests, at)
        return ManifestMeta(of.series[at], of.points[at], root)

    @property
    def data_dir(self) -> str:
        return self._of.texts.data_dirs[self._of.data_dirs[self._at]]

    @property
    def state(self) -> FileState:
        return _STATES[self._of.flags[self._at] & RETIRED]

    @property
    def retired(self) -> bool:
        return bool(self._of.flags[self._at] & RETIRED)

    @property
    def registered(self) -> bool:
        return bool(self._of.flags[self._at] & REGISTERED)

    @property
    def verified(self) -> int:
        return self._of.verified[self._at]

    @property
    def first_look(self) -> int:
        return self._of.first_looks[self._at]

    @property
    def closed_look(self) -> int:
        return self._of.closed_looks[self._at]

    @property
    def last_look(self) -> int:
        return self._of.last_looks[self._at]

    @property
    def created(self) -> int:
        return self._of.created[self._at]

    @property
    def changed(self) -> int:
        return self._of.changed[self._at]

    @property
    def held(self) -> bool:
        return not self._of.flags[self._at] & RETIRED

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    visible = True
    reason = None
    deleted = superseded = 0
    names: tuple[str, ...] = ()
    rests: tuple[str, ...] = ()
    origin = None

    parsed = FileRow.parsed
    rank = FileRow.rank
    author = FileRow.author
    closed = FileRow.closed
    compactions = FileRow.compactions


class EndedFile(PackedFile):
    """A packed file that was retired since: what that changed is here, all else where it was."""

    __slots__ = ("_changed", "_last_look", "_physical")

    def __init__(
        self, files: PackedFiles, number: int, *, physical: str, last_look: int, changed: int
    ) -> None:
        self._of = files
        self._at = number
        self._physical = physical
        self._last_look = last_look
        self._changed = changed

    def is_of(self, files: PackedFiles) -> bool:
        """Whether it is looked at in a table."""
        return self._of is files

    def whole(self) -> FileRow:
        """The same as an object of its own."""
        return msgspec.structs.replace(
            super().whole(),
            state=FileState.RETIRED,
            retired=True,
            last_look=self._last_look,
            changed=self._changed,
        )

    @property
    def physical(self) -> str:
        return self._physical

    @property
    def last_look(self) -> int:
        return self._last_look

    @property
    def changed(self) -> int:
        return self._changed

    state = FileState.RETIRED
    retired = True
    held = False


def packed_row(files: PackedFiles, number: int) -> FileRow:
    """The file with a number, looked at in place."""
    return cast("FileRow", PackedFile(files, number))  # it answers as one does


def packed_rows(files: PackedFiles, numbers: Iterable[int]) -> Iterator[FileRow]:
    """The files with some numbers."""
    return cast("Iterator[FileRow]", map(PackedFile, repeat(files), numbers))


def whole(row: FileRow) -> FileRow:
    """A row that may be changed by `msgspec.structs.replace`: this one, or one that is made."""
    return row.whole() if isinstance(row, PackedFile) else row
