"""Whether loaded files hold all that a file which is gone at the edge held.

A database that compacts writes files with a higher compaction count and removes those it made them
from. So a file is *covered* when loaded files of its sender, storage group, virtual group and
partition (sequence or not) with a higher count have each of its devices, from its first timestamp
to its last. What is compared are ranges, per device: the earliest first and the latest last of the
covering files. That a compaction leaves no hole between its outputs is taken from the database;
points are not compared, the metadata of a file does not list them.

A file whose name has no compaction count is never covered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from common.names import FilePath

if TYPE_CHECKING:
    from receiver.metadata.model.records import FileLoaded
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Coverage", "Gone", "judge_gone"]

_Compactions = tuple[int, int]
_Place = tuple[str, str, str, int]
_Ranges = dict[str, tuple[int, int]]


class _Candidate(NamedTuple):
    compactions: _Compactions
    ranges: Iterable[tuple[str, int, int]]


class Coverage:
    """What files hold, to be asked about many files that are gone."""

    def __init__(self, files: Iterable[FileRow] = (), loading: Iterable[FileLoaded] = ()) -> None:
        """Take candidates.

        Args:
            files: rows of committed files; those that are not visible do not count. Leave out
                those that the commit at hand deletes.
            loading: files that the commit at hand loads.
        """
        self._candidates: dict[_Place, list[_Candidate]] = {}
        self._hulls: dict[tuple[_Place, _Compactions], _Ranges | None] = {}
        for row in files:
            self.add(row)
        for op in loading:
            ranges = [
                (each.name, each.first, each.last)
                for each in op.devices
                if each.first is not None and each.last is not None
            ]
            self._add(op.sender, FilePath.parse(op.path), ranges)

    def add(self, row: FileRow) -> None:
        """One more committed file."""
        if row.visible:
            self._add(row.sender, row.parsed, list(row.devices.ranges()))

    def _add(self, sender: str, path: FilePath, ranges: Iterable[tuple[str, int, int]]) -> None:
        if (stem := path.stem) is None:
            return
        place = (sender, *path.group)
        self._candidates.setdefault(place, []).append(_Candidate(stem.compactions, ranges))
        self._hulls = {key: hull for key, hull in self._hulls.items() if key[0] != place}

    def covers(self, gone: FileRow) -> bool:
        """Whether files with a higher compaction count hold all devices and all time of `gone`."""
        path = gone.parsed
        if (stem := path.stem) is None:
            return False
        hull = self._hull((gone.sender, *path.group), stem.compactions)
        if hull is None:
            return False
        return all(
            (range_ := hull.get(device)) is not None and range_[0] <= first and last <= range_[1]
            for device, first, last in gone.devices.ranges()
        )

    def _hull(self, place: _Place, above: _Compactions) -> _Ranges | None:
        """Per device, from where to where the files with more than `above` reach; None: no file."""
        key = (place, above)
        if key not in self._hulls:
            better = [each for each in self._candidates.get(place, ()) if each.compactions > above]
            self._hulls[key] = _merged(better) if better else None
        return self._hulls[key]


def _merged(candidates: Iterable[_Candidate]) -> _Ranges:
    hull: _Ranges = {}
    for candidate in candidates:
        for device, first, last in candidate.ranges:
            known = hull.get(device)
            if known is not None:
                first, last = min(first, known[0]), max(last, known[1])
            hull[device] = (first, last)
    return hull


@dataclass(slots=True)
class Gone:
    """The verdict on files that are gone at the edge: `covered` may go, `needed` must stay."""

    covered: list[FileRow] = field(default_factory=list)
    needed: list[FileRow] = field(default_factory=list)


def judge_gone(
    gone: Iterable[FileRow], staying: Iterable[FileRow], loading: Iterable[FileLoaded] = ()
) -> Gone:
    """Divide files that are gone at the edge into those that are covered and those that are not.

    The most compacted are judged first: one that must stay may cover the others, one that goes
    may not.

    Args:
        gone: live files of one sender.
        staying: the other visible files of the partitions of `gone`.
        loading: files that the commit at hand loads.
    """
    coverage = Coverage(staying, loading)
    verdict = Gone()
    for row in sorted(gone, key=lambda row: row.compactions or (-1, -1), reverse=True):
        if coverage.covers(row):
            verdict.covered.append(row)
        else:
            verdict.needed.append(row)
            coverage.add(row)
    return verdict
