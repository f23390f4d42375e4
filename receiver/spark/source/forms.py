"""From decoded columns to the rows of the result: long and wide form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from common.errors import UsageError
from common.tsfile import DataType
from receiver.spark.source.picking import row_device, tags_of
from receiver.spark.value_types import LONG_VALUES, type_name, value_column

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from common.tsfile import Device, Series
    from receiver.points import TsFileReader
    from receiver.spark.source.merged_device import MergedDevice
    from receiver.spark.source.picking import Picker
    from receiver.spark.source.read_plan import ReadPlan
    from receiver.spark.source.selection import TimeRange
    from receiver.spark.source.slicing import Slice

__all__ = ["Form", "LongForm", "PieceReader", "WideForm", "arrow_schema", "form_of"]

PieceReader: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]
"""Reads a series or a device, as far as one error spoils no other."""

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
_CELLS: Final = 1 << 21
"""Of a batch, NULLs included: they are sent like all others."""
_MOST_ROWS: Final = 65536
_LEAST_ROWS: Final = 256
_TEXT_BYTES: Final = 8 << 20
"""Of a batch, of a name that stands in every row: of a longer name there are fewer rows."""
_WIDER: Final = frozenset({("int", "bigint"), ("int", "double"), ("float", "double")})
"""Changes of type that keep every value."""


def arrow_schema(plan: ReadPlan) -> pa.Schema:
    """The plan's columns, as Spark compares them with each batch."""
    return pa.schema([pa.field(each.name, _ARROW[each.type]) for each in plan.columns])


def form_of(plan: ReadPlan) -> Form:
    """The form that the options ask for."""
    return LongForm(plan) if plan.options.form == "long" else WideForm(plan)


