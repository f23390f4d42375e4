"""The job: groups of parts go to the workers, rows come back and become verdicts.

rows = job.run(...)            one row a part, cached in Spark
results                        what the rows say, put together file by file
overlaps, duplicates           files against each other by the spans in the rows (`FileComparison`)
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.durable import Closing
from receiver.spark.finder import shown
from receiver.spark.report.results import (
    CodecTotal,
    DayCount,
    DeviceSpan,
    Duplicates,
    Finding,
    arrow_schema,
)
from receiver.spark.verify.examining.isolation import Worker
from receiver.spark.verify.examining.part_rows import ROW, Settings, span_schema
from receiver.spark.verify.examining.parts import PartResult, group_parts, pack, split
from receiver.spark.verify.examining.subjects import Neighbours, Subject
from receiver.spark.verify.file_comparison import FileComparison
from receiver.spark.verify.job_progress import JobProgress
from receiver.spark.verify.session import SparkFailedError, was_interrupted
from receiver.spark.verify.worker_code import shipped, unfit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

    from receiver.spark.verify.examining.parts import FilePart

__all__ = ["VerifyJob"]

LOCAL_SPANS = 5_000_000
"""Spans that the driver compares itself: some hundred megabytes."""
AT_ONCE_BYTES = 1 << 30
"""Files of so many bytes have few rows in any case: all of them are fetched in one job."""
MOST_GAPS = 100


class VerifyJob(Closing):
    """One run over some files; a context manager, whose tables live as long as it does.

    Attributes:
        results: of each file, by number.
        days: points by day of each storage group.
        codecs: how much there is of each.
        findings: of files against each other, by number.
        duplicates: likewise, all of them.
        unlooked: meetings that were left out.
        overlapping: whether files of one kind overlap.
        overlapping_files: physical paths of files of the run that overlap others, of any kind.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        files: Sequence[Subject],
        settings: Settings,
        progress: JobProgress,
        neighbours: Neighbours | None = None,
    ) -> None:
        """Work off all files.

        Args:
            spark: where; not needed without files.
            files: what.
            settings: for the workers.
            progress: told how far it is.
            neighbours: what they are compared with beside each other.
        """
        self._session = spark
        self._files = files
        self._neighbours = neighbours or Neighbours((), span_schema().empty_table())
        self._settings = settings
        self.results: dict[int, PartResult] = {}
        self.days: tuple[DayCount, ...] = ()
        self.codecs: tuple[CodecTotal, ...] = ()
        self.findings: dict[int, list[Finding]] = defaultdict(list)
        self.duplicates: tuple[Duplicates, ...] = ()
        self.overlapping = False
        self.overlapping_files: frozenset[str] = frozenset()
        self.unlooked = 0
        self._rows: DataFrame | None = None
        self._packed: Broadcast[list[bytes]] | None = None
        self._split: set[int] = set()
        self._near: pa.Table | None = None
        self._few = False
        self._fetched: pa.ChunkedArray | None = None
        if files:
            self._run(progress)

    def close(self) -> None:
        """Let the tables go."""
        if self._rows is not None:
            self._rows.unpersist()
        if self._packed is not None:
            self._packed.destroy()
        self._rows = self._packed = None

    @property
    def _spark(self) -> SparkSession:
        assert self._session is not None
        return self._session

    # -- running -------------------------------------------------------------------------------

    def _run(self, progress: JobProgress) -> None:
        cores = self._spark.sparkContext.defaultParallelism
        parts = [
            part
            for at, file in enumerate(self._files)
            for part in split(at, file.expected, file.size)
        ]
        self._split = {part.file for part in parts if part.part}
        groups = group_parts(parts, cores)
        with progress.over(self._spark, sum(each.weight for each in parts), len(groups)):
            collected = self._results(groups, progress)
        self._sum_up(collected)
        self._compare(progress)

    def _results(self, groups: Sequence[list[FilePart]], progress: JobProgress) -> list[PartResult]:
        """What all parts come to.

        A worker that dies is seen to where Spark tries a task again. Where it does not (local mode
        may be told so), all of it is done again with each part in a process of its own.
        """
        try:
            return self._collect(groups, self._settings)
        except Exception as error:  # Spark raises errors of several libraries
            if self._settings.isolated or unfit(error) or was_interrupted(error):
                raise SparkFailedError.of(error) from error
            progress.say("a worker died; once more, each file in a process of its own")
        try:
            return self._collect(groups, replace(self._settings, isolated=True))
        except Exception as error:
            raise SparkFailedError.of(error) from error

    def _collect(self, groups: Sequence[list[FilePart]], settings: Settings) -> list[PartResult]:
        self.close()
        self._packed = self._spark.sparkContext.broadcast([pack(group) for group in groups])
        numbers = self._spark.range(0, len(groups), 1, len(groups))
        self._rows = numbers.mapInArrow(shipped(Worker, self._packed, settings), ROW).cache()
        decoder = msgspec.msgpack.Decoder(PartResult)
        self._few = sum(each.weight for group in groups for each in group) <= AT_ONCE_BYTES
        table = self._rows.select("result", *(["spans"] if self._few else [])).toArrow()
        self._fetched = table["spans"] if self._few else None
        return [decoder.decode(each.as_buffer()) for each in table["result"]]

    def _sum_up(self, parts: list[PartResult]) -> None:
        days: Counter[tuple[str, int]] = Counter()
        codecs: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        for part in sorted(parts, key=lambda part: (part.file, part.part)):
            group = self._files[part.file].expected.database
            for day, count in part.days.items():
                days[group, day] += count
            for each in part.codecs:
                total = codecs[each.data_type, each.encoding, each.compression]
                for at, number in enumerate((each.chunks, each.points, each.bytes)):
                    total[at] += number
            whole = self.results.get(part.file)
            self.results[part.file] = part if whole is None else _together(whole, part)
        self.days = _day_counts(days)
        self.codecs = tuple(
            sorted(
                (CodecTotal(*names, *total) for names, total in codecs.items()),
                key=lambda each: (-each.points, each.data_type, each.encoding, each.compression),
            )
        )

    def _compare(self, progress: JobProgress) -> None:
        assert self._rows is not None
        comparison = FileComparison(
            self._spark, self._files, self._neighbours, self._settings.limit
        )
        known = self._neighbours.spans.num_rows
        if sum(each.devices for each in self.results.values()) + known <= LOCAL_SPANS:
            self._near = self._span_table()
        comparison.run(self._near, self._rows, progress)
        self.findings, self.duplicates = comparison.findings, comparison.duplicates
        self.unlooked, self.overlapping = comparison.unlooked, comparison.overlapping
        self.overlapping_files = comparison.overlapping_files

    # -- tables --------------------------------------------------------------------------------

    def chunks(self) -> Iterator[pa.RecordBatch]:
        """Rows of `ChunkResult`."""
        for table in self._streams("chunks"):
            yield from table.to_batches()

    def spans(self) -> Iterator[pa.RecordBatch]:
        """Rows of `DeviceSpan`."""
        tables = self._streams("spans") if self._near is None else iter([self._near])
        cut: list[pa.Table] = []
        for table in tables:
            if self._split:
                of_parts = pc.is_in(table["file"], pa.array(sorted(self._split), pa.int32()))
                cut.append(table.filter(of_parts))
                table = table.filter(pc.invert(of_parts))
            yield from self._described(table).to_batches()
        if cut:
            yield from self._described(_joined(pa.concat_tables(cut))).to_batches()

    def widest_gaps(self) -> tuple[DeviceSpan, ...]:
        """The spans with the longest gaps, measured by their typical intervals."""
        kept: list[tuple[float, dict[str, Any]]] = []
        for batch in self.spans():
            ratio = _floats(batch["longest_gap"]) / np.maximum(
                _floats(batch["typical_interval"]), 1
            )
            known = np.flatnonzero(ratio > 1)  # not of a device that never missed a step
            widest = known[np.argsort(-ratio[known], kind="stable")[:MOST_GAPS]]
            rows = batch.take(pa.array(widest)).to_pylist()
            kept += zip(ratio[widest].tolist(), rows, strict=True)
            kept.sort(key=lambda each: -each[0])
            del kept[MOST_GAPS:]
        return tuple(DeviceSpan(**row) for _, row in kept)

    def _span_table(self) -> pa.Table:
        streams = self._fetched
        if streams is None:
            assert self._rows is not None
            streams = self._rows.select("spans").toArrow()["spans"]
        found = [span_schema().empty_table()]
        for each in streams:
            if each.is_valid:
                found.append(pa.ipc.open_stream(each.as_buffer()).read_all())
        self._fetched = None
        return pa.concat_tables(found)

    def _streams(self, column: str) -> Iterator[pa.Table]:
        if self._rows is None:
            return
        rows = self._rows.select(column).where(f"{column} is not null")
        if self._few:
            rows = rows.coalesce(1)  # a partition is a job of its own
        for row in rows.toLocalIterator(prefetchPartitions=True):
            yield pa.ipc.open_stream(bytes(row[column])).read_all()

    def _described(self, spans: pa.Table) -> pa.Table:
        """Rows of `DeviceSpan` from those of the workers; without what has no times."""
        spans = spans.filter(pc.is_valid(spans["first"]))
        numbers = spans["file"].to_pylist()
        expected = [self._files[each].expected for each in numbers]
        columns = {
            "device": spans["device"],
            "physical": pa.array([shown(each.physical) for each in expected], pa.string()),
            "kind": pa.array([each.kind for each in expected], pa.string()),
            "first": spans["first"],
            "last": spans["last"],
            "rows": spans["rows"],
            "typical_interval": spans["interval"],
            "longest_gap": spans["gap"],
            "gap_begins": spans["gap_begins"],
        }
        schema = arrow_schema(DeviceSpan)
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _together(one: PartResult, other: PartResult) -> PartResult:
    """A file's result with that of one more part of it."""
    return replace(
        one,
        absent=one.absent or other.absent,
        host=one.host or other.host,
        points=one.points + other.points,
        chunks=one.chunks + other.chunks,
        pages=one.pages + other.pages,
        findings=one.findings + [each for each in other.findings if each not in one.findings],
        dropped=one.dropped + other.dropped,
        seconds=one.seconds + other.seconds,
    )


def _day_counts(days: Counter[tuple[str, int]]) -> tuple[DayCount, ...]:
    found: Counter[tuple[str, datetime.date | None]] = Counter()
    for (group, day), count in days.items():
        found[group, _date(day)] += count
    rows = [DayCount(group, day, count) for (group, day), count in found.items()]
    return tuple(sorted(rows, key=lambda row: (row.storage_group, row.day or datetime.date.max)))


def _date(day: int) -> datetime.date | None:
    ordinal = day + datetime.date(1970, 1, 1).toordinal()
    if 1 <= ordinal <= datetime.date.max.toordinal():
        return datetime.date.fromordinal(ordinal)
    return None


def _floats(column: pa.Array) -> npt.NDArray[np.float64]:
    """Integers as floats, with NaN for null."""
    found: npt.NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return found


def _joined(spans: pa.Table) -> pa.Table:
    """Spans of files in parts: ranges are in one row, gaps in another."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for row in spans.to_pylist():
        whole = found.setdefault((row["file"], row["device"]), row)
        if whole is not row:
            for name, value in row.items():
                if whole[name] is None:
                    whole[name] = value
            whole["rows"] = max(whole["rows"], row["rows"])
    return pa.Table.from_pylist(list(found.values()), schema=span_schema())
