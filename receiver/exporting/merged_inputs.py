"""The inputs of a slice: its files, opened when they are needed, and merged device by device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from common.durable import Closing
from common.errors import Permanent
from common.tsfile import DataType, TableSchema
from common.tsfile.device_names import split_database
from receiver.metadata.model.ranks import Ladder, cut_in, rank_in
from receiver.points import TsFileReader
from receiver.points.columns import arrow_type
from receiver.points.decoding import Times
from receiver.points.device_merge import DeviceMerge, MergedColumn, MergeSource
from receiver.spark.source.file_opening import FileOpener, MissingFileError
from receiver.spark.source.picking import row_device
from receiver.spark.source.read_plan import ReadPlan
from receiver.spark.source.selection import Selection
from receiver.spark.source.slicing import Slice
from receiver.spark.source.source_options import SourceOptions

if TYPE_CHECKING:
    from receiver.exporting.time_slices import TimeSlice
    from receiver.exporting.wanted_points import SchemaSeries, WantedPoints
    from receiver.spark.finder import DataFile

__all__ = ["MergedInput", "MixedTypesError", "SliceInputs"]

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


@dataclass(frozen=True, slots=True)
class MergedInput:
    """A device, and its copies in the files of a slice.

    Attributes:
        name: as a catalogue has it.
        segments: as a file of version 4 has them, of a table.
        is_table: whether it is of one.
        aligned: whether its series share their times.
        types: of each wanted measurement, as it is written.
    """

    name: str
    segments: tuple[str | None, ...]
    is_table: bool
    aligned: bool
    types: dict[str, int]
    _sources: tuple[MergeSource, ...]
    _ladder: Ladder
    _slice: TimeSlice

    def rows(self, measurements: Sequence[str]) -> Iterator[tuple[Times, list[pa.Array]]]:
        """Times, and a column for each of some measurements, each time once."""
        merge = DeviceMerge(self._sources, self._ladder, measurements)
        span = self._slice.span
        for found in merge.rows(span.start, span.end):
            yield (
                found.times,
                [self._column(name, merge.columns, found.columns) for name in measurements],
            )

    def _column(
        self, name: str, columns: Sequence[MergedColumn], arrays: Sequence[pa.Array]
    ) -> pa.Array:
        """The values of a measurement that files may have with several types."""
        kind = arrow_type(self.types[name], "binary")
        found = [
            pc.cast(array, kind)
            for column, array in zip(columns, arrays, strict=True)
            if column.measurement == name
        ]
        return found[0] if len(found) == 1 else pc.coalesce(*found)


class SliceInputs(Closing):
    """The files of a slice; of those that are open the ones used last are kept."""

    def __init__(self, part: TimeSlice, wanted: WantedPoints, schema: SchemaSeries) -> None:
        """Begin with none open."""
        self._part, self._wanted, self._schema = part, wanted, schema
        options = SourceOptions(catalog="", text="binary")
        self._plan = ReadPlan(options, Selection(part.span), ())
        self._picker = self._plan.picker()
        self._open: OrderedDict[int, tuple[TsFileReader, ExitStack]] = OrderedDict()

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
            reader = self._reader(number, 1)
            used = {each.segments[0] for each in reader.tail.devices if each.is_table
                    and self._wanted.takes_device(row_device(each, file.database))}  # fmt: skip
            for table in reader.tail.tables:
                if table.name in used:
                    found[table.name] = _both(found.get(table.name), table)
        return list(found.values())

    def _device(self, name: str, numbers: Sequence[int]) -> MergedInput:
        files = [self._part.files[each] for each in numbers]
        sources = []
        for number, file in zip(numbers, files, strict=True):
            reader = self._reader(number, len(numbers))
            try:
                device = reader.device(split_database(name)[1])
            except KeyError:
                raise MissingFileError(
                    f"{file.name}: it has no device {name}, as it had when it was loaded"
                ) from None
            sources.append(MergeSource(reader, device))
        first = sources[0].device
        aligned = self._schema.is_aligned(name)
        if first.is_table or aligned is None:
            aligned = any(each.device.aligned for each in sources)
        ladder = Ladder([rank_in(each.standing, cut_in(each.cuts, name)) for each in files])
        types = self._types(name, sources)
        return MergedInput(
            name, first.segments, first.is_table, aligned, types, tuple(sources), ladder, self._part
        )

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

    def _reader(self, number: int, together: int) -> TsFileReader:
        """A file opened; so many are needed at once."""
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number][0]
        while len(self._open) >= max(_KEPT_OPEN, together):
            self._open.popitem(last=False)[1][1].close()
        file = self._part.files[number]
        with ExitStack() as stack:
            reader = self._opened(file, stack)
            self._open[number] = reader, stack.pop_all()
        return reader

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
            self._open.popitem()[1][1].close()


def _both(one: TableSchema | None, other: TableSchema) -> TableSchema:
    """A table with the columns of two files, in their order."""
    if one is None:
        return other
    known = {each.name for each in one.columns}
    return TableSchema(
        one.name, (*one.columns, *(each for each in other.columns if each.name not in known))
    )
