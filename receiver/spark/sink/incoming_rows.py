"""Batches as Spark hands them over, as rows to sort: devices and series by number, values typed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import UsageError
from common.tsfile import DataType
from receiver.spark.sink.sorted_rows import Rows
from receiver.spark.value_types import value_column

if TYPE_CHECKING:
    import numpy.typing as npt

    from receiver.spark.sink.device_book import DeviceBook
    from receiver.spark.sink.write_plan import WritePlan

__all__ = ["IncomingRows", "LongRows", "WideRows", "incoming_of", "value_of"]

_ARROW: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.binary(),  # as files have it: what it says is the reader's
    "binary": pa.binary(),
    "date": pa.date32(),
}
_TEXTS: Final = "value_text"
"""The column of texts and of bytes, whichever of the two columns of a row has them."""
_LONG_TYPES: Final = {
    "value_boolean": pa.bool_(),
    "value_long": pa.int64(),
    "value_double": pa.float64(),
    "value_date": pa.date32(),
}
_BYTES: Final = ("value_string", "value_binary")


class IncomingRows(ABC):
    """What both forms have in common."""

    def __init__(self, plan: WritePlan, book: DeviceBook) -> None:
        """Make one for a task."""
        self.plan, self.book = plan, book

    def take(self, batch: pa.RecordBatch) -> Rows:
        """The rows of a batch.

        Raises:
            UsageError: one has no time, or is no row of a device.
            ConflictError: a device is another sender's.
        """
        options = self.plan.options
        times = batch.column(options.time_column)
        if times.null_count:
            raise UsageError(f"column {options.time_column}: NULL in {times.null_count} rows")
        found = np.ascontiguousarray(times.cast(pa.int64()).to_numpy(), np.int64)
        return self._rows(batch, found)

    @abstractmethod
    def _rows(self, batch: pa.RecordBatch, times: npt.NDArray[np.int64]) -> Rows: ...

    def _devices(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        name = self.plan.options.device_column
        devices = batch.column(name)
        if devices.null_count:
            raise UsageError(f"column {name}: NULL in {devices.null_count} rows")
        return self.book.of_names(devices.cast(pa.string()))


class WideRows(IncomingRows):
    """A row a time of a device."""

    def _rows(self, batch: pa.RecordBatch, times: npt.NDArray[np.int64]) -> Rows:
        if self.plan.options.table is None:
            devices = self._devices(batch)
        else:
            tags = [batch.column(each).cast(pa.string()) for each in self.plan.tags]
            devices = self.book.of_tags(tags, len(times))
        columns = {
            each.name: _cast(batch.column(each.name), _ARROW[each.type])
            for each in self.plan.fields
        }
        named = {f"v{at}": columns[each.name] for at, each in enumerate(self.plan.fields)}
        return Rows(devices, np.zeros(len(times), np.int32), times, named)


class LongRows(IncomingRows):
    """A row a point.

    Attributes:
        series: measurement and data type of each, by number.
    """

    def __init__(self, plan: WritePlan, book: DeviceBook) -> None:
        """See `IncomingRows`."""
        super().__init__(plan, book)
        self.series: list[tuple[str, int]] = []
        self._numbers: dict[tuple[str, int], int] = {}

    def _rows(self, batch: pa.RecordBatch, times: npt.NDArray[np.int64]) -> Rows:
        columns = {
            name: _column(batch, name, kind, len(times)) for name, kind in _LONG_TYPES.items()
        }
        texts, content = (_column(batch, name, pa.binary(), len(times)) for name in _BYTES)
        columns[_TEXTS] = pc.coalesce(texts, content)
        return Rows(self._devices(batch), self._series(batch, columns), times, columns)

    def _series(self, batch: pa.RecordBatch, columns: dict[str, pa.Array]) -> npt.NDArray[np.int32]:
        names = batch.column("measurement").cast(pa.string())
        types = batch.column("data_type").cast(pa.string())
        if names.null_count or types.null_count:
            raise UsageError("columns measurement, data_type: NULL in a row")
        found, kinds = names.dictionary_encode(), types.dictionary_encode()
        several = len(kinds.dictionary)
        mixed = found.indices.to_numpy().astype(np.int64) * several + kinds.indices.to_numpy()
        pairs, which = np.unique(mixed, return_inverse=True)
        numbers = np.empty(len(pairs), np.int32)
        for at, pair in enumerate(pairs.tolist()):
            name = found.dictionary[pair // several].as_py()
            code = _code(kinds.dictionary[pair % several].as_py())
            numbers[at] = self._number(name, code)
            there = columns[value_of(code)].filter(pa.array(which == at))
            if there.null_count:
                raise UsageError(
                    f"series {name}: expected a value in {value_column(code)}, data_type is "
                    f"{DataType(code).name}"
                )
        return numbers[which]

    def _number(self, name: str, code: int) -> int:
        number = self._numbers.setdefault((name, code), len(self.series))
        if number == len(self.series):
            self.series.append((name, code))
        return number


def incoming_of(plan: WritePlan, book: DeviceBook) -> WideRows | LongRows:
    """The form that the options say."""
    return LongRows(plan, book) if plan.options.form == "long" else WideRows(plan, book)


def value_of(code: int) -> str:
    """The column of sorted rows that has the values of a data type."""
    column = value_column(code) or ""
    return _TEXTS if column in _BYTES else column


def _code(text: str) -> int:
    if text not in DataType.__members__ or value_column(DataType[text]) is None:
        raise UsageError(f"column data_type: {text!r} is none; expected INT64, DOUBLE, TEXT ...")
    return DataType[text]


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType, rows: int) -> pa.Array:
    at = batch.schema.get_field_index(name)
    return pa.nulls(rows, kind) if at < 0 else _cast(batch.column(at), kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)
