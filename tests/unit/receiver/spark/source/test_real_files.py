"""Files of real databases and libraries, read long, give the rows that the database gave."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.slicing import plan
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices

FOLDER = Path(__file__).resolve().parents[4] / "data/tsfiles"
CASES = ("plain_types", "table_types", "late", "deletions", "table_deletions")
"""What the form and the cutting can spoil; that every file of every writer is decoded right, and
without what was deleted, is tested beside the decoders."""
ENTRIES = [
    entry
    for index in sorted(FOLDER.glob("index.*.json"))
    for entry in json.loads(index.read_text())
    if entry["expected"] is not None
    and entry["writer"] == "iotdb-2.0.1-beta"
    and Path(entry["expected"]["file"]).name.partition(".")[0] in CASES
]


def name(entry: dict[str, Any]) -> str:
    shown = entry.get("file") or entry["files"][0]
    return f"{shown}{'-deleted' if entry['expected']['deletions'] else ''}"


def expected_rows(entry: dict[str, Any]) -> dict[tuple[str, str, int], tuple[str, str]]:
    text = gzip.decompress((FOLDER / entry["expected"]["file"]).read_bytes()).decode()
    return {
        (row["device"], row["measurement"], int(row["time"])): (
            row["type"], repr(_value(row["type"], row["value"])),
        )
        for row in csv.DictReader(io.StringIO(text, newline=""))
    }  # fmt: skip


def _value(kind: str, text: str) -> Any:
    if kind == "BOOLEAN":
        return text == "true"
    if kind in ("FLOAT", "DOUBLE"):
        return float.fromhex(text)
    if kind in ("TEXT", "STRING"):
        return json.loads(text)
    if kind == "BLOB":
        return bytes.fromhex(text)
    if kind == "DATE":
        return datetime.date(int(text) // 10000, int(text) // 100 % 100, int(text) % 100)
    return int(text)


def read_rows(entry: dict[str, Any]) -> dict[tuple[str, str, int], tuple[str, str]]:
    """By the source's own planning and reading; where files overlap, the later one counts."""
    found: dict[tuple[str, str, int], tuple[str, str]] = {}
    for file in entry.get("files") or [entry["file"]]:
        given = {"path": str(FOLDER / file), "form": "long", "partitionBytes": "64KiB"}
        options = parse_options(
            {**given, "deletions": str(bool(entry["expected"]["deletions"])).lower()}
        )
        query = plan_of(options, columns_of(options))
        parts = plan(
            list_sources(options), query.selection.span, 1 << 16, query.picker(), read_tail_of
        )
        for part in parts:
            for batch in read_slices(part, query):
                for row in batch.to_pylist():
                    (value,) = [
                        value
                        for key, value in row.items()
                        if key.startswith("value_") and value is not None
                    ]
                    key = row["device"], row["measurement"], row["time"]
                    found[key] = row["data_type"], repr(value)
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=name)
def test_the_long_rows_are_those_of_the_database(entry: dict[str, Any]) -> None:
    expected, found = expected_rows(entry), read_rows(entry)
    assert found.keys() == expected.keys()
    assert {key: (found[key], expected[key]) for key in found if found[key] != expected[key]} == {}
