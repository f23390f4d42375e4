"""Results of verification runs, made up: for the report, which is built of nothing else."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from receiver.spark.report.results import (
    ChunkResult,
    CodecTotal,
    DayCount,
    DeviceSpan,
    Duplicates,
    FileResult,
    Finding,
    Judgement,
    Severity,
    Verification,
    to_arrow,
)

BEGUN = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
SENDER = "a" * 32
_DAY = 86_400_000
_GROUPS = ("root.wind.north", "root.wind.south", "root.plant")


def finding(severity: Severity, check: str = "md5", **changed: Any) -> Finding:
    """One finding of the whole file, but for what is given."""
    empty = Finding(severity, check, None, None, None, f"what {check} found")
    return replace(empty, **changed)


def file(
    name: str = "sequence/root.wind.north/0/0/1-1-0-0.tsfile",
    verdict: Judgement = Judgement.PROVED,
    findings: Sequence[Finding] = (),
    **changed: Any,
) -> FileResult:
    """One file; loaded an hour after its last point."""
    last = int(BEGUN.timestamp() * 1000)
    made = FileResult(
        physical=name, sender=SENDER, sender_label="north", path=name, task="b" * 32,
        kind="sequence", storage_group="root.wind.north", partition=0, size=123_456, md5="c" * 32,
        format_version=3, devices=3, series=30, points=30_000, chunks=30, pages=60,
        first_time=last - _DAY, last_time=last, loaded_commit=7,
        loaded_at=BEGUN + datetime.timedelta(hours=1), verdict=verdict, findings=tuple(findings),
        seconds=0.25,
    )  # fmt: skip
    return replace(made, **changed)


def span(device: str, gap: int | None, **changed: Any) -> DeviceSpan:
    """A device that is heard once a second, but for one gap."""
    made = DeviceSpan(device, "sequence/x.tsfile", "sequence", 0, _DAY, 86_400, 1000, gap, 5_000)
    return replace(made, **changed)


def run(files: Sequence[FileResult] = (), **changed: Any) -> Verification:
    """A run over some files, with nothing to say beyond them."""
    chunk = ChunkResult(
        "sequence/x.tsfile", "root.wind.north.d1", "speed", False, "DOUBLE", "GORILLA", "LZ4",
        42, 2, 1000, 0, 999, -1.5, 2.5, 12.25, "0" * 16,
    )  # fmt: skip
    made = Verification(
        engine="d" * 32, commit=99, scope="all files", time_unit="ms", begun=BEGUN, seconds=2.5,
        master="local[2]", files=tuple(files), days=(), codecs=(), gaps=(), duplicates=(),
        passed_over=0, chunks=lambda: _batches(ChunkResult, [chunk]),
        spans=lambda: _batches(DeviceSpan, [span("root.wind.north.d1", 7_000)]),
    )  # fmt: skip
    return replace(made, **changed)


def rich(seed: int = 1) -> Verification:
    """A run in which everything happens, of a size that is a pleasure to look at."""
    rng = random.Random(seed)
    files = []
    for number in range(60):
        group = rng.choice(_GROUPS)
        begun = BEGUN - datetime.timedelta(days=rng.uniform(0, 60))
        last = int(begun.timestamp() * 1000)
        files.append(
            file(
                f"sequence/{group}/0/{number // 10}/17{number:011}-{number}-0-0.tsfile",
                size=int(rng.lognormvariate(13, 2)), storage_group=group,
                points=rng.randrange(1_000, 900_000), first_time=last - _DAY, last_time=last,
                loaded_at=begun + datetime.timedelta(seconds=rng.lognormvariate(7, 2.5)),
            )
        )  # fmt: skip
    files[3] = replace(
        files[3],
        verdict=Judgement.BAD,
        findings=(
            finding(Severity.BAD, "md5", detail=f"{'1' * 32}, {'c' * 32} was loaded"),
            finding(
                Severity.BAD, "statistics", device="root.wind.north.turbine_07",
                measurement="rotor_speed", offset=48_213,
                detail="max 17.25 in page 3, its statistics have 11.5",
            ),
        ),
    )  # fmt: skip
    files[8] = replace(
        files[8],
        verdict=Judgement.UNPROVED,
        findings=(finding(Severity.UNPROVED, "encrypted", detail="its pages are encrypted"),),
    )
    files[9] = replace(
        files[9],
        findings=(
            finding(
                Severity.PROBLEM, "overlap", device="root.plant.<script>alert(1)</script>",
                detail="begins at 10, but sequence/root.plant/0/0/5-5-0-0.tsfile reaches 20",
            ),
            finding(Severity.NOTE, "codec", device="root.plant.d", measurement="s",
                    detail="RLE, LZ4 in the file; the schema has TS_2DIFF, LZ4"),
        ),
    )  # fmt: skip
    days = [
        DayCount(group, BEGUN.date() - datetime.timedelta(days=day), rng.randrange(10**5, 10**6))
        for group in _GROUPS
        for day in range(62)
        if rng.random() > 0.1 and day not in (20, 21, 22)
    ]
    return run(
        files,
        days=tuple(sorted(days, key=lambda each: (each.storage_group, str(each.day)))),
        codecs=(
            CodecTotal("DOUBLE", "GORILLA", "LZ4", 812, 9_812_331, 31_233_221),
            CodecTotal("INT32", "TS_2DIFF", "LZ4", 301, 2_100_001, 2_310_003),
            CodecTotal("BOOLEAN", "RLE", "SNAPPY", 20, 0, 800),
        ),
        gaps=tuple(
            span(f"root.wind.north.turbine_{n:02}", int(rng.lognormvariate(14, 1.5)))
            for n in range(20)
        ),
        duplicates=(
            Duplicates("root.plant.d", "s", files[0].physical, files[1].physical, 17, 1000, 18000),
            Duplicates("root.plant.d", "t", files[0].physical, files[1].physical, None, None, None),
        ),
        passed_over=12,
    )


def _batches(kind: type[Any], rows: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    return iter(to_arrow(kind, iter(rows)).to_batches())
