"""The inputs of a slice: its files, opened when they are needed, and merged device by device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from common.durable import Closing
from common.errors import Permanent
from common.tsfile import ColumnCategory, DataType, TableColumn, TableSchema
from common.tsfile.device_names import split_database
from receiver.compaction.making.chunk_runs import MergeSpan
from receiver.compaction.making.device_rows import DeviceRows
from receiver.compaction.making.file_standing import FileStanding
from receiver.compaction.making.survey import SeenDevice, SeenSeries
from receiver.metadata.model.ranks import Ladder, cut_in, rank_in
from receiver.points import TsFileReader
from receiver.points.columns import Column, arrow_type
from receiver.points.decoding import Times
from receiver.points.device_merge import DeviceMerge, MergedColumn, MergeSource
from receiver.spark.source.file_opening import FileOpener, MissingFileError
from receiver.spark.source.read_plans.picking import row_device
from receiver.spark.source.read_plans.read_plan import ReadPlan
from receiver.spark.source.read_plans.selection import Selection
from receiver.spark.source.read_plans.slicing import Slice
from receiver.spark.source.read_plans.source_options import SourceOptions
from receiver.writing.arrow_columns import column_of

if TYPE_CHECKING:
    from receiver.exporting.time_slices import TimeSlice
    from receiver.exporting.wanted_points import SchemaSeries, WantedPoints
    from receiver.metadata.model.ranks import Rank
    from receiver.points.encodings import Bytes
    from receiver.spark.finder import DataFile
    from receiver.spark.source.read_plans.selection import TimeRange
    from receiver.writing.chunk_pages import SeriesForm

__all__ = ["MergedInput", "MixedTypesError", "SliceInputs", "both_tables"]

_Places: TypeAlias = npt.NDArray[np.int64]

_MEMORY: Final = 128 << 20
"""Bytes that decoded points of a device take, about."""
_KEPT_OPEN: Final = 200
"""Files; a device that more of them have opens all of its own."""
_WIDER: Final = frozenset({
    (DataType.INT32, DataType.INT64),
    (DataType.FLOAT, DataType.DOUBLE),
    (DataType.TEXT, DataType.STRING),
    (DataType.STRING, DataType.TEXT),
})  # fmt: skip
"""(type, one that holds each of its values and is read as the same)."""


class MixedTypesError(Permanent):
    """Points of a series have types that one file cannot hold together."""

    slug = "mixed-types"


class _OpenFile(NamedTuple):
    """A file that is open.

    Attributes:
        reader: of its points, without what was deleted.
        bytes_a_point: that it takes, about.
        stack: closes it.
    """

    reader: TsFileReader
    bytes_a_point: float
    stack: ExitStack


class MergedInput:
    """A device, and its copies in the files of a slice.

    Attributes:
        name: as a catalogue has it.
        segments: as a file of version 4 has them, of a table.
        is_table: whether it is of one.
        aligned: whether its series share their times.
        types: of each wanted measurement, as it is written.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[MergeSource],
        rows: DeviceRows | None,
        ranks: Sequence[Rank],
        span: TimeRange,
        aligned: bool,
        types: dict[str, int],
    ) -> None:
        """Look at no point yet.

        Args:
            name: see above.
            sources: the files that have it.
            rows: merges them; None where they have it in several ways.
            ranks: of the files.
            span: times that are wanted.
            aligned: see above.
            types: see above.
        """
        device = sources[0].device
        self.name, self.segments, self.is_table = name, device.segments, device.is_table
        self.aligned, self.types = aligned, types
        self._sources, self._rows, self._ranks, self._span = sources, rows, ranks, span

    def points(self, measurement: str) -> Iterator[tuple[Times, Column]]:
        """Those of a series whose times are its own, each time once."""
        if self._rows is not None:
            form = self._forms[measurement]
            for times, (column,), _ in self._rows.points(form, self._merge_span):
                yield times, column
            return
        for times, (column,) in self._of_several([measurement]):
            yield times, column

    def rows(self) -> Iterator[tuple[Times, list[Column]]]:
        """Those of series that share their times, with a column for each of `types`."""
        if self._rows is not None:
            forms = [self._forms[each] for each in self.types]
            for times, columns, _ in self._rows.rows(forms, self._merge_span):
                yield times, columns
            return
        yield from self._of_several(list(self.types))

    @property
    def _merge_span(self) -> MergeSpan:
        return MergeSpan(self._span.start, self._span.end)

    @cached_property
    def _forms(self) -> dict[str, SeriesForm]:
        assert self._rows is not None
        return {form.measurement: form for form in self._rows.forms()}

    def _of_several(self, measurements: Sequence[str]) -> Iterator[tuple[Times, list[Column]]]:
        """Of files that have a series with several types, or only some of them aligned."""
        merge = DeviceMerge(self._sources, Ladder(self._ranks), measurements)
        for found in merge.rows(self._span.start, self._span.end):
            yield (
                found.times,
                [self._column(name, merge.columns, found.columns) for name in measurements],
            )

    def _column(
        self, name: str, columns: Sequence[MergedColumn], arrays: Sequence[pa.Array]
    ) -> Column:
        code = self.types[name]
        found = [
            pc.cast(array, arrow_type(code, "binary"))
            for column, array in zip(columns, arrays, strict=True)
            if column.measurement == name
        ]
        return column_of(found[0] if len(found) == 1 else pc.coalesce(*found), code)


