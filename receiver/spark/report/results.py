"""What a run of `tsferry-verify` yields; the report, JSON and Parquet are made of this alone.

Small results are objects. What grows with chunks or devices (`chunks`, `spans`) comes as Arrow
batches, so that a catalogue of millions of chunks need not fit into the driver's memory.

Times are the files' integers in the unit of the run (`Verification.time_unit`); moments of the
machine are aware datetimes in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime

    import pyarrow as pa

__all__ = [
    "ArrowBatches",
    "ChunkResult",
    "CodecTotal",
    "DayCount",
    "DeviceSpan",
    "Duplicates",
    "FileResult",
    "Finding",
    "FindingRow",
    "Judgement",
    "MergedResult",
    "Severity",
    "Verification",
    "arrow_schema",
    "to_arrow",
]


class Severity(StrEnum):
    """What a finding means for its file."""

    BAD = "bad"
    """The content is not what was loaded, or contradicts itself: the file goes to quarantine."""
    PROBLEM = "problem"
    """It does not fit to something else (owner, other files, schema, TTL); the file stays."""
    NOTE = "note"
    """Worth knowing, and no fault."""
    UNPROVED = "unproved"
    """What keeps the file from being judged: its disk is away, it is encrypted, it changed."""


class Judgement(StrEnum):
    """What the run says of a file."""

    PROVED = "proved"
    """Every point was decoded and is what was sent (problems and notes may stand beside it)."""
    BAD = "bad"
    UNPROVED = "unproved"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found in one file.

    Attributes:
        severity: what it means.
        check: what found it, one word: `present`, `size`, `md5`, `structure`, `counts`, `devices`,
            `manifest`, `pages`, `statistics`, `order`, `columns`, `read`, `unsupported`,
            `encrypted`, `changed`, `limit`, `owner`, `overlap`, `type`, `codec`, `ttl`,
            `duplicates`, `deletions`, `schema`, `worker`.
        device: whose series it is about, None for the whole file.
        measurement: of the series; "" for the time column of an aligned device.
        offset: of the chunk or page in the file.
        detail: what was found, and what was expected, in words.
    """

    severity: Severity
    check: str
    device: str | None
    measurement: str | None
    offset: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class FileResult:
    """What the run says of one file.

    Attributes:
        physical: its path beneath the data directory; with `--path`, the path as found.
        sender: uuid, "" with `--path` (as are `sender_label`, `path` and `task`).
        sender_label: the name that the sender gave itself.
        path: its path at the sender.
        task: the task that loaded it.
        kind: `sequence`, `unsequence`, or "" where the path does not tell.
        storage_group: that its directory names, "" where it does not.
        partition: time partition that its directory names, None where it does not.
        size: bytes found (0: not there), and not those that were loaded.
        md5: of the bytes found, "" where they could not be read to the end.
        format_version: 3 or 4, 0 where unknown.
        devices: count.
        series: count, time columns left out.
        points: decoded and found good, time columns left out.
        chunks: decoded, time columns included.
        pages: likewise.
        first_time: of all its points, by the index; None without points.
        last_time: likewise.
        loaded_commit: commit that loaded it, 0 with `--path`.
        loaded_at: when that was.
        verdict: the outcome.
        findings: of all severities, those that decide first. At most a hundred; where there were
            more, the last says how many.
        seconds: that a worker spent on it, summed over its parts.
    """

    physical: str
    sender: str
    sender_label: str
    path: str
    task: str
    kind: str
    storage_group: str
    partition: int | None
    size: int
    md5: str
    format_version: int
    devices: int
    series: int
    points: int
    chunks: int
    pages: int
    first_time: int | None
    last_time: int | None
    loaded_commit: int
    loaded_at: datetime.datetime | None
    verdict: Judgement
    findings: tuple[Finding, ...]
    seconds: float

    def count(self, severity: Severity) -> int:
        """How many findings there are of one severity."""
        return sum(1 for each in self.findings if each.severity is severity)


