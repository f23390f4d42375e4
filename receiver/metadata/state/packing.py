"""Files as rows become `PackedFiles`: those that are as most are; the others stay rows."""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.state.packed_files import (
    COLUMNS,
    DIGESTS,
    NO_MANIFEST,
    NO_RESOURCE,
    NO_ROOT,
    REGISTERED,
    RETIRED,
    PackedFiles,
    PackedTexts,
    hash_of,
    path_key,
)
from receiver.metadata.state.ranges import packed_times
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Packed", "cut", "pack"]

T = TypeVar("T")
_AT_ONCE = 1 << 14
"""Entries that are moved at once, for each byte takes eight more meanwhile."""
_DEPTH = 4
"""Directories of a path: those of a file would not be neighbours otherwise."""
_ZEROS = "0" * 32
_HASH = np.uint64(((1 << 32) - 1) << 32)
_LOW = np.uint64((1 << 32) - 1)


class Packed(NamedTuple):
    """What became of rows.

    Attributes:
        files: the table.
        rows: those that are in it now, which were none of the table before.
        numbers: of each of them.
        others: rows that stay as they are.
        moved: for each number before, the one that it has now; -1 for what was left out.
        left: a byte for each file of the table, 1 for `numbers`, as if those had left it.
        within: how many files each directory has, without those.
    """

    files: PackedFiles
    rows: list[FileRow]
    numbers: array[int]
    others: list[FileRow]
    moved: NDArray[np.int64]
    left: bytearray
    within: array[int]


class _Fitting(NamedTuple):
    row: FileRow
    flags: int
    digests: bytes
    name: bytes
    times: bytes


def pack(before: PackedFiles, left_out: bytes, rows: Iterable[FileRow]) -> Packed:
    """A table of what `before` has, but for what is left out, and of rows.

    Args:
        before: the table until now.
        left_out: a byte for each of its files, 0 for what stays.
        rows: others; none of what stays has the physical path of one.
    """
    fitting: list[_Fitting] = []
    others: list[FileRow] = []
    for row in rows:
        found = _fitting(row)
        if found is None:
            others.append(row)
        else:
            fitting.append(found)
    fitting.sort(key=lambda each: each.row.physical)
    staying = np.flatnonzero(np.frombuffer(left_out, np.uint8) == 0)
    new = _table([*fitting], before.names)
    files, order = _joined(before, staying, new)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    moved = np.full(len(before), -1, np.int64)
    moved[staying] = places[: len(staying)]
    numbers = array("I", places[len(staying) :].astype(np.uint32).tobytes())
    left = np.zeros(len(files), np.uint8)
    left[numbers] = 1
    directories = view(files.directories)[left == 0]
    within = np.bincount(directories, minlength=len(files.texts.directories))
    return Packed(
        files,
        [each.row for each in fitting],
        numbers,
        others,
        moved,
        left=bytearray(left.tobytes()),
        within=array("I", within.astype(np.uint32).tobytes()),
    )


# -- rows that fit -------------------------------------------------------------------------------


def _fitting(row: FileRow) -> _Fitting | None:
    """What of a row goes in, or None for one that has what only few have."""
    flags = _flags(row)
    if flags is None:
        return None
    assert row.first is not None
    assert row.last is not None
    resource, manifest = row.resource, row.manifest
    texts = (
        row.md5,
        row.tail,
        row.task,
        _ZEROS if resource is None else resource.md5,
        (manifest.root if manifest is not None else "") or _ZEROS,
        row.physical[-23:-7],
    )
    stem = row.path[:-7]
    name = stem.rpartition("/")[2].encode()
    joined = "".join(texts)
    if (
        row.physical != f"{stem}.{texts[5]}.tsfile"
        or row.path != f"{stem}.tsfile"
        or b"." in name
        or stem.count("/") != _DEPTH
        or len(name) > 255
        or list(map(len, texts)) != [32, 32, 32, 32, 32, 16]
    ):
        return None
    _, base, _ = row.devices.parts()
    if base != row.first or row.last < row.first:
        return None
    try:
        digests = bytes.fromhex(joined)
        times = packed_times(row.devices, row.last - row.first)
    except (ValueError, OverflowError):
        return None
    return _Fitting(row, flags, digests, name, times) if digests.hex() == joined else None


def _flags(row: FileRow) -> int | None:
    is_retired = row.state is FileState.RETIRED
    if (
        not row.visible
        or row.retired is not is_retired
        or row.names
        or row.origin is not None
        or row.reason is not None
        or row.rests
        or row.deleted
        or row.superseded
        or row.first is None
        or row.last is None
        or not 0 <= row.version < 1 << 16
        or not 0 <= row.series < 1 << 32
        or min(row.size, row.points, row.first_look, row.closed_look, row.last_look) < 0
    ):
        return None
    flags = (RETIRED if is_retired else 0) | (REGISTERED if row.registered else 0)
    resource, manifest = row.resource, row.manifest
    if resource is None:
        flags |= NO_RESOURCE
    elif not 0 <= resource.size < 1 << 32:
        return None
    if manifest is None:
        return flags | NO_MANIFEST
    if (manifest.series, manifest.points) != (row.series, row.points):
        return None
    return flags if manifest.root else flags | NO_ROOT


