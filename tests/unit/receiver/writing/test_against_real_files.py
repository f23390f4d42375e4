"""What real writers wrote is written again, from its own points, byte for byte as they have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from common.tsfile import Compression, DataType, Device, Encoding, Series, read_tail
from common.tsfile.layout import TIME_COLUMN_FLAG, VALUE_COLUMN_FLAG
from receiver.points import ChunkRef, TsFileReader
from receiver.writing import index_writer
from receiver.writing.chunk_pages import ChunkPages, Scratch, SeriesForm
from receiver.writing.index_writer import write_tail
from receiver.writing.page_cuts import part_of
from receiver.writing.structures import ChunkEntry, series_bytes
from receiver.writing.value_encoding import written_as
from tests.support.expected_rows import FOLDER, real_files

PATHS = sorted({path for real in real_files() if not real.encrypted for path in real.paths})
NAMED = pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
# It set other bits than any other version, servers of 0.12 among them, for the same series.
OTHER_BLOOM = {"short_pairs"}
FILTER_AND_END = 1 + 32 + 2 + 1 + 10 + 4
OF_DEGREE_FOUR = {
    FOLDER / "iotdb-tsfile-1.3.2/names.tsfile",
    FOLDER / "tsfile-2.4.0/names.tsfile",
}
KEYS = b"encryptKey\x00", b"encryptKey\x01"
"""No key is an empty text, or null."""


@NAMED
def test_the_tail_of_a_real_file_is_made_again_of_what_it_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    if path in OF_DEGREE_FOUR:
        monkeypatch.setattr(index_writer, "DEGREE", 4)
    content = path.read_bytes()
    tail = read_tail(content)
    devices = {
        device.segments: [_entry(device, series) for series in _columns(device)]
        for device in tail.devices
    }
    out = bytearray()
    write_tail(out.extend, tail.meta_offset, content[6], devices, tail.tables)
    real = content[tail.meta_offset :]
    if path.stem in OTHER_BLOOM:
        assert real.startswith(out[:-FILTER_AND_END])
    else:
        assert bytes(out) in (real, real.replace(*KEYS))


def _columns(device: Device) -> Iterator[Series]:
    times = device.time_column()
    if times is not None:
        yield times
    yield from device.series()


def _entry(device: Device, series: Series) -> tuple[str, bytes, int]:
    chunks = [ChunkEntry(chunk.offset, chunk.statistics) for chunk in series.chunks]
    content = series_bytes(
        _flag(device, series), series.measurement, series.data_type, series.statistics, chunks
    )
    return series.measurement, content, len(chunks)


def _flag(device: Device, series: Series) -> int:
    if not device.aligned:
        return 0
    return TIME_COLUMN_FLAG if series.data_type == DataType.VECTOR else VALUE_COLUMN_FLAG


@pytest.mark.few(25)
@NAMED
def test_a_chunk_of_a_real_file_is_made_again_of_its_points(path: Path):
    content = path.read_bytes()
    with TsFileReader(path) as file:
        tail = read_tail(content, chunk_headers=True)
        for device in tail.devices:
            for series in _columns(device):
                codes = [(chunk.encoding, chunk.compression) for chunk in series.chunks]
                for (encoding, compression), ref in zip(
                    codes, file.chunks(device, series), strict=True
                ):
                    assert encoding is not None
                    if _is_ours(encoding, series, compression) and not _odd_times(path, device):
                        again = _again(file, device, series, ref, encoding)
                        assert content[ref.offset : ref.offset + len(again)] == again


def _is_ours(encoding: int, series: Series, compression: int | None) -> bool:
    if compression != Compression.UNCOMPRESSED:
        return False
    if series.data_type == DataType.VECTOR:
        return encoding == Encoding.TS_2DIFF
    return written_as(encoding, series.data_type) == encoding


def _odd_times(path: Path, device: Device) -> bool:
    """Times that are encoded otherwise, as a server can be told to."""
    return path.stem in {"plain_times", "rle_times"} and not device.aligned


def _again(
    file: TsFileReader, device: Device, series: Series, ref: ChunkRef, encoding: int
) -> bytes:
    form = SeriesForm(series.measurement, series.data_type, encoding, Compression.UNCOMPRESSED)
    pages = ChunkPages(form, _flag(device, series), Scratch())
    bounds = None
    if ref.time_chunk is not None:
        groups = file.time_chunk(device, ref.time_chunk).groups(rows=1)
        bounds = [group.times[-1] for group in groups]
    for block in file.blocks(device, series, ref, rows=1):
        ends = [block.times[-1]] if bounds is None else bounds
        low = 0
        for high in np.searchsorted(block.times, ends, "right").tolist():
            if high > low:
                column = None if block.column is None else part_of(block.column, low, high)
                pages.add(block.times[low:high], column)
            low = high
    return pages.seal().content
