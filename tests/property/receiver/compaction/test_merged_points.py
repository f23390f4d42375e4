"""What a merge of any files writes is what a dictionary says that readers get of them."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from common.tsfile import Status, read_tail
from receiver.compaction import chunk_runs, device_chunks, device_rows, input_files
from receiver.compaction.merge_asked import MergeAnswer, MergeAsked
from receiver.compaction.merging import merge_files
from receiver.points import TsFileReader, many_chunks
from tests.support import tiers
from tests.support.encoders.cases import decoded_list
from tests.support.merge_world import EDGES, Answer, MergeWorld


def rows_of(answer: MergeAnswer, *, table: bool) -> Answer:
    """Of all outputs; a cell that is there twice is an error."""
    found: Answer = {}
    for output in answer.outputs:
        with TsFileReader(output.path, text="binary") as reader:
            for device in reader.tail.devices:
                rows = found.setdefault(device.name, {})
                for name, series in reader.columns(device).items():
                    for ref in reader.chunks(device, series):
                        for block in reader.blocks(device, series, ref):
                            times = block.times.tolist()
                            if block.column is None:
                                for time in times if table else ():
                                    rows.setdefault(time, {})
                                continue
                            valid = block.column.valid
                            there = [True] * len(times) if valid is None else valid.tolist()
                            listed = decoded_list(block.column.values)
                            for time, value, yes in zip(times, listed, there, strict=True):
                                if yes:
                                    assert name not in rows.setdefault(time, {})
                                    rows[time][name] = value
    return found


def judge(world: MergeWorld, answer: MergeAnswer) -> None:
    wanted = world.answer()
    assert rows_of(answer, table=world.is_table) == wanted
    points = sum(len(row) for rows in wanted.values() for row in rows.values())
    assert sum(each.points for each in answer.outputs) == points
    spans: dict[str, list[tuple[int, int]]] = {}
    columns = {
        column.name
        for each in world.files
        for table in read_tail(Path(str(each.asked.path)).read_bytes()).tables
        for column in table.columns
    }
    for output in answer.outputs:
        content = Path(output.path).read_bytes()
        assert (len(content), hashlib.md5(content).hexdigest()) == (output.size, output.md5)
        tail = read_tail(content, chunk_headers=True)
        assert (tail.status, tail.version) == (Status.COMPLETE, output.version)
        assert output.version == world.version
        assert (output.series, output.points) == (tail.series_count, tail.point_count)
        assert (output.first, output.last) == (tail.first_time, tail.last_time)
        for device, told in zip(tail.devices, output.devices, strict=True):
            name = f"/sg/{device.name}" if world.is_table else device.name
            assert told == type(told)(name, device.start, device.end)
            assert device.aligned == world.aligned[device.name]
            assert device.start is not None
            spans.setdefault(name, []).append((device.start, device.end or 0))
            for series in device.series():
                assert series.data_type == world.types[series.measurement]
                kept = world.codecs.get((device.name, series.measurement))
                for chunk in series.chunks:
                    assert kept is None or (chunk.encoding, chunk.compression) in kept
        if world.is_table:
            (table,) = tail.tables
            assert {each.name for each in table.columns} >= columns
            if world.has_properties:
                assert (("unit", "a"),) in {each.properties for each in table.columns}
    for several in spans.values():
        assert all(one[1] < other[0] for one, other in pairwise(sorted(several)))


def merged_by(
    world: MergeWorld, directory: Path, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_runs, "_MOST_FILES", rng.choice((1, 2, 256)))
    monkeypatch.setattr(device_chunks, "_ENTRIES", rng.choice((1, 8, 200_000)))
    monkeypatch.setattr(device_rows, "_LEAST_ROWS", rng.choice((1, 20, 1024)))
    monkeypatch.setattr(device_rows, "_CELL_BYTES", rng.choice((32, 32, 1 << 17, 1 << 24)))
    monkeypatch.setattr(device_rows, "_LEAST_PAGE", rng.choice((1, 1, 3, 4000)))
    monkeypatch.setattr(input_files, "_SMALL", rng.choice((0, 1 << 20)))
    monkeypatch.setattr(input_files, "_MOST_DESCRIPTORS", rng.choice((1, 256)))
    monkeypatch.setattr(many_chunks, "_MOST_POINTS", rng.choice((0, 10, 32_768)))
    monkeypatch.setattr(many_chunks, "_LEAST_READ", rng.choice((20, 256)))
    target = rng.choice((1, 300, 1000, 1 << 20))
    interval = 0 if EDGES[0] in world.times else rng.choice((0, 0, 1, 7, 25))
    asked = MergeAsked(
        tuple(each.asked for each in world.files), world.notes(), "sg", str(directory), "m", target,
        rng.choice((1, 3 << 20, 512 << 20)), interval,
    )  # fmt: skip
    answer = merge_files(asked)
    judge(world, answer)
    if interval:
        assert all(each.first // interval == each.last // interval for each in answer.outputs)


def run(seed: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    directory.mkdir()
    world = MergeWorld(rng, directory)
    out = directory / "out"
    out.mkdir()
    merged_by(world, out, rng, monkeypatch)


@pytest.mark.slow
def test_a_merge_writes_what_readers_get_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(tiers.examples(60)):
        try:
            run(seed, tmp_path / str(seed), monkeypatch)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
