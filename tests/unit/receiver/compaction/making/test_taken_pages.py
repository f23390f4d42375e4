"""Pages that a merge takes over: which, what is compared of them, and which are encoded anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.tsfile import Compression, DataType, Encoding
from receiver.compaction.worth_merging.merge_asked import MergeAnswer, MergeDiffersError
from receiver.points import Column, TsFileReader
from receiver.points.page_data.page_checks import Checker
from receiver.superseding.asking import NotesAsked
from receiver.writing import chunk_pages
from receiver.writing.chunk_pages import ChunkPages, SeriesForm
from receiver.writing.page_cuts import Cuts
from receiver.writing.tsfile_writer import TsFileWriter
from tests.unit.receiver.compaction.making.test_merging import World

D1 = "root.sg.d1"
DOUBLE = SeriesForm("a", DataType.DOUBLE, Encoding.GORILLA, Compression.LZ4)
LONG = SeriesForm("b", DataType.INT64, Encoding.TS_2DIFF, Compression.SNAPPY)
PAGE = 5000
KINDS = pytest.mark.parametrize("aligned", [False, True], ids=["plain", "aligned"])


def numbers(begin: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(begin)
    return (
        begin + np.arange(count),
        np.round(rng.normal(size=count), 2),
        np.cumsum(rng.integers(-9, 10, count)),
    )


def made(
    begin: int,
    count: int,
    *,
    aligned: bool,
    forms: Sequence[SeriesForm] = (DOUBLE, LONG),
    page: int = PAGE,
    missing: Sequence[int] = (),
) -> bytes:
    """A file of one device; the columns of `missing` have nulls in every second row."""
    times, doubles, longs = numbers(begin, count)
    columns = [
        Column(form.data_type, doubles if form.data_type == DataType.DOUBLE else longs)
        for form in forms
    ]
    content = bytearray()
    writer = TsFileWriter(content.extend, version=4, cuts=Cuts(page_points=page))
    if aligned:
        valid = times % 2 == 0
        columns = [
            Column(each.data_type, each.values, valid if at in missing else None)
            for at, each in enumerate(columns)
        ]
        with writer.aligned_device(("root.sg", "d1"), forms) as target:
            target.write(times, columns)
    else:
        with writer.plain_device(("root.sg", "d1")) as plain:
            for form, column in zip(forms, columns, strict=True):
                plain.write(form, times, column)
    writer.finish()
    return bytes(content)


def pages_of(path: str | Path) -> dict[tuple[str, int], bytes]:
    """Of each series and first time of a page its bytes; of a column the page's first value."""
    return {(name, time): content for name, _, time, content in walked(path)}


def chunks_of(path: str | Path, name: str) -> list[int]:
    """How many pages each chunk has."""
    found: dict[int, int] = {}
    for series, chunk, _, _ in walked(path):
        if series == name:
            found[chunk] = found.get(chunk, 0) + 1
    return list(found.values())


def walked(path: str | Path) -> Iterator[tuple[str, int, int, bytes]]:
    with TsFileReader(path) as reader:
        for device in reader.tail.devices:
            for name, series in reader.columns(device).items():
                for ref in reader.chunks(device, series):
                    pages = reader.pages(device, series, ref)
                    while page := pages.next():
                        yield name, ref.offset, page.start, pages.stored(page)


def rows_of(answer: MergeAnswer) -> list[Any]:
    found = []
    for output in answer.outputs:
        with TsFileReader(output.path) as reader:
            for device in reader.tail.devices:
                for batch in reader.read_device(device):
                    found += batch.to_pylist()
    return found


def rows_in(*contents: bytes) -> list[Any]:
    found: dict[int, Any] = {}
    for content in contents:
        with TsFileReader(memory(content)) as reader:
            for batch in reader.read_device(reader.tail.devices[0]):
                found.update((row["time"], row) for row in batch.to_pylist())
    return [found[time] for time in sorted(found)]


