"""Files that we write for real servers to load, and the points that are in them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.tsfile import ColumnCategory, Compression, DataType, Encoding, TableColumn, TableSchema
from common.tsfile.device_names import device_segments
from receiver.points import Binaries, Column
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.page_cuts import Cuts
from receiver.writing.tsfile_writer import TsFileWriter
from receiver.writing.value_encoding import written_as

SMALL = Cuts(page_points=97, page_bytes=700, page_texts=1, chunk_points=400, group_bytes=20_000)
BEGIN, ROWS = 1_700_000_000_000, 1_000
TABLE = TableSchema(
    "written",
    tuple(
        TableColumn(name, code, Encoding.PLAIN, Compression.LZ4, category)
        for name, code, category in (
            ("site", DataType.STRING, ColumnCategory.TAG),
            ("unit", DataType.STRING, ColumnCategory.TAG),
            ("running", DataType.BOOLEAN, ColumnCategory.FIELD),
            ("heat", DataType.DOUBLE, ColumnCategory.FIELD),
            ("word", DataType.STRING, ColumnCategory.FIELD),
        )
    ),
)

Points = dict[int, Any]
Written = dict[tuple[str, str], Points]
"""(device, measurement) -> time -> value: bool, int, float (of 32 bits as Python has it), bytes."""


@dataclasses.dataclass(frozen=True)
class Knows:
    """What a version of the database reads."""

    version: int
    encodings: Sequence[Encoding]
    compressions: Sequence[Compression]
    types: Sequence[DataType]
    aligned: bool


_FIRST = (DataType.BOOLEAN, DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE)
_OLD = (Encoding.PLAIN, Encoding.RLE, Encoding.TS_2DIFF, Encoding.GORILLA)
_PACKED = (Compression.SNAPPY, Compression.LZ4, Compression.GZIP, Compression.UNCOMPRESSED)
KNOWS = {
    "0.12": Knows(3, _OLD, _PACKED, (*_FIRST, DataType.TEXT), False),
    "1.0": Knows(
        3,
        (*_OLD, Encoding.ZIGZAG, Encoding.DICTIONARY),
        _PACKED,
        (*_FIRST, DataType.TEXT),
        True,
    ),
    "2.0": Knows(
        4,
        (*_OLD, Encoding.ZIGZAG, Encoding.DICTIONARY, Encoding.CHIMP),
        (*_PACKED, Compression.ZSTD, Compression.LZMA2),
        (*_FIRST, DataType.TEXT, DataType.STRING, DataType.BLOB, DataType.DATE, DataType.TIMESTAMP),
        True,
    ),
}
_SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, 1e-40, 3e38]


def tree(knows: Knows, into: Path, group: str = "root.w") -> Written:
    """A file of the tree model with every type, encoding and compression that a server knows."""
    chance = np.random.default_rng(7)
    times = BEGIN + np.cumsum(chance.integers(1, 5_000, ROWS))
    written: Written = {}
    with into.open("wb") as file:
        writer = TsFileWriter(file.write, version=knows.version, cuts=SMALL)
        codes = itertools.cycle(knows.compressions)
        forms = [
            SeriesForm(f"{code.name.lower()}_{encoding.name.lower()}", code, encoding, next(codes))
            for code in knows.types
            for encoding in knows.encodings
            if written_as(encoding, code) == encoding
        ]
        with writer.plain_device(device_segments(f"{group}.plain", knows.version)) as device:
            for form in forms:
                column = values(form.data_type, ROWS, chance)
                device.write(form, times, column)
                written[f"{group}.plain", form.measurement] = points(times, column)
        if knows.aligned:
            written |= _aligned(writer, knows, f"{group}.aligned", forms, times, chance)
        written |= _many(writer, knows, group)
        writer.finish()
    return written


def _aligned(
    writer: TsFileWriter,
    knows: Knows,
    name: str,
    forms: Sequence[SeriesForm],
    times: Any,
    chance: np.random.Generator,
) -> Written:
    """The same with nulls, pages of them, and a column that has nothing else."""
    empty = SeriesForm("empty", DataType.INT32, Encoding.TS_2DIFF, Compression.SNAPPY)
    written: Written = {}
    with writer.aligned_device(device_segments(name, knows.version), [*forms, empty]) as device:
        columns = []
        for form in forms:
            valid = chance.random(ROWS) < 0.6
            valid[300:600] = False  # whole pages, but no chunk
            column = values(form.data_type, ROWS, chance, valid)
            columns.append(column)
            written[name, form.measurement] = points(times, column)
        columns.append(values(DataType.INT32, ROWS, chance, np.zeros(ROWS, np.bool_)))
        device.write(times, columns)
    return written


def _many(writer: TsFileWriter, knows: Knows, group: str) -> Written:
    """More devices, and more series of one, than a node of the index has children."""
    written: Written = {}
    form = SeriesForm("s", DataType.INT64, Encoding.TS_2DIFF, Compression.SNAPPY)
    times = np.array([BEGIN, BEGIN + 1], np.int64)
    for number in range(300):
        name = f"{group}.many.d{number}"
        column = Column(DataType.INT64, np.array([number, -number], np.int64))
        with writer.plain_device(device_segments(name, knows.version)) as device:
            device.write(form, times, column)
        written[name, "s"] = points(times, column)
    name = f"{group}.wide"
    with writer.plain_device(device_segments(name, knows.version)) as device:
        for number in range(300):
            column = Column(DataType.INT64, np.array([number, -number], np.int64))
            device.write(form._replace(measurement=f"s{number}"), times, column)
            written[name, f"s{number}"] = points(times, column)
    return written


def tables(into: Path) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """A file of a table: (site, unit, time) -> (running, heat, word)."""
    chance = np.random.default_rng(8)
    times = BEGIN + 1_000 * np.arange(ROWS, dtype=np.int64)
    codes = (
        (Encoding.PLAIN, Compression.LZ4),
        (Encoding.GORILLA, Compression.SNAPPY),
        (Encoding.DICTIONARY, Compression.ZSTD),
    )
    forms = [
        SeriesForm(each.name, each.data_type, *pair)
        for each, pair in zip(TABLE.columns[2:], codes, strict=True)
    ]
    written = {}
    with into.open("wb") as file:
        writer = TsFileWriter(file.write, version=4, tables=[TABLE], cuts=SMALL)
        for tags in ((), (None, "u1"), ("", "u1"), ("north",), ("north", "u1"), ("größe", "a b")):
            with writer.aligned_device(("written", *tags), forms) as device:
                columns = [
                    values(form.data_type, ROWS, chance, chance.random(ROWS) < 0.7)
                    for form in forms
                ]
                device.write(times, columns)
            cells = [points(times, column) for column in columns]
            site, unit = (*tags, None, None)[:2]
            for at in times.tolist():
                written[site, unit, at] = tuple(each.get(at) for each in cells)
        writer.finish()
    return written


def values(code: DataType, rows: int, chance: np.random.Generator, valid: Any = None) -> Column:
    """Some of a type: steps, runs, extremes."""
    if code == DataType.BOOLEAN:
        found: Any = (chance.random(rows) < 0.5).astype(np.uint8)
    elif code == DataType.DATE:
        found = 20_000_101 + chance.integers(0, 12, rows) * 100 + chance.integers(0, 28, rows)
        found = found.astype(np.int32)
    elif code in (DataType.FLOAT, DataType.DOUBLE):
        found = np.round(np.cumsum(chance.normal(0, 0.3, rows)), 2)
        found[50 : 50 + len(_SPECIAL)] = _SPECIAL
        found = found.astype(np.float32 if code == DataType.FLOAT else np.float64)
    elif code in (DataType.TEXT, DataType.STRING, DataType.BLOB):
        words = [b"", b"on", b"off", "größe".encode(), b"x" * 300]
        chosen = [words[at] for at in chance.integers(0, len(words), rows)]
        if valid is not None:
            chosen = [each if there else b"" for each, there in zip(chosen, valid, strict=True)]
        offsets = np.cumsum([0, *map(len, chosen)], dtype=np.int32)
        found = Binaries(offsets, np.frombuffer(b"".join(chosen), np.uint8))
    else:
        dtype = np.int32 if code == DataType.INT32 else np.int64
        found = np.cumsum(chance.integers(-9, 9, rows)).astype(dtype)
        found[60:90] = 5
        found[90:93] = np.iinfo(dtype).max, np.iinfo(dtype).min, 0
    return Column(code, found, valid)


def points(times: Any, column: Column) -> Points:
    """Time -> value, without the nulls."""
    valid = np.ones(len(times), np.bool_) if column.valid is None else column.valid
    found = column.values
    listed = (
        [found[at] for at in range(len(found))]
        if isinstance(found, Binaries)
        else found.astype(np.bool_).tolist()
        if column.data_type == DataType.BOOLEAN
        else found.tolist()
    )
    return {
        at: value for at, value, there in zip(times.tolist(), listed, valid, strict=True) if there
    }
