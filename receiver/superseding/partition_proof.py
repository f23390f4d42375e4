"""The files of a partition, read whole: which of the retired ones can be left out.

Memory is bounded: the times of a partition are gone over in ranges that hold about so many points
as may be held at once, from the first to the last. Bytes are compared with the MD5 that was loaded
before anything is decoded, and what was decoded of a retired file with the points that it had when
it was loaded. What cannot be read gives nothing, and is itself not proved.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from common.digests import md5_of_fd
from common.errors import TsferryError
from common.tsfile import Corrupt
from receiver.metadata.model.ranks import Rank, rank_in
from receiver.points import TsFileReader
from receiver.superseding.asking import ExclusiveRange, FileProof, PartitionAnswer
from receiver.superseding.given_times import GivenTimes, SeriesName, given_times
from receiver.superseding.noted import NotesOfPartition
from receiver.superseding.sweeping import RankArrays, Stored, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from receiver.superseding.asking import FileAsked, PartitionAsked

__all__ = ["ReadBytes", "prove"]

_MOST_RANGES = 1000
_UNREADABLE = (TsferryError, Corrupt, OSError, KeyError, ValueError, MemoryError)


class ReadBytes:
    """Files whose bytes were found to be those that were loaded, while the disk has them so."""

    _MOST = 200_000

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, int, str]] = {}

    def check(self, file: FileAsked) -> int:
        """Compare the bytes of a file with its MD5; returns how many were read.

        Raises:
            OSError: they cannot be read.
            ValueError: they are others.
        """
        if file.path is None:
            raise FileNotFoundError("its bytes are not there")
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            there = os.fstat(fd)
            key = (there.st_ino, there.st_size, there.st_mtime_ns, file.md5)
            if self._known.get(file.path) == key:
                return 0
            if there.st_size != file.size or md5_of_fd(fd) != file.md5:
                raise ValueError("its bytes are not those that were loaded")
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known[file.path] = key
            return there.st_size
        finally:
            os.close(fd)


def prove(asked: PartitionAsked, read: ReadBytes) -> PartitionAnswer:
    """Judge the candidates of a partition."""
    return _Partition(asked, read).answer()


class _Partition:
    def __init__(self, asked: PartitionAsked, read: ReadBytes) -> None:
        self._files = asked.files
        self._most = asked.most_points
        self._read = read
        self._notes = NotesOfPartition(asked.notes)
        self._standings = _Standings(asked.files)
        self._ranks = RankArrays(self._standings.ranks)
        self._failed: dict[int, str] = {}
        self._checked: set[int] = set()
        self._stored = np.zeros(len(asked.files), np.int64)
        self._series: dict[SeriesName, int] = {}
        self._wanted: set[str] = set()
        self._kept: set[int] = set()
        self._rests: dict[int, set[int]] = defaultdict(set)
        self._exclusive: dict[int, dict[int, tuple[int, int, int]]] = defaultdict(dict)
        self._bytes = 0

    def answer(self) -> PartitionAnswer:
        judged = [at for at, each in enumerate(self._files) if each.candidate]
        judged = [at for at in judged if self._is_due(at)]
        equal = {at: above for at in judged if (above := self._equal_above(at)) is not None}
        swept = [at for at in judged if at not in equal and self._is_readable(at)]
        self._sweep(swept, left_out=set(equal))
        proofs = [
            FileProof(self._files[at].physical, True, (self._files[above].physical,))
            for at, above in equal.items()
        ]
        proofs += [self._proof(at) for at in judged if at not in equal]
        return PartitionAnswer(proofs, len(self._checked), self._bytes)

    def _is_due(self, at: int) -> bool:
        """Whether a candidate was never judged, or something has touched it since."""
        file = self._files[at]
        if not file.judged:
            return True
        try:
            return self._notes.touch(file)
        except TsferryError:
            return True  # whoever reads the file says what is wrong

    # -- equal content -------------------------------------------------------------------------

    def _equal_above(self, at: int) -> int | None:
        """A file above with the same content, of which nothing more is deleted."""
        if self._standings.is_cut:
            return None  # only who reads the files knows which devices are concerned
        mine = self._files[at]
        every = np.arange(len(self._files))
        for other in self._by_content.get((mine.md5, mine.size), ()):
            theirs = self._files[other]
            if other == at or not self._notes.hide_no_more(theirs, mine):
                continue
            below, above = np.full_like(every, at), np.full_like(every, other)
            between = self._ranks.above(below, every) & self._ranks.above(every, above)
            between[[at, other]] = False
            if not self._ranks.above(above[:1], below[:1])[0] or between.any():
                continue
            if self._is_readable(other) and self._is_readable(at):
                return other
        return None

    @property
    def _by_content(self) -> dict[tuple[str, int], list[int]]:
        found = self.__dict__.get("_content")
        if found is None:
            found = defaultdict(list)
            for at, each in enumerate(self._files):
                found[each.md5, each.size].append(at)
            self.__dict__["_content"] = found
        return found

    def _is_readable(self, at: int) -> bool:
        if at not in self._checked and at not in self._failed:
            try:
                self._bytes += self._read.check(self._files[at])
                self._checked.add(at)
            except _UNREADABLE as error:
                self._failed[at] = str(error) or type(error).__name__
        return at in self._checked and at not in self._failed

    # -- the sweep -----------------------------------------------------------------------------

    def _sweep(self, candidates: list[int], left_out: set[int]) -> None:
        with_points = [at for at in candidates if self._files[at].start is not None]
        if not with_points:
            return
        is_candidate = np.zeros(len(self._files), np.bool_)
        is_candidate[with_points] = True
        others = [
            at
            for at, each in enumerate(self._files)
            if each.start is not None and at not in left_out and at not in self._failed
        ]
        spans = np.array([_span(self._files[at]) for at in others], np.int64)
        hull = _hull([self._files[at] for at in with_points])
        chosen = np.array(others)
        for start, end in _slices(*hull, spans, is_candidate[chosen], self._most):
            here = [at for at in others if _overlaps(self._files[at], start, end)]
            self._sweep_range(here, is_candidate, start, end)

    def _sweep_range(
        self, here: list[int], is_candidate: npt.NDArray[np.bool_], start: int, end: int
    ) -> None:
        self._wanted.clear()
        # Candidates first: they say which devices are wanted of the others.
        parts: list[tuple[int, GivenTimes]] = []
        for at in sorted(here, key=lambda each: not is_candidate[each]):
            parts += self._times_of(at, start, end, everything=bool(is_candidate[at]))
        if not parts:
            return
        lengths = [len(given.times) for _, given in parts]
        standings = [self._standings.of(at, given.series.device) for at, given in parts]
        stored = Stored(
            np.concatenate([given.times for _, given in parts]),
            np.repeat([self._number(given.series) for _, given in parts], lengths),
            np.repeat(standings, lengths),
        )
        files = self._standings.files
        found = sweep(stored, self._ranks, is_candidate[files])
        self._kept.update(files[found.files].tolist())
        for lower, upper in files[found.rests].tolist():
            self._rests[lower].add(upper)
        for standing, series, first, last, points in found.ranges:
            at = int(files[standing])
            known = self._exclusive[at].get(series)
            self._exclusive[at][series] = (
                (first, last, points) if known is None else (known[0], last, known[2] + points)
            )

    def _number(self, series: SeriesName) -> int:
        return self._series.setdefault(series, len(self._series))

    def _times_of(
        self, at: int, start: int, end: int, *, everything: bool
    ) -> list[tuple[int, GivenTimes]]:
        """The times that a file gives in a range; none if it cannot be read."""
        if not self._is_readable(at):
            return []
        file = self._files[at]
        try:
            found = list(self._decoded(file, start, end, everything=everything))
        except _UNREADABLE as error:
            self._failed[at] = str(error) or type(error).__name__
            return []
        self._stored[at] += sum(each.stored for each in found)
        return [(at, each) for each in found if len(each.times)]

    def _decoded(
        self, file: FileAsked, start: int, end: int, *, everything: bool
    ) -> Iterator[GivenTimes]:
        assert file.path is not None
        with TsFileReader(file.path, name=file.physical) as opened:
            tail = opened.tail
            counts = (tail.series_count, tail.point_count)
            if counts != (file.series, file.points):
                raise ValueError(f"it has {counts} series and points, not those that were loaded")
            deletions = self._notes.of(file, tail.devices)
            for device in tail.devices:
                if everything:
                    self._wanted.add(device.name)
                elif device.name not in self._wanted:
                    continue
                yield from given_times(opened, device, deletions, start, end)

    # -- what was found --------------------------------------------------------------------------

    def _proof(self, at: int) -> FileProof:
        file = self._files[at]
        why = self._failed.get(at, "")
        if not why and self._stored[at] != file.points:
            why = f"{self._stored[at]} points were decoded of {file.points}"
        bad = next((each for each in self._rests[at] if each in self._failed), None)
        if not why and bad is not None:
            why = f"{self._files[bad].physical} cannot be read: {self._failed[bad]}"
        if why:
            return FileProof(file.physical, unreadable=why)
        if at not in self._kept:
            rests = tuple(sorted(self._files[each].physical for each in self._rests[at]))
            return FileProof(file.physical, True, rests)
        names = {number: name for name, number in self._series.items()}
        exclusive = tuple(
            ExclusiveRange(*names[series][:2], *found, names[series].table)
            for series, found in sorted(self._exclusive[at].items())
        )
        return FileProof(file.physical, exclusive=_small(exclusive))


def _small(exclusive: tuple[ExclusiveRange, ...]) -> tuple[ExclusiveRange, ...]:
    """Ranges by series, or by device where there are very many: the server keeps them in memory."""
    if len(exclusive) <= _MOST_RANGES:
        return exclusive
    found: dict[str, ExclusiveRange] = {}
    for each in exclusive:
        known = found.get(each.device, each)
        found[each.device] = ExclusiveRange(
            each.device,
            "",
            min(each.first, known.first),
            max(each.last, known.last),
            each.points + (known.points if known is not each else 0),
            each.table,
        )
    return tuple(found.values())


class _Standings:
    """Where files stand, by numbers: those of the files first, then those of their cuts.

    Attributes:
        ranks: of each number.
        files: number of the file of each.
    """

    def __init__(self, files: Sequence[FileAsked]) -> None:
        self.ranks = [_rank(each) for each in files]
        numbers = list(range(len(files)))
        self._cut: dict[tuple[int, str], int] = {}
        for at, file in enumerate(files):
            for cut in file.cuts:
                self._cut.update(dict.fromkeys(((at, each) for each in cut.devices), len(numbers)))
                self.ranks.append(rank_in(self.ranks[at], cut))
                numbers.append(at)
        self.files = np.array(numbers, np.int64)

    @property
    def is_cut(self) -> bool:
        """Whether any of them stands otherwise in some devices."""
        return bool(self._cut)

    def of(self, file: int, device: str) -> int:
        """The number of a file in a device."""
        return self._cut.get((file, device), file)


def _rank(file: FileAsked) -> Rank:
    return Rank(
        file.name, file.first, file.closed, file.last, file.loaded, file.physical, file.below
    )


def _span(file: FileAsked) -> tuple[int, int, int]:
    assert file.start is not None
    assert file.end is not None
    return file.start, file.end, file.points


def _hull(files: Sequence[FileAsked]) -> tuple[int, int]:
    spans = [_span(each) for each in files]
    return min(each[0] for each in spans), max(each[1] for each in spans)


def _overlaps(file: FileAsked, start: int, end: int) -> bool:
    first, last, _ = _span(file)
    return first <= end and last >= start


def _slices(
    start: int,
    end: int,
    spans: npt.NDArray[np.int64],
    candidates: npt.NDArray[np.bool_],
    most: int,
) -> Iterator[tuple[int, int]]:
    """Ranges of time with about so many points at most, in order; those without a candidate not.

    Args:
        start: the earliest time.
        end: the latest.
        spans: first and last time of each file, and its points.
        candidates: which of the files these are.
        most: points.
    """
    here = (spans[:, 0] <= end) & (spans[:, 1] >= start)
    if not (here & candidates).any():
        return
    first, last, points = spans[here].astype(np.float64).T  # for an estimate: nothing overflows
    part = (np.minimum(last, end) - np.maximum(first, start) + 1) / (last - first + 1)
    if end == start or float((points * part).sum()) <= most:
        yield start, end
        return
    middle = (start + end) // 2
    yield from _slices(start, middle, spans[here], candidates[here], most)
    yield from _slices(middle + 1, end, spans[here], candidates[here], most)
