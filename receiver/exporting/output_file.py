"""One output: written beside, decoded again and compared, and only then given its name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from common.durable import Tree, WriteFile, temporary_name
from common.errors import Integrity, UsageError
from common.tsfile import Compression, DataType, Encoding, TableSchema, read_tail
from common.tsfile.device_names import device_segments, split_database
from common.wire import Struct
from receiver.exporting.point_digests import DeviceDigests, SeriesSum, whole_digest
from receiver.points import TsFileReader
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.page_compression import compressed_as
from receiver.writing.resource_bytes import resource_of
from receiver.writing.tsfile_writer import TsFileWriter
from receiver.writing.value_encoding import SAFE, written_as

if TYPE_CHECKING:
    from common.tsfile.device import Device
    from receiver.exporting.merged_inputs import MergedInput
    from receiver.exporting.wanted_points import SchemaSeries

__all__ = ["ExportDiffersError", "OutputFile", "WrittenFile", "codes_for"]

_OLD_ENCODINGS: Final = frozenset(
    {Encoding.PLAIN, Encoding.RLE, Encoding.TS_2DIFF, Encoding.GORILLA}
)
_OLD_COMPRESSIONS: Final = frozenset(
    {Compression.UNCOMPRESSED, Compression.SNAPPY, Compression.GZIP, Compression.LZ4}
)
_NEW_TYPES: Final = frozenset(
    {DataType.STRING, DataType.BLOB, DataType.DATE, DataType.TIMESTAMP, DataType.OBJECT}
)
"""Which no server that reads version 3 only knows."""


class ExportDiffersError(Integrity):
    """What was written is, decoded again, not what was merged."""

    slug = "export-differs"


class WrittenFile(Struct, frozen=True, kw_only=True):
    """An output that has its name.

    Attributes:
        path: in the exported directory.
        size: bytes.
        md5: in hex.
        devices: how many.
        series: how many, of all devices.
        points: values.
        digest: of all points.
    """

    path: str
    size: int
    md5: str
    devices: int
    series: int
    points: int
    digest: str


def codes_for(version: int, data_type: int, encoding: int, compression: int) -> tuple[int, int]:
    """Encoding and compression that are written: in version 3 those that all its servers read."""
    written, packed = int(written_as(encoding, data_type)), int(compressed_as(compression))
    if version == 3 and written not in _OLD_ENCODINGS:
        written = int(SAFE[data_type])
    if version == 3 and packed not in _OLD_COMPRESSIONS:
        packed = int(Compression.LZ4)
    return written, packed


class OutputFile:
    """A file that is being written; left by an error, nothing of it stays."""

    def __init__(
        self, tree: Tree, path: str, version: int, tables: list[TableSchema], schema: SchemaSeries
    ) -> None:
        """Begin one.

        Args:
            tree: the exported directory.
            path: that it will have there.
            version: 3 or 4.
            tables: that its devices may be of.
            schema: says how series are written.

        Raises:
            UsageError: the version has no tables.
        """
        if tables and version == 3:
            raise UsageError(f"{tables[0].name}: version 3 has no tables: expected --version 4")
        self._tree, self._path, self._version, self._schema = tree, path, version, schema
        self._tables = tables
        directory = path.rpartition("/")[0]
        tree.make_dirs(directory)
        self._temporary = f"{directory}/{temporary_name()}"
        self._file: WriteFile | None = tree.create(self._temporary)
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._writer = TsFileWriter(self._put, version=version, tables=tables)
        self._sums: dict[str, Mapping[str, SeriesSum]] = {}
        self.points = 0

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._writer.position

    def add(self, device: MergedInput) -> None:
        """Write a device."""
        if device.is_table:
            segments = device.segments
        else:
            segments = device_segments(device.name, self._version)
        digests = DeviceDigests()
        if device.aligned:
            self._add_aligned(device, segments, digests)
        else:
            self._add_plain(device, segments, digests)
        if sums := digests.sums():
            self._sums[_file_name(device)] = sums
            self.points += _points(sums)

    def finish(self) -> WrittenFile | None:
        """Compare it, and give it its name; None if it has no point.

        Raises:
            ExportDiffersError: it is not what was merged.
        """
        assert self._file is not None
        size = self._writer.finish()
        self._file.sync()
        if not self._sums:
            self.drop()
            return None
        fd = self._tree.open_read(self._temporary)
        try:
            tail = read_tail(fd)
            self._compare(fd)
        finally:
            os.close(fd)
        self._file.close()
        self._file = None
        self._tree.write_atomic(f"{self._path}.resource", resource_of(tail))
        self._tree.rename(self._temporary, self._path)
        return WrittenFile(
            path=self._path,
            size=size,
            md5=self._md5.hexdigest(),
            devices=len(self._sums),
            series=sum(len(each) - ("" in each) for each in self._sums.values()),
            points=self.points,
            digest=whole_digest(list(self._sums.items())),
        )

    def drop(self) -> None:
        """Leave nothing of it."""
        if self._file is not None:
            self._file.close()
            self._file = None
            with suppress(FileNotFoundError):
                self._tree.unlink(self._temporary)

    def _put(self, content: bytes) -> None:
        assert self._file is not None
        self._md5.update(content)
        self._file.write(content)

    # -- writing -------------------------------------------------------------------------------

    def _add_plain(
        self, device: MergedInput, segments: tuple[str | None, ...], digests: DeviceDigests
    ) -> None:
        with self._writer.plain_device(segments) as target:
            for name, code in device.types.items():
                form = self._form(device, name, code)
                for times, column in device.points(name):
                    digests.add(name, times, column)
                    target.write(form, times, column)

    def _add_aligned(
        self, device: MergedInput, segments: tuple[str | None, ...], digests: DeviceDigests
    ) -> None:
        forms = [self._form(device, name, code) for name, code in device.types.items()]
        with self._writer.aligned_device(segments, forms) as target:
            for times, columns in device.rows():
                digests.add_times(times)
                for form, column in zip(forms, columns, strict=True):
                    digests.add(form.measurement, times, column)
                target.write(times, columns)

    def _form(self, device: MergedInput, name: str, code: int) -> SeriesForm:
        if self._version == 3 and code in _NEW_TYPES:
            path = self._schema.name_of(device.name, name)
            raise UsageError(f"{path}: version 3 has no {DataType(code).name}: use --version 4")
        known = self._schema.of(device.name, name)
        if known is not None:
            return SeriesForm(name, code, *codes_for(self._version, code, *known[1:3]))
        table = next((each for each in self._tables if each.name == device.segments[0]), None)
        for column in table.columns if table is not None and device.is_table else ():
            if column.name == name:
                codes = codes_for(self._version, code, column.encoding, column.compression)
                return SeriesForm(name, code, *codes)
        return SeriesForm(name, code, int(SAFE[code]), int(Compression.LZ4))

    # -- comparing -----------------------------------------------------------------------------

    def _compare(self, fd: int) -> None:
        """Decode all of it, and compare each point with what was merged."""
        left = dict(self._sums)
        with TsFileReader(fd, name=self._path, text="binary") as reader:
            for device in reader.tail.devices:
                found = _digests(reader, device)
                merged = left.pop(device.name, {})
                for name, there in _both(merged, found.sums()):
                    if merged.get(name) != there:
                        raise ExportDiffersError(
                            f"{self._path}: device {device.name}, series {name!r}: what was "
                            "written is not what was merged; the file did not get its name"
                        )
        if left:
            raise ExportDiffersError(f"{self._path}: device {next(iter(left))} is not in it")


def _digests(reader: TsFileReader, device: Device) -> DeviceDigests:
    """Of all points of a device, as they are decoded."""
    found = DeviceDigests()
    for name, series in reader.columns(device).items():
        for chunk in reader.chunks(device, series):
            for block in reader.blocks(device, series, chunk):
                if block.column is None:
                    found.add_times(block.times)
                else:
                    found.add(name, block.times, block.column)
    return found


def _both(
    merged: Mapping[str, SeriesSum], found: Mapping[str, SeriesSum]
) -> Iterator[tuple[str, SeriesSum | None]]:
    for name in dict.fromkeys((*merged, *found)):
        yield name, found.get(name)


def _points(sums: Mapping[str, SeriesSum]) -> int:
    return sum(each.points for name, each in sums.items() if name)


def _file_name(device: MergedInput) -> str:
    """A device's name within its file: of a table without the database."""
    return split_database(device.name)[1] if device.is_table else device.name
