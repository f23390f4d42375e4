"""Files that are as most are, in columns: 280 bytes a file instead of 1,700 as objects.

A table of them never changes. They lie in the order of their physical paths, so that the files of a
partition are neighbours; they are found by hashes of their paths and of the digests of their tails.
A checkpoint holds the columns as they are in memory, and a start takes them as they are there.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
import xxhash

from receiver.metadata.schema.tree_columns.growing_columns import view

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from receiver.metadata.state.ranges import DeviceTable

__all__ = [
    "COLUMNS",
    "DIGESTS",
    "MD5_AT",
    "NO_MANIFEST",
    "NO_RESOURCE",
    "NO_ROOT",
    "REGISTERED",
    "RESOURCE_AT",
    "RETIRED",
    "ROOT_AT",
    "TAIL_AT",
    "TASK_AT",
    "Digest",
    "NumbersByHash",
    "PackedFiles",
    "PackedTexts",
    "array_of",
    "hash_of",
    "path_key",
]

COLUMNS = {
    "sizes": "Q",
    "firsts": "q",
    "lasts": "q",
    "series": "I",
    "points": "Q",
    "resources": "I",
    "created": "Q",
    "changed": "Q",
    "first_looks": "Q",
    "closed_looks": "Q",
    "last_looks": "Q",
    "verified": "Q",
    "senders": "I",
    "directories": "I",
    "data_dirs": "I",
    "sets": "I",
    "versions": "H",
    "flags": "B",
    "name_sizes": "B",
}
"""Columns by their types. `senders`, `directories`, `data_dirs` and `sets` say which text, or which
array of ids of devices; `resources` is the size of one."""
_BUCKETS = 1 << 16
_MARK = ((1 << 32) - 1) << 32
_NUMBER = (1 << 32) - 1
RETIRED, REGISTERED, NO_RESOURCE, NO_MANIFEST, NO_ROOT = 1, 2, 4, 8, 16
"""Flags."""
DIGESTS: Final = 88
"""Bytes of a file's digests: MD5, tail, task, MD5 of the resource, root, and 8 of the tag."""


class Digest(NamedTuple):
    """One of the digests that a file has."""

    begin: int

    def text(self, digests: bytes | mmap.mmap, number: int) -> str:
        """That of a file, as text."""
        begin = number * DIGESTS + self.begin
        return digests[begin : begin + 16].hex()


MD5_AT, TAIL_AT, TASK_AT, RESOURCE_AT, ROOT_AT = map(Digest, range(0, 80, 16))


def _suffix_of_tag(digests: bytes | mmap.mmap, number: int) -> str:
    """How the physical path of a file ends."""
    end = (number + 1) * DIGESTS
    return f".{digests[end - 8 : end].hex()}.tsfile"


class PackedTexts(NamedTuple):
    """What many files have alike; directories in order, as if each ended with a slash."""

    senders: list[str]
    directories: list[str]
    data_dirs: list[str]


def hash_of(text: str) -> int:
    """What a number is found by: the upper half of it counts."""
    return xxhash.xxh3_64_intdigest(text.encode()) & _MARK


def path_key(path: str) -> str:
    """What is hashed of the path of a file."""
    return path[:-7]


def _physical_key(physical: str) -> str:
    """The same of a physical path, which has a tag more."""
    return physical[:-24]


class NumbersByHash:
    """Numbers by hashes: the upper half of a hash over a number, in order."""

    __slots__ = ("entries", "starts")

    def __init__(self, entries: array[int]) -> None:
        self.entries = entries
        firsts = np.arange(_BUCKETS, dtype=np.uint64) << np.uint64(48)
        starts = np.searchsorted(view(entries).view(np.uint64), firsts)
        self.starts = array("Q", starts.astype(np.uint64).tobytes())
        self.starts.append(len(entries))

    def find(self, hashed: int) -> list[int]:
        """Numbers with this hash."""
        bucket = hashed >> 48
        begin, end = self.starts[bucket], self.starts[bucket + 1]
        if begin == end:
            return []
        entries, found = self.entries, []
        at = bisect_left(entries, hashed, begin, end)
        while at < end and entries[at] & _MARK == hashed:
            found.append(entries[at] & _NUMBER)
            at += 1
        return found


