"""A merge of drawn files, judged by the dictionary, and what such a case was made of."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from unittest import mock

from common.tsfile import DataType, Status, read_tail
from receiver.compaction.making import chunk_runs, device_chunks, device_rows, input_files
from receiver.compaction.making.merging import merge_files
from receiver.compaction.worth_merging.merge_asked import MergeAnswer, MergeAsked
from receiver.points import TsFileReader, many_chunks
from tests.support.encoders.cases import decoded_list
from tests.support.merge_world import EDGES, Answer, MadeFile, MergeWorld


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


@contextlib.contextmanager
def small_limits(rng: Random) -> Iterator[None]:
    """Limits of the merge at random, so that files of some rows meet them."""
    drawn = (
        (chunk_runs, "_MOST_FILES", (1, 2, 256)),
        (device_chunks, "_ENTRIES", (1, 8, 200_000)),
        (device_rows, "_LEAST_ROWS", (1, 20, 1024)),
        (device_rows, "_CELL_BYTES", (32, 32, 1 << 17, 1 << 24)),
        (device_rows, "_LEAST_PAGE", (1, 1, 3, 4000)),
        (input_files, "_SMALL", (0, 1 << 20)),
        (input_files, "_MOST_DESCRIPTORS", (1, 256)),
        (many_chunks, "_MOST_POINTS", (0, 10, 32_768)),
        (many_chunks, "_LEAST_READ", (20, 256)),
    )
    with contextlib.ExitStack() as stack:
        for module, name, several in drawn:
            stack.enter_context(mock.patch.object(module, name, rng.choice(several)))
        yield


def merged_case(seed: int, directory: Path) -> tuple[MergeWorld, MergeAnswer]:
    """Draw files, merge them, and judge what came of it.

    Raises:
        AssertionError: readers would get something else of the outputs.
    """
    rng = Random(seed)
    out = directory / "out"
    out.mkdir(parents=True)
    world = MergeWorld(rng, directory)
    with small_limits(rng):
        target = rng.choice((1, 300, 1000, 1 << 20))
        interval = 0 if EDGES[0] in world.times else rng.choice((0, 0, 1, 7, 25)) * world.step
        asked = MergeAsked(
            tuple(each.asked for each in world.files), world.notes(), "sg", str(out), "m", target,
            rng.choice((1, 3 << 20, 512 << 20)), interval,
        )  # fmt: skip
        answer = merge_files(asked)
        judge(world, answer)
    if interval:
        assert all(each.first // interval == each.last // interval for each in answer.outputs)
    return world, answer


def made_of(world: MergeWorld, answer: MergeAnswer) -> set[str]:
    """What a case has in it, in words."""
    found = {f"type {DataType(code).name}" for code in world.types.values()}
    found |= {f"TsFile version {each.version}" for each in world.files}
    found |= {("aligned" if yes else "not aligned") for yes in world.aligned.values()}
    found.add("tables" if world.is_table else "tree")
    cells = [
        {
            (device, time, name)
            for device, flushes in each.rows.items()
            for rows in flushes
            for time, row in rows.items()
            for name in row
        }
        for each in world.files
    ]
    meant = {
        "several files": len(world.files) > 1,
        "both versions of the format": len({each.version for each in world.files}) > 1,
        "late data": any(_is_late(*pair) for pair in combinations(world.files, 2)),
        "updates": any(not one.isdisjoint(other) for one, other in combinations(cells, 2)),
        "several flushes of a file": any(
            len(flushes) > 1 for each in world.files for flushes in each.rows.values()
        ),
        "deletions": bool(world.deletions),
        "deletions in text": any(each.form == "mods" for each in world.deletions),
        "times before 1970": world.times[0] < 0 and EDGES[0] not in world.times,
        "deletions that hide something": _hides(world),
        "nothing left": not answer.outputs,
        "several outputs": len(answer.outputs) > 1,
        "times at both ends of 64 bits": EDGES[0] in world.times,
    }
    return found | {name for name, yes in meant.items() if yes}


def _is_late(before: MadeFile, after: MadeFile) -> bool:
    """Whether what came later begins before the other ends, in a device of both."""
    return any(
        min(map(min, after.rows[device])) <= max(map(max, before.rows[device]))
        for device in before.rows.keys() & after.rows.keys()
    )


def _hides(world: MergeWorld) -> bool:
    """Whether readers of a file get less for the deletions."""
    for file in world.files:
        for device, flushes in file.rows.items():
            whole = {(time, name) for rows in flushes for time, row in rows.items() for name in row}
            left = world.given(file, device)
            if whole != {(time, name) for time, row in left.items() for name in row}:
                return True
    return False
