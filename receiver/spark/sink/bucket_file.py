"""The TsFile of a bucket: all devices of a task's rows in one storage group and partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from common.errors import ConflictError, UsageError
from common.tsfile import ColumnCategory, Compression, DataType, TableColumn, TableSchema
from receiver.spark.sink.incoming_rows import LongRows, value_of
from receiver.spark.sink.ordered_rows import RepeatedTimeError, ordered, side_by_side
from receiver.spark.sink.sorted_rows import TIME
from receiver.spark.sink.write_plan import fits
from receiver.writing.arrow_columns import column_of
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.tsfile_writer import TsFileWriter
from receiver.writing.value_encoding import SAFE

if TYPE_CHECKING:
    import numpy.typing as npt

    from receiver.spark.sink.device_book import SinkDevice
    from receiver.spark.sink.incoming_rows import WideRows
    from receiver.spark.sink.sorted_rows import SortedSlice

__all__ = ["write_bucket"]

_NARROW: Final = {DataType.INT32: pa.int32(), DataType.FLOAT: pa.float32()}
"""Types whose values stand in a wider column of the long form."""

_Pieces = Iterator[tuple["npt.NDArray[np.int64]", pa.Array]]
_Numbered = Mapping[int, Sequence["SortedSlice"]]


def write_bucket(
    rows: WideRows | LongRows,
    devices: _Numbered,
    write: Callable[[bytes], object],
) -> bool:
    """Write the file of a bucket; False if there is no point and no row of a table in it.

    Args:
        rows: that the slices are of.
        devices: their slices by number.
        write: takes the bytes of the file, in order.

    Raises:
        ConflictError: a type is another than the receiver knows, or a time comes twice.
        UsageError: a value is none of its type.
    """
    source = _Long(rows) if isinstance(rows, LongRows) else _Wide(rows)
    known = rows.book.devices
    series = {number: source.series(known[number], slices) for number, slices in devices.items()}
    series = {number: each for number, each in series.items() if each or known[number].is_table}
    if not series:
        return False
    tables = _tables([(known[number], each) for number, each in series.items()], rows)
    writer = TsFileWriter(write, version=4, tables=tables)
    for number, types in series.items():
        device = known[number]
        try:
            if device.aligned:
                _aligned(writer, source, device, devices[number], types)
            else:
                _plain(writer, source, device, devices[number], types)
        except RepeatedTimeError as error:
            raise ConflictError(
                f"device {device.name}: time {error.at} comes twice in the rows of a task; "
                "nothing is written"
            ) from error
    writer.finish()
    return True


def _plain(
    writer: TsFileWriter,
    source: _Wide | _Long,
    device: SinkDevice,
    slices: Sequence[SortedSlice],
    types: Mapping[str, int],
) -> None:
    with writer.plain_device(device.segments) as target:
        for name, code in types.items():
            form = _form(name, code)
            for times, values in source.points(device, slices, name, code):
                target.write(form, times, column_of(values, code))


def _aligned(
    writer: TsFileWriter,
    source: _Wide | _Long,
    device: SinkDevice,
    slices: Sequence[SortedSlice],
    types: Mapping[str, int],
) -> None:
    forms = [_form(name, code) for name, code in types.items()]
    with writer.aligned_device(device.segments, forms) as target:
        for times, values in source.rows(device, slices, types):
            target.write(
                times, [column_of(values[each.measurement], each.data_type) for each in forms]
            )


def _form(name: str, code: int) -> SeriesForm:
    return SeriesForm(name, code, int(SAFE[code]), int(Compression.LZ4))


# -- forms of rows -------------------------------------------------------------------------------


class _Wide:
    """A row a time of a device."""

    def __init__(self, rows: WideRows) -> None:
        self._fields = rows.plan.fields
        self._places = {each.name: f"v{at}" for at, each in enumerate(rows.plan.fields)}

    def series(self, device: SinkDevice, slices: Sequence[SortedSlice]) -> dict[str, int]:
        """Those that have a value in these rows, and their types."""
        found: dict[str, int] = {}
        for field in self._fields:
            if not any(_has_values(each, self._places[field.name]) for each in slices):
                continue
            code = device.type_of(field.name)
            if code is None:
                code = field.data_type
            elif not fits(code, field.type):
                raise ConflictError(
                    f"device {device.name}, series {field.name}: {field.type} in the rows, "
                    f"{DataType(code).name} at the receiver; nothing is written"
                )
            found[field.name] = code
        return found

    def points(
        self, device: SinkDevice, slices: Sequence[SortedSlice], name: str, code: int
    ) -> _Pieces:
        """Those of a series."""
        place = self._places[name]
        for piece in ordered(slices, [place]):
            values = _whole(piece.column(place))
            if not values.null_count:
                yield piece.column(TIME).to_numpy(), values
            elif values.null_count < len(values):
                times = piece.column(TIME).filter(values.is_valid()).to_numpy()
                yield times, values.drop_null()

    def rows(
        self, device: SinkDevice, slices: Sequence[SortedSlice], types: Mapping[str, int]
    ) -> Iterator[tuple[npt.NDArray[np.int64], dict[str, pa.Array]]]:
        """All of them; of the tree model those with a value."""
        places = [self._places[name] for name in types]
        for piece in ordered(slices, places):
            values = {name: _whole(piece.column(self._places[name])) for name in types}
            times = piece.column(TIME).to_numpy()
            if not device.is_table:
                there = np.zeros(len(times), np.bool_)
                for each in values.values():
                    there |= np.asarray(each.is_valid())
                if not there.all():
                    times = times[there]
                    kept = pa.array(there)
                    values = {name: each.filter(kept) for name, each in values.items()}
            yield times, values


class _Long:
    """A row a point."""

    def __init__(self, rows: LongRows) -> None:
        self._series = rows.series

    def series(self, device: SinkDevice, slices: Sequence[SortedSlice]) -> dict[str, int]:
        """Those of these rows, and their types."""
        found: dict[str, int] = {}
        for number in dict.fromkeys(each.series for each in slices):
            name, code = self._series[number]
            if found.setdefault(name, code) != code:
                raise ConflictError(
                    f"device {device.name}, series {name}: {DataType(found[name]).name} and "
                    f"{DataType(code).name} in the rows; nothing is written"
                )
            device.check(name, code)
        return found

    def points(
        self, device: SinkDevice, slices: Sequence[SortedSlice], name: str, code: int
    ) -> _Pieces:
        """Those of a series."""
        place = value_of(code)
        mine = [each for each in slices if self._series[each.series] == (name, code)]
        for piece in ordered(mine, [place]):
            values = _narrowed(_whole(piece.column(place)), code, f"{device.name}, series {name}")
            yield piece.column(TIME).to_numpy(), values

    def rows(
        self, device: SinkDevice, slices: Sequence[SortedSlice], types: Mapping[str, int]
    ) -> Iterator[tuple[npt.NDArray[np.int64], dict[str, pa.Array]]]:
        """Points of one time as a row."""
        streams = {name: self.points(device, slices, name, code) for name, code in types.items()}
        schema = slices[0].table.schema
        kinds = {
            name: _NARROW.get(DataType(code), schema.field(value_of(code)).type)
            for name, code in types.items()
        }
        for times, found in side_by_side(streams):
            yield (
                times,
                {
                    name: found[name] if name in found else pa.nulls(len(times), kind)
                    for name, kind in kinds.items()
                },
            )


def _has_values(rows: SortedSlice, place: str) -> bool:
    column = rows.table.column(place).slice(rows.begin, rows.end - rows.begin)
    return bool(column.null_count < len(column))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _narrowed(values: pa.Array, code: int, what: str) -> pa.Array:
    """Values of a long form's column in the type of their series, if all of them are of it."""
    kind = _NARROW.get(DataType(code))
    if kind is None:
        return values
    try:
        narrow = values.cast(kind, safe=code == DataType.INT32)
    except pa.ArrowInvalid as error:
        raise UsageError(f"device {what}: a value is no INT32: {error}") from error
    if code == DataType.FLOAT:
        wide, back = values.to_numpy(), narrow.to_numpy().astype(np.float64)
        if not np.array_equal(wide, back, equal_nan=True):
            raise UsageError(
                f"device {what}: a value is no FLOAT exactly: expected data_type DOUBLE, or "
                "cast(value_double as float)"
            )
    return narrow


