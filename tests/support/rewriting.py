"""A file written again: its points as a reader gives them, late ones merged, deleted ones left out.

Each series keeps encoding and compression of its last chunk, or has what is written in their place
(``written_as``, ``compressed_as``). Memory: what waits for a page of one device.
"""

from __future__ import annotations

from collections.abc import Callable

from common.tsfile import Device, Series
from common.tsfile.device_names import device_segments
from receiver.points import TsFileReader
from receiver.writing.arrow_columns import column_of
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.page_compression import compressed_as
from receiver.writing.page_cuts import Cuts
from receiver.writing.tsfile_writer import TsFileWriter
from receiver.writing.value_encoding import SAFE, written_as

__all__ = ["rewrite"]


def rewrite(
    source: TsFileReader,
    write: Callable[[bytes], object],
    *,
    version: int | None = None,
    cuts: Cuts | None = None,
) -> int:
    """Write all points of a file to another.

    Args:
        source: opened with a tail that has the chunk headers (without them every series gets the
            encoding of its type), and with text as ``binary`` where it may be no UTF-8.
        write: takes the bytes of the new file, in order.
        version: of the new file; that of the source if left out.
        cuts: where its pages and chunks end.

    Returns:
        How many bytes it has.

    Raises:
        DamagedData: what is read is not what the file says of it.
        UnsupportedData: it cannot be read.
        ValueError: the version has no such devices.
    """
    version = version or source.tail.version or 4
    writer = TsFileWriter(write, version=version, tables=source.tail.tables, cuts=cuts)
    for device in source.tail.devices:
        same = version == source.tail.version
        segments = device.segments if same else device_segments(device.name, version)
        if device.aligned:
            _aligned(source, device, writer, segments)
        else:
            _plain(source, device, writer, segments)
    return writer.finish()


def _plain(
    source: TsFileReader, device: Device, writer: TsFileWriter, segments: tuple[str | None, ...]
) -> None:
    with writer.plain_device(segments) as target:
        for series in device.series():
            form = _form(series)
            for batch in source.read_series(device, series.measurement):
                values = column_of(batch.column(1), series.data_type)
                target.write(form, batch.column(0).to_numpy(), values)


def _aligned(
    source: TsFileReader, device: Device, writer: TsFileWriter, segments: tuple[str | None, ...]
) -> None:
    columns = list(device.series())
    times = device.time_column()
    compression = compressed_as(_codecs(times)[1]) if times else compressed_as(-1)
    forms = [_form(series) for series in columns]
    with writer.aligned_device(segments, forms, compression=compression) as target:
        for batch in source.read_device(device):
            values = [
                column_of(array, series.data_type)
                for array, series in zip(batch.columns[1:], columns, strict=True)
            ]
            target.write(batch.column(0).to_numpy(), values)


def _form(series: Series) -> SeriesForm:
    encoding, compression = _codecs(series)
    return SeriesForm(
        series.measurement,
        series.data_type,
        written_as(encoding, series.data_type),
        compressed_as(compression),
    )


def _codecs(series: Series) -> tuple[int, int]:
    """Encoding and compression of the last chunk; numbers of none where they were not read."""
    last = series.chunks[-1]
    if last.encoding is None or last.compression is None:
        return SAFE[series.data_type], -1
    return last.encoding, last.compression
