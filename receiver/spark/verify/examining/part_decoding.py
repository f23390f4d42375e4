"""Decoding every page of a file's devices, and what is counted on the way.

`TsFileReader.summaries` decodes and compares with what pages and chunks say of themselves. Here its
summaries are counted, its errors become findings, and the times that pass by are looked at once:
points a day, and the steps of one series of each device (its time column, or the longest series).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from common.tsfile import Compression, DataType, Encoding
from receiver.points.errors import DamagedData, UnsupportedData
from receiver.points.reader import TsFileReader
from receiver.spark.report.results import ChunkResult, CodecTotal, Severity, arrow_schema
from receiver.spark.verify.examining.parts import PartSpan
from receiver.spark.work import spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from enum import IntEnum

    from common.tsfile import Device, Tail
    from common.tsfile.byte_source import ByteSource
    from receiver.points.chunks import ChunkSummary, Int64s, PointBlock
    from receiver.spark.verify.examining.findings import Findings

__all__ = ["DAY", "DecodedPart", "decode", "share"]

DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
"""Units of a time in a day."""
_SAMPLE = 1000
"""Steps of each page that the typical interval is taken from."""
_LONGEST = (1 << 63) - 1
"""The longest gap that is told; times can be further apart."""
_BLOCK = 4 << 20
_ROWS_AT_ONCE = 50_000


def share(tail: Tail, part: int, parts: int) -> Sequence[Device]:
    """The devices that a part decodes: about as many points as each of the others.

    Args:
        tail: of the file.
        part: 1 to `parts`; 0 with `parts` 0 for all devices.
        parts: how many share the devices.
    """
    if not parts:
        return tail.devices
    return spread(tail.devices, parts, lambda device: device.point_count)[part - 1]


def decode(
    source: ByteSource,
    tail: Tail,
    devices: Sequence[Device],
    names: Mapping[str, str],
    found: Findings,
    decoded: DecodedPart,
) -> None:
    """Decode devices of an open file.

    Args:
        source: reads the file.
        tail: of it.
        devices: which of its devices.
        names: of the devices in the catalogue, by their names in the file.
        found: gets what is wrong.
        decoded: gets what is counted, as far as it goes.

    Raises:
        OSError: the file cannot be read.
        Corrupt: it ends before it should.
    """
    with TsFileReader(source, name=decoded.physical, tail=tail) as reader:
        for device in devices:
            name = names[device.name]
            decoded.begin(name, device)
            for each in reader.summaries(device, observe=decoded.observe):
                if isinstance(each, DamagedData):
                    decoded.forget()
                    _report(found, Severity.BAD, "pages", name, each)
                elif isinstance(each, UnsupportedData):
                    decoded.forget()
                    _report(found, Severity.UNPROVED, "unsupported", name, each)
                else:
                    decoded.take(each, source)
            decoded.end()


def _report(
    found: Findings,
    severity: Severity,
    check: str,
    device: str,
    error: DamagedData | UnsupportedData,
) -> None:
    place = error.place
    page = "" if place.page is None else f"page {place.page}: "
    found.add(
        severity,
        check,
        f"{page}{error.reason}",
        device=device,
        measurement=place.measurement,
        offset=place.chunk if place.offset is None else place.offset,
    )


class DecodedPart:
    """What was decoded of a part so far."""

    def __init__(self, physical: str, unit: str, *, keep_chunks: bool = False) -> None:
        """Begin with nothing.

        Args:
            physical: of the file.
            unit: of its times.
            keep_chunks: keep a row for each chunk.
        """
        self.physical = physical
        self.points = self.chunks = self.pages = 0
        self.days: dict[int, int] = {}
        self.gaps: dict[str, PartSpan] = {}
        """By device, of those with two points at least."""
        self._day = DAY[unit]
        self._codecs: dict[tuple[int, int, int], list[int]] = {}
        self._keeper = _Chunks() if keep_chunks else None
        self._pending: dict[int, int] = {}
        self._device = ""
        self._aligned = False
        self._steps = _Steps("")

    def begin(self, name: str, device: Device) -> None:
        """What comes next is of this device."""
        self._device, self._aligned = name, device.aligned
        self._steps = _Steps(_reference(device))

    def end(self) -> None:
        """The device is done."""
        span = self._steps.span(self._device)
        if span is not None:
            self.gaps[self._device] = span

    def observe(self, measurement: str, block: PointBlock) -> None:
        """Look at rows that were decoded just now; see `points.whole_chunks.Observer`."""
        times = block.times
        if not len(times):
            return
        if measurement == self._steps.measurement:
            self._steps.look(times)
        if block.column is None:
            return
        pending = self._pending
        first, last = int(times[0]) // self._day, int(times[-1]) // self._day
        if first == last:
            pending[first] = pending.get(first, 0) + block.column.points
            return
        days, starts = _midnights(times, first, last, self._day)
        valid = block.column.valid
        if valid is None:
            counts = np.diff(starts, append=len(times))
        else:
            counts = np.add.reduceat(valid.astype(np.int64), starts)
        for day, count in zip(days.tolist(), counts.tolist(), strict=True):
            pending[day] = pending.get(day, 0) + count

    def forget(self) -> None:
        """The chunk that was decoded just now is not good."""
        self._pending.clear()

    def take(self, chunk: ChunkSummary, source: ByteSource) -> None:
        """The chunk that was decoded just now is good."""
        for day, count in self._pending.items():
            self.days[day] = self.days.get(day, 0) + count
        self._pending.clear()
        count = chunk.statistics.count
        self.chunks += 1
        self.pages += chunk.pages
        if chunk.data_type != DataType.VECTOR:
            self.points += count
        codec = (chunk.data_type, chunk.encoding, chunk.compression)
        total = self._codecs.setdefault(codec, [0, 0, 0])
        total[0] += 1
        total[1] += count
        total[2] += chunk.end - chunk.offset
        if self._keeper is not None:
            self._keeper.add(self.physical, self._device, self._aligned, chunk, source)

    def codec_totals(self) -> list[CodecTotal]:
        """What was decoded, by type, encoding and compression."""
        return [CodecTotal(*_codec_names(*codec), *total) for codec, total in self._codecs.items()]

    def chunk_table(self) -> pa.Table | None:
        """The rows of `ChunkResult`, if they were kept."""
        return None if self._keeper is None else self._keeper.table()


class _Chunks:
    """Rows of `ChunkResult`, most of them in Arrow's compact form."""

    def __init__(self) -> None:
        self._schema = arrow_schema(ChunkResult)
        self._columns: list[list[Any]] = [[] for _ in self._schema]
        self._batches: list[pa.RecordBatch] = []

    def add(
        self, physical: str, device: str, aligned: bool, chunk: ChunkSummary, source: ByteSource
    ) -> None:
        said = chunk.statistics
        row = (
            physical,
            device,
            chunk.measurement,
            aligned,
            *_codec_names(chunk.data_type, chunk.encoding, chunk.compression),
            chunk.offset,
            chunk.pages,
            said.count,
            said.start if said.count else None,
            said.end if said.count else None,
            _double(said.min, said.count),
            _double(said.max, said.count),
            _double(said.sum, said.count),
            _digest(source, chunk.offset, chunk.end),
        )
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        if len(self._columns[0]) >= _ROWS_AT_ONCE:
            self._flush()

    def table(self) -> pa.Table:
        self._flush()
        return pa.Table.from_batches(self._batches, schema=self._schema)

    def _flush(self) -> None:
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(self._columns, self._schema, strict=True)
        ]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        for column in self._columns:
            column.clear()