def memory(content: bytes) -> Any:
    from common.tsfile.byte_source import source_of

    return source_of(content)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each page that is encoded, once files were made."""
    seen: list[int] = []
    real = ChunkPages.add

    def add(self: ChunkPages, times: Any, column: Any) -> None:
        seen.append(len(times))
        real(self, times, column)

    monkeypatch.setattr(ChunkPages, "add", add)
    return seen


@KINDS
def test_pages_of_files_that_overlap_nothing_are_taken_over_and_joined(
    world: World, encoded: list[int], aligned: bool
) -> None:
    contents = [made(n * 100_000, PAGE * 2, aligned=aligned, missing=[1]) for n in range(3)]
    inputs = [world.add(each) for each in contents]
    encoded.clear()
    answer = world.merge()
    assert encoded == []
    assert rows_of(answer) == rows_in(*contents)
    (output,) = answer.outputs
    wanted: dict[tuple[str, int], bytes] = {}
    for each in inputs:
        assert each.path is not None
        wanted |= pages_of(each.path)
    assert len(wanted) == 3 * 2 * (3 if aligned else 2)
    assert pages_of(output.path) == wanted
    assert chunks_of(output.path, "a") == [6]


@KINDS
def test_small_pages_are_joined_between_those_that_are_taken_over(
    world: World, encoded: list[int], aligned: bool
) -> None:
    contents = [
        made(0, PAGE, aligned=aligned),
        *(made(100_000 + 300 * n, 300, aligned=aligned) for n in range(10)),
        made(200_000, PAGE, aligned=aligned),
    ]
    for each in contents:
        world.add(each)
    encoded.clear()
    answer = world.merge()
    assert encoded == [3000] * (3 if aligned else 2)
    assert rows_of(answer) == rows_in(*contents)
    assert chunks_of(answer.outputs[0].path, "b") == [3]


@KINDS
def test_what_overlaps_is_merged_and_what_does_not_is_taken_over(
    world: World, encoded: list[int], aligned: bool
) -> None:
    contents = [made(n * PAGE, PAGE, aligned=aligned) for n in range(4)]
    contents.append(made(PAGE + 17, 200, aligned=aligned))
    for each in contents:
        world.add(each)
    encoded.clear()
    answer = world.merge()
    assert encoded == [PAGE] * (3 if aligned else 2)
    assert rows_of(answer) == rows_in(*contents)


@KINDS
def test_a_chunk_of_which_something_is_deleted_is_not_taken_over(
    world: World, encoded: list[int], aligned: bool
) -> None:
    contents = [made(n * PAGE, PAGE, aligned=aligned) for n in range(3)]
    files = [world.add(each) for each in contents]
    record = f"DELETION,{D1}.a,{2**63 - 1},{PAGE + 9},{PAGE + 10}\n".encode()
    world.notes = [NotesAsked("edge", files[1].physical, "mods", record, 0, 1)]
    encoded.clear()
    answer = world.merge()
    assert encoded == ([PAGE] * 3 if aligned else [PAGE - 2])
    found = {row["time"]: row["a"] for row in rows_of(answer)}
    assert found[PAGE + 9] is found[PAGE + 10] is None
    assert sum(each is not None for each in found.values()) == 3 * PAGE - 2


@KINDS
@pytest.mark.parametrize("what", ["encoding", "compression"])
def test_a_page_of_another_form_than_the_last_one_is_encoded_anew(
    world: World, encoded: list[int], aligned: bool, what: str
) -> None:
    other = {"encoding": Encoding.PLAIN, "compression": Compression.ZSTD}[what]
    forms = [DOUBLE._replace(**{what: other}), LONG]
    contents = [made(0, PAGE, aligned=aligned, forms=forms), made(PAGE, PAGE, aligned=aligned)]
    for each in contents:
        world.add(each)
    encoded.clear()
    answer = world.merge()
    assert encoded == [PAGE] * (3 if aligned else 1)
    assert rows_of(answer) == rows_in(*contents)


def test_times_that_are_encoded_as_nothing_says_are_encoded_anew(
    world: World, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as inner:
        inner.setattr(chunk_pages, "_TIME_ENCODING", Encoding.PLAIN)
        first = made(0, PAGE, aligned=False)
    contents = [first, made(PAGE, PAGE, aligned=False)]
    for each in contents:
        world.add(each)
    encoded.clear()
    answer = world.merge()
    assert encoded == [PAGE] * 2
    assert rows_of(answer) == rows_in(*contents)


def test_a_chunk_that_is_not_to_the_last_bit_what_is_said_of_it_is_encoded_anew(
    world: World, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of writers that add up in an order of their own."""
    world.add(made(0, PAGE * 2, aligned=False, forms=[DOUBLE]))
    real = Checker.add

    def near(self: Checker, *given: Any) -> None:
        real(self, *given)
        self.exact = False

    monkeypatch.setattr(Checker, "add", near)
    encoded.clear()
    world.merge()
    assert encoded == [PAGE * 2]


