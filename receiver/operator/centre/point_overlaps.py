"""Whether files that are to be loaded have points that are here already, or come twice.

A range of time that two files have for a device says that they may; the points of that range say
whether they do. They are read by a process beside the server. What cannot be read counts as if all
of it were there.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from receiver.datadirs.disks import place_of
from receiver.load.deciding.decision_pauses import pauses
from receiver.load.deciding.known_files.centre_loads import overlaps
from receiver.shared_points.compare_asked import CompareAsked, ComparedDevice, ComparedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from receiver.datadirs.disks import Disks
    from receiver.load.deciding.known_files.candidates import Candidate
    from receiver.load.deciding.known_files.centre_loads import FileOverlap
    from receiver.load.folder.current_task import CentreMandate
    from receiver.metadata.engine import Engine
    from receiver.operator.centre.centre_files import CentreFile
    from receiver.shared_points.compare_process import ComparesFiles

__all__ = ["PointOverlaps", "SharedPoints"]

log = logging.getLogger(__name__)

_MOST: Final = 200_000
"""Devices of files that are compared for a load; of more the ranges decide."""


class SharedPoints(NamedTuple):
    """What was found.

    Attributes:
        compared: physical names of files in the same times that share no point with the load.
        path: of a file of the load that has a point which another one has; empty for none.
        device: of the point.
        reason: which, and where.
        unread: why points were not compared; empty if they were.
    """

    compared: tuple[str, ...] = ()
    path: str = ""
    device: str = ""
    reason: str = ""
    unread: str = ""


class PointOverlaps:
    """Looks for points that files share."""

    def __init__(self, engine: Engine, disks: Disks, process: ComparesFiles) -> None:
        """Prepare.

        Args:
            engine: that knows the files that are here.
            disks: that they lie on.
            process: compares.
        """
        self._engine, self._disks, self._process = engine, disks, process

    def find(
        self,
        files: Sequence[tuple[CentreFile, Candidate]],
        mandate: CentreMandate,
        *,
        among_new: bool,
        stopped: Callable[[], bool],
    ) -> SharedPoints:
        """Compare files of a load with those that are here.

        Args:
            files: of the load, whose content is not here.
            mandate: of the load.
            among_new: whether a point may not be in two of its own files either.
            stopped: asked every half second, whether to stop.
        """
        asked = _Asked(files, among_new and not mandate.may_overlap)
        trees = self._disks.standing()
        with self._engine.reading() as state:
            between = pauses(self._engine.reading(), commits=True)
            for each in overlaps(state, (candidate for _, candidate in files), between):
                row = state.files.get(each.physical)
                if row is not None and (each.is_apart or not mandate.may_overlap):
                    asked.add(each, partial(place_of, trees, row), row.parsed.sg)
        if not asked.devices:
            return SharedPoints()
        if asked.entries > _MOST:
            return SharedPoints(unread=f"{asked.entries} devices of files, at most {_MOST}")
        answer = self._process.ask(asked.question(), stopped)
        if answer.unread:
            log.warning("points of a load are not compared: %s", answer.unread)
            return SharedPoints(unread=answer.unread)
        shared = answer.shared
        if shared is None:
            return SharedPoints(compared=tuple(asked.compared))
        new, other = asked.files[shared.new], asked.files[shared.other]
        series = f", series {shared.measurement}" if shared.measurement else ""
        found = asked.found.get((shared.new, shared.other))
        way_out = "" if found is None else f"; {found.way_out}"
        reason = (
            f"device {shared.device}{series}: time {shared.time} is in {other.name}, and here"
            f"{way_out}"
        )
        return SharedPoints(path=new.name, device=shared.device, reason=reason)


class _Asked:
    """A question in the making.

    Attributes:
        files: that it is about; of the load first.
        devices: numbers of the files of each, and the range of time that is looked at.
        compared: physical names of files that are here.
        found: by the numbers of a file of the load, and of one that is here.
    """

    def __init__(self, files: Sequence[tuple[CentreFile, Candidate]], among_new: bool) -> None:
        self._among_new = among_new
        self.files = [
            ComparedFile(str(file.source), candidate.path.text, candidate.path.sg, is_new=True)
            for file, candidate in files
        ]
        self._numbers: dict[str, int | None] = {
            each.name: number for number, each in enumerate(self.files)
        }
        self.devices: dict[str, tuple[set[int], int, int]] = {}
        self.compared: dict[str, None] = {}
        self.found: dict[tuple[int, int], FileOverlap] = {}
        if among_new:
            for name, numbers, first, last in _side_by_side([each for _, each in files]):
                self.devices[name] = numbers, first, last

    @property
    def entries(self) -> int:
        """Devices of files that are read."""
        return sum(len(numbers) for numbers, _, _ in self.devices.values())

    def add(self, found: FileOverlap, place: Callable[[], str | None], group: str) -> None:
        """A file that is here; one that lies on no disk is not compared."""
        if found.physical not in self._numbers:
            path = place()
            if path is None:
                self._numbers[found.physical] = None
            else:
                self._numbers[found.physical] = len(self.files)
                self.files.append(ComparedFile(path, found.physical, group, is_new=False))
                self.compared[found.physical] = None
        number, new = self._numbers[found.physical], self._numbers[found.path]
        if number is None or new is None:
            return
        self.found[new, number] = found
        first, last = max(found.begin, found.first), min(found.end, found.last)
        numbers, low, high = self.devices.get(found.device, (set(), first, last))
        numbers |= {number, new}
        self.devices[found.device] = numbers, min(low, first), max(high, last)

    def question(self) -> CompareAsked:
        """All of it."""
        devices = [
            ComparedDevice(name, sorted(numbers), first, last)
            for name, (numbers, first, last) in self.devices.items()
        ]
        return CompareAsked(self.files, devices, self._among_new)


def _side_by_side(candidates: Sequence[Candidate]) -> Iterator[tuple[str, set[int], int, int]]:
    """Devices that several files of a load have in the same times: which files, and when."""
    spans: Mapping[str, list[tuple[int, int, int]]] = defaultdict(list)
    for number, each in enumerate(candidates):
        for device, first, last in each.ranges:
            spans[device].append((first, last, number))
    for device, ranges in spans.items():
        ranges.sort()
        if any(one[1] >= other[0] for one, other in _with_the_latest(ranges)):
            yield device, {each[2] for each in ranges}, ranges[0][0], max(r[1] for r in ranges)


def _with_the_latest(
    ranges: Sequence[tuple[int, int, int]],
) -> Iterator[tuple[tuple[int, int, int], tuple[int, int, int]]]:
    """Each range but the first, behind the one before it that ends last."""
    latest = ranges[0]
    for each in ranges[1:]:
        yield latest, each
        latest = max(latest, each, key=lambda one: one[1])