# -- tables --------------------------------------------------------------------------------------


def _tables(
    series: Sequence[tuple[SinkDevice, Mapping[str, int]]], rows: WideRows | LongRows
) -> list[TableSchema]:
    """The tables of devices, with the columns of all of them."""
    found: dict[str, dict[str, int]] = {}
    for device, types in series:
        if device.is_table:
            columns = found.setdefault(device.segments[0] or "", {})
            for name, code in types.items():
                if columns.setdefault(name, code) != code:
                    raise ConflictError(
                        f"table {device.segments[0]}, column {name}: {DataType(code).name} and "
                        f"{DataType(columns[name]).name}; nothing is written"
                    )
    tag = partial(_column, category=ColumnCategory.TAG)
    field = partial(_column, category=ColumnCategory.FIELD)
    order = {each.name: at for at, each in enumerate(rows.plan.fields)}
    tags = rows.plan.tags or rows.plan.options.tag_columns or ()
    return [
        TableSchema(
            table,
            (
                *(tag(each, DataType.STRING) for each in tags),
                *(
                    field(name, columns[name])
                    for name in sorted(columns, key=lambda x: order.get(x, 0))
                ),
            ),
        )
        for table, columns in found.items()
    ]


def _column(name: str, code: int, *, category: ColumnCategory) -> TableColumn:
    return TableColumn(name, code, int(SAFE[code]), int(Compression.LZ4), int(category))