@KINDS
def test_columns_that_some_files_lack_are_nulls_beside_pages_that_are_taken_over(
    world: World, encoded: list[int], aligned: bool
) -> None:
    contents = [
        made(0, PAGE, aligned=aligned, forms=[DOUBLE]),
        made(PAGE, PAGE * 2, aligned=aligned, forms=[LONG]),
        made(PAGE * 3, PAGE, aligned=aligned),
    ]
    for each in contents:
        world.add(each)
    encoded.clear()
    found = {row["time"]: (row["a"], row["b"]) for row in rows_of(world.merge())}
    assert encoded == []
    assert found == {
        row["time"]: (row.get("a"), row.get("b"))
        for content in contents
        for row in rows_in(content)
    }


class Fault:
    """Something goes wrong with the pages that are taken over, behind the merge."""

    @staticmethod
    def swapped(real: Any, self: ChunkPages, page: Any, *given: Any) -> None:
        """Another page's bytes, which decode as well: of the series' page before."""
        before = getattr(self, "fault_before", None)
        self.fault_before = page  # type: ignore[attr-defined]
        if before is not None:
            page = page._replace(content=before.content, size=before.size)
        real(self, page, *given)

    @staticmethod
    def flipped(real: Any, self: ChunkPages, page: Any, *given: Any) -> None:
        content = bytearray(page.content)
        content[len(content) // 2] ^= 1
        real(self, page._replace(content=bytes(content)), *given)

    @staticmethod
    def said(real: Any, self: ChunkPages, page: Any, *given: Any) -> None:
        row = page.row.copy()
        row[3] ^= 1  # the first value
        real(self, page._replace(row=row), *given)

    @staticmethod
    def lost(real: Any, self: ChunkPages, page: Any, *given: Any) -> None:
        if not self.rows:
            real(self, page, *given)

    @staticmethod
    def encoding(real: Any, self: ChunkPages, page: Any, *given: Any) -> None:
        self.form = self.form._replace(encoding=Encoding.PLAIN)
        real(self, page, *given)


@pytest.mark.parametrize("fault", ["swapped", "flipped", "said", "lost", "encoding"])
@KINDS
def test_pages_that_were_taken_over_are_compared_in_the_output(
    world: World, monkeypatch: pytest.MonkeyPatch, aligned: bool, fault: str
) -> None:
    for number in range(2):
        world.add(made(number * PAGE * 2, PAGE * 2, aligned=aligned))
    real, wrong = ChunkPages.take, getattr(Fault, fault)

    def take(self: ChunkPages, *given: Any) -> None:
        if self.form.measurement == "a":
            wrong(real, self, *given)
        else:
            real(self, *given)

    monkeypatch.setattr(ChunkPages, "take", take)
    with pytest.raises(MergeDiffersError):
        world.merge()
    assert world.left() == []


@KINDS
def test_pages_are_taken_over_by_the_bytes_that_were_decoded(
    world: World, monkeypatch: pytest.MonkeyPatch, aligned: bool
) -> None:
    """A mark of other bytes than were written is a difference, whichever of the two is right."""
    world.add(made(0, PAGE * 2, aligned=aligned))
    monkeypatch.setattr("receiver.compaction.making.taken_pages.xxh3_128", counting())
    with pytest.raises(MergeDiffersError):
        world.merge()


def counting() -> Any:
    numbers = iter(range(1_000_000))
    return lambda _: str(next(numbers)).encode()


@KINDS
def test_another_reader_finds_the_points_of_pages_that_were_taken_over(
    world: World, encoded: list[int], aligned: bool
) -> None:
    """The package `tsfile`, in C++."""
    tsfile = pytest.importorskip("tsfile")
    contents = [made(n * 100_000, PAGE, aligned=aligned, missing=[1]) for n in range(2)]
    contents.append(made(200_000, 300, aligned=aligned))
    for each in contents:
        world.add(each)
    encoded.clear()
    (output,) = world.merge().outputs
    assert set(encoded) == {300}
    wanted = {row["time"]: row for row in rows_in(*contents)}
    reader = tsfile.TsFileReader(output.path)
    for name in ("a", "b"):
        found = {}
        with reader.query_timeseries(D1, [name], -1, 1 << 40) as rows:
            while rows.next():
                found[rows.get_value_by_index(1)] = rows.get_value_by_index(2)
        found = {at: value for at, value in found.items() if value is not None}
        assert found == {at: row[name] for at, row in wanted.items() if row[name] is not None}
    reader.close()