@dataclass(frozen=True, slots=True)
class MergedResult:
    """What the run says of a merged file, which readers read in place of others.

    Attributes:
        physical: its path beneath the data directory.
        compaction: number of the compaction that it is of.
        stands_for: files that all outputs of that one stand for.
        size: bytes found.
        points: of all outputs, decoded and found good; they stand with the first of them.
        verdict: the outcome; one that is bad is dissolved, and its inputs are read again.
        compared: whether all that it stands for was merged anew, and compared.
        md5: of its bytes, as it was made; empty of a compaction without any.
        findings: of all severities.
        seconds: that workers spent on it; likewise.
    """

    physical: str
    compaction: int
    stands_for: int
    size: int
    points: int
    verdict: Judgement
    compared: bool
    md5: str
    findings: tuple[Finding, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A `Finding` with the file that it is about: a row of `findings.parquet`."""

    physical: str
    sender: str
    path: str
    severity: Severity
    check: str
    device: str | None
    measurement: str | None
    offset: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """One decoded chunk; a row of `chunks.parquet` and of `Verification.chunks`.

    Attributes:
        physical: of its file.
        device: by its name in the catalogue.
        measurement: "" for a time column.
        aligned: whether it shares a time column.
        data_type: name, as `INT64`; `VECTOR` for a time column.
        encoding: name, as `GORILLA`.
        compression: name, as `LZ4`.
        offset: of its header in the file.
        pages: decoded.
        points: decoded, nulls left out.
        first_time: of its points, None without.
        last_time: likewise.
        min: of numeric values, as double; None for other types, without points, or for a NaN.
        max: likewise.
        sum: likewise; of BOOLEAN the count of the true ones.
        digest: xxh3-64 over the chunk's bytes, header included, 16 hex digits.
    """

    physical: str
    device: str
    measurement: str
    aligned: bool
    data_type: str
    encoding: str
    compression: str
    offset: int
    pages: int
    points: int
    first_time: int | None
    last_time: int | None
    min: float | None
    max: float | None
    sum: float | None
    digest: str


@dataclass(frozen=True, slots=True)
class CodecTotal:
    """How much there is of one combination of type, encoding and compression."""

    data_type: str
    encoding: str
    compression: str
    chunks: int
    points: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DayCount:
    """Points of one storage group on one day.

    Attributes:
        storage_group: "" where the path of the files does not name it.
        day: in UTC; None for all points outside of the years 1 to 9999.
        points: decoded, of sequence and unsequence files together.
    """

    storage_group: str
    day: datetime.date | None
    points: int


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """The times of one device in one file; a row of `spans.parquet` and of `Verification.spans`.

    Attributes:
        device: by its name in the catalogue.
        physical: of the file.
        kind: `sequence`, `unsequence` or "".
        first: its first time.
        last: its last time.
        rows: of an aligned device its rows, otherwise the points of its longest series.
        typical_interval: median step between the times of that series (a median of the medians of
            its chunks where there are several); None below two points.
        longest_gap: longest step between two neighbouring times of that series; None likewise.
        gap_begins: the time before that step.
    """

    device: str
    physical: str
    kind: str
    first: int
    last: int
    rows: int
    typical_interval: int | None
    longest_gap: int | None
    gap_begins: int | None


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Points that stand in a sequence and in an unsequence file: the database shows the latter.

    Attributes:
        device: by its name in the catalogue.
        measurement: of the series.
        sequence: physical path of the sequence file.
        unsequence: physical path of the unsequence file.
        points: times that both have; None where counting was given up (a limit, an error).
        first: the first of these times, None where there is none or it is not known.
        last: the last of them, likewise.
    """

    device: str
    measurement: str
    sequence: str
    unsequence: str
    points: int | None
    first: int | None
    last: int | None


ArrowBatches = Callable[[], "Iterator[pa.RecordBatch]"]
"""Rows of a large table, batch by batch; may be called again, while the Spark session lives."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of a run.

    Attributes:
        engine: uuid of the receiver's engine, "" with `--path`.
        commit: the catalogue was read as of this commit, 0 with `--path`.
        scope: what was asked for, in words: `all files`, `task <id>`, `new files`, ...
        time_unit: of all times: `ms`, `us` or `ns`.
        begun: when the run began.
        seconds: that it took.
        master: of Spark.
        files: in the order of the catalogue.
        days: ordered by storage group and day.
        codecs: the largest first.
        gaps: the hundred spans with the longest gaps relative to their typical interval.
        duplicates: ordered by device.
        passed_over: visible files that the scope left out.
        chunks: rows of `ChunkResult`.
        spans: rows of `DeviceSpan`.
        unlooked: pairs of files with a device in common that were not looked at for duplicates,
            because there were too many.
        merged_points: of all files, each time of a series once; None where it is not known.
        merged: the merged files that were proved, too.
    """

    engine: str
    commit: int
    scope: str
    time_unit: str
    begun: datetime.datetime
    seconds: float
    master: str
    files: tuple[FileResult, ...]
    days: tuple[DayCount, ...]
    codecs: tuple[CodecTotal, ...]
    gaps: tuple[DeviceSpan, ...]
    duplicates: tuple[Duplicates, ...]
    passed_over: int
    chunks: ArrowBatches
    spans: ArrowBatches
    unlooked: int = 0
    merged_points: int | None = None
    merged: tuple[MergedResult, ...] = ()

    def findings(self) -> Iterator[FindingRow]:
        """All findings of all files, with their files."""
        for file in self.files:
            for each in file.findings:
                yield FindingRow(
                    file.physical, file.sender, file.path,
                    each.severity, each.check, each.device, each.measurement,
                    each.offset, each.detail,
                )  # fmt: skip
        for output in self.merged:
            for each in output.findings:
                yield FindingRow(
                    output.physical, "", "", each.severity, each.check, each.device,
                    each.measurement, each.offset, each.detail,
                )  # fmt: skip

    def count(self, verdict: Judgement) -> int:
        """How many files came to this verdict."""
        return sum(1 for each in self.files if each.verdict is verdict)


def arrow_schema(kind: type[Any]) -> pa.Schema:
    """The Arrow schema of a table with rows of one of the classes above.

    `findings` of a file are no column: they are a table of their own (`FindingRow`). A file has the
    columns `bad`, `problems`, `notes` and `unproved` in their place: counts.
    """
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    types = {
        "str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(),
        "Severity": pa.string(), "Judgement": pa.string(),
        "datetime.date": pa.date32(), "datetime.datetime": moment,
    }  # fmt: skip
    columns = []
    for each in fields(kind):
        text = str(each.type)
        if each.name == "findings":
            columns += [pa.field(name, pa.int64(), nullable=False) for name in _COUNTS]
            continue
        plain = text.removesuffix(" | None")
        columns.append(pa.field(each.name, types[plain], nullable=plain != text))
    return pa.schema(columns)


_COUNTS = {
    "bad": Severity.BAD,
    "problems": Severity.PROBLEM,
    "notes": Severity.NOTE,
    "unproved": Severity.UNPROVED,
}


def to_arrow(kind: type[Any], rows: Iterator[Any]) -> pa.Table:
    """Rows of one of the classes above as a table of its `arrow_schema`."""
    import pyarrow as pa

    schema = arrow_schema(kind)
    found = list(rows)
    columns = []
    for column in schema:
        severity = _COUNTS.get(column.name) if kind is FileResult else None
        values = [
            getattr(each, column.name) if severity is None else each.count(severity)
            for each in found
        ]
        columns.append(pa.array(values, column.type))
    return pa.Table.from_arrays(columns, schema=schema)
