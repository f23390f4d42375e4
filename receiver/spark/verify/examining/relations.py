"""Files against each other: overlap in time within a kind, candidates for duplicates.

What is compared are spans, one a device and file. As long as they fit well into memory the driver
sorts them itself, in less time than Spark needs to begin; beyond that Spark does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from receiver.metadata.model.ranks import in_common

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt
    from pyspark.sql import DataFrame

    from receiver.metadata.model.ranks import Rank

__all__ = [
    "Meeting",
    "Overlap",
    "large_meetings",
    "large_overlaps",
    "meetings",
    "overlaps",
    "unsettled",
    "unsettled_at_the_centre",
]


_MOST_MET = 1000
"""Of the files that one overlaps of a device; more are not looked at."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A file begins before an earlier one of its kind ends, for one device.

    Attributes:
        file: number of the file.
        device: by its name.
        first: its first time in the file.
        other: number of the file that begins before.
        reach: last time there.
    """

    file: int
    device: str
    first: int
    other: int
    reach: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """A device has times in a sequence and in an unsequence file that may be the same."""

    device: str
    sequence: int
    unsequence: int


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Spans in the order of (device, first, last, file), as columns."""

    devices: Any
    device: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    file: npt.NDArray[np.int64]

    @classmethod
    def of(cls, spans: pa.Table, files: npt.NDArray[np.bool_]) -> _Sorted:
        """Those of some files: `files` says of each number whether it counts."""
        spans = spans.filter(pc.is_valid(spans["first"]))
        number = spans["file"].to_numpy()
        spans = spans.filter(pa.array(files[number], pa.bool_()))
        names = spans["device"].combine_chunks().dictionary_encode()
        if isinstance(names, pa.ChunkedArray):
            names = names.unify_dictionaries().combine_chunks()
        device = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        first, last = spans["first"].to_numpy(), spans["last"].to_numpy()
        file = spans["file"].to_numpy().astype(np.int64)
        order = np.lexsort((file, last, first, device))
        return cls(names.dictionary, device[order], first[order], last[order], file[order])

    def reach(self) -> npt.NDArray[np.int64]:
        """Of each row, the row with the furthest end so far, its own among them, of its device."""
        rank = np.empty(len(self.last), np.int64)
        rank[np.argsort(self.last, kind="stable")] = np.arange(len(self.last))
        key = self.device * max(1, len(self.last)) + rank  # devices ascend, so each begins anew
        best = np.maximum.accumulate(key)
        rows: npt.NDArray[np.int64] = np.maximum.accumulate(
            np.where(key == best, np.arange(len(key)), 0)
        )
        return rows


def overlaps(spans: pa.Table, files: npt.NDArray[np.bool_]) -> Iterator[Overlap]:
    """Files that overlap earlier ones, device by device; of each pair, the furthest reach first.

    Args:
        spans: `part_rows.span_schema`.
        files: of each number, whether it is of the kind and counts.
    """
    rows = _Sorted.of(spans, files)
    if len(rows.first) < 2:
        return
    reach = rows.reach()[:-1]
    same = rows.device[1:] == rows.device[:-1]
    for at in (np.flatnonzero(same & (rows.first[1:] <= rows.last[reach])) + 1).tolist():
        low = int(np.searchsorted(rows.device, rows.device[at]))
        met = low + np.flatnonzero(rows.last[low:at] >= rows.first[at])
        furthest_first = met[np.argsort(-rows.last[met], kind="stable")]
        for other in furthest_first[:_MOST_MET].tolist():
            yield Overlap(
                int(rows.file[at]),
                rows.devices[int(rows.device[at])].as_py(),
                int(rows.first[at]),
                int(rows.file[other]),
                int(rows.last[other]),
            )