class SliceInputs(Closing):
    """The files of a slice; of those that are open the ones used last are kept."""

    def __init__(self, part: TimeSlice, wanted: WantedPoints, schema: SchemaSeries) -> None:
        """Begin with none open."""
        self._part, self._wanted, self._schema = part, wanted, schema
        options = SourceOptions(catalog="", text="binary")
        self._plan = ReadPlan(options, Selection(part.span), ())
        self._picker = self._plan.picker()
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()
        self._together = 1
        self._ranks = [each.standing for each in part.files]
        self._standing = FileStanding(self._ranks)
        self._columns: dict[tuple[str, str], int] = {}

    def devices(self) -> Iterator[MergedInput]:
        """Those with wanted points, by name.

        Raises:
            TsferryError: a file cannot be read; names it.
            MixedTypesError: see there.
        """
        having: dict[str, list[int]] = {}
        span = self._part.span
        for number, file in enumerate(self._part.files):
            assert file.devices is not None  # or it would be in no slice
            for name, first, last in file.devices.ranges():
                if span.meets(first, last) and self._wanted.takes_device(name):
                    having.setdefault(name, []).append(number)
        for name in sorted(having):
            device = self._device(name, having[name])
            if device.types or device.is_table:
                yield device

    def tables(self) -> list[TableSchema]:
        """The tables of wanted devices, with the columns that any of the files has."""
        found: dict[str, TableSchema] = {}
        for number, file in enumerate(self._part.files):
            names = file.devices or ()
            if not any(each.startswith("/") and self._wanted.takes_device(each) for each in names):
                continue
            reader = self.open(number).reader
            used = {each.segments[0] for each in reader.tail.devices if each.is_table
                    and self._wanted.takes_device(row_device(each, file.database))}  # fmt: skip
            for table in reader.tail.tables:
                if table.name in used:
                    found[table.name] = both_tables(found.get(table.name), table, reader.name)
        return [self._whole(each) for each in found.values()]

    def _whole(self, table: TableSchema) -> TableSchema:
        columns = (
            replace(each, data_type=self._columns.get((table.name, each.name), each.data_type))
            for each in table.columns
        )
        return TableSchema(table.name, tuple(columns))

    def as_whole(self, tables: Mapping[str, TableSchema]) -> None:
        """Have the columns of tables the types that they have in all slices together."""
        self._columns = {
            (name, column.name): column.data_type
            for name, table in tables.items()
            for column in table.columns
        }

    def _device(self, name: str, numbers: Sequence[int]) -> MergedInput:
        self._together = len(numbers)
        sources = []
        for number in numbers:
            reader = self.open(number).reader
            try:
                device = reader.device(split_database(name)[1])
            except KeyError:
                raise MissingFileError(
                    f"{reader.name}: it has no device {name}, as it had when it was loaded"
                ) from None
            sources.append(MergeSource(reader, device))
        aligned = self._schema.is_aligned(name)
        if sources[0].device.is_table or aligned is None:
            aligned = any(each.device.aligned for each in sources)
        ranks, standing = self._ranks_in(name)
        types = self._types(name, sources)
        if sources[0].device.is_table:
            table = sources[0].device.segments[0] or ""
            types = {each: self._columns.get((table, each), types[each]) for each in types}
        seen = self._seen(numbers, sources, aligned, types)
        rows = None if seen is None else DeviceRows(self, standing, seen, _MEMORY)
        mine = [ranks[each] for each in numbers]
        return MergedInput(name, sources, rows, mine, self._part.span, aligned, types)

    def _ranks_in(self, name: str) -> tuple[Sequence[Rank], FileStanding]:
        """How the files stand in a device."""
        if not any(each.cuts for each in self._part.files):
            return self._ranks, self._standing
        ranks = [rank_in(each.standing, cut_in(each.cuts, name)) for each in self._part.files]
        return ranks, FileStanding(ranks)

    def _seen(
        self, numbers: Sequence[int], sources: Sequence[MergeSource], aligned: bool,
        types: Mapping[str, int],
    ) -> SeenDevice | None:  # fmt: skip
        """The device as a merge sees it; None where files have it in several ways."""
        seen = SeenDevice(sources[0].device)
        seen.tables = None
        if any(each.device.aligned != aligned for each in sources):
            return None
        for number, source in zip(numbers, sources, strict=True):
            seen.files.append(number)
            seen.points += source.device.point_count
            seen.size += source.device.point_count * self.open(number).bytes_a_point
            for measurement, series in source.file.columns(source.device).items():
                if measurement and measurement not in types:
                    continue
                code = int(series.data_type)
                if measurement and code != types[measurement]:
                    return None
                seen.series.setdefault(measurement, SeenSeries(code, number, None))
        order = ("", *types)  # columns are given in this order
        seen.series = {each: seen.series[each] for each in order if each in seen.series}
        return seen

    def _types(self, name: str, sources: Sequence[MergeSource]) -> dict[str, int]:
        found: dict[str, dict[int, str]] = {}
        for source in sources:
            for measurement, series in source.file.columns(source.device).items():
                code = series.data_type
                if code != DataType.VECTOR and self._wanted.takes(name, measurement):
                    found.setdefault(measurement, {}).setdefault(int(code), source.file.name)
        return {each: self._type(name, each, found[each]) for each in found}

    def _type(self, device: str, measurement: str, found: dict[int, str]) -> int:
        known = self._schema.of(device, measurement)
        for each in found if known is None else (known.data_type,):
            if all(code == each or (code, each) in _WIDER for code in found):
                return each
        said = ", ".join(f"{DataType(code).name} in {file}" for code, file in found.items())
        path = self._schema.name_of(device, measurement)
        schema = "" if known is None else f"; the schema has {DataType(known.data_type).name}"
        raise MixedTypesError(f"{path}: {said}{schema}: one file cannot hold both")

    # -- what a merge wants of files -------------------------------------------------------------

    def open(self, number: int, together: int = 1) -> _OpenFile:
        """A file opened; so many are needed at once."""
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        while len(self._open) >= max(_KEPT_OPEN, self._together, together):
            self._open.popitem(last=False)[1].stack.close()
        file = self._part.files[number]
        with ExitStack() as stack:
            reader = self._opened(file, stack)
            points = max(1, reader.tail.point_count)
            self._open[number] = _OpenFile(reader, file.size / points, stack.pop_all())
        return self._open[number]

    def gather(
        self, numbers: _Places, offsets: _Places, likely: _Places
    ) -> tuple[Bytes, _Places, _Places]:
        """See `MergeFiles`."""
        wanted = zip(numbers.tolist(), offsets.tolist(), likely.tolist(), strict=True)
        parts = [self.open(number).reader.data(*place) for number, *place in wanted]
        sizes = np.array([len(each) for each in parts], np.int64)
        ends = np.cumsum(sizes, dtype=np.int64)
        return np.frombuffer(b"".join(parts), np.uint8), ends - sizes, ends

    def _opened(self, file: DataFile, stack: ExitStack) -> TsFileReader:
        part = Slice(file, self._part.span)
        try:
            with FileOpener([part], self._plan, self._picker) as opener:
                return opener.open(file, part, stack)
        except OSError as error:
            raise MissingFileError(f"{file.name}: {error}") from error

    def close(self) -> None:
        """Close all."""
        while self._open:
            self._open.popitem()[1].stack.close()


