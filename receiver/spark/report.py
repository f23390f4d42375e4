"""Where the results go: Parquet for machines, JSON for scripts, a few lines for people."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import msgspec

from common.durable import Tree
from common.terminal import printable

if TYPE_CHECKING:
    from pathlib import Path

    from receiver.spark.catalogue import Catalogue
    from receiver.spark.job import FileVerdict

__all__ = ["Bad", "Summary", "summarise", "text", "write"]

SHOWN = 20


class Bad(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of one file."""

    physical: str
    sender: str
    path: str
    check: str
    detail: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run, as `--json` prints it and `report.json` holds it (version 1)."""

    version: int = 1
    engine: str
    commit: int
    task: str | None
    files: int
    bytes: int
    series: int
    points: int
    good: int
    bad: int
    seconds: float
    problems: list[Bad]


def summarise(
    catalogue: Catalogue, verdicts: list[FileVerdict], task: str | None, seconds: float
) -> Summary:
    """Count, and list every problem."""
    problems = [
        Bad(
            physical=each.file.expected.physical,
            sender=each.file.sender,
            path=each.file.path,
            check=finding.check,
            detail=finding.detail,
        )
        for each in verdicts
        for finding in each.findings
    ]
    bad = sum(1 for each in verdicts if each.findings)
    return Summary(
        engine=catalogue.engine,
        commit=catalogue.commit,
        task=task,
        files=len(verdicts),
        bytes=sum(each.size for each in verdicts),
        series=sum(each.series for each in verdicts),
        points=sum(each.points for each in verdicts),
        good=len(verdicts) - bad,
        bad=bad,
        seconds=round(seconds, 3),
        problems=problems,
    )


def text(summary: Summary) -> str:
    """A few lines for a terminal; names in them cannot steer it."""
    lines = [
        f"{summary.files} files, {summary.bytes} bytes, {summary.series} series, "
        f"{summary.points} points: {summary.good} good, {summary.bad} bad "
        f"({summary.seconds:.1f} s)"
    ]
    for each in summary.problems[:SHOWN]:
        lines.append(printable(f"  {each.check}: {each.physical}: {each.detail}"))
    if len(summary.problems) > SHOWN:
        lines.append(f"  and {len(summary.problems) - SHOWN} more problems; see --json or --report")
    return "\n".join(lines)


def write(directory: Path, summary: Summary, verdicts: list[FileVerdict]) -> None:
    """Replace `files.parquet`, `problems.parquet` and `report.json` in `directory`."""
    import pyarrow as pa

    files = pa.Table.from_pylist(
        [
            {
                "physical": each.file.expected.physical,
                "sender": each.file.sender,
                "path": each.file.path,
                "task": each.file.task,
                "size": each.size,
                "md5": each.file.expected.md5,
                "series": each.series,
                "points": each.points,
                "good": not each.findings,
            }
            for each in verdicts
        ],
        schema=pa.schema(
            {
                "physical": pa.string(),
                "sender": pa.string(),
                "path": pa.string(),
                "task": pa.string(),
                "size": pa.int64(),
                "md5": pa.string(),
                "series": pa.int64(),
                "points": pa.int64(),
                "good": pa.bool_(),
            }
        ),
    )
    problems = pa.Table.from_pylist(
        [msgspec.structs.asdict(each) for each in summary.problems],
        schema=pa.schema({name: pa.string() for name in Bad.__struct_fields__}),
    )
    with Tree(directory, create=True) as tree:
        tree.write_atomic("files.parquet", _parquet(files))
        tree.write_atomic("problems.parquet", _parquet(problems))
        tree.write_atomic("report.json", msgspec.json.format(msgspec.json.encode(summary)) + b"\n")


def _parquet(table: object) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()
