"""What real writers wrote decodes to exactly the rows that they themselves read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.tsfile import Device
from receiver.points import ChunkSummary, TsFileReader, UnsupportedData
from receiver.points.deleted.deletions import Deletions
from tests.support.expected_rows import RealFile, bare, comparable, expected_rows, real_files

FILES = [real for real in real_files() if not real.encrypted]
ENCRYPTED = [real for real in real_files() if real.encrypted]
PATHS = sorted({path for real in FILES for path in real.paths})
Points = dict[tuple[str, str], dict[int, Any]]


def test_there_are_real_files_of_several_writers():
    assert len({real.writer for real in FILES}) >= 4


@pytest.mark.few(50)
@pytest.mark.parametrize("real", FILES, ids=str)
@pytest.mark.parametrize("form", ["series", "rows"])
def test_the_points_are_those_that_its_writer_reads(real: RealFile, form: str):
    found: Points = {}
    for path in real.paths:
        deletions = Deletions.beside(path) if real.deletions else None
        with TsFileReader(path, deletions=deletions) as file:
            for device in file.tail.devices:
                read = _by_series(file, device) if form == "series" else _by_rows(file, device)
                for measurement, time, value in read:
                    found.setdefault((device.name, bare(measurement)), {})[time] = value
    got = {key: sorted(points.items()) for key, points in found.items()}
    wanted = expected_rows(real)
    assert got.keys() == wanted.keys()
    for key, points in wanted.items():
        if key[1].endswith("gorilla_v1"):
            got[key] = _cut_off_by_nan(got[key], points)
        assert got[key] == points, key


def _cut_off_by_nan(points: list[tuple[int, Any]], wanted: list[tuple[int, Any]]) -> Any:
    """GORILLA_V1 ends with NaN: the Java readers give NaN for all that follows one in a page.

    What was written, and what the statistics are made of, is what we read.
    """
    lost = {time for time, value in wanted if value == "NaN"}
    if lost:
        assert any(value == "NaN" for time, value in points if time in lost)
    return [(time, "NaN" if time in lost else value) for time, value in points]


def _by_series(file: TsFileReader, device: Device) -> Iterator[tuple[str, int, Any]]:
    for series in device.series():
        for batch in file.read_series(device, series.measurement):
            times, values = (column.to_pylist() for column in batch.columns)
            for time, value in zip(times, comparable(values), strict=True):
                yield series.measurement, time, value


def _by_rows(file: TsFileReader, device: Device) -> Iterator[tuple[str, int, Any]]:
    for batch in file.read_device(device, batch_rows=100):
        times = batch.column(0).to_pylist()
        assert times == sorted(set(times))
        for name, column in zip(batch.schema.names[1:], batch.columns[1:], strict=True):
            for time, value in zip(times, comparable(column.to_pylist()), strict=True):
                if value is not None:
                    yield name, time, value


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_chunk_is_what_the_file_says_of_it(path: Path):
    with TsFileReader(path) as file:
        for device in file.tail.devices:
            counts: dict[str, int] = {}
            for found in file.summaries(device):
                assert isinstance(found, ChunkSummary), found
                points = counts.get(found.measurement, 0) + found.statistics.count
                counts[found.measurement] = points
            for series in device.series():
                assert counts.get(series.measurement, 0) == series.count


@pytest.mark.parametrize("real", ENCRYPTED, ids=str)
def test_encrypted_pages_are_named_as_such(real: RealFile):
    with TsFileReader(real.paths[0]) as file:
        for device in file.tail.devices:
            with pytest.raises(UnsupportedData, match="encrypted"):
                list(file.read_device(device))
            found = list(file.summaries(device))
            assert found
            assert all(isinstance(each, UnsupportedData) for each in found)