def _table(fitting: list[_Fitting], names: list[str]) -> PackedFiles:
    """A table of these alone; they are in order."""
    rows = [each.row for each in fitting]
    senders: dict[str, int] = {}
    directories: dict[str, int] = {}
    data_dirs: dict[str, int] = {}
    sets: dict[bytes, int] = {}
    id_arrays: list[array[int]] = []
    set_of = array("I")
    for row in rows:
        ids, _, _ = row.devices.parts()
        number = sets.setdefault(ids.tobytes(), len(sets))
        if number == len(id_arrays):
            id_arrays.append(ids)
        set_of.append(number)
    fields: dict[str, Callable[[FileRow], int]] = {
        "sizes": lambda row: row.size,
        "firsts": lambda row: row.first or 0,
        "lasts": lambda row: row.last or 0,
        "series": lambda row: row.series,
        "points": lambda row: row.points,
        "resources": lambda row: 0 if row.resource is None else row.resource.size,
        "created": lambda row: row.created,
        "changed": lambda row: row.changed,
        "first_looks": lambda row: row.first_look,
        "closed_looks": lambda row: row.closed_look,
        "last_looks": lambda row: row.last_look,
        "verified": lambda row: row.verified,
        "senders": lambda row: senders.setdefault(row.sender, len(senders)),
        "directories": lambda row: directories.setdefault(
            row.path.rpartition("/")[0], len(directories)
        ),
        "data_dirs": lambda row: data_dirs.setdefault(row.data_dir, len(data_dirs)),
        "versions": lambda row: row.version,
    }
    columns = {name: array(COLUMNS[name], map(field, rows)) for name, field in fields.items()}
    columns["sets"] = set_of
    columns["flags"] = array("B", [each.flags for each in fitting])
    columns["name_sizes"] = array("B", [len(each.name) for each in fitting])
    sizes = [len(each.name) + len(each.times) for each in fitting]
    return PackedFiles(
        columns,
        digests=b"".join([each.digests for each in fitting]),
        entries=b"".join([each.name + each.times for each in fitting]),
        ends=array("Q", accumulate(sizes, initial=0)),
        texts=PackedTexts([*senders], [*directories], [*data_dirs]),
        id_arrays=id_arrays,
        names=names,
        by_path=_found([path_key(row.path) for row in rows]),
        by_tail=_found([row.tail for row in rows]),
    )


def _found(keys: list[str]) -> array[int]:
    return array("Q", sorted(hash_of(key) | number for number, key in enumerate(keys)))


# -- two tables become one -----------------------------------------------------------------------


def _joined(
    before: PackedFiles, staying: NDArray[np.int64], new: PackedFiles
) -> tuple[PackedFiles, NDArray[np.int64]]:
    """Both as one, and of each of its files the place among what stays, then the new ones."""
    order = _order(before, staying, new)
    if not len(staying):
        return new, order
    if not len(new) and len(staying) == len(before):
        return before, order
    join = _Join(before, staying, new, order)
    columns = {name: join.column(name) for name in COLUMNS}
    senders, columns["senders"] = join.shared("senders", before.texts[0], new.texts[0], str)
    directories, columns["directories"] = join.shared(
        "directories", before.texts[1], new.texts[1], _as_directory
    )
    data_dirs, columns["data_dirs"] = join.shared("data_dirs", before.texts[2], new.texts[2], str)
    id_arrays, columns["sets"] = join.shared("sets", before.id_arrays, new.id_arrays, array.tobytes)
    entries, ends = join.entries()
    made = PackedFiles(
        columns,
        digests=join.digests(),
        entries=entries,
        ends=ends,
        texts=PackedTexts(senders, directories, data_dirs),
        id_arrays=id_arrays,
        names=before.names,
        by_path=join.found(before.by_path.entries, new.by_path.entries),
        by_tail=join.found(before.by_tail.entries, new.by_tail.entries),
    )
    return made, order


def _as_directory(text: str) -> str:
    return f"{text}/"


def _order(before: PackedFiles, staying: NDArray[np.int64], new: PackedFiles) -> NDArray[np.int64]:
    if not len(staying):
        return np.arange(len(new))
    places = np.array([*_places(before, new)], np.int64)
    come = np.searchsorted(staying, places) + np.arange(len(places))
    is_new = np.zeros(len(staying) + len(new), np.bool_)
    is_new[come] = True
    order = np.empty(len(is_new), np.int64)
    order[is_new] = np.arange(len(staying), len(order))
    order[~is_new] = np.arange(len(staying))
    return order


def _places(before: PackedFiles, new: PackedFiles) -> Iterator[int]:
    """Before which of the files that were there each of the new ones belongs."""
    at, known = 0, before.texts.directories
    for number, directory in enumerate(new.texts.directories):
        within = before.of_directory(directory)
        if not within:
            place = before.begins[bisect_left(known, f"{directory}/", key=_as_directory)]
            within = range(place, place)
        at = within.start
        for each in range(new.begins[number], new.begins[number + 1]):
            physical = new.physical(each)
            at = bisect_left(within, physical, at - within.start, key=before.physical)
            at += within.start
            yield at


