"""Pages that are decoded together give what they give one by one."""

from __future__ import annotations

import io
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from common.tsfile import Compression, DataType, Encoding
from receiver.points import Column, DamagedData, TsFileReader, aligned, plain_chunks
from receiver.points.encodings import Binaries
from receiver.points.page_data.chunk_window import DataPage, Pages
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.page_cuts import Cuts
from receiver.writing.tsfile_writer import TsFileWriter

ROWS = 700
FORMS = tuple(
    SeriesForm(f"s{at}", code, encoding, Compression.LZ4)
    for at, (code, encoding) in enumerate(
        (
            (DataType.DOUBLE, Encoding.GORILLA),
            (DataType.FLOAT, Encoding.GORILLA),
            (DataType.DOUBLE, Encoding.PLAIN),
            (DataType.INT64, Encoding.TS_2DIFF),
            (DataType.INT32, Encoding.TS_2DIFF),
            (DataType.INT64, Encoding.GORILLA),
            (DataType.INT64, Encoding.PLAIN),
            (DataType.BOOLEAN, Encoding.PLAIN),
        )
    )
)
DTYPES: dict[int, Any] = {
    DataType.DOUBLE: np.float64,
    DataType.FLOAT: np.float32,
    DataType.INT64: np.int64,
    DataType.INT32: np.int32,
    DataType.BOOLEAN: np.uint8,
}


def written(*, is_aligned: bool, holes: float = 0.0) -> bytes:
    """A device in chunks of seven pages; of an aligned one some rows may have no value."""
    random = np.random.default_rng(3)
    times = np.cumsum(random.integers(1, 9, ROWS))
    columns = []
    for form in FORMS:
        values = np.cumsum(random.integers(-3, 4, ROWS)).astype(DTYPES[form.data_type])
        if form.data_type == DataType.BOOLEAN:
            values = (values & 1).astype(np.uint8)
        valid = random.random(ROWS) >= holes if holes else None
        if valid is not None:
            values[~valid] = 0
        columns.append(Column(form.data_type, values, valid))
    target = io.BytesIO()
    writer = TsFileWriter(target.write, cuts=Cuts(page_points=100))
    if is_aligned:
        with writer.aligned_device(("root.sg", "d"), FORMS) as device:
            device.write(times, columns)
    else:
        with writer.plain_device(("root.sg", "d")) as plain:
            for form, column in zip(FORMS, columns, strict=True):
                plain.write(form, times, column)
    writer.finish()
    return target.getvalue()


def rows_of(content: bytes) -> list[dict[str, Any]]:
    with TsFileReader(content) as file:
        return [row for batch in file.read_device("root.sg.d") for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("is_aligned", "holes"), [(False, 0.0), (True, 0.0), (True, 0.3), (True, 0.995)]
)
def test_pages_together_give_what_each_gives(
    is_aligned: bool, holes: float, monkeypatch: pytest.MonkeyPatch
):
    content = written(is_aligned=is_aligned, holes=holes)
    taken = []

    def spied(run: Any) -> Any:
        def ran(*arguments: Any) -> Any:
            found = run(*arguments)
            taken.append(found is not None)
            return found

        return ran

    for module, name in RUNS:
        monkeypatch.setattr(module, name, spied(getattr(module, name)))
    together = rows_of(content)
    assert taken.count(True) >= 6 if holes < 0.9 else True  # a page without a value is left alone
    one_by_one(monkeypatch)
    assert rows_of(content) == together
    assert len(together) == ROWS if holes < 0.9 else len(together) > 0


RUNS = ((aligned, "times_run"), (aligned, "values_run"), (plain_chunks, "plain_run"))


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in RUNS:
        monkeypatch.setattr(module, name, lambda *_: None)


@pytest.mark.parametrize("is_aligned", [False, True])
def test_damage_is_told_as_of_pages_one_by_one(is_aligned: bool, monkeypatch: pytest.MonkeyPatch):
    """Whatever byte of the data is hurt, together or not the same is said of it, or nothing."""
    content = written(is_aligned=is_aligned)
    with TsFileReader(content) as file:
        end = file.tail.meta_offset
    places = np.random.default_rng(5).integers(50, end, 30).tolist()

    def told(at: int) -> object:
        hurt = bytearray(content)
        hurt[at] ^= 0x55
        try:
            return rows_of(bytes(hurt))
        except DamagedData as error:
            return str(error)

    together = [told(at) for at in places]
    one_by_one(monkeypatch)
    assert [told(at) for at in places] == together
    assert sum(isinstance(each, str) for each in together) > 15


@pytest.mark.parametrize("code", [DataType.BLOB, DataType.DOUBLE, DataType.BOOLEAN])
def test_pages_are_not_all_taken_out_of_their_compression_before_one_is_decoded(
    code: DataType, monkeypatch: pytest.MonkeyPatch
):
    """A file of a few MB was read into as much memory as its pages say that they become."""
    form = SeriesForm("s", code, Encoding.PLAIN, Compression.LZ4)
    values: Any = np.zeros(ROWS, DTYPES.get(code))
    if code == DataType.BLOB:
        values = Binaries(np.arange(ROWS + 1, dtype=np.int32) * 100, np.zeros(ROWS * 100, np.uint8))
    target = io.BytesIO()
    writer = TsFileWriter(target.write, cuts=Cuts(page_points=10))
    with writer.aligned_device(("root.sg", "d"), [form]) as device:
        device.write(np.arange(ROWS), [Column(code, values)])
    writer.finish()
    events: list[int] = []
    take, decode = Pages.content, aligned.ValueChunk._decode

    def taken(pages: Pages, page: DataPage) -> Any:
        events.append(page.uncompressed if pages.code == code else 0)
        return take(pages, page)

    def decoded(chunk: aligned.ValueChunk, page: DataPage, *rest: Any) -> Any:
        events.append(-page.uncompressed)
        return decode(chunk, page, *rest)

    monkeypatch.setattr(Pages, "content", taken)
    monkeypatch.setattr(aligned.ValueChunk, "_decode", decoded)
    monkeypatch.setattr(aligned, "GROUP_BYTES", 200)
    assert len(rows_of(target.getvalue())) == ROWS
    assert sum(events) == 0
    most = 200 if code == DataType.DOUBLE else 0  # of what one call decodes
    assert 0 < max(accumulate(events)) <= most + max(events)
