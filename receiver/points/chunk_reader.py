"""A TsFile opened, chunk by chunk."""

from __future__ import annotations

import dataclasses
import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from common.durable import Closing
from common.tsfile import Corrupt, DataType, Device, Series, Status, Tail, read_tail
from common.tsfile.byte_source import ByteSource, source_of
from receiver.points.aligned import DECODED_AT_ONCE, TimeChunk, TimeGroup, ValueChunk, parts
from receiver.points.chunks import (
    ChunkRef,
    GroupHeader,
    PointBlock,
    chunk_refs,
)
from receiver.points.columns import TextForm
from receiver.points.errors import DamagedData, DataError, DataPlace, UnsupportedData
from receiver.points.grouping import GROUP_ROWS
from receiver.points.page_data.chunk_window import WINDOW_BYTES, Pages, PageSource
from receiver.points.plain_chunks import PlainChunk

if TYPE_CHECKING:
    from receiver.points.deleted.deletions import Deletions
    from receiver.points.page_data.stored_pages import PageKeeper

__all__ = ["ChunkReader"]

_KEPT_ROWS: Final = 4 * 1024 * 1024
"""Times of a chunk of so many rows are kept, for its other columns."""
_LARGE_ROWS: Final = 4096
"""Of a chunk that is worth a look at where the next one begins."""


class _KeptTimes(NamedTuple):
    """Decoded times: as they were asked for, and how many pages the chunk has."""

    span: tuple[int, int | None, int | None, int]
    groups: list[TimeGroup]
    pages: int


