"""The files that real writers made: all there, small, sound, and as many rows as expected."""

from __future__ import annotations

import collections
import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from common.tsfile import DataType, read_tail

FOLDER = Path(__file__).resolve().parents[1] / "data" / "tsfiles"
Entry = dict[str, Any]
Points = collections.Counter[tuple[str, str, str]]

INDEXES = ("index.tsfile.json", "index.iotdb.json")
BUDGETS = {"index.tsfile.json": 250 * 1024, "index.iotdb.json": 350 * 1024}


def entries(index: str) -> list[Entry]:
    path = FOLDER / index
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def files(entry: Entry) -> list[str]:
    """Of an entry; several where the expected rows are those of all of them."""
    return entry["files"] if "files" in entry else [entry["file"]]


EVERY = [
    pytest.param(entry, id=entry["expected"]["file"])
    for index in INDEXES
    for entry in entries(index)
]


def companions(entry: Entry) -> set[str]:
    """All that an entry names, resources included."""
    resources = [f"{name}.resource" for name in files(entry)]
    there = [name for name in resources if (FOLDER / name).is_file()]
    return {*files(entry), entry["expected"]["file"], *(entry["mods"] or []), *there}


def expected_rows(entry: Entry) -> list[list[str]]:
    packed = (FOLDER / entry["expected"]["file"]).read_bytes()
    text = io.StringIO(gzip.decompress(packed).decode("utf-8"), newline="")
    rows = list(csv.reader(text))
    assert rows[0] == ["device", "time", "measurement", "type", "value"]
    return rows[1:]


@pytest.mark.parametrize("index", INDEXES)
def test_all_files_of_an_index_are_there_and_small(index: str) -> None:
    found = entries(index)
    if not found:
        pytest.skip(f"no {index}")
    names = {name for entry in found for name in companions(entry)}
    assert sum((FOLDER / name).stat().st_size for name in names) <= BUDGETS[index]


def test_nothing_lies_beside_what_the_indexes_name() -> None:
    named = {name for index in INDEXES for entry in entries(index) for name in companions(entry)}
    found = {
        path.relative_to(FOLDER).as_posix()
        for path in FOLDER.glob("*/**/*")
        if path.is_file() and path.suffix in (".tsfile", ".gz", ".resource", ".mods", ".mods2")
    }
    assert found - named == set()


def points(entry: Entry) -> Points:
    """By device, measurement and type, as the tails of an entry's files have them."""
    found: Points = collections.Counter()
    for name in files(entry):
        tail = read_tail(FOLDER / name, chunk_headers=True)
        assert tail.complete, tail.reason
        assert tail.version == entry["format"]
        for device, series in tail.series():
            found[device.name, series.measurement, DataType(series.data_type).name] += series.count
    return found


@pytest.mark.slow
@pytest.mark.parametrize("entry", EVERY)
def test_the_tail_has_the_points_that_the_writer_reads(entry: Entry) -> None:
    expected = collections.Counter((row[0], row[2], row[3]) for row in expected_rows(entry))
    found = points(entry)
    if (
        entry["expected"]["deletions"] or len(files(entry)) > 1
    ):  # points may be gone, or written over
        assert expected <= found
    else:
        assert expected == +found


@pytest.mark.parametrize("entry", EVERY)
def test_expected_rows_are_sorted_and_occur_once(entry: Entry) -> None:
    keys = [(row[0], int(row[1]), row[2]) for row in expected_rows(entry)]
    assert keys == sorted(set(keys))