class _Join:
    """What is made is as large as what was there: it is made in place, with little beside it."""

    def __init__(
        self,
        before: PackedFiles,
        staying: NDArray[np.int64],
        new: PackedFiles,
        order: NDArray[np.int64],
    ) -> None:
        self._before = before
        self._staying = staying
        self._new = new
        self._order = order
        self._moved = np.empty(len(order), np.int64)
        self._moved[order] = np.arange(len(order))

    def column(self, name: str) -> array[int]:
        """A column of both."""
        there, come = view(self._before.columns[name]), view(self._new.columns[name])
        return self._placed(COLUMNS[name], there[self._staying], come)

    def _placed(self, code: str, there: NDArray[Any], come: NDArray[Any]) -> array[int]:
        made = array(code, [0]) * len(self._order)
        out = view(made).view(there.dtype)
        out[self._moved[: len(there)]] = there
        out[self._moved[len(there) :]] = come
        return made

    def shared(
        self, name: str, there: list[T], come: list[T], key: Callable[[T], str | bytes]
    ) -> tuple[list[T], array[int]]:
        """What many have alike, in order and only what is used, and which of it each has."""
        old, new = view(self._before.columns[name])[self._staying], view(self._new.columns[name])
        used = np.unique(old).tolist()
        every = {key(each): each for each in [*come, *[there[number] for number in used]]}
        ids = {each: number for number, each in enumerate(sorted(every))}
        moved = np.zeros(len(there), np.uint32)
        moved[used] = [ids[key(there[number])] for number in used]
        moved_new = np.array([ids[key(each)] for each in come], np.uint32)
        return [every[each] for each in ids], self._placed("I", moved[old], moved_new[new])

    def digests(self) -> mmap.mmap:
        """Those of both."""
        there = np.frombuffer(self._before.digests, np.uint8).reshape(-1, DIGESTS)
        come = np.frombuffer(self._new.digests, np.uint8).reshape(-1, DIGESTS)
        made = _memory(DIGESTS * len(self._order))
        out = np.frombuffer(made, np.uint8).reshape(-1, DIGESTS)
        for at in range(0, len(out), _AT_ONCE):
            some, old, new = self._some(at)
            out[at : at + _AT_ONCE][~some] = there[old]
            out[at : at + _AT_ONCE][some] = come[new]
        return made

    def _some(self, at: int) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
        """Which of the next files are new, the numbers of the others, and those of the new ones."""
        some = self._order[at : at + _AT_ONCE]
        is_new = some >= len(self._staying)
        return is_new, self._staying[some[~is_new]], some[is_new] - len(self._staying)

    def entries(self) -> tuple[mmap.mmap, array[int]]:
        """Those of both, and their ends."""
        old, new = view(self._before.ends), view(self._new.ends)
        sizes = np.empty(len(self._order), np.int64)
        sizes[self._moved[: len(self._staying)]] = np.diff(old)[self._staying]
        sizes[self._moved[len(self._staying) :]] = np.diff(new)
        ends = array("Q", [0]) * (len(sizes) + 1)
        np.cumsum(sizes, out=view(ends).view(np.int64)[1:])
        made = _memory(ends[-1])
        out = np.frombuffer(made, np.uint8)
        there = np.frombuffer(self._before.entries, np.uint8)
        come = np.frombuffer(self._new.entries, np.uint8)
        for at in range(0, len(sizes), _AT_ONCE):
            is_new, numbers, numbers_new = self._some(at)
            lengths = sizes[at : at + _AT_ONCE]
            part = out[ends[at] : ends[at + len(lengths)]]
            bytes_new = np.repeat(is_new, lengths)
            part[~bytes_new] = cut(there, old[numbers], lengths[~is_new])
            part[bytes_new] = cut(come, new[numbers_new], lengths[is_new])
        return made, ends

    def found(self, there: array[int], come: array[int]) -> array[int]:
        """Numbers by hashes, as both have them."""
        moved = np.full(len(self._before), -1, np.int64)
        moved[self._staying] = self._moved[: len(self._staying)]
        old, new = view(there).view(np.uint64), view(come).view(np.uint64)
        numbers = moved[(old & _LOW).astype(np.int64)]
        stay = numbers >= 0
        numbers_new = self._moved[len(self._staying) :][(new & _LOW).astype(np.int64)]
        made = array("Q", [0]) * len(self._order)
        both, count = view(made).view(np.uint64), len(self._staying)
        both[:count] = (old & _HASH)[stay] | numbers[stay].astype(np.uint64)
        both[count:] = (new & _HASH) | numbers_new.astype(np.uint64)
        both.sort()
        return made


def _memory(size: int) -> mmap.mmap:
    """Memory that no thread waits for as it is made or given back, and that goes back whole."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)


def cut(
    content: NDArray[np.uint8], begins: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Pieces of something, one behind the other."""
    ends = np.cumsum(sizes)
    shifts = begins.astype(np.int64) - (ends - sizes)
    return content[np.repeat(shifts, sizes) + np.arange(int(ends[-1]) if len(ends) else 0)]
