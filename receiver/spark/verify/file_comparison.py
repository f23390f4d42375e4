"""Files against each other: what overlaps and should not, and which points several files give.

The spans of devices tell which files meet: by Arrow in this process where these are few, by Spark
where they are many. What the ranks of two files do not settle is a problem of one of the run's.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from receiver.metadata.model.centre_source import is_centre
from receiver.spark.finder import shown
from receiver.spark.report.results import Duplicates, Finding, Severity
from receiver.spark.verify.examining.duplicates import Pair, common_times
from receiver.spark.verify.examining.relations import (
    Meeting,
    Overlap,
    large_meetings,
    large_overlaps,
    meetings,
    overlaps,
    unsettled,
    unsettled_at_the_centre,
)
from receiver.spark.verify.examining.subjects import Neighbours, Subject
from receiver.spark.verify.job_progress import JobProgress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

    _Flags = npt.NDArray[np.bool_]

__all__ = ["FileComparison"]

MOST_MEETINGS = 2_000
"""Pairs of files with a common device that are looked at for duplicates; then no more are."""


class FileComparison:
    """Compares the files of a run with each other, and with files that it does not read.

    Attributes:
        findings: by number of the file.
        duplicates: all that were counted.
        unlooked: meetings that were left out.
        overlapping: whether files of one kind overlap.
        overlapping_files: physical paths of files of the run that overlap others, of any kind.
    """

    def __init__(
        self, spark: SparkSession, files: Sequence[Subject], neighbours: Neighbours, limit: float
    ) -> None:
        """Prepare.

        Args:
            spark: where.
            files: of the run.
            neighbours: what they are compared with beside each other.
            limit: seconds for the points that two files have in common.
        """
        self._spark = spark
        self._all = (*files, *neighbours.files)
        self._own = len(files)
        self._others = neighbours.spans_from(self._own)
        self._limit = limit
        self.findings: dict[int, list[Finding]] = defaultdict(list)
        self.duplicates: tuple[Duplicates, ...] = ()
        self.unlooked = 0
        self.overlapping = False
        self.overlapping_files: frozenset[str] = frozenset()

    def run(self, spans: pa.Table | None, rows: DataFrame, progress: JobProgress) -> None:
        """Do it.

        Args:
            spans: of all devices of the run (`part_rows.span_schema`); None where they are many.
            rows: of its parts (`part_rows.ROW`).
            progress: told how far it is.
        """
        if spans is not None:
            sequence, unsequence = self._counting("sequence"), self._counting("unsequence")
            everything = pa.concat_tables([spans, self._others])
            crossing = [*overlaps(everything, sequence), *overlaps(everything, unsequence)]
            met = list(meetings(everything, sequence, unsequence))
        else:
            crossing, met = self._met_far(rows, self._others)
        self._judge(crossing, met)
        met = [each for each in met if min(each.sequence, each.unsequence) < self._own]
        self.unlooked = max(0, len(met) - MOST_MEETINGS)
        if met:
            progress.say("counting duplicates across sequence and unsequence")
            self._count_duplicates(met[:MOST_MEETINGS])

    def _judge(self, crossing: Sequence[Overlap], met: Sequence[Meeting]) -> None:
        self.overlapping = bool(crossing)
        numbers = {at for each in crossing for at in (each.file, each.other)}
        numbers |= {at for each in met for at in (each.sequence, each.unsequence)}
        self.overlapping_files = frozenset(
            self._all[at].expected.physical for at in numbers if at < self._own
        )
        for each in crossing:
            self._overlap(each)
        for meeting in met:
            is_of_run = min(meeting.sequence, meeting.unsequence) < self._own
            if is_of_run and self._all[meeting.sequence].rank is not None:
                self._meeting(meeting)

    def _met_far(self, rows: DataFrame, others: pa.Table) -> tuple[list[Overlap], list[Meeting]]:
        sequence, unsequence = self._counting("sequence"), self._counting("unsequence")
        far = rows.select("spans").mapInArrow(_unfolded, _SPANS)
        if others.num_rows:
            far = far.unionByName(self._spark.createDataFrame(others))
        far = far.cache()
        early = dict.fromkeys(np.flatnonzero(sequence).tolist(), True)
        late = dict.fromkeys(np.flatnonzero(unsequence).tolist(), True)
        try:
            crossing = [
                each for kind in (early, late) if kind for each in large_overlaps(far, kind)
            ]
            met = (
                list(large_meetings(far, early, late, MOST_MEETINGS + 1)) if early and late else []
            )
        finally:
            far.unpersist()
        return crossing, met

    def _counting(self, kind: str) -> _Flags:
        return np.array(
            [each.current and each.expected.kind == kind for each in self._all], np.bool_
        )

    def _overlap(self, found: Overlap) -> None:
        file, other = self._all[found.file], self._all[found.other]
        why = self._unsettled(file, other, found.device)
        if why is None:
            return
        own = self._own
        if found.file < own:
            name = shown(other.expected.physical)
            number, detail = (
                found.file,
                f"begins at {found.first}, but {name} reaches {found.reach}",
            )
        elif found.other < own:
            name = shown(file.expected.physical)
            number, detail = (
                found.other,
                f"reaches {found.reach}, but {name} begins at {found.first}",
            )
        else:
            return
        self._tell_overlap(number, found.device, f"{detail}; {why}")

    def _meeting(self, found: Meeting) -> None:
        early, late = self._all[found.sequence], self._all[found.unsequence]
        why = self._unsettled(early, late, found.device)
        if why is not None:
            is_own = found.unsequence < self._own
            number, other = (found.unsequence, early) if is_own else (found.sequence, late)
            name = shown(other.expected.physical)
            self._tell_overlap(number, found.device, f"has times between those of {name}; {why}")

    @staticmethod
    def _unsettled(one: Subject, other: Subject, device: str) -> str | None:
        ranks = one.rank_in(device), other.rank_in(device)
        if is_centre(one.sender) or is_centre(other.sender):
            return unsettled_at_the_centre(*ranks)
        return unsettled(*ranks, is_one_sender=one.sender == other.sender)

    def _tell_overlap(self, number: int, device: str, detail: str) -> None:
        if any(each.check == "overlap" and each.device == device for each in self.findings[number]):
            return
        finding = Finding(Severity.PROBLEM, "overlap", device, None, None, detail)
        self.findings[number].append(finding)

    def _count_duplicates(self, met: Sequence[Meeting]) -> None:
        devices: dict[tuple[int, int], list[str]] = defaultdict(list)
        for each in met:
            devices[each.sequence, each.unsequence].append(each.device)
        pairs = [
            (
                late if late < self._own else early,
                Pair(self._all[early].expected, self._all[late].expected, tuple(names)),
            )
            for (early, late), names in devices.items()
        ]
        limit = self._limit
        tasks = self._spark.sparkContext.parallelize(
            [pickle.dumps(pair) for _, pair in pairs], min(len(pairs), 64)
        )
        found = tasks.map(lambda packed: common_times(pickle.loads(packed), limit)).collect()  # noqa: S301
        rows: list[Duplicates] = []
        for (number, pair), some in zip(pairs, found, strict=True):
            rows += some
            if some:
                self.findings[number].append(_duplicate_note(pair, some))
        self.duplicates = tuple(
            sorted(rows, key=lambda each: (each.device, each.measurement, each.unsequence))
        )


_SPANS = (
    "file int, device string, first long, last long, rows long, interval long, gap long, "
    "gap_begins long"
)


def _unfolded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in the workers: streams of spans in, spans out."""
    for batch in batches:
        for each in batch.column(0):
            if each.is_valid:
                yield from pa.ipc.open_stream(each.as_buffer()).read_all().to_batches()


def _duplicate_note(pair: Pair, found: Sequence[Duplicates]) -> Finding:
    known = [each.points for each in found if each.points is not None]
    unknown = len(found) - len(known)
    early, late = shown(pair.sequence.physical), shown(pair.unsequence.physical)
    said = []
    if known:
        said.append(f"{sum(known)} points of {len(known)} series have the same time")
    if unknown:
        said.append(f"of {unknown} series or devices it could not be counted how many do")
    detail = f"in {early} and {late}: {'; '.join(said)}"
    return Finding(Severity.NOTE, "duplicates", None, None, None, detail)
