"""A TsFile written from its begin to its end, in bounded memory.

    with tree.create(temporary_name()) as file:
        writer = TsFileWriter(file.write, version=4)
        with writer.plain_device(("root.sg", "d1")) as device:
            device.write(form, times, column)                  # as often as there is more
        with writer.aligned_device(("root.sg", "d2"), forms) as device:
            device.write(times, columns)
        writer.finish()
        file.sync()                                            # and then the name

Nothing is flushed here: that, and when it gets its name, is for who opened the file. What waits in
memory is a page a series, the chunks that are not full (``Cuts``), and what the index will say of
all that was written: about as much as it will have on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from common.tsfile import Compression, TableSchema
from common.tsfile.layout import MAGIC, VERSIONS
from receiver.writing.chunk_pages import Scratch, SeriesForm
from receiver.writing.device_writers import AlignedDeviceWriter, PlainDeviceWriter
from receiver.writing.index_writer import DeviceIndex, write_tail
from receiver.writing.page_cuts import Cuts
from receiver.writing.structures import DeviceSegments, group_header

__all__ = ["TsFileWriter"]

_AT_ONCE: Final = 1 << 20
"""Bytes that are handed on together."""


class TsFileWriter:
    """A file that is being written.

    Attributes:
        cuts: where pages and chunks end.
        scratch: for the page that is being encoded.
        position: bytes so far.
        marks: see ``DataSection``.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        version: int = 4,
        tables: Sequence[TableSchema] = (),
        cuts: Cuts | None = None,
    ) -> None:
        """Begin a file.

        Args:
            write: takes its bytes, in order.
            version: 3 or 4.
            tables: of a table-model file (version 4): a schema for each table that has devices.
            cuts: where pages and chunks end.

        Raises:
            ValueError: there is no such file.
        """
        if version not in VERSIONS or (tables and version == 3):
            raise ValueError(f"version {version}, or tables in a version that has none")
        self.cuts, self.scratch = cuts or Cuts(), Scratch()
        self.position = 0
        self.marks: dict[int, tuple[Any, ...]] = {}
        self._write, self._version, self._tables = write, version, tables
        self._parts: list[bytes] = []
        self._waiting = 0
        self._devices: dict[DeviceSegments, DeviceIndex] = {}
        self._device: DeviceSegments | None = None
        self._put(MAGIC + bytes((version,)))

    def plain_device(self, segments: DeviceSegments) -> PlainDeviceWriter:
        """Begin a device whose series have their own times; the one before has ended.

        Args:
            segments: as ``common.tsfile.Device.segments``.

        Raises:
            ValueError: it was written before, or another has not ended, or there can be none such.
        """
        self._begin(segments)
        return PlainDeviceWriter(self)

    def aligned_device(
        self,
        segments: DeviceSegments,
        forms: Sequence[SeriesForm],
        *,
        compression: int = Compression.LZ4,
    ) -> AlignedDeviceWriter:
        """Begin a device whose series share their times, as all of tables do.

        Args:
            segments: as ``plain_device``.
            forms: of its series.
            compression: of its times.

        Raises:
            ValueError: as ``plain_device``, or a series is there twice.
        """
        self._begin(segments)
        return AlignedDeviceWriter(self, forms, compression)

    def finish(self) -> int:
        """Write the index and the end: how many bytes the file has.

        Raises:
            ValueError: a device has not ended.
        """
        if self._device is not None:
            raise ValueError(f"device {self._device} has not ended")
        write_tail(self._put, self.position, self._version, self._devices, self._tables)
        self._hand_on()
        return self.position

    # for the devices

    def begin_group(self) -> None:
        """See ``DataSection``."""
        assert self._device is not None
        self._put(group_header(self._device, self._version))

    def put_chunk(self, content: bytes) -> int:
        """See ``DataSection``."""
        begin = self.position
        self._put(content)
        return begin

    def end_device(self, series: DeviceIndex) -> None:
        """See ``DataSection``."""
        assert self._device is not None
        if series:
            self._devices[self._device] = series
        self._device = None

    def _begin(self, segments: DeviceSegments) -> None:
        while segments and segments[-1] is None:  # no part of an id, as Java has it
            segments = segments[:-1]
        if not segments or segments[0] is None or (self._version == 3 and len(segments) > 1):
            raise ValueError(f"no device of version {self._version}: {segments}")
        if self._device is not None or segments in self._devices:
            raise ValueError(f"device {segments} again, or before {self._device} has ended")
        self._device = segments

    def _put(self, content: bytes) -> None:
        self._parts.append(content)
        self._waiting += len(content)
        self.position += len(content)
        if self._waiting >= _AT_ONCE:
            self._hand_on()

    def _hand_on(self) -> None:
        self._write(b"".join(self._parts))
        self._parts, self._waiting = [], 0