class ChunkReader(Closing):
    """A TsFile of version 3 or 4, tree or table model.

    Not for several threads at once. Every method raises ``DamagedData`` or ``UnsupportedData``
    for what the file holds, and ``OSError`` where it cannot be read.

    Attributes:
        name: of the file, for messages.
        tail: its metadata.
        deletions: what ``read_series`` and ``read_device`` leave out.
        text: the Arrow form of TEXT and STRING.
        check: whether decoded points are compared with what the file says of them.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | int | ByteSource,
        *,
        name: str | None = None,
        deletions: Deletions | None = None,
        text: TextForm = "string",
        check: bool = True,
        tail: Tail | None = None,
    ) -> None:
        """Open a file and read its tail.

        Args:
            source: path, a descriptor (stays open, its offset is not touched), or what reads it.
            name: for messages; the path if left out.
            deletions: points that ``read_series`` and ``read_device`` leave out. What is decoded
                chunk by chunk is what stands in the file.
            text: TEXT and STRING as Arrow ``string`` (bytes that are not UTF-8 are
                ``UnsupportedData``) or as ``binary``.
            check: compare everything that the file says of its points with what is decoded.
            tail: of this very file, where the caller has read it already.

        Raises:
            DamagedData: it is no TsFile, not complete, or its index is broken.
            UnsupportedData: it is of a version before 3.
        """
        self.text: Final = text
        self.check: Final = check
        self.deletions: Final = deletions
        self._own: int | None = None
        if isinstance(source, str | os.PathLike):
            self.name = name or os.fspath(source)
            self._own = source = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        else:
            self.name = name or f"descriptor {source}"
        self._file = source_of(source)
        try:
            self.tail: Final = read_tail(self._file) if tail is None else tail
            self._require_complete()
        except BaseException:
            self.close()
            raise
        self._devices: dict[str, Device] | None = None
        self._columns: tuple[Device, dict[str, Series]] | None = None
        self._judged: tuple[Device, DataError | None] | None = None
        self._offsets: tuple[Device, list[int]] | None = None
        self._times: _KeptTimes | None = None
        self._time_pages = 0

    def _require_complete(self) -> None:
        tail = self.tail
        if tail.status is Status.LEGACY:
            raise UnsupportedData(tail.reason, DataPlace(self.name))
        if not tail.complete:
            raise DamagedData(f"{tail.status}: {tail.reason}", DataPlace(self.name))

    def close(self) -> None:
        """Close what was opened here."""
        if self._own is not None:
            fd, self._own = self._own, None
            os.close(fd)

    # what there is

    def device(self, name: str) -> Device:
        """The device of this name.

        Raises:
            KeyError: there is none.
        """
        if self._devices is None:
            self._devices = {device.name: device for device in self.tail.devices}
        return self._devices[name]

    def series(self, device: Device, measurement: str) -> Series:
        """The series of this name; ``""`` is the time column of an aligned device.

        Raises:
            KeyError: there is none.
        """
        return self.columns(device)[measurement]

    def columns(self, device: Device) -> dict[str, Series]:
        """All series of a device by name, the time column of an aligned one first."""
        # not by name: two devices of a file may have the same one
        if self._columns is None or self._columns[0] is not device:
            times = device.time_column()
            found = {} if times is None else {"": times}
            found.update((series.measurement, series) for series in device.series())
            self._columns = (device, found)
        return self._columns[1]

    def place(self, device: Device, series: Series | None = None) -> DataPlace:
        """Where a device, or a series of it, is; for messages."""
        return DataPlace(self.name, device.name, None if series is None else series.measurement)

    def require_readable(self, device: Device, first: int | None = None) -> None:
        """See that pages are in the clear, and that they are of this device.

        The name of a device stands in the index and before its chunks; nothing else would show
        that one of the two is wrong.

        Args:
            device: of the file.
            first: offset of its first chunk, where the caller knows it.

        Raises:
            UnsupportedData: they are encrypted.
            DamagedData: they are of another one.
        """
        if self._judged is None or self._judged[0] is not device:
            self._judged = (device, self._why_not(device, first))
        if (error := self._judged[1]) is not None:
            raise error.with_traceback(None)

    def _why_not(self, device: Device, first: int | None) -> DataError | None:
        """Looked into once a device, not once a chunk: it goes over all chunks."""
        if self.tail.encrypt_level != "0":
            reason = f"encrypted (level {self.tail.encrypt_level})"
            return UnsupportedData(reason, self.place(device))
        if first is None:
            series = self.columns(device).values()
            first = min(chunk.offset for each in series for chunk in each.chunks)
        return self.header_missing(device, first)

    def header_missing(self, device: Device, chunk: int) -> DamagedData | None:
        """An error, unless the header of a device stands before the chunk at an offset."""
        header = GroupHeader.of(device.segments, self.tail.version or 0)
        longest = min(chunk, header.longest)
        if header.ends(self._read(device, chunk - longest, longest)):
            return None
        place = dataclasses.replace(self.place(device), chunk=chunk)
        return DamagedData("no header of this device before its chunk", place)

    def _read(self, device: Device, offset: int, length: int) -> bytes:
        try:
            return self._file.read(offset, length)
        except Corrupt as shrank:
            raise DamagedData(str(shrank), self.place(device)) from shrank

    def data(self, offset: int, length: int) -> bytes:
        """Bytes of the data section, as many as there are."""
        return self._file.read(offset, max(0, min(length, self.tail.meta_offset - offset)))

    # chunk by chunk: what stands in the file

    def chunks(self, device: Device, series: Series) -> Iterator[ChunkRef]:
        """The chunks of a series in the file's order, from the index alone."""
        times = self.times_of(device)
        return iter(chunk_refs(series, times, self.place(device, series)))

    def times_of(self, device: Device) -> Series | None:
        """The time column; None of a plain device, and where writers left it out: without a point.

        Raises:
            DamagedData: an aligned device with points has none.
        """
        left_out = not device.point_count and "" not in self.columns(device)
        return self.time_column(device) if device.aligned and not left_out else None

    def time_column(self, device: Device) -> Series:
        """The time column of an aligned device.

        Raises:
            DamagedData: it has none.
        """
        times = self.columns(device).get("")
        if times is None or times.data_type != DataType.VECTOR:
            raise DamagedData("an aligned device without a time column", self.place(device))
        return times

    def pages(
        self, device: Device, series: Series, chunk: ChunkRef, window: int = WINDOW_BYTES
    ) -> Pages:
        """The raw pages of a chunk, its header read and checked."""
        self.require_readable(device)
        if chunk.statistics.count >= _LARGE_ROWS:
            window = min(window, self._room_behind(device, chunk.offset))
        source = PageSource(self._file, self.tail.meta_offset, self.tail.version or 0, window)
        place = DataPlace(self.name, device.name, series.measurement, chunk.offset)
        return Pages(source, place, chunk.offset, series.data_type, chunk.statistics)

    def _room_behind(self, device: Device, offset: int) -> int:
        """Bytes from a chunk to the next one of its device, or to the end of the data.

        Chunks stand one behind the other: what is read beyond the end of one is read for nothing.
        That is only ever taken for how much to read at first.
        """
        if self._offsets is None or self._offsets[0] is not device:
            every = [each.offset for one in self.columns(device).values() for each in one.chunks]
            self._offsets = device, sorted(every)
        offsets = self._offsets[1]
        at = bisect_right(offsets, offset)
        return (offsets[at] if at < len(offsets) else self.tail.meta_offset) - offset

    def plain_chunk(
        self,
        device: Device,
        series: Series,
        chunk: ChunkRef,
        *,
        window: int = WINDOW_BYTES,
        check: bool | None = None,
    ) -> PlainChunk:
        """A chunk of a plain device, or an empty one, ready to be decoded."""
        pages = self.pages(device, series, chunk, window)
        if device.aligned and pages.begin != pages.end:
            raise pages.damaged("values without a chunk of times")
        checked = self.check if check is None else check
        return PlainChunk(pages, check=checked)

    def time_chunk(
        self, device: Device, chunk: ChunkRef, *, check: bool | None = None
    ) -> TimeChunk:
        """A chunk of times, ready to be decoded."""
        pages = self.pages(device, self.time_column(device), chunk)
        return TimeChunk(pages, check=self.check if check is None else check)

    def value_chunk(
        self,
        device: Device,
        series: Series,
        chunk: ChunkRef,
        *,
        window: int = WINDOW_BYTES,
        check: bool | None = None,
    ) -> ValueChunk:
        """A chunk of values of an aligned device, ready to be decoded."""
        pages = self.pages(device, series, chunk, window)
        return ValueChunk(pages, check=self.check if check is None else check)

    def times(
        self,
        device: Device,
        chunk: ChunkRef,
        start: int | None = None,
        end: int | None = None,
        *,
        rows: int = GROUP_ROWS,
        keeper: PageKeeper | None = None,
    ) -> Iterator[TimeGroup]:
        """The times of a time chunk; kept for the next call unless there are very many.

        Args:
            device: of the file.
            chunk: of its times.
            start: pages that end before it are left out.
            end: pages that begin behind it are.
            rows: of a group, about.
            keeper: is given the pages as they stand in the file.
        """
        span = chunk.offset, start, end, rows
        known = self._times
        if keeper is None and known is not None and known.span == span:
            yield from known.groups
            self._time_pages = known.pages
            return
        times = self.time_chunk(device, chunk)
        if keeper is not None:
            keeper.watch(times)
        held: list[TimeGroup] = []
        yield from _held(times.groups(start, end, rows=rows), held)
        if self.check:
            times.finish()
        self._time_pages = times.passed
        self._times = _KeptTimes(span, held, times.passed) if held else None

    def kept(self, chunk: ChunkRef, times: TimeChunk) -> Iterator[TimeGroup]:
        """The groups of a time chunk; once all were taken, ``times`` need not decode them again."""
        held: list[TimeGroup] = []
        yield from _held(times.groups(), held)
        span = chunk.offset, None, None, GROUP_ROWS
        self._times = _KeptTimes(span, held, times.passed) if held else None

    def blocks(
        self,
        device: Device,
        series: Series,
        chunk: ChunkRef,
        *,
        start: int | None = None,
        end: int | None = None,
        rows: int = GROUP_ROWS,
        window: int = WINDOW_BYTES,
        keeper: PageKeeper | None = None,
    ) -> Iterator[PointBlock]:
        """Decode a chunk piece by piece, pages without points in ``start`` to ``end`` left out.

        Args:
            device: of the file.
            series: of the device.
            chunk: of the series, from ``chunks``.
            start: inclusive; rows before it may still come with those of their page.
            end: inclusive, likewise.
            rows: pages are decoded together up to about so many rows.
            window: bytes of the file to read at once.
            keeper: is given the pages as they stand in the file.
        """
        if series.data_type == DataType.VECTOR:
            for group in self.times(device, chunk, start, end, rows=rows, keeper=keeper):
                yield PointBlock(group.times, None, group.first, len(group))
        elif chunk.time_chunk is None:
            plain = self.plain_chunk(device, series, chunk, window=window)
            if keeper is not None:
                keeper.watch(plain)
            yield from plain.blocks(start, end, rows=rows)
            if self.check:
                plain.finish()
        else:
            yield from self._aligned_blocks(device, series, chunk, start, end, window, keeper)

    def _aligned_blocks(
        self,
        device: Device,
        series: Series,
        chunk: ChunkRef,
        start: int | None,
        end: int | None,
        window: int,
        keeper: PageKeeper | None,
    ) -> Iterator[PointBlock]:
        assert chunk.time_chunk is not None
        values = self.value_chunk(device, series, chunk, window=window)
        if keeper is not None:
            keeper.watch(values)
        for group in self.times(device, chunk.time_chunk, start, end):
            for part in parts(group, [values], DECODED_AT_ONCE):
                yield PointBlock(part.times, values.column(part), part.first, len(part))
        if self.check:
            values.finish(self._time_pages)


def _held(groups: Iterator[TimeGroup], held: list[TimeGroup]) -> Iterator[TimeGroup]:
    """The same groups, put into a list; nothing is in it once they are too many."""
    count = 0
    for group in groups:
        count += len(group.times)
        if count <= _KEPT_ROWS:
            held.append(group)
        else:
            held.clear()
        yield group