def both_tables(one: TableSchema | None, other: TableSchema, where: str) -> TableSchema:
    """A table with the columns of two files, in their order.

    Args:
        one: of the files so far; None of the first.
        other: of one more.
        where: its name.

    Raises:
        MixedTypesError: their devices have other tags by the same place, or a column is something
            else.
    """
    if one is None:
        return other
    if not one.agrees_with(other):
        raise MixedTypesError(
            f"table {one.name}: it has the tags {', '.join(one.tags)}, and in {where} "
            f"{', '.join(other.tags)}: one table cannot have both"
        )
    known = {each.name: each for each in one.columns}
    for column in other.columns:
        before = known.setdefault(column.name, column)
        code = _common_type(before.data_type, column.data_type)
        if code is None or before.category != column.category:
            raise MixedTypesError(
                f"table {one.name}, column {column.name}: {_column(before)}, and in {where} "
                f"{_column(column)}: one table cannot have both"
            )
        known[column.name] = replace(before, data_type=code)
    return TableSchema(one.name, tuple(known.values()))


def _common_type(one: int, other: int) -> int | None:
    for code, wider in ((one, other), (other, one)):
        if code == wider or (code, wider) in _WIDER:
            return wider
    return None


def _column(column: TableColumn) -> str:
    return f"{DataType(column.data_type).name} {ColumnCategory(column.category).name}"
