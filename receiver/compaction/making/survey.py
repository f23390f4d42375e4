"""What the files of a merge have together: devices, series, tables; what contradicts is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from common.tsfile import DataType, TableColumn, TableSchema
from receiver.compaction.worth_merging.merge_asked import ContradictingFilesError
from receiver.points.index_tables import ChunkTable, chunk_table
from receiver.writing.value_encoding import SAFE

if TYPE_CHECKING:
    from common.tsfile import Device
    from receiver.compaction.making.input_files import InputFile, InputFiles

__all__ = ["SeenDevice", "SeenSeries", "Survey", "survey"]

_MOST_ROWS: Final = 300_000
"""Chunks of which the index is held."""


class SeenSeries:
    """A series of a device.

    Attributes:
        data_type: code.
        file: number of the one that has its last point: it is written as there.
        end: time of that point; None where no file has any.
    """

    __slots__ = ("data_type", "end", "file")

    def __init__(self, data_type: int, file: int, end: int | None) -> None:
        self.data_type, self.file, self.end = data_type, file, end


class SeenDevice:
    """A device that files have.

    Attributes:
        name: as files call it.
        segments: as the first file has them.
        is_table: whether it is of the table model.
        aligned: whether its series share their times.
        files: numbers of those that have it, in order.
        series: by measurement; the time column, whose name is empty, too.
        size: bytes that it takes of the files, about.
        points: of all of them.
        first: time of its first row; None where no file has any.
        last: of its last.
        tables: of its chunks, one a file, in their order; None where they are too many to be held.
    """

    __slots__ = (
        "aligned", "files", "first", "is_table", "last", "name", "points", "segments", "series",
        "size", "tables",
    )  # fmt: skip

    def __init__(self, device: Device) -> None:
        self.name, self.segments = device.name, device.segments
        self.is_table, self.aligned = device.is_table, device.aligned
        self.files: list[int] = []
        self.series: dict[str, SeenSeries] = {}
        self.size, self.points = 0.0, 0
        self.first: int | None = None
        self.last: int | None = None
        self.tables: list[ChunkTable] | None = []

    def meet(self, first: int | None, last: int | None) -> None:
        """A file has rows of it from one time to another; None for none."""
        if first is not None and last is not None:
            self.first = first if self.first is None else min(self.first, first)
            self.last = last if self.last is None else max(self.last, last)


class Survey(NamedTuple):
    """All of them.

    Attributes:
        devices: by name, in its order.
        tables: that devices are of, with the columns that any file has.
        version: of the outputs: 4 if any file is of it.
        points: of all files.
        read_bytes: the same.
    """

    devices: list[SeenDevice]
    tables: list[TableSchema]
    version: int
    points: int
    read_bytes: int


def survey(files: InputFiles) -> Survey:
    """Open each file once, and look at what it has.

    Raises:
        ContradictingFilesError: files have something in ways that exclude each other.
        TsferryError, OSError: see `InputFiles.open`.
    """
    found = _Found(files)
    for number in range(len(files.files)):
        found.take(files.open(number))
    devices = sorted(found.devices.values(), key=lambda each: each.name)
    tables = list(found.tables.values())
    return Survey(devices, tables, found.version, found.points, found.read_bytes)


class _Found:
    def __init__(self, files: InputFiles) -> None:
        self._files = files.files
        self.devices: dict[str, SeenDevice] = {}
        self.tables: dict[str, TableSchema] = {}
        self._table_files: dict[tuple[str, str], int] = {}
        self._rows = 0
        self._model: tuple[int, bool] | None = None
        self.version, self.points, self.read_bytes = 3, 0, 0

    def take(self, file: InputFile) -> None:
        tail = file.reader.tail
        self.version = max(self.version, tail.version or 0)
        self.points += tail.point_count
        self.read_bytes += file.bytes.size
        rows = sum(each.point_count + each.rows for each in tail.devices)
        for device in tail.devices:
            self._take_model(file.number, device)
            known = self.devices.get(device.name)
            if known is None:
                known = self.devices[device.name] = SeenDevice(device)
            self._take(known, file.number, device)
            share = (device.point_count + device.rows) / max(1, rows)
            known.size += share * file.bytes.size
            known.points += device.point_count
            known.meet(device.start, device.end)
        for table in tail.tables:
            self._take_table(file.number, table)

    def _take_model(self, number: int, device: Device) -> None:
        if self._model is None:
            self._model = number, device.is_table
        first, is_table = self._model
        if is_table != device.is_table:
            self._refuse("the model", first, _model(is_table), number, _model(device.is_table))

    def _take(self, known: SeenDevice, number: int, device: Device) -> None:
        if (known.aligned, known.is_table) != (device.aligned, device.is_table):
            self._refuse(
                f"device {device.name}", known.files[0], _kind(known), number, _kind(device)
            )
        known.files.append(number)
        table = chunk_table(device)
        self._hold(known, table)
        for name, code, end in zip(table.names, table.types, table.lasts(), strict=True):
            series = known.series.get(name)
            if series is None:
                if code not in SAFE:
                    raise ContradictingFilesError(
                        f"{self._files[number].physical}: device {device.name}, series {name}: "
                        f"no file is written with the type {_type(code)}"
                    )
                known.series[name] = SeenSeries(code, number, end)
                continue
            if series.data_type != code:
                what = f"device {device.name}, series {name}"
                self._refuse(what, series.file, _type(series.data_type), number, _type(code))
            if end is not None and (series.end is None or end >= series.end):
                series.file, series.end = number, end

    def _hold(self, known: SeenDevice, table: ChunkTable) -> None:
        self._rows += len(table.offsets)
        if known.tables is not None:
            known.tables.append(table)
            if self._rows > _MOST_ROWS:
                known.tables = None

    def _take_table(self, number: int, table: TableSchema) -> None:
        known = self.tables.get(table.name)
        self.tables[table.name] = table if known is None else self._both(known, table, number)
        for column in table.columns:
            self._table_files.setdefault((table.name, column.name), number)

    def _both(self, one: TableSchema, other: TableSchema, number: int) -> TableSchema:
        """A table with the columns of both, in their order, and all of their properties.

        Devices have their tags by place: with two orders of them one would get the other's.
        """
        if not one.agrees_with(other):
            first = self._table_files[one.name, one.tags[-1]]
            ours, theirs = ", ".join(one.tags), ", ".join(other.tags)
            self._refuse(f"the tags of table {one.name}", first, ours, number, theirs)
        known = {each.name: each for each in one.columns}
        for column in other.columns:
            before = known.setdefault(column.name, column)
            if (before.data_type, before.category) != (column.data_type, column.category):
                what = f"table {one.name}, column {column.name}"
                first = self._table_files[one.name, column.name]
                self._refuse(what, first, _category(before), number, _category(column))
            if column.properties:
                properties = dict(before.properties) | dict(column.properties)
                known[column.name] = replace(before, properties=tuple(properties.items()))
        return TableSchema(one.name, tuple(known.values()))

    def _refuse(self, what: str, one: int, ours: str, other: int, theirs: str) -> None:
        raise ContradictingFilesError(
            f"{what}: {ours} in {self._files[one].physical}, "
            f"{theirs} in {self._files[other].physical}: one file cannot hold both"
        )


def _kind(device: SeenDevice | Device) -> str:
    return ("aligned" if device.aligned else "not aligned") + (
        " of a table" if device.is_table else ""
    )


def _model(is_table: bool) -> str:
    return "tables" if is_table else "a tree"


def _type(code: int) -> str:
    return DataType(code).name


def _category(column: TableColumn) -> str:
    return f"{_type(column.data_type)} of the category {column.category}"
