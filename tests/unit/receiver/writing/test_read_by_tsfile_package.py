"""Another reader, the package `tsfile` in C++, finds in our files what we wrote into them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.live.written_files import KNOWS, TABLE, tables, tree

tsfile = pytest.importorskip("tsfile")

ROWS = 1_000
NOT_READ = {"boolean_rle", "int64_rle", "timestamp_rle", "date_zigzag", "timestamp_zigzag"}
"""The package has no such encodings, and takes a repeated INT64, of servers' files too, for
another."""
SOME = re.compile(r"root\.w\.((plain|aligned)\..*|many\.d(0|255|256|299)\..*|wide\.s(0|255|256))")
FIRST, LAST = -(2**63) + 1, 2**63 - 1


def plain(value: Any, of: str) -> Any:
    """As the package has it."""
    if value is None or of in ("blob", "boolean"):
        return value
    if isinstance(value, float):
        return "NaN" if value != value else (value, str(value))
    if isinstance(value, bytes):
        return value.decode()
    if of == "date":
        return value if isinstance(value, int) else int(f"{value:%Y%m%d}")
    return value


@pytest.mark.slow
def test_series_of_every_type_and_encoding(tmp_path: Path):
    path = tmp_path / "a.tsfile"
    written = tree(KNOWS["2.0"], path)
    reader = tsfile.TsFileReader(str(path))
    assert len(reader.get_all_timeseries_schemas()) == 303
    for (device, measurement), points in written.items():
        if not SOME.fullmatch(f"{device}.{measurement}") or measurement in NOT_READ:
            continue
        kind = measurement.split("_")[0]
        found = {}
        with reader.query_timeseries(device, [measurement], FIRST, LAST) as rows:
            while rows.next():
                value = rows.get_value_by_index(2)
                if value is not None:
                    found[rows.get_value_by_index(1)] = plain(value, kind)
        assert found == {at: plain(value, kind) for at, value in points.items()}, measurement
    reader.close()


def test_rows_of_a_table(tmp_path: Path):
    path = tmp_path / "a.tsfile"
    written = tables(path)
    reader = tsfile.TsFileReader(str(path))
    columns = [column.name for column in TABLE.columns]
    found = {}
    with reader.query_table(TABLE.name, columns, FIRST, LAST, batch_size=4096) as rows:
        while (batch := rows.read_arrow_batch()) is not None:
            for row in batch.to_pylist():
                key = row["site"], row["unit"], row["time"]
                found[key] = tuple(plain(row[name], "") for name in columns[2:])
    reader.close()
    assert found == {key: tuple(plain(each, "") for each in row) for key, row in written.items()}
