"""Which points of a TsFile were deleted: its ``.mods`` or ``.mods2``, applied.

A database does not take deleted points out of a file. It writes beside it what was deleted, and
leaves that out when it reads, until a compaction writes the file anew. Neither the file's
statistics nor its page headers know of it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from common.tsfile import Device, parse_name, read_tail
from common.tsfile.resource import parse_resource
from receiver.points.deleted.deletion_entries import (
    EVERY_CHUNK,
    Deletion,
    NamePattern,
    PathPattern,
    Tags,
    names_of,
)
from receiver.points.deleted.deletion_files import DeletionFile, parse_binary, parse_text
from receiver.points.errors import DamagedData, DataPlace, UnsupportedData

__all__ = [
    "MAX_DELETIONS_BYTES",
    "DeletionRecords",
    "Deletions",
    "Ranges",
    "deleted",
    "older_in",
    "older_patterns",
]

Ranges: TypeAlias = list[tuple[int, int]]
"""Inclusive ranges of time, ascending, apart from each other."""

MAX_DELETIONS_BYTES: Final = 64 << 20
"""The largest file of deletions that is read. A database rewrites one of more than 1 MiB."""


_SHARED: Final = re.compile(r"[0-9]+-[0-9]+\.mods2")  # <level>-<number>


@dataclasses.dataclass(frozen=True, slots=True)
class DeletionRecords:
    """Records of a deletion file, as a catalogue keeps them.

    Attributes:
        name: of the file, for people.
        form: `mods` or `mods2`.
        content: whole records.
        older: patterns in it that name all that lies below as well, as far as that is known.
    """

    name: str
    form: str
    content: bytes
    older: frozenset[str] = frozenset()


class Deletions:
    """The deletions that concern one TsFile. Empty (false) if there are none.

    Attributes:
        entries: every one, in the order of the files.
        files: where they were read.
        dropped: what was left out of them: the torn end of a file, one sentence each.
    """

    def __init__(
        self,
        entries: Iterable[Deletion] = (),
        *,
        files: Iterable[str] = (),
        dropped: Iterable[str] = (),
    ) -> None:
        self.entries: Final = tuple(entries)
        self.files: Final = tuple(files)
        self.dropped: Final = tuple(dropped)
        self._device: tuple[tuple[str, bool], NamePattern, tuple[Deletion, ...]] | None = None
        self._series: tuple[tuple[str, bool, str], tuple[Deletion, ...]] | None = None

    @classmethod
    def beside(cls, tsfile: str | os.PathLike[str]) -> Deletions:
        """Read what stands beside a TsFile.

        ``X.tsfile.mods2`` if it is there, otherwise ``X.tsfile.mods`` (a database of 2.x that
        opens a directory of 1.x writes the former from the latter); and the shared file that
        ``X.tsfile.resource`` names, from the offset it names. That one is looked for in the
        TsFile's own directory: the path in the resource is that of the machine it came from.

        In a ``.mods`` of 0.12 a pattern names all that lies below as well. No file says which
        version it is of. But a database writes a deletion beside a file only if that has a device
        whose series it names: one that by the newer rule names none is of the older. One that
        names some by both is taken for newer: in a file of 0.12 with the devices ``root.a`` and
        ``root.a.b`` a deletion of ``root.a.*`` leaves those of ``root.a.b``, which 0.12 did not.

        Raises:
            DamagedData: such a file is broken elsewhere than at its end, or a shared one is not
                there, or the resource that would name it cannot be read.
            UnsupportedData: such a file is larger than ``MAX_DELETIONS_BYTES``.
            OSError: it cannot be read.
        """
        path = Path(tsfile)
        found = [file for file in (_own(path), _shared(path)) if file is not None]
        return cls(
            (entry for file in found for entry in file.entries),
            files=(file.name for file in found),
            dropped=(file.dropped for file in found if file.dropped),
        )

    @classmethod
    def noted(
        cls,
        own: Iterable[DeletionRecords],
        others: Iterable[DeletionRecords],
        devices: Iterable[Device],
    ) -> Deletions:
        """Take what a catalogue has of the deletion files of a sender.

        Args:
            own: of this TsFile.
            others: of other files, that hide their times in this one too: in all of its chunks,
                since it was closed before they came.
            devices: of this TsFile.

        Raises:
            DamagedData: records are none.
        """
        parts = [(each.form, _parsed(each)) for each in own]
        found = [part for _, part in parts]
        mine = [entry for form, part in parts if form != "mods" for entry in part.entries]
        text = tuple(entry for form, part in parts if form == "mods" for entry in part.entries)
        if text:
            names = [device.name for device in devices if not device.is_table]
            mine += _with_prefixes(text, older_patterns(text, names))
        for each in others:
            part = _parsed(each)
            found.append(part)
            mine += (
                dataclasses.replace(entry, before=EVERY_CHUNK)
                for entry in _with_prefixes(part.entries, each.older)
            )
        return cls(
            mine,
            files=dict.fromkeys(file.name for file in found),
            dropped=(file.dropped for file in found if file.dropped),
        )

    def ranges(self, device: Device, measurement: str, *, chunk: int) -> Ranges:
        """Which times of a series are deleted in one of its chunks.

        Args:
            device: of the file.
            measurement: of it; ``""`` is the time column: the times of which no column is left.
            chunk: offset of the chunk's header. A deletion of 1.x that came while the file was
                still written leaves the chunks behind it alone.
        """
        if not self.entries:
            return []
        found = self._of_series(device, measurement)
        return _merged((entry.start, entry.end) for entry in found if entry.before > chunk)

    # Chunks of a series, and series of a device, are asked for in a row: the last answers are kept.

    def _of_series(self, device: Device, measurement: str) -> tuple[Deletion, ...]:
        key = (device.name, device.is_table, measurement)
        if self._series is None or self._series[0] != key:
            names, entries = self._of_device(device)
            found = (each for each in entries if each.series.matches_series(names, measurement))
            self._series = (key, tuple(found))
        return self._series[1]

    def _of_device(self, device: Device) -> tuple[NamePattern, tuple[Deletion, ...]]:
        key = (device.name, device.is_table)
        if self._device is None or self._device[0] != key:
            names = names_of(device)
            exact, others = self._by_device
            found = [each for each in others if each.series.concerns(names)]
            if not names.is_table:
                found += exact.get(names.nodes, ())
            self._device = (key, names, tuple(found))
        return self._device[1:]

    @functools.cached_property
    def _by_device(self) -> tuple[dict[Tags, list[Deletion]], list[Deletion]]:
        """Deletions by the one device that they are of, and those that may be of others."""
        exact: dict[Tags, list[Deletion]] = {}
        others: list[Deletion] = []
        for entry in self.entries:
            device = entry.series.device if isinstance(entry.series, PathPattern) else None
            (others if device is None else exact.setdefault(device, [])).append(entry)
        return exact, others

    def __bool__(self) -> bool:
        return bool(self.entries)


def _own(tsfile: Path) -> DeletionFile | None:
    for suffix, parse in ((".mods2", parse_binary), (".mods", parse_text)):
        path = tsfile.with_name(tsfile.name + suffix)
        content = _content(path)
        if content is not None:
            found = parse(content, str(path))
            if parse is parse_text:
                return dataclasses.replace(found, entries=_by_rule(found.entries, tsfile))
            return found
    return None


def _by_rule(entries: tuple[Deletion, ...], tsfile: Path) -> tuple[Deletion, ...]:
    """Make those entries prefixes that by the newer rule could not be of this TsFile."""
    try:
        devices = read_tail(tsfile).devices
    except FileNotFoundError:
        return entries  # without points nothing is deleted
    names = (device.name for device in devices if not device.is_table)
    return _with_prefixes(entries, older_patterns(entries, names))


def older_patterns(entries: Iterable[Deletion], devices: Iterable[str]) -> frozenset[str]:
    """The patterns that by the newer rule could not be of a TsFile; see `Deletions.beside`.

    Args:
        entries: of its deletion file.
        devices: names of its devices of the tree model.
    """
    patterns = {entry.series for entry in entries if isinstance(entry.series, PathPattern)}
    names = {NamePattern(False, parse_name(device)[1]) for device in devices}
    trees = {each.nodes for each in names}
    return frozenset(
        pattern.text
        for pattern in patterns
        if (pattern.device is None and not any(map(pattern.concerns, names)))
        or (pattern.device is not None and pattern.device not in trees)
    )


def older_in(content: bytes, name: str, devices: Iterable[str]) -> frozenset[str]:
    """The same of the records of a `.mods`; none where they are none, as whoever reads them says.

    Args:
        content: whole records.
        name: of the file, for people.
        devices: of its TsFile, those of tables too.
    """
    trees = [each for each in devices if not each.startswith("/")]
    try:
        return older_patterns(parse_text(content, name).entries, trees)
    except DamagedData:
        return frozenset()


def _with_prefixes(entries: tuple[Deletion, ...], older: Set[str]) -> tuple[Deletion, ...]:
    return tuple(
        dataclasses.replace(entry, series=PathPattern(entry.series.text, prefix=True))
        if isinstance(entry.series, PathPattern) and entry.series.text in older
        else entry
        for entry in entries
    )


@functools.lru_cache(256)
def _parsed(records: DeletionRecords) -> DeletionFile:
    parse = parse_text if records.form == "mods" else parse_binary
    return parse(records.content, records.name)


def _shared(tsfile: Path) -> DeletionFile | None:
    content = _content(tsfile.with_name(tsfile.name + ".resource"))
    if content is None:
        return None
    resource = parse_resource(content)
    if resource.opaque and any(map(_SHARED.fullmatch, os.listdir(tsfile.parent))):
        raise DamagedData(
            f"{resource.opaque}; so it is not known whether the shared deletions beside it count",
            DataPlace(f"{tsfile}.resource"),
        )
    if resource.shared_deletions is None:
        return None
    name, start = resource.shared_deletions
    if not _SHARED.fullmatch(name) or start < 0:
        raise DamagedData(
            f"it names {name!r} from {start} on as shared deletions",
            DataPlace(f"{tsfile}.resource"),
        )
    path = tsfile.with_name(name)
    deletions = _content(path)
    if deletions is None or start > len(deletions):
        what = "is not there" if deletions is None else f"has no {start} bytes"
        raise DamagedData(f"the shared deletions of {tsfile.name} {what}", DataPlace(str(path)))
    return parse_binary(deletions, str(path), start=start)


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_DELETIONS_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > MAX_DELETIONS_BYTES:
        raise UnsupportedData(f"more than {MAX_DELETIONS_BYTES >> 20} MiB", DataPlace(str(path)))
    return content


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in order; those that overlap or touch are one, those that end too early none."""
    merged: Ranges = []
    for start, end in sorted(each for each in ranges if each[0] <= each[1]):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def deleted(times: npt.NDArray[np.int64], ranges: Ranges) -> npt.NDArray[np.bool_]:
    """Which of ``times`` lie in one of ``ranges``."""
    if not ranges:
        return np.zeros(len(times), np.bool_)
    bounds = np.array(ranges, np.int64)
    at = np.searchsorted(bounds[:, 0], times, side="right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (times <= bounds[np.maximum(at, 0), 1])
    return inside