class PackedFiles:
    """A table of files, each by its number.

    Attributes:
        digests: `packed_file.DIGESTS` bytes of each.
        entries: of each its name, without tag and suffix, and the times of its devices.
        ends: where the entry of each ends, behind a 0.
        texts: see there.
        id_arrays: the different arrays of ids of devices.
        names: names of the devices by id; the table's own list.
        begins: the first number of each directory, and how many files there are.
        by_path: numbers by `path_key`.
        by_tail: numbers by the digest of the tail.
        held: of each sender, numbers of the files that it has, in order.
    """

    def __init__(
        self,
        columns: Mapping[str, array[int]],
        *,
        digests: bytes | mmap.mmap,
        entries: bytes | mmap.mmap,
        ends: array[int],
        texts: PackedTexts,
        id_arrays: list[array[int]],
        names: list[str],
        by_path: array[int],
        by_tail: array[int],
    ) -> None:
        self.columns = columns
        self.sizes, self.firsts, self.lasts = columns["sizes"], columns["firsts"], columns["lasts"]
        self.series, self.points = columns["series"], columns["points"]
        self.resources = columns["resources"]
        self.created, self.changed = columns["created"], columns["changed"]
        self.first_looks, self.closed_looks = columns["first_looks"], columns["closed_looks"]
        self.last_looks, self.verified = columns["last_looks"], columns["verified"]
        self.senders, self.directories = columns["senders"], columns["directories"]
        self.data_dirs, self.sets = columns["data_dirs"], columns["sets"]
        self.versions, self.flags = columns["versions"], columns["flags"]
        self.name_sizes = columns["name_sizes"]
        self.digests = digests
        self.entries = entries
        self.ends = ends
        self.texts = texts
        self.id_arrays = id_arrays
        self.names = names
        self.by_path = NumbersByHash(by_path)
        self.by_tail = NumbersByHash(by_tail)
        self.begins = self._begins()
        self.held = self._held()
        self._directory_ids = {each: number for number, each in enumerate(texts.directories)}

    def _begins(self) -> array[int]:
        wanted = np.arange(len(self.texts.directories) + 1, dtype=np.uint32)
        found = np.searchsorted(view(self.directories).view(np.uint32), wanted)
        return array("Q", found.astype(np.uint64).tobytes())

    def _held(self) -> dict[str, array[int]]:
        numbers = np.flatnonzero((view(self.flags) & RETIRED) == 0)
        senders = view(self.senders)[numbers]
        numbers = numbers[np.argsort(senders, kind="stable")].astype(np.uint32)
        counts = np.bincount(senders, minlength=len(self.texts.senders))
        cuts = pairwise(accumulate(counts.tolist(), initial=0))
        return {
            sender: array("I", numbers[begin:end].tobytes())
            for sender, (begin, end) in zip(self.texts.senders, cuts, strict=True)
            if begin < end
        }

    def __len__(self) -> int:
        return len(self.flags)

    def path(self, number: int) -> str:
        """The path of a file at its sender."""
        return f"{self.stem(number)}.tsfile"

    def physical(self, number: int) -> str:
        """The physical path of a file."""
        return self.stem(number) + _suffix_of_tag(self.digests, number)

    def stem(self, number: int) -> str:
        """What both paths begin with."""
        begin = self.ends[number]
        name = self.entries[begin : begin + self.name_sizes[number]].decode()
        return f"{self.texts.directories[self.directories[number]]}/{name}"

    # -- questions ---------------------------------------------------------------------------

    def number(self, physical: str) -> int | None:
        """The number of a physical path."""
        for number in self.by_path.find(hash_of(_physical_key(physical))):
            if self.physical(number) == physical:
                return number
        return None

    def at_path(self, path: str) -> list[int]:
        """Numbers of the files with a path, whoever has or had them."""
        found = self.by_path.find(hash_of(path_key(path)))
        return [number for number in found if self.path(number) == path] if found else found

    def of_tail(self, tail: str) -> list[int]:
        """Numbers of the files with this digest of their tail, in order."""
        found = self.by_tail.find(hash_of(tail))
        return [number for number in found if TAIL_AT.text(self.digests, number) == tail]

    def of_directory(self, directory: str) -> range:
        """Numbers of the files of a directory."""
        found = self._directory_ids.get(directory)
        return range(0) if found is None else range(self.begins[found], self.begins[found + 1])

    def behind(self, physical: str) -> int:
        """The first number whose physical path sorts behind a text."""
        within = self.of_directory(physical.rpartition("/")[0]) or range(len(self))
        return within.start + bisect_right(within, physical, key=self.physical)

    def held_behind(self, sender: str, path: str | None) -> Sequence[int]:
        """Numbers of what a sender has whose paths sort behind one, in order."""
        held = self.held.get(sender, array("I"))
        begin = 0 if path is None else bisect_right(held, path, key=self.path)
        return memoryview(held)[begin:]  # no copy: there may be millions

    def totals(self) -> Iterator[tuple[str, int, int, int]]:
        """(sender, how many, bytes, how many verified) of those with files."""
        senders, most = view(self.senders), len(self.texts.senders)
        files = np.bincount(senders, minlength=most)
        verified = np.bincount(senders[view(self.verified) > 0], minlength=most)
        sizes = np.zeros(most, np.uint64)
        np.add.at(sizes, senders, view(self.sizes).view(np.uint64))
        for number, sender in enumerate(self.texts.senders):
            yield sender, int(files[number]), int(sizes[number]), int(verified[number])

    def retired(self) -> Iterator[tuple[str, int, int]]:
        """(directory, how many, bytes) of the retired files, where there are some."""
        numbers = np.flatnonzero(view(self.flags) & RETIRED)
        directories, most = view(self.directories)[numbers], len(self.texts.directories)
        files = np.bincount(directories, minlength=most)
        sizes = np.zeros(most, np.uint64)
        np.add.at(sizes, directories, view(self.sizes).view(np.uint64)[numbers])
        for number in np.flatnonzero(files).tolist():
            yield self.texts.directories[number], int(files[number]), int(sizes[number])

    def reaching(self) -> Iterator[tuple[str, int, int, int, int, int]]:
        """(directory, how many, bytes, least time, greatest time, points) of those with files."""
        if not len(self):
            return
        begins = view(self.begins).view(np.int64)
        there = np.flatnonzero(np.diff(begins))
        starts = begins[there]
        sizes = np.add.reduceat(view(self.sizes).view(np.uint64), starts)
        least = np.minimum.reduceat(view(self.firsts), starts)
        greatest = np.maximum.reduceat(view(self.lasts), starts)
        points = np.add.reduceat(view(self.points).view(np.uint64), starts)
        for at, number in enumerate(there.tolist()):
            files = self.begins[number + 1] - self.begins[number]
            directory = self.texts.directories[number]
            times = int(least[at]), int(greatest[at])
            yield directory, files, int(sizes[at]), *times, int(points[at])

    def lying(self) -> Iterator[tuple[str, str, int, int]]:
        """(data directory, directory, how many, bytes) of those with files."""
        if not len(self):
            return
        directories = view(self.directories).astype(np.int64)
        pairs = directories * len(self.texts.data_dirs) + view(self.data_dirs)
        found, places, files = np.unique(pairs, return_inverse=True, return_counts=True)
        sizes = np.zeros(len(found), np.uint64)
        np.add.at(sizes, places, view(self.sizes).view(np.uint64))
        for at, pair in enumerate(found.tolist()):
            directory, data_dir = divmod(pair, len(self.texts.data_dirs))
            texts = self.texts.data_dirs[data_dir], self.texts.directories[directory]
            yield *texts, int(files[at]), int(sizes[at])

    # -- checkpoints -------------------------------------------------------------------------

    def sections(self) -> Iterator[tuple[str, bytes | memoryview]]:
        """(name, content) of what `thawed` needs."""
        yield "texts", msgspec.msgpack.encode(self.texts)
        yield "id-array-sizes", array("I", map(len, self.id_arrays)).tobytes()
        yield "id-arrays", b"".join(map(memoryview, self.id_arrays))
        for name, column in self.columns.items():
            yield name.replace("_", "-"), memoryview(column).cast("B")
        yield "ends", memoryview(self.ends).cast("B")
        yield "digests", memoryview(self.digests)
        yield "entries", memoryview(self.entries)
        yield "by-path", memoryview(self.by_path.entries).cast("B")
        yield "by-tail", memoryview(self.by_tail.entries).cast("B")

    @classmethod
    def thawed(cls, sections: Mapping[str, memoryview], devices: DeviceTable) -> PackedFiles:
        """The table that `sections` gave; nothing of their memory is kept.

        Raises:
            ValueError, LookupError, msgspec.MsgspecError: they do not fit each other.
        """
        columns = {
            name: array_of(code, sections[name.replace("_", "-")]) for name, code in COLUMNS.items()
        }
        texts = msgspec.msgpack.decode(sections["texts"], type=PackedTexts)
        sizes = array_of("I", sections["id-array-sizes"])
        every = array_of("I", sections["id-arrays"])
        cuts = list(accumulate(sizes, initial=0))
        id_arrays = [devices.shared(every[begin:end]) for begin, end in pairwise(cuts)]
        ends = array_of("Q", sections["ends"])
        digests, entries = bytes(sections["digests"]), bytes(sections["entries"])
        by_path, by_tail = array_of("Q", sections["by-path"]), array_of("Q", sections["by-tail"])
        count = len(columns["flags"])
        fits = (
            cuts[-1] == len(every)
            and all(len(column) == count for column in columns.values())
            and len(by_path) == len(by_tail) == count == len(ends) - 1
            and (len(digests), len(entries)) == (DIGESTS * count, ends[-1])
            and _all_below(columns["senders"], len(texts.senders))
            and _all_below(columns["directories"], len(texts.directories))
            and _all_below(columns["data_dirs"], len(texts.data_dirs))
            and _all_below(columns["sets"], len(id_arrays))
            and _all_below(every, len(devices))
            and bool((np.diff(view(columns["directories"]).view(np.int32)) >= 0).all())
            and bool((np.diff(view(ends).view(np.int64)) > view(columns["name_sizes"])).all())
            and all(_numbers_below(each, count) for each in (by_path, by_tail))
        )
        if not fits:
            raise ValueError("the columns of the files do not fit each other")
        return cls(
            columns,
            digests=digests,
            entries=entries,
            ends=ends,
            texts=texts,
            id_arrays=id_arrays,
            names=devices.known_names,
            by_path=by_path,
            by_tail=by_tail,
        )

    @classmethod
    def none(cls, devices: DeviceTable) -> PackedFiles:
        """An empty table."""
        return cls(
            {name: array(code) for name, code in COLUMNS.items()},
            digests=b"",
            entries=b"",
            ends=array("Q", [0]),
            texts=PackedTexts([], [], []),
            id_arrays=[],
            names=devices.known_names,
            by_path=array("Q"),
            by_tail=array("Q"),
        )


def array_of(code: str, content: bytes | memoryview) -> array[int]:
    """The numbers that some bytes are."""
    made: array[int] = array(code)
    made.frombytes(content)
    return made


def _numbers_below(found: array[int], end: int) -> bool:
    numbers = view(found).view(np.uint64) & np.uint64(_NUMBER)
    return not found or int(numbers.max()) < end


def _all_below(column: array[int], end: int) -> bool:
    return not column or int(view(column).max()) < end