def _midnights(times: Int64s, first: int, last: int, day: int) -> tuple[Int64s, Int64s]:
    """The days that times are in, and where in them each begins; times ascend."""
    if last - first < len(times):  # few days: find where they begin
        days = np.arange(first, last + 1, dtype=np.int64)
        starts = np.concatenate(([0], np.searchsorted(times, days[1:] * day)))
        filled = np.flatnonzero(np.diff(starts, append=len(times)))
        return days[filled], starts[filled].astype(np.int64)
    every = times // day
    starts = np.concatenate(([0], np.flatnonzero(np.diff(every)) + 1))
    return every[starts], starts


class _Steps:
    """The steps between the times of one series of one device."""

    def __init__(self, measurement: str) -> None:
        self.measurement = measurement
        self._last: int | None = None
        self._gap = 0
        self._begins = 0
        self._medians: list[float] = []

    def look(self, times: Int64s) -> None:
        first, last = int(times[0]), int(times[-1])
        if self._last is not None:
            self._note(first - self._last, self._last)
        if len(times) > 1:
            steps = np.diff(times.view(np.uint64))  # times grow, so a step may have 64 bits
            widest = int(np.argmax(steps))
            self._note(int(steps[widest]), int(times[widest]))
            self._medians.append(float(np.median(steps[:_SAMPLE])))
        self._last = last

    def _note(self, step: int, begins: int) -> None:
        if step > self._gap:
            self._gap, self._begins = min(step, _LONGEST), begins

    def span(self, device: str) -> PartSpan | None:
        if not self._gap:
            return None
        typical = round(float(np.median(self._medians))) if self._medians else self._gap
        typical = min(typical, _LONGEST)
        return PartSpan(device, None, None, 0, typical, self._gap, self._begins)


def _reference(device: Device) -> str:
    """The series whose times stand for the device's."""
    if device.aligned:
        return ""
    longest = max(device.series(), key=lambda series: series.count, default=None)
    return "" if longest is None else longest.measurement


def _codec_names(data_type: int, encoding: int, compression: int) -> tuple[str, str, str]:
    return (
        _name(DataType, data_type),
        _name(Encoding, encoding),
        _name(Compression, compression),
    )


def _name(kind: type[IntEnum], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return str(code)


def _double(value: object, count: int) -> float | None:
    if not count or not isinstance(value, int | float) or value != value:
        return None
    return float(value)


def _digest(source: ByteSource, offset: int, end: int) -> str:
    state = xxhash.xxh3_64()
    for at in range(offset, end, _BLOCK):
        state.update(source.read(at, min(_BLOCK, end - at)))
    return state.hexdigest()
