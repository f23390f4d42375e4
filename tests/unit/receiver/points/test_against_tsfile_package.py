"""What the package `tsfile` writes comes back: every type, encoding and compression."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from receiver.points import ChunkSummary, TsFileReader
from tests.support import tiers

tsfile = pytest.importorskip("tsfile")
T, E, C = tsfile.TSDataType, tsfile.TSEncoding, tsfile.Compressor

INTEGERS = (E.PLAIN, E.RLE, E.TS_2DIFF, E.GORILLA, E.ZIGZAG, E.CHIMP, E.SPRINTZ, E.RLBE)
FLOATS = (E.PLAIN, E.TS_2DIFF, E.GORILLA, E.CHIMP, E.SPRINTZ, E.RLBE)
WRITTEN = {
    T.BOOLEAN: (E.PLAIN,),
    T.INT32: INTEGERS,
    T.INT64: INTEGERS,
    T.TIMESTAMP: (E.PLAIN, E.RLE, E.TS_2DIFF, E.GORILLA, E.CHIMP, E.RLBE),
    T.DATE: (E.PLAIN, E.RLE, E.TS_2DIFF, E.GORILLA, E.CHIMP, E.RLBE),
    T.FLOAT: FLOATS,
    T.DOUBLE: (*FLOATS, E.CAMEL),
    T.TEXT: (E.PLAIN, E.DICTIONARY),
    T.STRING: (E.PLAIN, E.DICTIONARY),
    T.BLOB: (E.PLAIN,),
}
COMPRESSIONS = (C.UNCOMPRESSED, C.SNAPPY, C.GZIP, C.LZO, C.LZ4, C.ZSTD, C.LZMA2)
PAIRS = [(kind, encoding) for kind, encodings in WRITTEN.items() for encoding in encodings]
ROUNDED = (E.TS_2DIFF, E.SPRINTZ, E.CAMEL)  # to two places; by large steps; in the last bit
ROWS = 12_000  # a page has 10,000


def values_of(kind: Any, rows: int, rng: random.Random, *, tame: bool = False) -> list[Any]:
    """Values of a type; ``tame`` ones survive the encodings that lose something."""
    if kind == T.BOOLEAN:
        return [rng.random() < 0.5 for _ in range(rows)]
    if kind in (T.FLOAT, T.DOUBLE):
        numbers = [rng.randint(400, 800) / 4 for _ in range(rows)]
        if not tame:
            numbers = [rng.gauss(0, 1000) for _ in range(rows - 4)]
            numbers += [float("nan"), float("inf"), -0.0, 1e-40]
        return np.array(numbers, np.float32 if kind == T.FLOAT else float).tolist()
    if kind in (T.INT32, T.INT64, T.TIMESTAMP):
        limit = 2**20 if tame else 2**31 if kind == T.INT32 else 2**63
        return [rng.randint(-limit, limit - 1) if at % 3 else at for at in range(rows)]
    if kind == T.DATE:
        return [datetime.date(1970, 1, 1) + datetime.timedelta(rng.randint(0, 40_000))] * rows
    if kind == T.BLOB:
        return [rng.randbytes(at % 7) for at in range(rows)]
    return [rng.choice(("", "on", "off", "größe", "设备", "x" * 40)) for _ in range(rows)]


def write(writer: Any, device: str, columns: dict[str, tuple[Any, list[Any]]], rows: int) -> None:
    tablet = tsfile.Tablet(list(columns), [kind for kind, _ in columns.values()], rows)
    tablet.set_table_name(device)
    tablet.set_timestamp_list([at * 7 - 1000 for at in range(rows)])
    tablet.data_list = [values for _, values in columns.values()]
    writer.write_tablet(tablet)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (one != one and other != other) or (one == other and str(one) == str(other))
    return one == other


def checked(path: Path) -> dict[str, dict[str, list[Any]]]:
    """All values by device and column, every chunk proved."""
    found = {}
    with TsFileReader(path) as file:
        for device in file.tail.devices:
            for summary in file.summaries(device):
                assert isinstance(summary, ChunkSummary), summary
            columns: dict[str, list[Any]] = {}
            for batch in file.read_device(device):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    columns.setdefault(name, []).extend(column.to_pylist())
            found[device.name] = columns
    return found


def several_pages(kind: Any, encoding: Any) -> bool:
    """Each type has a second page, and numbers of either kind in what databases use most."""
    if encoding == E.PLAIN:
        return True
    return encoding in (E.TS_2DIFF, E.GORILLA) and (kind in (T.INT64, T.FLOAT) or tiers.is_long())


@pytest.mark.slow
def test_every_type_and_encoding_of_the_tree_model(tmp_path):
    rng = random.Random(1)
    writer = tsfile.TsFileWriter(str(tmp_path / "a.tsfile"))
    wanted = {}
    for kind, encoding in PAIRS:
        device = f"root.{kind.name.lower()}.{encoding.name.lower()}"
        rows = ROWS if several_pages(kind, encoding) else 700
        values = values_of(kind, rows, rng, tame=encoding in ROUNDED)
        writer.register_timeseries(device, tsfile.TimeseriesSchema("s", kind, encoding, C.LZ4))
        write(writer, device, {"s": (kind, values)}, rows)
        wanted[device] = values
    writer.close()
    found = checked(tmp_path / "a.tsfile")
    for device, values in wanted.items():
        assert found[device]["time"] == [at * 7 - 1000 for at in range(len(values))], device
        for at, (one, other) in enumerate(zip(found[device]["s"], values, strict=True)):
            assert same(one, other), (device, at)


@pytest.mark.slow
def test_every_compression(tmp_path):
    rng = random.Random(2)
    writer = tsfile.TsFileWriter(str(tmp_path / "a.tsfile"))
    values = values_of(T.DOUBLE, 2000, rng)
    for compression in COMPRESSIONS:
        schema = tsfile.TimeseriesSchema("s", T.DOUBLE, E.GORILLA, compression)
        writer.register_timeseries(f"root.sg.{compression.name.lower()}", schema)
        write(writer, f"root.sg.{compression.name.lower()}", {"s": (T.DOUBLE, values)}, 2000)
    writer.close()
    found = checked(tmp_path / "a.tsfile")
    assert len(found) == len(COMPRESSIONS)
    for device, columns in found.items():
        assert all(map(same, columns["s"], values)), device


def test_series_of_one_device_are_joined_on_time(tmp_path):
    writer = tsfile.TsFileWriter(str(tmp_path / "a.tsfile"))
    for name in ("a", "b"):
        writer.register_timeseries("root.sg.d", tsfile.TimeseriesSchema(name, T.INT64))
    for name, times in (("a", range(0, 3000, 2)), ("b", range(0, 3000, 3))):
        tablet = tsfile.Tablet([name], [T.INT64], len(times))
        tablet.set_table_name("root.sg.d")
        tablet.set_timestamp_list(list(times))
        tablet.data_list = [list(times)]
        writer.write_tablet(tablet)
    writer.close()
    (columns,) = checked(tmp_path / "a.tsfile").values()
    assert columns["time"] == [t for t in range(3000) if t % 2 == 0 or t % 3 == 0]
    assert columns["a"] == [t if t % 2 == 0 else None for t in columns["time"]]
    assert columns["b"] == [t if t % 3 == 0 else None for t in columns["time"]]


def test_a_table_with_nulls_and_pages_of_nulls(tmp_path):
    rng = random.Random(3)
    kinds = list(WRITTEN)
    tags = [tsfile.ColumnSchema("tag1", T.STRING, tsfile.ColumnCategory.TAG)]
    fields = [tsfile.ColumnSchema(k.name.lower(), k, tsfile.ColumnCategory.FIELD) for k in kinds]
    schema = tsfile.TableSchema("t", tags + fields)
    writer = tsfile.TsFileTableWriter(str(tmp_path / "a.tsfile"), schema)
    columns: dict[str, Any] = {"tag1": (T.STRING, ["p1"] * 22_000)}
    for kind in kinds:
        values = values_of(kind, 22_000, rng, tame=True)
        kept = [rng.random() < 0.7 and not 10_000 <= at < 20_000 for at in range(21_950)]
        kept += [False] * 50
        nulled = [value if keep else None for value, keep in zip(values, kept, strict=True)]
        columns[kind.name.lower()] = (kind, nulled)
    tablet = tsfile.Tablet(list(columns), [kind for kind, _ in columns.values()], 22_000)
    tablet.set_timestamp_list(list(range(22_000)))
    tablet.data_list = [values for _, values in columns.values()]
    writer.write_table(tablet)
    writer.close()
    found = checked(tmp_path / "a.tsfile")
    assert list(found) == ["t:p1"]
    assert found["t:p1"]["time"] == list(range(22_000))
    for kind in kinds:
        name = kind.name.lower()
        assert found["t:p1"][name] == columns[name][1], name


def test_a_device_whose_last_tags_are_null_is_found_by_its_header(tmp_path):
    tags = [f"t{number}" for number in range(150)]
    columns = [tsfile.ColumnSchema(tag, T.STRING, tsfile.ColumnCategory.TAG) for tag in tags]
    columns.append(tsfile.ColumnSchema("v", T.INT64, tsfile.ColumnCategory.FIELD))
    schema = tsfile.TableSchema("plant", columns)
    with tsfile.TsFileTableWriter(str(tmp_path / "a.tsfile"), schema) as writer:
        tablet = tsfile.Tablet([*tags, "v"], [T.STRING] * len(tags) + [T.INT64], 3)
        for row in range(3):
            tablet.add_timestamp(row, row)
            tablet.add_value_by_name("t0", row, "p1")
            tablet.add_value_by_name("v", row, row)
        writer.write_table(tablet)
    assert checked(tmp_path / "a.tsfile") == {"plant:p1": {"time": [0, 1, 2], "v": [0, 1, 2]}}
