"""What may happen to an edge and to a centre that merges its files; the answer is known by points.

What a step has to hold beside the answer it says itself: nothing here knows why a merge is
dissolved, or may be final.
"""

from __future__ import annotations

import random

from receiver.metadata.model import records
from receiver.metadata.model.ranks import highest
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.node import Node
from receiver.operator.stored.retired import drop_retired
from tests.support.merging_node import (
    MergedHere,
    compactions,
    given_by,
    merge_here,
    points_of,
)
from tests.support.node_world import Clock
from tests.support.proving import Site, given, in_this_process

__all__ = ["FINAL_AFTER", "MergingLife", "merged_answer"]

FINAL_AFTER = 50.0
"""Seconds."""


def merged_answer(site: Site) -> dict[tuple[str, int], int]:
    """What a reader is given that reads outputs in place of their inputs, below all else."""
    rows = compactions(site.node)
    inside = {each for row in rows for each in row.inputs}
    found: dict[tuple[str, int], int] = {}
    for row in rows:
        found |= given_by(site.node, row)
    with site.node.engine.reading() as state:
        others = {
            row.physical: row
            for row in state.files.values()
            if row.visible and row.physical not in inside
        }
    return found | given_together(site, others)


def given_together(site: Site, rows: dict[str, FileRow]) -> dict[tuple[str, int], int]:
    """What readers are given of some files by their names."""
    giving: dict[tuple[str, int], dict[str, int]] = {}
    for physical, row in rows.items():
        for key, value in given(row, site.points[physical], site.deleted).items():
            giving.setdefault(key, {})[physical] = value
    return {
        key: each[highest([rows[name].rank for name in each]).physical]
        for key, each in giving.items()
    }


class MergingLife:
    """What may happen to an edge and its centre.

    Attributes:
        columns: series that the edge writes.
        floor: time from which on it writes.
    """

    columns = "ab"
    floor = 0

    def __init__(
        self,
        chance: random.Random,
        node: Node,
        clock: Clock,
        partitions: int = 1,
        kind: type[Site] = Site,
    ) -> None:
        self.chance, self.node, self.clock = chance, node, clock
        self.partitions = partitions
        self.site = kind(node)
        self.number = 0
        self.merged = self.finals = 0
        self.process = merge_here(node, MergedHere(self.meanwhile))
        in_this_process(node)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    def visible(self) -> list[str]:
        with self.node.engine.reading() as state:
            return [row.physical for row in state.files.values() if row.visible]

    def listed(self) -> list[str]:
        with self.node.engine.reading() as state:
            return [row.path for row in state.files.values() if row.state is FileState.LIVE]

    def files(self) -> None:
        made = {}
        for _ in range(self.chance.randint(1, 6)):
            self.number += 1
            kind = self.chance.choice(("sequence", "sequence", "unsequence"))
            part = self.chance.randrange(self.partitions)
            path = f"{kind}/{self.site.group}/0/{part}/{self.number}-{self.number}-0-0.tsfile"
            if kind == "sequence":
                base = max(self.floor, self.number * 3)
            else:
                base = self.floor + self.chance.randint(0, 60)
            series = self.chance.sample(self.columns, self.chance.randint(1, len(self.columns)))
            made[path] = {
                each: {base + at: self.number for at in range(self.chance.randint(1, 4))}
                for each in series
            }
        self.site.round(made)

    def ends(self) -> None:
        if listed := self.listed():
            self.site.round({}, self.chance.sample(listed, min(len(listed), 2)))

    def deletion(self) -> None:
        if not (listed := self.listed()):
            return
        first = self.floor + self.chance.randint(0, 60)
        self.site.note(
            self.chance.choice(listed), self.chance.choice(self.columns), first, first + 5,
            floor=self.chance.choice((0, self.site.look)),
        )  # fmt: skip

    def loss(self) -> None:
        if visible := [each for each in self.visible() if "/merged-" not in each]:
            self.node.engine.commit([records.FileDeleted(self.chance.choice(visible), "operator")])

    def drop(self) -> None:
        """An operator gives up a retired file: of what it gave comes back what rested on it alone.

        What is within a merged file that is dropped goes with it.
        """
        before = self.rows()
        retired = [row for row in before.values() if row.visible and row.retired]
        if not retired:
            return
        row = self.chance.choice(retired)
        with self.node.engine.reading() as state:
            maker = state.compacted_table.finals.maker(row.physical)
        drop_retired(self.node.operator, row.physical)
        visible = {name for name, each in self.rows().items() if each.visible}
        assert visible <= before.keys() - {row.physical}
        assert {name for name, each in before.items() if each.visible} <= {*visible, row.physical}
        given_up = {row.physical, *(maker.inputs if maker is not None else ())}
        for name in visible:
            assert before[name].visible or given_up.intersection(before[name].rests)
        assert visible.isdisjoint(given_up)

    def fade(self) -> None:
        """All is gone at the edge, which comes once more; what was merged of it may be final."""
        self.by_hand()
        self.site.round({}, self.listed())
        self.proofs()
        self.number += 1
        path = f"sequence/{self.site.group}/0/9/{self.number}-{self.number}-0-0.tsfile"
        self.site.round({path: {"a": {1000 + self.number: self.number}}})
        self.final()

    def final(self) -> None:
        """Merged files take the place of what they were made of; no answer changes."""
        before, rows = self.site.answer(), self.rows()
        self.pass_time(FINAL_AFTER + 1)
        self.node.final_merges.run_once()
        self.learn(rows)
        assert self.site.answer() == before

    def rows(self) -> dict[str, FileRow]:
        with self.node.engine.reading() as state:
            return dict(state.files.items())

    def learn(self, before: dict[str, FileRow]) -> None:
        """A merged file that is a file of its own now has the points that its inputs gave."""
        rows = self.rows() | before  # as they stood before they were superseded
        made: dict[tuple[str, ...], list[FileRow]] = {}
        with self.node.engine.reading() as state:
            for row in state.files.values():
                if "/merged-" in row.physical and row.physical not in self.site.points:
                    maker = state.compacted_table.finals.maker(row.physical)
                    assert maker is not None
                    made.setdefault(tuple(maker.inputs), []).append(row)
        for inputs, outputs in made.items():
            self.finals += 1
            wanted = given_together(self.site, {name: rows[name] for name in inputs})
            assert points_of(self.node, [each.physical for each in outputs]) == wanted
            for output in outputs:
                points: dict[str, dict[int, int]] = {}
                for (series, time), value in wanted.items():
                    if output.first <= time <= output.last:  # type: ignore[operator]
                        points.setdefault(series, {})[time] = value
                self.site.points[output.physical] = points

    def proofs(self) -> None:
        self.node.prover.run_once()

    def merge(self) -> None:
        self.pass_time(100)
        rows = self.rows()
        self.merged += self.node.compactor.run_once()  # and what may become final does
        self.learn(rows)

    def by_hand(self) -> None:
        self.node.compactor.compact(self.site.group)
        self.merge()

    def let_go(self) -> None:
        self.pass_time(5000)
        self.node.merged.let_go(self.clock.now)

    def meanwhile(self) -> None:
        if self.chance.random() < 0.3:
            self.chance.choice((self.files, self.ends, self.deletion, self.loss))()
