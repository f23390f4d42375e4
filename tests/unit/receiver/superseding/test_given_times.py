"""What a file gives by itself: points without nulls and deletions, rows of a table as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receiver.points import TsFileReader
from receiver.points.deleted.deletions import DeletionRecords, Deletions
from receiver.superseding.given_times import given_times
from tests.support.tsfile_bytes import build

ALIGNED = {"root.sg.d1": {"a": [(1, 1), (2, 2), (4, 4)], "b": [(2, 2), (3, 3)]}}
TABLE: Any = {("sensors", "plant1"): {"temp": [(1, 1.0), (3, 3.0)], "hum": [(2, 2.0)]}}


def times(
    tmp_path: Path, content: bytes, *, start: int = 0, end: int = 99, mods: bytes = b""
) -> dict[str, tuple[list[int], int]]:
    path = tmp_path / "1-1-0-0.tsfile"
    path.write_bytes(content)
    with TsFileReader(path) as file:
        own = [DeletionRecords("mods", "mods", mods)] if mods else []
        deletions = Deletions.noted(own, [], file.tail.devices)
        return {
            given.series.measurement: (given.times.tolist(), given.stored)
            for device in file.tail.devices
            for given in given_times(file, device, deletions, start, end)
        }


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_a_null_of_an_aligned_device_is_no_point(tmp_path: Path, chunks: int) -> None:
    content = build(ALIGNED, aligned=["root.sg.d1"], chunks=chunks)
    assert times(tmp_path, content) == {"a": ([1, 2, 4], 3), "b": ([2, 3], 2)}
    assert times(tmp_path, content, start=2, end=3) == {"a": ([2], 1), "b": ([2, 3], 2)}


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_plain_series_has_times_of_its_own(tmp_path: Path, chunks: int) -> None:
    content = build(ALIGNED, version=3, chunks=chunks, page_points=1)
    assert times(tmp_path, content) == {"a": ([1, 2, 4], 3), "b": ([2, 3], 2)}
    assert times(tmp_path, content, start=3) == {"a": ([4], 1), "b": ([3], 1)}


def test_a_row_of_a_table_counts_though_its_columns_are_null(tmp_path: Path) -> None:
    found = times(tmp_path, build(TABLE))
    assert found == {"": ([1, 2, 3], 0), "temp": ([1, 3], 2), "hum": ([2], 1)}


def test_what_was_deleted_is_stored_and_not_given(tmp_path: Path) -> None:
    mods = f"DELETION,root.sg.d1.a,{2**63 - 1},2,3\n".encode()
    content = build(ALIGNED, aligned=["root.sg.d1"])
    assert times(tmp_path, content, mods=mods) == {"a": ([1, 4], 3), "b": ([2, 3], 2)}


def test_a_deletion_leaves_the_chunks_behind_it_alone(tmp_path: Path) -> None:
    content = build({"root.sg.d1": {"a": [(1, 1), (5, 5)]}}, chunks=2)
    path = tmp_path / "x.tsfile"
    path.write_bytes(content)
    with TsFileReader(path) as file:
        (device,) = file.tail.devices
        second = max(chunk.offset for chunk in file.series(device, "a").chunks)
    mods = f"DELETION,root.sg.d1.a,{second},0,9\n".encode()
    assert times(tmp_path, content, mods=mods) == {"a": ([5], 2)}
