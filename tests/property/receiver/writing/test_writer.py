"""Any points, however they are handed over and cut, come back as they were, and pass all checks."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.tsfile import Compression, DataType, Encoding, Status, read_tail
from common.tsfile.device_names import device_segments
from receiver.points import Binaries, ChunkSummary, Column, TsFileReader
from receiver.points.columns import dtype_of
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.page_compression import compressed_as
from receiver.writing.page_cuts import Cuts, part_of
from receiver.writing.tsfile_writer import TsFileWriter
from receiver.writing.value_encoding import SAFE, written_as
from tests.support import tiers
from tests.support.encoders.cases import decoded_list

TYPES = [each for each in SAFE if each != DataType.VECTOR]
TIME = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-50, 50),
    st.sampled_from([-(2**63), 2**63 - 1, 0]),
)
CUTS = st.builds(
    Cuts,
    page_points=st.integers(1, 12),
    page_bytes=st.integers(1, 30),
    page_texts=st.integers(1, 4),
    chunk_points=st.integers(1, 30),
    chunk_bytes=st.integers(1, 300),
    group_bytes=st.integers(1, 900),
)


def value_of(code: DataType) -> st.SearchStrategy[Any]:
    if code == DataType.BOOLEAN:
        return st.integers(0, 1)
    if code in (DataType.TEXT, DataType.STRING, DataType.BLOB):
        return st.binary(max_size=9)
    size = np.dtype(dtype_of(code)).itemsize * 8
    return st.one_of(st.integers(-9, 9), st.integers(-(2 ** (size - 1)), 2 ** (size - 1) - 1))


def column_of(code: DataType, values: list[Any]) -> Column:
    """Numbers by their bits, so that a float is any NaN; None is a null."""
    valid = np.array([value is not None for value in values])
    if code in (DataType.TEXT, DataType.STRING, DataType.BLOB):
        whole = [value or b"" for value in values]
        offsets = np.cumsum([0, *map(len, whole)], dtype=np.int32)
        found: Any = Binaries(offsets, np.frombuffer(b"".join(whole), np.uint8))
    else:
        dtype = np.dtype(dtype_of(code))
        bits = np.dtype(f"i{dtype.itemsize}") if dtype.kind == "f" else dtype
        found = np.array([value or 0 for value in values], bits).view(dtype)
    return Column(code, found, None if valid.all() else valid)


@st.composite
def columns(draw: st.DrawFn, times: list[int], nulls: bool) -> list[Any]:
    code = draw(st.sampled_from(TYPES))
    value = value_of(code)
    values = [draw(st.none() | value if nulls else value) for _ in times]
    encoding = written_as(draw(st.sampled_from(list(Encoding))), code)
    compression = compressed_as(draw(st.sampled_from(list(Compression))))
    return [code, encoding, compression, values]


TIMES = st.sets(TIME, min_size=1, max_size=60).map(sorted)
SPLITS = st.lists(st.integers(0, 60), max_size=4)


def blocks(splits: list[int], count: int) -> list[tuple[int, int]]:
    edges = sorted({0, count, *(at for at in splits if at < count)})
    return list(itertools.pairwise(edges))


@settings(max_examples=tiers.examples(60), suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data(), cuts=CUTS, version=st.sampled_from([3, 4]), splits=SPLITS)
def test_series_with_times_of_their_own_come_back(
    data: st.DataObject, cuts: Cuts, version: int, splits: list[int]
):
    written = bytearray()
    writer = TsFileWriter(written.extend, version=version, cuts=cuts)
    wanted = {}
    with writer.plain_device(device_segments("root.sg.d", version)) as device:
        for number in range(data.draw(st.integers(1, 3))):
            times = data.draw(TIMES)
            code, encoding, compression, values = data.draw(columns(times, nulls=False))
            form = SeriesForm(f"s{number}", code, encoding, compression)
            column = column_of(code, values)
            for low, high in blocks(splits, len(times)):
                device.write(form, np.array(times[low:high]), part_of(column, low, high))
            wanted[form.measurement] = (form, times, values)
    assert writer.finish() == len(written)
    found = read(bytes(written), version)
    assert found == wanted


@settings(max_examples=tiers.examples(60), suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data(), cuts=CUTS, version=st.sampled_from([3, 4]), splits=SPLITS, times=TIMES)
def test_series_that_share_their_times_come_back_with_their_nulls(
    data: st.DataObject, cuts: Cuts, version: int, splits: list[int], times: list[int]
):
    drawn = [data.draw(columns(times, nulls=True)) for _ in range(data.draw(st.integers(1, 4)))]
    forms = [SeriesForm(f"s{at}", *each[:3]) for at, each in enumerate(drawn)]
    written = bytearray()
    writer = TsFileWriter(written.extend, version=version, cuts=cuts)
    with writer.aligned_device(device_segments("root.sg.d", version), forms) as device:
        given_columns = [column_of(each[0], each[3]) for each in drawn]
        for low, high in blocks(splits, len(times)):
            device.write(
                np.array(times[low:high]), [part_of(each, low, high) for each in given_columns]
            )
    writer.finish()
    wanted = {
        form.measurement: (
            form,
            [at for at, value in zip(times, values, strict=True) if value is not None],
            [value for value in values if value is not None],
        )
        for form, (_, _, _, values) in zip(forms, drawn, strict=True)
    }
    assert read(bytes(written), version) == wanted


def read(content: bytes, version: int) -> dict[str, tuple[SeriesForm, list[int], list[Any]]]:
    """Every series as it was written, by the decoders that check it against what the file says."""
    tail = read_tail(content, chunk_headers=True)
    assert tail.status is Status.COMPLETE, tail.reason
    assert tail.version == version
    found = {}
    with tempfile.NamedTemporaryFile(suffix=".tsfile") as place:
        Path(place.name).write_bytes(content)
        with TsFileReader(place.name, tail=tail) as file:
            (device,) = tail.devices
            assert device.name == "root.sg.d"
            for summary in file.summaries(device):
                assert isinstance(summary, ChunkSummary), summary
                assert summary.exact or not summary.statistics.count
            for series in device.series():
                chunk = series.chunks[-1]
                form = SeriesForm(
                    series.measurement, series.data_type, chunk.encoding, chunk.compression
                )
                times: list[int] = []
                values: list[Any] = []
                for ref in file.chunks(device, series):
                    for block in file.blocks(device, series, ref):
                        assert block.column is not None
                        valid = block.column.valid
                        there = np.ones(len(block.times), bool) if valid is None else valid
                        listed = decoded_list(block.column.values)
                        times += block.times[there].tolist()
                        values += [each for each, yes in zip(listed, there, strict=True) if yes]
                found[series.measurement] = (form, times, values)
    return found
