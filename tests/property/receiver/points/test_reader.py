"""Any points, however they are cut into chunks and pages, come back as they were."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from receiver.points import ChunkSummary, TsFileReader
from tests.support import tiers
from tests.support.expected_rows import comparable
from tests.support.tsfile_bytes import build

DEVICE = "root.sg.d1"
VALUES = {
    "BOOLEAN": st.booleans(),
    "INT32": st.integers(-(2**31), 2**31 - 1),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "TIMESTAMP": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False, width=32),
    "TEXT": st.text(max_size=8),
    "STRING": st.text(max_size=8),
    "BLOB": st.binary(max_size=8),
}


@st.composite
def series(draw: st.DrawFn) -> tuple[str, list[tuple[int, Any]]]:
    kind = draw(st.sampled_from(sorted(VALUES)))
    times = draw(st.sets(st.integers(-(2**40), 2**40), min_size=1, max_size=60))
    return kind, [(time, draw(VALUES[kind])) for time in sorted(times)]


@settings(max_examples=tiers.examples(30), suppress_health_check=list(HealthCheck))
@given(
    columns=st.lists(series(), min_size=1, max_size=4),
    version=st.sampled_from([3, 4]),
    aligned=st.booleans(),
    chunks=st.integers(1, 4),
    page_points=st.integers(1, 30),
    bounds=st.tuples(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40)),
    batch_rows=st.integers(1, 100),
)
def test_what_was_written_is_read(
    columns, version, aligned, chunks, page_points, bounds, batch_rows
):
    points = {f"s{at}": list(each) for at, (_, each) in enumerate(columns)}
    kinds = {f"s{at}": kind for at, (kind, _) in enumerate(columns)}
    content = build(
        {DEVICE: points},
        types=kinds,
        version=version,
        aligned=[DEVICE] if aligned else [],
        chunks=chunks,
        page_points=page_points,
    )
    start, end = min(bounds), max(bounds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tsfile"
        path.write_bytes(content)
        with TsFileReader(path) as file:
            device = file.device(DEVICE)
            assert all(isinstance(each, ChunkSummary) for each in file.summaries(device))
            for name, wanted in points.items():
                assert read_series(file, name) == normal(wanted)
                inside = [point for point in wanted if start <= point[0] <= end]
                assert read_series(file, name, start=start, end=end) == normal(inside)
            assert read_rows(file, start, end, batch_rows) == joined(points, start, end)


def read_series(file: TsFileReader, name: str, **options: int) -> list[tuple[int, Any]]:
    return [
        point
        for batch in file.read_series(DEVICE, name, **options)
        for point in zip(
            batch.column(0).to_pylist(), comparable(batch.column(1).to_pylist()), strict=True
        )
    ]


def read_rows(file: TsFileReader, start: int, end: int, batch_rows: int) -> dict[int, dict]:
    rows: dict[int, dict] = {}
    for batch in file.read_device(DEVICE, start=start, end=end, batch_rows=batch_rows):
        assert 0 < batch.num_rows <= batch_rows
        for row in batch.to_pylist():
            time = row.pop("time")
            assert not rows or time > max(rows)
            kept = {name: value for name, value in row.items() if value is not None}
            rows[time] = dict(zip(kept, comparable(kept.values()), strict=True))
    return rows


def joined(points: dict[str, list[tuple[int, Any]]], start: int, end: int) -> dict[int, dict]:
    rows: dict[int, dict] = {}
    for name, each in points.items():
        for time, value in normal(each):
            if start <= time <= end:
                rows.setdefault(time, {})[name] = value
    return rows


def normal(points: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    values = comparable(value for _, value in points)
    return [(time, value) for (time, _), value in zip(points, values, strict=True)]
