"""On which file systems listed files lie, so that a mount that is away ends nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from sender.select.found import Scan, TimePartition, Unreadable
from sender.select.path_table import lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from common.names import FilePath
    from sender.select.entry import Entry

__all__ = ["misplaced", "places_of_look", "with_unknown", "without_unknown"]

MountedPlaces = dict[str, dict[str, str]]


def places_of_look(
    before: MountedPlaces, scan: Scan, entries: Mapping[FilePath, Entry]
) -> MountedPlaces:
    """On which mounts files are listed: those of before, and what is proved to be so now.

    A directory that is on another mount than it was proves that it is the same one by a file that
    is as it was listed, or that all that was listed in it is there.
    """
    after = {data_dir: dict(places) for data_dir, places in before.items()}
    listed: dict[tuple[Path, str], list[Entry]] = {each: [] for each in _moved(before, scan)}
    for path, entry in entries.items() if listed else ():
        if (at := (entry.data_dir, path.directory)) in listed:
            listed[at].append(entry)
    for (data_dir, directory), several in listed.items():
        now = scan.mounts[data_dir].of(directory)
        known = after.get(str(data_dir), {}).get(directory, "")
        if _is_there(scan, data_dir, several, missed=known.partition(" ")[2]):
            places = after.setdefault(str(data_dir), {})
            if now:
                places[directory] = now
            else:
                places.pop(directory, None)
    return {data_dir: places for data_dir, places in after.items() if places}


def _moved(before: MountedPlaces, scan: Scan) -> Iterator[tuple[Path, str]]:
    """Directories of TsFiles that are on another mount than they were."""
    for data_dir, mounts in scan.mounts.items():
        known = before.get(str(data_dir), {})
        for directory in known.keys() | mounts.others.keys():
            if directory.count("/") == _DEPTH and known.get(directory, "") != mounts.of(directory):
                yield data_dir, directory


def with_unknown(
    places: MountedPlaces, scan: Scan, entries: Mapping[FilePath, Entry]
) -> MountedPlaces:
    """Places, where it is not remembered on which mount any was.

    Of a directory that has no file as it was listed nobody knows whether what is missing in it is
    gone, or lies on a mount that is away, with what was left beneath that in sight. The first of
    what is missing says so, once it is back.
    """
    known = {(each.data_dir, path.directory) for path, each in entries.items() if each.mtime_ns}
    here: set[tuple[Path, str]] = set()
    for path, file in scan.files.items():
        at, entry = (file.data_dir, path.directory), entries.get(path)
        if at not in known or (entry is not None and entry.identity == file.identity):
            here.add(at)
    waiting = {(each.data_dir, each.text): each.inode for each in scan.waiting}
    here |= {at for data_dir, text in waiting if (at := _place(data_dir, text)) not in known}
    for path, entry in entries.items() if waiting else ():
        if entry.inode and waiting.get((entry.data_dir, path.text)) == entry.inode:
            here.add((entry.data_dir, path.directory))
    after = {data_dir: dict(several) for data_dir, several in places.items()}
    for path, entry in entries.items():
        if (entry.data_dir, path.directory) not in here and scan.is_missing(path):
            there = after.setdefault(str(entry.data_dir), {})
            if not _is_unknown(there.get(path.directory, "")):
                there[path.directory] = f"{_UNKNOWN} {path.name}"
    return after


def without_unknown(places: MountedPlaces) -> MountedPlaces:
    """Places, but for those of which it is not remembered on which mount they were."""
    return {
        data_dir: {at: each for at, each in several.items() if not _is_unknown(each)}
        for data_dir, several in places.items()
    }


def _place(data_dir: Path, text: str) -> tuple[Path, str]:
    return data_dir, text.rpartition("/")[0]


def _is_unknown(place: str) -> bool:
    return place.startswith(f"{_UNKNOWN} ") or place == _UNKNOWN


_UNKNOWN = "unknown"
_DEPTH = 3
"""Slashes in `<kind>/<storage group>/<virtual group>/<partition>`."""


def _is_there(scan: Scan, data_dir: Path, listed: Iterable[Entry], *, missed: str = "") -> bool:
    """Whether what was listed in a directory is there, as far as one file can prove it.

    Args:
        scan: of all local files.
        data_dir: of the directory.
        listed: what is listed in it.
        missed: the file that proves it where others may have come since; any one, if empty.
    """
    here = [(entry, scan.files.get(entry.path)) for entry in listed]
    for entry, file in here:
        if file is not None and file.identity == entry.identity and missed in ("", entry.path.name):
            return True
    return all(file is not None and file.data_dir == data_dir for _, file in here)


def misplaced(scan: Scan, places: MountedPlaces, entries: Mapping[FilePath, Entry]) -> Scan:
    """The scan, where partitions of missing files count as not looked at whole if need be."""
    wrong: dict[TimePartition, str] = {}
    away: dict[tuple[Path, str], Unreadable] = {}
    for path, entry in _missing(scan, entries):
        if entry.data_dir in scan.mounts:
            known = places.get(str(entry.data_dir), {}).get(path.directory, "")
            if scan.mounts[entry.data_dir].of(path.directory) != known:
                why = _FORGOTTEN if _is_unknown(known) else _ELSEWHERE
                wrong[path.group] = f"{entry.data_dir}/{path.directory} {why}; {_FOR_GOOD}"
                found = Unreadable(entry.data_dir, path.directory, f"{why}; {_FOR_GOOD}")
                away[entry.data_dir, path.directory] = found
    if not wrong:
        return scan
    changing = {**wrong, **scan.changing}
    return replace(scan, changing=changing, misplaced=tuple(away.values()), _wholes={})


_ELSEWHERE = "is not on the file system that its files were listed on"
_FORGOTTEN = (
    "has no file as it was listed, and looks.state, which knew whether it was mounted, was lost"
)
_FOR_GOOD = "if they are gone for good: tsferry-sender resync"


def _missing(scan: Scan, entries: Mapping[FilePath, Entry]) -> Iterable[tuple[FilePath, Entry]]:
    return ((path, entry) for path, entry in lacking(entries, scan.files) if scan.is_missing(path))