def meetings(
    spans: pa.Table, sequence: npt.NDArray[np.bool_], unsequence: npt.NDArray[np.bool_]
) -> Iterator[Meeting]:
    """Where a device has common time in a sequence and an unsequence file.

    Args:
        spans: `part_rows.span_schema`.
        sequence: of each number, whether it is a sequence file that counts.
        unsequence: the same of unsequence files.
    """
    late = _Sorted.of(spans, unsequence)
    if not len(late.first):
        return
    early = _Sorted.of(spans, sequence)
    numbers = {name: at for at, name in enumerate(early.devices.to_pylist())}
    reach = early.last[early.reach()]
    for at in range(len(late.first)):
        name = late.devices[int(late.device[at])].as_py()
        device = numbers.get(name)
        if device is None:
            continue
        low, high = np.searchsorted(early.device, (device, device + 1))
        begin = low + np.searchsorted(reach[low:high], late.first[at])
        end = low + np.searchsorted(early.first[low:high], late.last[at], side="right")
        for row in range(int(begin), int(end)):
            if early.last[row] >= late.first[at]:
                yield Meeting(name, int(early.file[row]), int(late.file[at]))


def large_overlaps(spans: DataFrame, kinds: Mapping[int, bool]) -> Iterator[Overlap]:
    """`overlaps` for more spans than fit into one machine; of each file with the furthest alone.

    Args:
        spans: `part_rows.span_schema`.
        kinds: numbers of the files that count.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    session = spans.sparkSession
    counted = session.createDataFrame([(each,) for each in kinds], "file int")
    order = Window.partitionBy("device").orderBy("first", "last", "file")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    # The furthest end so far, with the file that has it: a struct compares by its first member.
    reach = sql.max(sql.struct("last", "file")).over(before)
    found = (
        spans.where("first is not null")
        .join(sql.broadcast(counted), "file")
        .withColumn("reach", reach)
        .where("first <= reach.last")
        .select("file", "device", "first", "reach.last", sql.col("reach.file").alias("other"))
    )
    for row in found.toLocalIterator():
        yield Overlap(row["file"], row["device"], row["first"], row["other"], row["last"])


def large_meetings(
    spans: DataFrame, sequence: Mapping[int, bool], unsequence: Mapping[int, bool], limit: int
) -> Iterator[Meeting]:
    """`meetings` for more spans than fit into one machine, up to a limit."""
    from pyspark.sql import functions as sql

    session = spans.sparkSession

    def of(files: Mapping[int, bool]) -> DataFrame:
        counted = session.createDataFrame([(each,) for each in files], "file int")
        return spans.where("first is not null").join(sql.broadcast(counted), "file")

    early, late = of(sequence).alias("s"), of(unsequence).alias("u")
    met = early.join(
        late, sql.expr("s.device = u.device and s.first <= u.last and u.first <= s.last")
    )
    for row in (
        met.selectExpr("s.device", "s.file as early", "u.file as late").limit(limit).collect()
    ):
        yield Meeting(row["device"], row["early"], row["late"])


def unsettled(one: Rank | None, other: Rank | None, *, is_one_sender: bool) -> str | None:
    """Why nothing says which of two files that overlap stands above; None where ranks do."""
    if one is None or other is None:
        return "their ranks are not known"
    one, other = in_common(one, other)
    if one.first > other.last or other.first > one.last:
        return None
    if not is_one_sender:
        return "they are of two senders that had them at the same time"
    if one.name is not None and other.name is not None:
        return "their names rank the same" if one.name == other.name else None
    if one.name is None and other.name is None:
        return "no database named them" if one.loaded == other.loaded else None
    return "a database named only one of them"


def unsettled_at_the_centre(one: Rank | None, other: Rank | None) -> str | None:
    """The same where one of two files was loaded at the centre, without an edge.

    Such a file has a look of its own, which no other load has; those of one load, which share it,
    are named in the order of their database.
    """
    if one is None or other is None:
        return "their ranks are not known"
    one, other = in_common(one, other)
    if one.first != other.first or one.loaded == other.loaded:
        return None
    return "they were looked at together, and loaded by two commits"
