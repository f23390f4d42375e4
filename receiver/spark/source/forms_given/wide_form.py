"""The wide form: a row a time of a device, a column a measurement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from common.errors import UsageError
from common.tsfile import DataType
from receiver.spark.source.forms_given.forms import ARROW_TYPES, Form, PieceReader, time_bounds
from receiver.spark.source.read_plans.picking import row_device, tags_of
from receiver.spark.value_types import type_name

if TYPE_CHECKING:
    from common.tsfile import Device, Series
    from receiver.points import TsFileReader
    from receiver.spark.source.forms_given.many_files import SmallFiles
    from receiver.spark.source.forms_given.merged_device import MergedDevice
    from receiver.spark.source.read_plans.picking import Picker
    from receiver.spark.source.read_plans.read_plan import ReadPlan
    from receiver.spark.source.read_plans.slicing import Slice

__all__ = ["WideForm"]

_WIDER: Final = frozenset({("int", "bigint"), ("int", "double"), ("float", "double")})
"""Changes of type that keep every value."""


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
        start, end = time_bounds(part.span)
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
        start, end = time_bounds(device.span)
        named = self.plan.options.file_column is not None
        merge = device.merge(names, origins=named)
        most = self.rows_with(device.name, *tags.values(), *(device.files if named else ()))
        for rows in merge.rows(start, end, batch_rows=most):
            found: dict[str, pa.Array] = {}
            for (name, _), column in zip(merge.columns, rows.columns, strict=True):
                if name in wanted:  # of several types each row has one
                    cast = column.cast(ARROW_TYPES[self._fields[name]])
                    found[name] = pc.coalesce(found[name], cast) if name in found else cast
            files = self.files_of(device, rows.rows) if named else ""
            yield self._row_batch(device.name, files, tags, pa.array(rows.times), found)

    def rows_at_once(
        self, device: MergedDevice, small: SmallFiles, picker: Picker
    ) -> Iterator[pa.RecordBatch] | None:
        """The same rows, decoded together; without the names of files."""
        together = self.together(device, small)
        if together is None:
            return None
        wanted = [
            each
            for each in together.types
            if picker.takes_measurement(each) and each in self._fields
        ]
        if not all(self._fits(together.types[each], each) for each in wanted):
            return None
        names = wanted
        if not wanted and not device.is_table:  # see `_decoded`
            if self._fields:
                return iter(())
            names = list(together.types)
        every = [self._tags(copy.reader, copy.device) for copy in device.copies]
        tags = {name: tag for each in every for name, tag in each.items()}
        if any(each.get(name) != tag for each in every for name, tag in tags.items()):
            return None  # a table that was made anew has its tags under other names
        most = self.rows_with(device.name, *tags.values())
        batches = together.read(names, time_bounds(device.span), self.plan.options.text, most)
        if batches is None:
            return None
        columns = list(enumerate(wanted, 1))
        return (
            self._row_batch(
                device.name,
                "",
                tags,
                each.column(0),
                {name: each.column(at) for at, name in columns},
            )
            for each in batches
        )

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
            found[name] = array.cast(ARROW_TYPES[self._fields[name]])
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

    def _fits(self, data_type: int, measurement: str) -> bool:
        """Whether values of a type can stand in the column of a measurement."""
        found = type_name(data_type, self.plan.options.text)
        wanted = self._fields[measurement]
        return found == wanted or (found, wanted) in _WIDER

    def _check(self, series: Series, file: TsFileReader, device: Device) -> None:
        wanted = self._fields[series.measurement]
        if not self._fits(series.data_type, series.measurement):
            raise UsageError(
                f"{file.name}, device {device.name}: column {series.measurement} is "
                f"{DataType(series.data_type).name} here, which is no {wanted} as in the schema; "
                "expected a schema with a wider type, other devices or columns, or form = 'long'"
            )
