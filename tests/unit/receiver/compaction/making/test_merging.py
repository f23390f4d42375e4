"""What a merge refuses, and that nothing of it stays then; what it wrote is whole, and once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from common.durable import Tree, WriteFile
from common.errors import StoppedError, TsferryError
from common.tsfile import Compression, DataType, Encoding
from receiver.compaction.making import device_rows
from receiver.compaction.making.merging import merge_files
from receiver.compaction.worth_merging.merge_asked import (
    ContradictingFilesError,
    MergeAnswer,
    MergeAsked,
    MergeDiffersError,
)
from receiver.metadata.model.ranks import NOW
from receiver.points import Column, DamagedData, TsFileReader, UnsupportedData
from receiver.superseding.asking import FileAsked, NotesAsked
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.device_writers import AlignedDeviceWriter, PlainDeviceWriter
from receiver.writing.tsfile_writer import TsFileWriter
from tests.support.expected_rows import real_files
from tests.support.tsfile_bytes import build, statistics, times, uvarint

D1 = "root.sg.d1"
PATHS = sorted({path for real in real_files() if not real.encrypted for path in real.paths})


class World:
    """Files of one sender, numbered as they come: a later one stands above."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.out = directory, directory / "out"
        self.out.mkdir()
        self.files: list[FileAsked] = []
        self.notes: list[NotesAsked] = []

    def add(self, content: bytes) -> FileAsked:
        """A file more."""
        number = len(self.files) + 1
        path = self.directory / f"{number}.tsfile"
        path.write_bytes(content)
        file = FileAsked(
            physical=f"sequence/root.sg/0/0/{number}.tsfile", path=str(path), sender="edge",
            size=len(content), md5=hashlib.md5(content).hexdigest(), series=0, points=0,
            start=None, end=None, name=(0, number, number, 0, 0), first=1, closed=1, last=NOW,
            loaded=number,
        )  # fmt: skip
        self.files.append(file)
        return file

    def merge(self, **more: Any) -> MergeAnswer:
        """All of them."""
        asked = MergeAsked(
            tuple(self.files), tuple(self.notes), "sg", str(self.out), "m",
            more.pop("target", 1 << 20), more.pop("memory", 64 << 20), more.pop("interval", 0),
        )  # fmt: skip
        whole = msgspec.msgpack.decode(msgspec.msgpack.encode(asked), type=MergeAsked)
        return merge_files(whole, **more)

    def left(self) -> list[str]:
        """Names in the directory of outputs."""
        return sorted(os.listdir(self.out))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def points(answer: MergeAnswer) -> dict[tuple[str, str, int], Any]:
    found = {}
    for output in answer.outputs:
        with TsFileReader(output.path) as reader:
            for device in reader.tail.devices:
                for series in device.series():
                    for batch in reader.read_series(device, series.measurement):
                        for time, value in zip(*batch.to_pydict().values(), strict=True):
                            found[device.name, series.measurement, time] = value
    return found


def tree(points: Mapping[str, Sequence[tuple[int, Any]]], **more: Any) -> bytes:
    return build({D1: points}, **more)


