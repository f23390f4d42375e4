"""The job: one partition for each group of files, one row for each file, whatever it contains."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from receiver.spark.checks import Expected, Finding, check_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from receiver.spark.catalogue import CommittedFile

__all__ = ["FileVerdict", "prove"]

GROUP_BYTES = 256 << 20
"""Files are grouped to about this much work, so that a task is worth starting."""
GROUP_FILES = 500

_RESULT = (
    "physical string, size long, series long, points long, "
    "findings array<struct<check: string, detail: string>>, "
    "spans array<struct<device: string, first: long, last: long>>"
)


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """What the job says of one file; good when `findings` is empty."""

    file: CommittedFile
    size: int
    series: int
    points: int
    findings: tuple[Finding, ...]


def prove(spark: SparkSession, files: Sequence[CommittedFile]) -> list[FileVerdict]:
    """Check every file on the cluster, then compare them with each other.

    Returns:
        One verdict for each file, in the order given.
    """
    if not files:
        return []
    by_name = {each.expected.physical: each for each in files}
    work = spark.createDataFrame(_expectations(files)).repartition(_partitions(files))
    rows = work.mapInArrow(_check_batches, _RESULT).cache()
    try:
        overlaps = _overlaps(spark, rows, files)
        found = {row["physical"]: row for row in rows.drop("spans").toLocalIterator()}
    finally:
        rows.unpersist()
    verdicts = []
    for name, file in by_name.items():
        row = found[name]
        findings = [Finding(each["check"], each["detail"]) for each in row["findings"]]
        verdicts.append(
            FileVerdict(
                file,
                row["size"],
                row["series"],
                row["points"],
                (*findings, *file.findings, *overlaps.get(name, ())),
            )
        )
    return verdicts


def _partitions(files: Sequence[CommittedFile]) -> int:
    work = sum(each.expected.size for each in files)
    return max(1, -(-work // GROUP_BYTES), -(-len(files) // GROUP_FILES))


def _expectations(files: Sequence[CommittedFile]) -> pa.Table:
    """Largest first: dealt out in turn, so each partition gets its share of the work."""
    import pyarrow as pa

    schema = pa.schema(
        {
            "physical": pa.string(),
            "locations": pa.list_(pa.string()),
            "size": pa.int64(),
            "md5": pa.string(),
            "devices": pa.list_(pa.string()),
            "series": pa.int64(),
            "points": pa.int64(),
            "manifest_series": pa.int64(),
            "manifest_points": pa.int64(),
        }
    )
    largest_first = sorted(files, key=lambda each: -each.expected.size)
    return pa.Table.from_pylist([asdict(each.expected) for each in largest_first], schema=schema)


def _check_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in the workers: expectations in, one row a file out."""
    import pyarrow as pa

    for batch in batches:
        rows = [_check_row(row) for row in batch.to_pylist()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_result_schema())


def _check_row(row: dict[str, Any]) -> dict[str, Any]:
    verdict = check_file(Expected(**row))
    return {
        "physical": row["physical"],
        "size": verdict.size,
        "series": verdict.series,
        "points": verdict.points,
        "findings": [asdict(each) for each in verdict.findings],
        "spans": [
            {"device": device, "first": first, "last": last}
            for device, first, last in verdict.spans
        ],
    }


def _result_schema() -> pa.Schema:
    import pyarrow as pa

    finding = pa.struct({"check": pa.string(), "detail": pa.string()})
    span = pa.struct({"device": pa.string(), "first": pa.int64(), "last": pa.int64()})
    return pa.schema(
        {
            "physical": pa.string(),
            "size": pa.int64(),
            "series": pa.int64(),
            "points": pa.int64(),
            "findings": pa.list_(finding),
            "spans": pa.list_(span),
        }
    )


def _overlaps(
    spark: SparkSession, rows: DataFrame, files: Sequence[CommittedFile]
) -> dict[str, list[Finding]]:
    """Sequence files whose time overlaps an earlier file of the same device.

    Retired files are left out: they are kept beside what replaced them.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    names = [
        (each.expected.physical,) for each in files if each.kind == "sequence" and each.current
    ]
    if len(names) < 2:
        return {}
    sequence = spark.createDataFrame(names, "physical string")
    spans = (
        rows.join(sql.broadcast(sequence), "physical")
        .select("physical", sql.explode("spans").alias("span"))
        .select("physical", "span.device", "span.first", "span.last")
    )
    order = Window.partitionBy("device").orderBy("first", "last", "physical")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    # The furthest end so far, with the file that has it: a struct compares by its first member.
    reach = sql.max(sql.struct("last", "physical")).over(before)
    found = (
        spans.withColumn("reach", reach)
        .where("first <= reach.last")
        .select(
            "physical", "device", "first", "reach.last", sql.col("reach.physical").alias("other")
        )
    )
    findings: dict[str, list[Finding]] = {}
    for row in found.toLocalIterator():
        detail = (
            f"{row['device']} begins at {row['first']}, but {row['other']} reaches {row['last']}"
        )
        findings.setdefault(row["physical"], []).append(Finding("overlap", detail))
    return findings
