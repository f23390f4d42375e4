"""A node that merges what an edge sends it, and what is read of the merged files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from receiver.compaction.making.merge_comparing import compare_merge
from receiver.compaction.making.merging import merge_files
from receiver.compaction.worth_merging.merge_asked import (
    ComparisonAsked,
    ComparisonReply,
    MergeAnswer,
    MergeAsked,
)
from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow
from receiver.node import Node
from receiver.points import TsFileReader
from tests.support.proving import Site


class MergedHere:
    """Merges in this process; what a test wants to happen meanwhile happens first."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.meanwhile = meanwhile
        self.asked: list[MergeAsked] = []

    def ask(
        self, asked: MergeAsked, stopped: Callable[[], bool], paused: Callable[[], bool]
    ) -> MergeAnswer:
        del stopped, paused
        self.asked.append(asked)
        answer = merge_files(asked)
        self.meanwhile()
        return answer

    def close(self) -> None:
        pass


class Refusing(MergedHere):
    """Refuses to merge one file with others."""

    def __init__(self, physical: str, why: Exception) -> None:
        super().__init__()
        self.physical, self.why = physical, why

    def ask(
        self, asked: MergeAsked, stopped: Callable[[], bool], paused: Callable[[], bool]
    ) -> MergeAnswer:
        if any(each.physical == self.physical for each in asked.files):
            self.asked.append(asked)
            raise self.why
        return super().ask(asked, stopped, paused)


class ComparedHere:
    """Compares in this process; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[ComparisonAsked] = []

    def ask(
        self,
        asked: ComparisonAsked,
        stopped: Callable[[], bool],
        paused: Callable[[], bool] = lambda: False,
    ) -> ComparisonReply:
        del stopped, paused
        self.asked.append(asked)
        return compare_merge(asked)

    def close(self) -> None:
        pass


def merge_here(node: Node, process: MergedHere | None = None) -> MergedHere:
    """Have the compactor of a node merge in this process, and what it makes compared in it."""
    process = process or MergedHere()
    node.compactor._process = process
    node.merge_comparer._process = ComparedHere()
    return process


def with_interval(node: Node, interval: int) -> None:
    """Have partitions be of this width, in the unit of the data, for outputs that are cut there."""
    compactor = node.compactor
    rules = replace(
        compactor.due.rules, limits=replace(compactor.due.rules.limits, interval=interval)
    )
    compactor.due.rules = rules
    compactor.run = replace(compactor.run, rules=rules)


def compactions(node: Node) -> list[CompactedRow]:
    """Those that readers read."""
    with node.engine.reading() as state:
        return sorted(state.compacted_table.holding(), key=lambda row: row.created)


def given_by(node: Node, row: CompactedRow) -> dict[tuple[str, int], int]:
    """The points of the outputs of a compaction, which must not overlap."""
    return points_of(node, [each.physical for each in row.outputs])


def points_of(node: Node, names: Sequence[str]) -> dict[tuple[str, int], int]:
    """The points of merged files, which must not overlap."""
    found: dict[tuple[str, int], int] = {}
    for physical in names:
        place = next(
            tree.path / physical for tree in node.load.disks.trees if tree.exists(physical)
        )
        with TsFileReader(place) as reader:
            for device in reader.tail.devices:
                for series in device.series():
                    for batch in reader.read_series(device, series.measurement):
                        times, values = (column.to_pylist() for column in batch.columns)
                        more = {
                            (series.measurement, time): value
                            for time, value in zip(times, values, strict=True)
                        }
                        assert found.keys().isdisjoint(more)
                        found |= more
    return found


def small_files(site: Site, count: int, *, begin: int = 1, step: int = 10) -> list[str]:
    """So many files that do not overlap, sent in one look; returns their paths."""
    paths = [f"sequence/root.sg/0/0/{at}-{at}-0-0.tsfile" for at in range(begin, begin + count)]
    site.round(
        {
            path: {"a": {at * step + each: at for each in range(5)}}
            for at, path in enumerate(paths, begin)
        }
    )
    return paths
