"""Whose point is given at each time of each series: a sweep over the times of many files at once.

Where of all files that give a time one stands above each of the others, the others can be left out
at that time and the answer is the same. So files that are nowhere on top can be left out all
together, and what they rest on are the files on top at their times, none of which is left out.
Where none stands above all others (the order is not transitive), nothing is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from receiver.metadata.model.ranks import common_engine, rank_at, way_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from receiver.metadata.model.ranks import Rank

__all__ = ["OnTop", "RankArrays", "Stored", "sweep"]


class RankArrays:
    """Ranks of files, by their numbers, to compare many pairs at once."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        names = sorted({each.name for each in ranks if each.name is not None})
        place = {name: at for at, name in enumerate(names)}
        ways = [way_of(each) for each in ranks]
        engines = sorted({engine for way in ways for engine in way})
        # As this centre has them, then as each one below has those that it handed up.
        levels = [(list(ranks), list(range(len(ranks))))]
        for engine in engines:
            those = [at for at, way in enumerate(ways) if engine in way]
            levels.append(([rank_at(ranks[at], engine) for at in those], those))
        shape = (len(levels), len(ranks))
        self._first, self._last = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._tie = np.zeros(shape, np.int64)
        for level, (several, those) in enumerate(levels):
            self._fill(level, several, those)
        different = sorted(set(ways))
        numbers = {way: number for number, way in enumerate(different)}
        self._way = np.array([numbers[way] for way in ways], np.int64)
        levels_of = {engine: level for level, engine in enumerate(engines, 1)} | {None: 0}
        self._levels = np.array(
            [[levels_of[common_engine(a, b)] for b in different] for a in different], np.int64
        )
        named = [-1 if each.name is None else place[each.name] for each in ranks]
        self._name = np.array(named, np.int64)

    def _fill(self, level: int, ranks: Sequence[Rank], those: Sequence[int]) -> None:
        self._first[level, those] = [each.first for each in ranks]
        self._last[level, those] = [each.last for each in ranks]
        order = sorted(
            range(len(ranks)),
            key=lambda at: (ranks[at].first, ranks[at].loaded, ranks[at].physical),
        )
        self._tie[level, [those[at] for at in order]] = np.arange(len(ranks))

    def above(self, a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """`stands_above` of pairs of files."""
        named = (self._name[a] >= 0) & (self._name[b] >= 0) & (self._name[a] != self._name[b])
        at = self._levels[self._way[a], self._way[b]]
        later = self._tie[at, a] > self._tie[at, b]
        together = np.where(named, self._name[a] > self._name[b], later)
        earlier = self._first[at, b] > self._last[at, a]
        behind = self._first[at, a] > self._last[at, b]
        found: npt.NDArray[np.bool_] = behind | (together & ~earlier)
        return found


class Stored(NamedTuple):
    """Times that files give; each is there once a file and series.

    Attributes:
        times: of all.
        series: number of the series of each.
        files: number of the file of each.
    """

    times: npt.NDArray[np.int64]
    series: npt.NDArray[np.int64]
    files: npt.NDArray[np.int64]


class OnTop(NamedTuple):
    """What a sweep found.

    Attributes:
        files: numbers of those that cannot be left out.
        rests: pairs of (file, the one on top at one of its times), each once.
        ranges: (file, series, first, last, times) of candidates where they cannot be left out.
    """

    files: npt.NDArray[np.int64]
    rests: npt.NDArray[np.int64]
    ranges: list[tuple[int, int, int, int, int]]


def sweep(stored: Stored, ranks: RankArrays, candidates: npt.NDArray[np.bool_]) -> OnTop:
    """Find which files are on top, and at which times.

    Args:
        stored: what they give.
        ranks: of the files.
        candidates: by number of the file, whether it could be left out.
    """
    order = np.lexsort((stored.times, stored.series))
    times, series, files = (each[order] for each in stored)
    begins = np.flatnonzero(
        np.concatenate(([True], (times[1:] != times[:-1]) | (series[1:] != series[:-1])))
        if len(times)
        else np.zeros(0, np.bool_)
    )
    counts = np.diff(np.append(begins, len(times)))
    top, settled = _tops(files, begins, counts, ranks)
    of_each = np.repeat(np.arange(len(begins)), counts)
    kept = (files == top[of_each]) | ~settled[of_each]
    lower = candidates[files] & ~kept
    # A pair is one number: pairs as rows are sorted fifty times slower.
    codes = np.unique(files[lower] * len(candidates) + top[of_each[lower]])
    pairs = np.stack([codes // len(candidates), codes % len(candidates)], axis=1)
    mine = candidates[files] & kept
    return OnTop(np.unique(files[kept]), pairs, _ranges(times[mine], series[mine], files[mine]))


def _tops(
    files: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    ranks: RankArrays,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Of each group the file that stands above all others, and whether there is one."""
    top = files[begins].copy()
    settled = np.ones(len(begins), np.bool_)
    groups = np.flatnonzero(counts > 1)
    several, at = groups, 1
    while len(several):
        other = files[begins[several] + at]
        top[several] = np.where(ranks.above(other, top[several]), other, top[several])
        at += 1
        several = several[counts[several] > at]
    several, at = groups, 0
    while len(several):
        other = files[begins[several] + at]
        mine = top[several]
        settled[several] &= (other == mine) | ranks.above(mine, other)
        at += 1
        several = several[counts[several] > at]
    return top, settled


def _ranges(
    times: npt.NDArray[np.int64], series: npt.NDArray[np.int64], files: npt.NDArray[np.int64]
) -> list[tuple[int, int, int, int, int]]:
    if not len(times):
        return []
    order = np.lexsort((times, series, files))
    times, series, files = times[order], series[order], files[order]
    new = (files[1:] != files[:-1]) | (series[1:] != series[:-1])
    begins = np.flatnonzero(np.concatenate(([True], new)))
    ends = np.append(begins[1:], len(times))
    columns = (files[begins], series[begins], times[begins], times[ends - 1], ends - begins)
    return list(zip(*(column.tolist() for column in columns), strict=True))