TABLE = build({("wind", "t1"): {"a": [(1, 1)]}})
TAGGED = build({("wind", "t1", "u1"): {"a": [(1, 1)]}})
REFUSED = {
    "types": (
        [tree({"a": [(1, 1)]}), tree({"a": [(2, "x")]})],
        r"device root.sg.d1, series a: INT64 in .*/1.tsfile, TEXT in .*/2.tsfile",
    ),
    "aligned": (
        [tree({"a": [(1, 1)]}), tree({"a": [(2, 1)]}, aligned=[D1])],
        r"device root.sg.d1: not aligned in .*/1.tsfile, aligned in .*/2.tsfile",
    ),
    "models": ([tree({"a": [(1, 1)]}), TABLE], r"the model: a tree in .*/1.tsfile, tables in"),
    "columns": (
        [TABLE, build({("wind", "t2"): {"a": [(1, 1.5)]}})],
        r"table wind, column a: INT64 .* in .*/1.tsfile, DOUBLE .* in .*/2.tsfile",
    ),
    "tags": (
        [TAGGED, b"tag2".join(each.replace(b"tag2", b"tag1") for each in TAGGED.split(b"tag1"))],
        r"the tags of table wind: tag1, tag2 in .*/1.tsfile, tag2, tag1 in .*/2.tsfile",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_contradict_are_refused_by_the_names_of_both(world: World, case: str) -> None:
    contents, said = REFUSED[case]
    for each in contents:
        world.add(each)
    with pytest.raises(ContradictingFilesError, match=said):
        world.merge()
    assert world.left() == []


def test_a_series_that_only_empty_chunks_contradict_in_is_refused_too(world: World) -> None:
    world.add(tree({"a": [(1, 1)], "b": [(1, 1)]}, aligned=[D1]))
    world.add(tree({"a": [(2, 1)], "b": []}, aligned=[D1], types={"b": "DOUBLE"}))
    with pytest.raises(ContradictingFilesError, match="series b: INT64 in"):
        world.merge()


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_a_file_whose_bytes_are_not_those_that_were_loaded_is_not_merged(
    world: World, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr("receiver.compaction.making.input_files._SMALL", small)
    world.add(tree({"a": [(1, 1)]}))
    other = tree({"a": [(1, 2)]})
    file = world.add(tree({"a": [(2, 1)]}))
    assert file.path is not None
    assert len(other) == file.size
    Path(file.path).write_bytes(other)
    with pytest.raises(DamagedData, match=r"2\.tsfile: its bytes are not those that were loaded"):
        world.merge()
    assert world.left() == []


def test_a_file_that_is_not_there_is_named(world: World) -> None:
    file = world.add(tree({"a": [(1, 1)]}))
    world.files = [msgspec.structs.replace(file, path=None)]
    with pytest.raises(FileNotFoundError, match=r"1\.tsfile"):
        world.merge()


def test_a_file_that_a_transfer_cut_through_is_not_merged(world: World) -> None:
    file = world.add(tree({"a": [(1, 1)]}))
    world.files = [msgspec.structs.replace(file, cuts=((1, 2, frozenset([D1])),))]
    with pytest.raises(UnsupportedData, match="devices of it were transferred"):
        world.merge()


def test_a_damaged_page_is_an_error_that_names_it_and_nothing_stays(world: World) -> None:
    content = bytearray(tree({"a": [(time, 3) for time in range(50)]}))
    at = content.index(bytes.fromhex("0000000000000003"))
    content[at + 7] ^= 0x10
    world.add(bytes(content))
    world.add(tree({"a": [(60, 1)]}))
    with pytest.raises(DamagedData, match=r"1.tsfile, device root.sg.d1, series a, chunk at"):
        world.merge()
    assert world.left() == []


def page_of_times(stamps: range) -> bytes:
    """Of an aligned device, in a chunk of several pages."""
    body = times(stamps)
    said = statistics(DataType.VECTOR, [(each, each) for each in stamps])
    return uvarint(len(body)) * 2 + said + body


@pytest.mark.parametrize("least", [1, 4000], ids=["taken over", "joined"])
@pytest.mark.parametrize("beside", [100, 2], ids=["apart", "overlapping"])
@pytest.mark.parametrize("aligned", [False, True])
def test_pages_that_stand_out_of_order_are_an_error_and_nothing_stays(
    world: World, monkeypatch: pytest.MonkeyPatch, aligned: bool, beside: int, least: int
) -> None:
    """All that is said of the pages is true, and of the chunk too, but for their order."""
    monkeypatch.setattr(device_rows, "_LEAST_PAGE", least)
    more = {"aligned": [D1]} if aligned else {}
    content = tree({"a": [(time, 3) for time in range(10)]}, page_points=5, **more)
    pages = [page_of_times(range(5)), page_of_times(range(5, 10))]
    if not aligned:
        values = b"".join([(3).to_bytes(8)] * 5)
        pages = []
        for stamps in (range(5), range(5, 10)):
            encoded = times(stamps)
            body = uvarint(len(encoded)) + encoded + values
            said = statistics(DataType.INT64, [(each, 3) for each in stamps])
            pages.append(uvarint(len(body)) * 2 + said + body)
    assert content.count(pages[0] + pages[1]) == 1
    world.add(content.replace(pages[0] + pages[1], pages[1] + pages[0]))
    world.add(tree({"a": [(beside, 1)]}, **more))
    with pytest.raises(DamagedData, match=r"1.tsfile, device root.sg.d1"):
        world.merge()
    assert world.left() == []


@pytest.mark.parametrize("aligned", [False, True])
def test_what_was_written_is_compared_with_what_was_merged(
    world: World, monkeypatch: pytest.MonkeyPatch, aligned: bool
) -> None:
    world.add(tree({"a": [(time, time) for time in range(9)]}, aligned=[D1] if aligned else []))
    if aligned:
        real = AlignedDeviceWriter.write

        def wrong(self: Any, times: Any, columns: Any) -> None:
            real(self, times, [Column(each.data_type, each.values ^ 1) for each in columns])

        monkeypatch.setattr(AlignedDeviceWriter, "write", wrong)
    else:
        plain = PlainDeviceWriter.write
        monkeypatch.setattr(
            PlainDeviceWriter,
            "write",
            lambda self, form, times, column: plain(
                self, form, times + (times == 8), Column(column.data_type, column.values)
            ),
        )
    with pytest.raises(
        MergeDiffersError, match=r"device root\.sg\.d1, series 'a': what was written"
    ):
        world.merge()
    assert world.left() == []


def test_a_device_that_the_writer_loses_is_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(build({D1: {"a": [(1, 1)]}, "root.sg.d2": {"a": [(1, 1)]}}))
    real = TsFileWriter.end_device

    def lost(self: Any, series: Any) -> None:
        real(self, [] if "d2" in str(self._device) else series)

    monkeypatch.setattr(TsFileWriter, "end_device", lost)
    with pytest.raises(MergeDiffersError, match=r"device root.sg.d2 is not in it"):
        world.merge()


def test_an_error_takes_back_the_outputs_that_had_their_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(build({f"root.sg.d{n}": {"a": [(1, n)]} for n in range(4)}))
    assert len(world.merge(target=1).outputs) == 4
    for each in world.left():
        (world.out / each).unlink()
    real = Tree.rename

    def full(self: Tree, source: str, target: str, **more: Any) -> None:
        if target == "m-3.tsfile":
            assert {"m-1.tsfile", "m-2.tsfile"} < set(world.left())
            raise OSError(28, "no room")
        real(self, source, target, **more)

    monkeypatch.setattr(Tree, "rename", full)
    with pytest.raises((OSError, TsferryError)):
        world.merge(target=1)
    assert world.left() == []


def test_a_merge_that_is_stopped_leaves_nothing(world: World) -> None:
    for number in range(5):
        world.add(tree({"a": [(number, number)]}))
    asked: list[int] = []

    def stopped() -> bool:
        asked.append(1)
        return len(asked) == 4

    with pytest.raises(StoppedError):
        world.merge(stopped=stopped)
    assert world.left() == []


def test_an_output_is_on_the_disk_before_it_has_its_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(build({f"root.sg.d{n}": {"a": [(1, n)]} for n in range(3)}))
    synced: list[str] = []
    sync, rename = WriteFile.sync, Tree.rename

    def seen(self: WriteFile) -> None:
        sync(self)
        synced.append(os.readlink(f"/proc/self/fd/{self.fileno()}"))

    def renamed(self: Tree, source: str, target: str, **more: Any) -> None:
        assert str(world.out / source) in synced
        assert more.get("sync", True)
        rename(self, source, target, **more)

    monkeypatch.setattr(WriteFile, "sync", seen)
    monkeypatch.setattr(Tree, "rename", renamed)
    assert len(world.merge(target=1).outputs) == len(synced) == 3


def test_files_of_which_all_is_deleted_come_to_no_output(world: World) -> None:
    file = world.add(tree({"a": [(1, 1)]}))
    record = f"DELETION,{D1}.a,{2**63 - 1},0,9\n".encode()
    world.notes = [NotesAsked("edge", file.physical, "mods", record, 0, 1)]
    assert world.merge().outputs == ()
    assert world.left() == []


def test_a_deletion_of_a_file_that_was_open_leaves_the_chunks_behind_it_alone(
    world: World,
) -> None:
    content = tree({"a": [(time, time) for time in range(6)]}, chunks=3)
    with TsFileReader(memory(content)) as reader:
        (device,) = reader.tail.devices
        series = reader.series(device, "a")
        third = list(reader.chunks(device, series))[2].offset
    file = world.add(content)
    record = f"DELETION,{D1}.a,{third},0,9\n".encode()
    world.notes = [NotesAsked("edge", file.physical, "mods", record, 0, 1)]
    assert points(world.merge()) == {(D1, "a", 4): 4, (D1, "a", 5): 5}


def memory(content: bytes) -> Any:
    from common.tsfile.byte_source import source_of

    return source_of(content)


def test_outputs_take_the_version_of_the_newest_file(world: World) -> None:
    world.add(tree({"a": [(1, 1)]}, version=3))
    assert [each.version for each in world.merge().outputs] == [3]
    world.add(build({"root.sg.d2": {"a": [(2, 2)]}}))
    answer = world.merge()
    assert [each.version for each in answer.outputs] == [4]
    assert points(answer) == {(D1, "a", 1): 1, ("root.sg.d2", "a", 2): 2}


def test_a_device_that_is_larger_than_an_output_is_cut_by_time(world: World) -> None:
    rng = np.random.default_rng(1)
    for number in range(4):
        times = np.arange(20_000) + number * 10_000
        content = bytearray()
        writer = TsFileWriter(content.extend, version=3)
        with writer.plain_device((D1,)) as device:
            for name in ("a", "b"):
                form = SeriesForm(name, DataType.DOUBLE, Encoding.GORILLA, Compression.LZ4)
                device.write(form, times, Column(DataType.DOUBLE, rng.normal(size=20_000)))
        writer.finish()
        world.add(bytes(content))
    answer = world.merge(target=200_000)
    spans = [(each.first, each.last) for each in answer.outputs]
    assert len(spans) > 3
    assert spans == sorted(spans)
    assert all(one[1] < other[0] for one, other in pairwise(spans))
    assert sum(each.points for each in answer.outputs) == 2 * 50_000
    assert answer.points == 2 * 80_000
    assert max(each.size for each in answer.outputs) < 2 * 200_000


def spread(*times: int) -> bytes:
    """A file whose one chunk reaches over all of these times."""
    content = bytearray()
    writer = TsFileWriter(content.extend, version=3)
    with writer.plain_device((D1,)) as device:
        form = SeriesForm("a", DataType.INT64, Encoding.PLAIN, Compression.UNCOMPRESSED)
        column = np.array(times, np.int64)
        device.write(form, column, Column(DataType.INT64, column))
    writer.finish()
    return bytes(content)


def test_times_at_both_ends_are_cut_where_partitions_begin(world: World) -> None:
    times = (-(2**63), -1, 0, 2**62, 2**63 - 1)
    world.add(spread(*times))
    world.add(spread(5, 6))
    answer = world.merge(interval=2**62)
    spans = [(each.first, each.last) for each in answer.outputs]
    assert spans == [(-(2**63), -(2**63)), (-1, -1), (0, 6), (2**62, 2**63 - 1)]
    assert points(answer) == {(D1, "a", each): each for each in (*times, 5, 6)}


def test_points_of_very_many_partitions_are_refused_and_not_looked_for_in_each(
    world: World,
) -> None:
    world.add(spread(-(2**63), 2**63 - 1))
    with pytest.raises(ContradictingFilesError, match="may be of 30500568906 time partitions"):
        world.merge(interval=604_800_000)
    assert world.left() == []


def test_times_of_a_circle_of_ranks_are_as_readers_see_them(world: World) -> None:
    """One stands above the second and that above the third by name, the third above the first."""
    for number in range(3):
        file = world.add(tree({"a": [(time, number) for time in range(number, 9)]}))
        first, last = ((5, 9), (3, 6), (1, 4))[number]
        if number == 2:
            first, last = 10, NOW
        name = (0, (3, 2, 1)[number], 1, 0, 0)
        world.files[-1] = msgspec.structs.replace(
            file, first=first, closed=first, last=last if number else 9, name=name
        )
    found = points(world.merge())
    assert found[D1, "a", 5] == 2


@pytest.mark.few(25)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_real_file_merged_has_the_rows_that_a_reader_finds_in_it(
    world: World, path: Path
) -> None:
    world.add(path.read_bytes())
    try:
        with TsFileReader(path, text="binary") as reader:
            wanted = {
                device.name: [row for batch in reader.read_device(device) for row in rows(batch)]
                for device in reader.tail.devices
            }
    except (DamagedData, UnsupportedData):
        with pytest.raises((DamagedData, UnsupportedData, ContradictingFilesError)):
            world.merge()
        return
    found: dict[str, list[Any]] = {}
    for output in world.merge().outputs:
        with TsFileReader(output.path, text="binary") as reader:
            for device in reader.tail.devices:
                found[device.name] = [
                    row for batch in reader.read_device(device) for row in rows(batch)
                ]
    assert found == {device: listed for device, listed in wanted.items() if listed}


def rows(batch: Any) -> list[dict[str, Any]]:
    """Of each its cells; a NaN as text, since it is not itself."""
    return [
        {
            name: repr(value) if isinstance(value, float) else value
            for name, value in row.items()
            if value is not None
        }
        for row in batch.to_pylist()
    ]
