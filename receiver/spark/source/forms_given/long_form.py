"""The long form: a row a point."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from common.tsfile import DataType
from receiver.spark.source.forms_given.forms import ARROW_TYPES, Form, PieceReader, time_bounds
from receiver.spark.source.read_plans.picking import row_device
from receiver.spark.value_types import LONG_VALUES, value_column

if TYPE_CHECKING:
    from common.tsfile import Device, Series
    from receiver.points import TsFileReader
    from receiver.spark.source.forms_given.many_files import SmallFiles
    from receiver.spark.source.forms_given.merged_device import MergedDevice
    from receiver.spark.source.read_plans.picking import Picker
    from receiver.spark.source.read_plans.read_plan import ReadPlan
    from receiver.spark.source.read_plans.slicing import Slice

__all__ = ["LongForm"]


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
        start, end = time_bounds(part.span)
        name = series.measurement
        rows = self.rows_with(row_device(device, part.file.database), name, file.name)
        for batch in file.read_series(device, name, start=start, end=end, batch_rows=rows):
            place = row_device(device, part.file.database), file.name
            yield self._points(*place, name, series.data_type, batch.column(0), batch.column(1))

    def _aligned(
        self, file: TsFileReader, device: Device, part: Slice, wanted: Sequence[Series]
    ) -> Iterator[pa.RecordBatch]:
        start, end = time_bounds(part.span)
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

    def rows_at_once(
        self, device: MergedDevice, small: SmallFiles, picker: Picker
    ) -> Iterator[pa.RecordBatch] | None:
        """The same points, decoded together; without the names of files."""
        together = self.together(device, small)
        if together is None:
            return None
        wanted = [name for name, code in together.types.items() if picker.takes_series(name, code)]
        groups = [wanted] if device.copies[0].device.aligned else [[each] for each in wanted]
        found: list[tuple[list[str], list[pa.RecordBatch]]] = []
        for names in groups if wanted else ():
            most = self.rows_with(device.name, *names)
            batches = together.read(names, time_bounds(device.span), self.plan.options.text, most)
            if batches is None:
                return None
            found.append((names, batches))
        return self._points_of(device.name, together.types, found)

    def _points_of(
        self,
        device: str,
        types: Mapping[str, int],
        found: Sequence[tuple[Sequence[str], Sequence[pa.RecordBatch]]],
    ) -> Iterator[pa.RecordBatch]:
        for names, batches in found:
            for batch in batches:
                for at, name in enumerate(names, 1):
                    there = batch.column(at).is_valid()
                    times, values = (batch.column(each).filter(there) for each in (0, at))
                    if len(values):
                        yield self._points(device, "", name, types[name], times, values)

    def _of_several(
        self, device: MergedDevice, wanted: Mapping[str, Collection[int]]
    ) -> Iterator[pa.RecordBatch]:
        start, end = time_bounds(device.span)
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
            column: values.cast(ARROW_TYPES[LONG_VALUES[column]]),
        }
        if options.file_column is not None:
            is_one = isinstance(file, str)
            found[options.file_column] = self.constant(file, rows) if is_one else file
        return self.batch(found, rows)
