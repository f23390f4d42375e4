"""Compactions of a receiver's files: what readers get of them, written and committed."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from common.durable import Tree
from common.tsfile import read_tail
from receiver.exporting.merged_inputs import SliceInputs
from receiver.exporting.output_file import OutputFile, WrittenFile
from receiver.exporting.time_slices import TimeSlice
from receiver.exporting.wanted_points import SchemaSeries, WantedPoints
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern
from receiver.spark.finder import DataFile
from receiver.spark.local_catalogue import LocalCatalogue
from receiver.spark.source.read_plans.selection import TimeRange

EVERYTHING = WantedPoints(parse_pattern("root.**"))


def merged(
    engine: Engine, schema_dir: Path, data: Path, inputs: Collection[str], ident: int,
    cuts: Sequence[int] = (), at: int | None = None,
) -> records.FilesCompacted:  # fmt: skip
    """Merge files as of a commit, and write what comes out; nothing is committed.

    Args:
        engine: of the receiver.
        schema_dir: of it.
        data: its data directory, where the outputs go.
        inputs: physical names, of one partition.
        ident: of the compaction.
        cuts: times at which an output ends and the next one begins.
        at: the commit; the newest, if left out.
    """
    at = engine.newest_commit if at is None else at
    with LocalCatalogue(schema_dir, "all", (str(data),)) as catalogue:
        files = tuple(each for each in catalogue.files(at) if each.name in inputs)
    assert len(files) == len(inputs)
    group, _, partition = files[0].name.split("/")[1:4]
    bounds = itertools.pairwise([TimeRange().start, *cuts, TimeRange().end + 1])
    outputs: list[records.CompactionOutput] = []
    with Tree(data) as tree:
        for number, (start, end) in enumerate(bounds):
            part = TimeSlice(1, group, int(partition), TimeRange(start, end - 1), files)
            path = f"{Path(files[0].name).parent}/merged-{ident}-{number}.tsfile"
            path = path.replace("unsequence/", "sequence/", 1)
            written = _written(tree, part, path)
            if written is not None:
                outputs.append(_output(data, group, written))
    return records.FilesCompacted(ident, at, sorted(inputs), outputs)


def compact(
    engine: Engine, schema_dir: Path, data: Path, inputs: Collection[str], ident: int,
    cuts: Sequence[int] = (),
) -> list[Path]:  # fmt: skip
    """The same, and commit it; returns where the outputs lie."""
    op = merged(engine, schema_dir, data, inputs, ident, cuts)
    engine.commit([op])
    return [data / each.physical for each in op.outputs]


def clusters(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Files that overlap each other, directly or by others, in times of a device."""
    found: list[list[DataFile]] = []
    for file in files:
        met = [each for each in found if any(_meet(file, other) for other in each)]
        joined = [file, *itertools.chain.from_iterable(met)]
        found = [each for each in found if each not in met] + [joined]
    return found


def _meet(one: DataFile, other: DataFile) -> bool:
    assert one.devices is not None
    assert other.devices is not None
    there = {name: (first, last) for name, first, last in other.devices.ranges()}
    return any(
        name in there and first <= there[name][1] and there[name][0] <= last
        for name, first, last in one.devices.ranges()
    )


def _written(tree: Tree, part: TimeSlice, path: str) -> WrittenFile | None:
    schema = SchemaSeries([], EVERYTHING)
    with SliceInputs(part, EVERYTHING, schema) as inputs:
        output = OutputFile(tree, path, 4, inputs.tables(), schema)
        try:
            for device in inputs.devices():
                output.add(device)
            written = output.finish()
        finally:
            output.drop()
    with suppress(FileNotFoundError):
        tree.unlink(f"{path}.resource")
    return written


def _output(data: Path, group: str, written: WrittenFile) -> records.CompactionOutput:
    tail = read_tail(data / written.path)
    return records.CompactionOutput(
        written.path, written.size, written.md5, 4,
        [records.DeviceRange(each.name_in(group), each.start, each.end) for each in tail.devices],
        tail.first_time, tail.last_time, written.series, written.points, str(data),
    )  # fmt: skip


__all__ = ["clusters", "compact", "merged"]