class Form(ABC):
    """What both have in common; not to be made by itself.

    Attributes:
        plan: of the query.
        schema: of every batch.
        batch_rows: of a batch, at most: of a thousand columns fewer.
    """

    def __init__(self, plan: ReadPlan, types: Mapping[str, str]) -> None:
        """Check the plan's columns; `types` are those of the columns that are no measurements."""
        _check_schema(plan, types)
        self.plan = plan
        self.schema = arrow_schema(plan)
        self.batch_rows = min(_MOST_ROWS, max(_LEAST_ROWS, _CELLS // max(1, len(self.schema))))
        # The same text fills column after column: one array serves them all.
        self._constant = lru_cache(8)(self._make_constant)

    @abstractmethod
    def pieces(
        self, file: TsFileReader, device: Device, part: Slice, picker: Picker
    ) -> Iterator[PieceReader]:
        """What there is to read of a device."""

    @abstractmethod
    def merged_pieces(self, device: MergedDevice, picker: Picker) -> Iterator[PieceReader]:
        """What there is to read of a device that several files have."""

    def files_of(self, device: MergedDevice, origins: npt.NDArray[np.int64] | None) -> pa.Array:
        """The file column of rows that are of several files."""
        return pa.array(device.files, pa.string()).take(pa.array(origins))

    def error_row(self, file: str, device: str | None, said: str) -> pa.RecordBatch:
        """A row that says what was not read, in a column for it."""
        options = self.plan.options
        known = {
            options.error_column: said,
            options.device_column: device,
            options.file_column: file,
        }
        arrays = [
            pa.array([known.get(each.name) if each.type == pa.string() else None], each.type)
            for each in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def rows_with(self, *texts: str | None) -> int:
        """How many rows a batch may have in which these texts stand in every row."""
        longest = max((len(text.encode()) for text in texts if text is not None), default=0)
        return min(self.batch_rows, max(1, _TEXT_BYTES // max(1, longest)))

    def constant(self, text: str | None, rows: int) -> pa.Array:
        """A column of one text."""
        # Rows come in batches of a few sizes, the last one of a series apart.
        whole = self._constant(text, 1 << max(0, rows - 1).bit_length())
        return whole.slice(0, rows)

    @staticmethod
    def _make_constant(text: str | None, rows: int) -> pa.Array:
        return pa.nulls(rows, pa.string()) if text is None else pa.repeat(text, rows)

    def batch(self, found: Mapping[str, Any], rows: int) -> pa.RecordBatch:
        """The columns of the result: those found, and NULL in all others."""
        arrays = []
        for each in self.schema:
            array = found.get(each.name)
            arrays.append(pa.nulls(rows, each.type) if array is None else array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class LongForm(Form):
    """A row a point."""

    def __init__(self, plan: ReadPlan) -> None:
        types = {
            plan.options.device_column: "string",
            "measurement": "string",
            plan.options.time_column: "bigint",
            "data_type": "string",
            **LONG_VALUES,
        }
        super().__init__(plan, types)

    def pieces(
        self, file: TsFileReader, device: Device, part: Slice, picker: Picker
    ) -> Iterator[PieceReader]:
        """The series of a plain device one by one; those of an aligned one share its times."""
        series = list(picker.series(device))
        if device.aligned:
            if series:
                yield partial(self._aligned, file, device, part, series)
            return
        for each in series:
            yield partial(self._plain, file, device, part, each)

    def _plain(
        self, file: TsFileReader, device: Device, part: Slice, series: Series
    ) -> Iterator[pa.RecordBatch]:
        start, end = _bounds(part.span)
        name = series.measurement
        rows = self.rows_with(row_device(device, part.file.database), name, file.name)
        for batch in file.read_series(device, name, start=start, end=end, batch_rows=rows):
            place = row_device(device, part.file.database), file.name
            yield self._points(*place, name, series.data_type, batch.column(0), batch.column(1))

    def _aligned(
        self, file: TsFileReader, device: Device, part: Slice, wanted: Sequence[Series]
    ) -> Iterator[pa.RecordBatch]:
        start, end = _bounds(part.span)
        names = [each.measurement for each in wanted]
        rows = self.rows_with(row_device(device, part.file.database), *names, file.name)
        for batch in file.read_device(device, names, start=start, end=end, batch_rows=rows):
            for at, each in enumerate(wanted, 1):
                times, values = batch.column(0), batch.column(at)
                if values.null_count:
                    there = values.is_valid()
                    times, values = times.filter(there), values.filter(there)
                if len(values):
                    place = row_device(device, part.file.database), file.name
                    yield self._points(*place, each.measurement, each.data_type, times, values)

    def merged_pieces(self, device: MergedDevice, picker: Picker) -> Iterator[PieceReader]:
        """As of one file: series of plain devices one by one."""
        wanted: dict[str, set[int]] = {}
        for copy in device.copies:
            for each in picker.series(copy.device):
                wanted.setdefault(each.measurement, set()).add(int(each.data_type))
        if any(copy.device.aligned for copy in device.copies):
            if wanted:
                yield partial(self._of_several, device, wanted)
            return
        for name, types in wanted.items():
            yield partial(self._of_several, device, {name: types})

    def _of_several(
        self, device: MergedDevice, wanted: Mapping[str, Collection[int]]
    ) -> Iterator[pa.RecordBatch]:
        start, end = _bounds(device.span)
        named = self.plan.options.file_column is not None
        merge = device.merge(list(wanted), origins=named)
        most = self.rows_with(device.name, *wanted, *(device.files if named else ()))
        for rows in merge.rows(start, end, batch_rows=most):
            for at, (name, code) in enumerate(merge.columns):
                values = rows.columns[at]
                if code not in wanted[name] or values.null_count == len(values):
                    continue
                there = values.is_valid()
                files = self.files_of(device, rows.origins[at]).filter(there) if named else ""
                times = pa.array(rows.times).filter(there)
                yield self._points(device.name, files, name, code, times, values.filter(there))

    def _points(
        self,
        device: str,
        file: str | pa.Array,
        measurement: str,
        data_type: int,
        times: pa.Array,
        values: pa.Array,
    ) -> pa.RecordBatch:
        rows, options = len(times), self.plan.options
        column = value_column(data_type, options.text)
        assert column is not None
        found = {
            options.device_column: self.constant(device, rows),
            "measurement": self.constant(measurement, rows),
            options.time_column: times,
            "data_type": self.constant(DataType(data_type).name, rows),
            column: values.cast(_ARROW[LONG_VALUES[column]]),
        }
        if options.file_column is not None:
            is_one = isinstance(file, str)
            found[options.file_column] = self.constant(file, rows) if is_one else file
        return self.batch(found, rows)


class WideForm(Form):
    """A row a time of a device."""

    def __init__(self, plan: ReadPlan) -> None:
        options = plan.options
        types = {options.time_column: "bigint", options.device_column: "string"}
        super().__init__(plan, types)
        own = {
            options.time_column,
            options.device_column,
            options.file_column,
            options.error_column if options.on_error == "row" else None,
        }
        self._fields = {each.name: each.type for each in plan.columns if each.name not in own}
        self._lower = {name.lower(): name for name in self._fields}

    def pieces(
        self, file: TsFileReader, device: Device, part: Slice, picker: Picker
    ) -> Iterator[PieceReader]:
        """A device at once: its rows are made of all its series."""
        yield partial(self._rows, file, device, part, picker)

    def _rows(
        self, file: TsFileReader, device: Device, part: Slice, picker: Picker
    ) -> Iterator[pa.RecordBatch]:
        tags = self._tags(file, device)
        wanted = self._wanted(file, device, picker)
        names = self._decoded(wanted, [device])
        if names is None:
            return
        start, end = _bounds(part.span)
        name = row_device(device, part.file.database)
        rows = self.rows_with(name, *tags.values(), file.name)
        for batch in file.read_device(device, names, start=start, end=end, batch_rows=rows):
            found = {each: batch.column(at) for at, each in enumerate(wanted, 1)}
            yield self._row_batch(name, file.name, tags, batch.column(0), found)

    def merged_pieces(self, device: MergedDevice, picker: Picker) -> Iterator[PieceReader]:
        """The same of several files."""
        yield partial(self._merged_rows, device, picker)

    def _merged_rows(self, device: MergedDevice, picker: Picker) -> Iterator[pa.RecordBatch]:
        tags: dict[str, str | None] = {}
        wanted: dict[str, None] = {}
        for copy in device.copies:
            tags |= self._tags(copy.reader, copy.device)
            wanted |= dict.fromkeys(self._wanted(copy.reader, copy.device, picker))
        names = self._decoded(list(wanted), [copy.device for copy in device.copies])
        if names is None:
            return
        start, end = _bounds(device.span)
        named = self.plan.options.file_column is not None
        merge = device.merge(names, origins=named)
        most = self.rows_with(device.name, *tags.values(), *(device.files if named else ()))
        for rows in merge.rows(start, end, batch_rows=most):
            found: dict[str, pa.Array] = {}
            for (name, _), column in zip(merge.columns, rows.columns, strict=True):
                if name in wanted:  # of several types each row has one
                    cast = column.cast(_ARROW[self._fields[name]])
                    found[name] = pc.coalesce(found[name], cast) if name in found else cast
            files = self.files_of(device, rows.rows) if named else ""
            yield self._row_batch(device.name, files, tags, pa.array(rows.times), found)

    def _wanted(self, file: TsFileReader, device: Device, picker: Picker) -> list[str]:
        """The measurements of a device that are columns of the result."""
        series = [
            each
            for each in device.series()
            if picker.takes_measurement(each.measurement) and each.measurement in self._fields
        ]
        for each in series:
            self._check(each, file, device)
        return [each.measurement for each in series]

    def _decoded(self, wanted: list[str], devices: Sequence[Device]) -> list[str] | None:
        """The measurements that say which rows there are; None if there are none to give."""
        if wanted or devices[0].is_table:
            return wanted
        # A row of the tree model is a time with a value. Without columns each of them counts,
        # with others than this device has none does.
        if self._fields:
            return None
        names = (each.measurement for device in devices for each in device.series())
        return list(dict.fromkeys(names))

    def _row_batch(
        self,
        device: str,
        file: str | pa.Array,
        tags: Mapping[str, str | None],
        times: pa.Array,
        values: Mapping[str, pa.Array],
    ) -> pa.RecordBatch:
        rows, options = len(times), self.plan.options
        found: dict[str, pa.Array] = {
            options.time_column: times,
            options.device_column: self.constant(device, rows),
        }
        if options.file_column is not None:
            is_one = isinstance(file, str)
            found[options.file_column] = self.constant(file, rows) if is_one else file
        for name, tag in tags.items():
            found[name] = self.constant(tag, rows)
        for name, array in values.items():
            found[name] = array.cast(_ARROW[self._fields[name]])
        return self.batch(found, rows)

    def _tags(self, file: TsFileReader, device: Device) -> dict[str, str | None]:
        """Tags of a device of a table, by the names that the result has for them."""
        if not device.is_table:
            return {}
        schema = next((each for each in file.tail.tables if each.name == device.segments[0]), None)
        tags = {} if schema is None else tags_of(device, schema)
        return {
            self._lower[name.lower()]: tag
            for name, tag in tags.items()
            if name.lower() in self._lower
        }

    def _check(self, series: Series, file: TsFileReader, device: Device) -> None:
        found = type_name(series.data_type, self.plan.options.text)
        wanted = self._fields[series.measurement]
        if found != wanted and (found, wanted) not in _WIDER:
            raise UsageError(
                f"{file.name}, device {device.name}: column {series.measurement} is "
                f"{DataType(series.data_type).name} here, which is no {wanted} as in the schema; "
                "expected a schema with a wider type, other devices or columns, or form = 'long'"
            )


def _check_schema(plan: ReadPlan, allowed: Mapping[str, str]) -> None:
    """See that columns have a type they can have; those that are no measurements have one."""
    options = plan.options
    texts = {options.file_column, options.error_column if options.on_error == "row" else None}
    types = {**allowed, **{name: "string" for name in texts if name is not None}}
    for each in plan.columns:
        expected = types.get(each.name, each.type if options.form == "wide" else None)
        if expected is None:
            raise UsageError(
                f"schema: column {each.name}: expected some of {', '.join(types)} in the long form"
            )
        if each.type != expected or each.type not in _ARROW:
            known = expected if each.type in _ARROW else f"one of {', '.join(_ARROW)}"
            raise UsageError(f"schema: column {each.name} = {each.type}: expected {known}")


def _bounds(span: TimeRange) -> tuple[int | None, int | None]:
    return (None, None) if span.is_all else (span.start, span.end)
