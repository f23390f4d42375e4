"""Rows of the second tier: each chunk of a file is where its row says, and has what it says."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from common.tsfile.byte_source import source_of
from common.tsfile.chunk_headers import read_header
from common.tsfile.layout import DataType
from common.tsfile.tail import read_tail
from receiver.storage.tree.chunk_rows import chunk_rows
from receiver.storage.tree.tree_tables import CHUNKS, as_parquet, from_parquet, table_of
from tests.support.real_tsfiles import real_file, real_names
from tests.support.tsfile_bytes import build

PHYSICAL = "sequence/root.sg/0/7/1-1-0-0.0000000000000001.tsfile"


def rows_of(content: bytes, physical: str = PHYSICAL) -> list[dict[str, Any]]:
    """As who reads the table has them."""
    known: Any = SimpleNamespace(row=SimpleNamespace(physical=physical, created=12))
    table = table_of(CHUNKS, chunk_rows(content, known.row))
    return from_parquet(as_parquet(table), CHUNKS).to_pylist()


@pytest.mark.parametrize("name", real_names())
def test_each_chunk_of_a_real_file_lies_within_its_bytes(name: str) -> None:
    content = real_file(name)
    tail, file = read_tail(content), source_of(content)
    rows = rows_of(content)
    points = 0
    for row in rows:
        code = DataType[row["data_type"]]
        end = row["offset"] + row["length"]
        assert end <= tail.meta_offset
        read_header(file, row["offset"], row["measurement"], code, end)
        points += row["count"] if code != DataType.VECTOR else 0
    assert points == tail.point_count
    spans = sorted({(row["offset"], row["offset"] + row["length"]) for row in rows})
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    assert {row["device"] for row in rows} == {each.name_in("root.sg") for each in tail.devices}


def test_values_stand_in_the_column_of_their_kind() -> None:
    content = build(
        {
            "root.sg.d": {
                "b": [(1, True), (2, False)],
                "f": [(1, 0.5), (3, -1.5)],
                "i": [(1, 1 << 40), (5, 3)],
                "t": [(1, "y"), (2, "x")],
            }
        }
    )
    rows = {row["measurement"]: row for row in rows_of(content)}
    assert {row["device"] for row in rows.values()} == {"root.sg.d"}
    assert {(row["file"], row["create_at"], row["partition"]) for row in rows.values()} == {
        (PHYSICAL, 12, 7)
    }
    assert (rows["f"]["min_double"], rows["f"]["max_double"], rows["f"]["min_long"]) == (
        -1.5,
        0.5,
        None,
    )
    assert (rows["i"]["min_long"], rows["i"]["max_long"]) == (3, 1 << 40)
    assert (rows["i"]["start_time"], rows["i"]["end_time"], rows["i"]["count"]) == (1, 5, 2)
    assert rows["b"]["sum"] == 1
    assert rows["b"]["min_long"] is None


def test_what_is_no_whole_tsfile_has_no_chunks() -> None:
    content = build({"root.sg.d": {"s": [(1, 1.0)]}})
    assert rows_of(content)
    assert rows_of(content[:-1]) == []
    assert rows_of(b"") == []
