"""What the long and the wide form have in common: from decoded columns to batches of the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from common.errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

    from common.tsfile import Device
    from receiver.points import TsFileReader
    from receiver.spark.source.forms_given.many_files import DeviceTogether, SmallFiles
    from receiver.spark.source.forms_given.merged_device import MergedDevice
    from receiver.spark.source.read_plans.picking import Picker
    from receiver.spark.source.read_plans.read_plan import ReadPlan
    from receiver.spark.source.read_plans.selection import TimeRange
    from receiver.spark.source.read_plans.slicing import Slice

__all__ = ["ARROW_TYPES", "Form", "PieceReader", "arrow_schema", "time_bounds"]

PieceReader: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]
"""Reads a series or a device, as far as one error spoils no other."""

ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
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
_MOST_ROWS: Final = 131_072
_LEAST_ROWS: Final = 256
_TEXT_BYTES: Final = 8 << 20
"""Of a batch, of a name that stands in every row: of a longer name there are fewer rows."""


def arrow_schema(plan: ReadPlan) -> pa.Schema:
    """The plan's columns, as Spark compares them with each batch."""
    return pa.schema([pa.field(each.name, ARROW_TYPES[each.type]) for each in plan.columns])


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

    @abstractmethod
    def rows_at_once(
        self, device: MergedDevice, small: SmallFiles, picker: Picker
    ) -> Iterator[pa.RecordBatch] | None:
        """All rows of a device of small files; None where it is to be read piece by piece.

        All of it has been decoded then. Batches are made one by one: of a result of many columns
        they take many times as much.
        """

    def together(self, device: MergedDevice, small: SmallFiles) -> DeviceTogether | None:
        """A device of small files, if nothing but the rows of the highest ones is asked for."""
        steps = device.ladder.steps
        if self.plan.options.file_column is not None or steps is None or not device.is_plain:
            return None
        return small.together([(each.reader, each.device) for each in device.copies], steps)

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
        if text is None:
            return pa.nulls(rows, pa.string())
        # Not by `pa.repeat`: it imports pandas; see `receiver.points.columns.times_array`.
        content = text.encode()
        offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(content))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content * rows)]
        return pa.Array.from_buffers(pa.string(), rows, buffers, 0)

    def batch(self, found: Mapping[str, Any], rows: int) -> pa.RecordBatch:
        """The columns of the result: those found, and NULL in all others."""
        arrays = []
        for each in self.schema:
            array = found.get(each.name)
            arrays.append(pa.nulls(rows, each.type) if array is None else array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


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
        if each.type != expected or each.type not in ARROW_TYPES:
            known = expected if each.type in ARROW_TYPES else f"one of {', '.join(ARROW_TYPES)}"
            raise UsageError(f"schema: column {each.name} = {each.type}: expected {known}")


def time_bounds(span: TimeRange) -> tuple[int | None, int | None]:
    """The times of a range as readers take them: None without a limit."""
    return (None, None) if span.is_all else (span.start, span.end)
