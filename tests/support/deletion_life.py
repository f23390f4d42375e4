"""What operators delete and call back, between whatever else happens to a centre and its edge.

The model knows points, acknowledgements and what an operator said; nothing of notes, merges or
tails. Each content has points of its own, so what readers get is the points of the visible files.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from common import wire
from common.digests import md5
from receiver.metadata.commit.group_deletion import delete_groups
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.node import Node
from receiver.operator.stored.files import delete_files, undelete_files
from receiver.operator.stored.quarantine import drop_quarantined
from receiver.operator.stored.retired import drop_retired
from tests.support.merging_node import merge_here, points_of, with_interval
from tests.support.node_world import B, Clock, Edge, World, plan_entry
from tests.support.proving import Site, in_this_process

__all__ = ["DeletionLife"]

HISTORY, KEPT, FINAL_AFTER = 1000.0, 100.0, 50.0
INTERVAL = 4000
"""Width of a time partition: merged files are cut there, and some contents lie on both sides."""
Keys = frozenset[tuple[str, int]]


class DeletionLife:
    """One life; each step judges.

    Attributes:
        deleted: points that an operator deleted, and nobody called back.
        acknowledged: points that the edge was told are loaded.
        seen: how often each thing happened.
    """

    def __init__(self, chance: random.Random, root: Path) -> None:
        self.chance, self.root, self.clock = chance, root, Clock()
        self.world = self._world("0")
        self.node = self._open()
        self.site, self.other = Site(self.node), Edge(self.node, B)
        self.number = 0
        self.raw: dict[str, tuple[str, bytes]] = {}
        self.points: dict[str, Keys] = {}
        self.deleted: set[tuple[str, int]] = set()
        self.acknowledged: set[tuple[str, int]] = set()
        self.copy: tuple[Path, set[tuple[str, int]], set[tuple[str, int]]] | None = None
        self.seen: dict[str, int] = {}

    def _world(self, name: str) -> World:
        merge = {"enabled": True, "quiet": 0.0, "min_files": 2, "final_after": FINAL_AFTER}
        return World(
            self.root / name,
            clock=self.clock,
            keep_deleted=KEPT,
            metadata={"history": HISTORY},
            merge=merge,
        )

    def _open(self) -> Node:
        node = self.world.still_node()
        merge_here(node)
        in_this_process(node)
        with_interval(node, INTERVAL)
        return node

    def _again(self) -> None:
        self.site.again(self.node)
        self.other.node = self.node

    def close(self) -> None:
        self.node.close()

    # -- what is there -------------------------------------------------------------------------

    def rows(self, *states: FileState) -> list[FileRow]:
        with self.node.engine.reading() as state:
            found = [row for row in state.files.values() if not states or row.state in states]
        return sorted(found, key=lambda row: row.physical)

    def of_row(self, row: FileRow) -> Keys:
        if row.md5 not in self.points:
            self.points[row.md5] = frozenset(points_of(self.node, [row.physical]))
        return self.points[row.md5]

    def of_rows(self, rows: Iterable[FileRow]) -> set[tuple[str, int]]:
        return {key for row in rows for key in self.of_row(row)}

    def visible(self) -> set[tuple[str, int]]:
        return self.of_rows(row for row in self.rows() if row.visible)

    def judge(self) -> None:
        visible = self.visible()
        bad = self.of_rows(self.rows(FileState.QUARANTINED))
        assert not visible & self.deleted, "an operator deleted it, and nobody called it back"
        assert self.acknowledged <= visible | self.deleted | bad, "it was acknowledged"

    # -- the edge ------------------------------------------------------------------------------

    def _path(self, partitions: int = 1) -> str:
        self.number += 1
        part = self.chance.randrange(partitions)
        return f"sequence/root.sg/0/{part}/{self.number}-{self.number}-0-0.tsfile"

    def files(self) -> None:
        """New ones, in a look; some lie in two intervals, and so in two merged files."""
        made = {}
        for _ in range(self.chance.randint(1, 4)):
            path = self._path()
            begin = self.number * 4
            times = [begin, begin + 1]
            if self.chance.random() < 0.4:
                times += [begin + INTERVAL, begin + INTERVAL + 1]
            made[path] = {self.chance.choice("ab"): dict.fromkeys(times, self.number)}
        self.site.round(made)
        for path, points in made.items():
            raw = self.site.bytes_of(points, path)
            name = md5(raw).hexdigest()
            self.raw[name] = (path, raw)
            self.points[name] = frozenset(
                (series, time) for series, each in points.items() for time in each
            )
            self.acknowledged |= self.points[name]

    def ends(self) -> None:
        live = [row.path for row in self.rows(FileState.LIVE)]
        if live:
            self.site.round({}, self.chance.sample(live, self.chance.randint(1, len(live))))

    def again(self) -> None:
        """What an edge once had comes again, under some path, from it or from another one."""
        if not self.raw:
            return
        with self.node.engine.reading() as state:
            owner = state.owners.get("root.sg.d1")
        # Where nobody has the device another box would get it.
        others = [self.other] if owner is not None and owner.sender != B else []
        edge = self.chance.choice([self.site.edge, self.site.edge, *others])
        retry = edge.uuid != B and self.chance.random() < 0.2
        several = {}
        for name in self.chance.sample([*self.raw], min(len(self.raw), 3)):
            path, raw = self.raw[name]
            several[path if self.chance.random() < 0.5 else self._path(2)] = raw
        bad = self.of_rows(self.rows(FileState.QUARANTINED))
        before = self.visible()
        # What another one has visible as a file of its own was not deleted, for whoever asks.
        as_files = {row.md5 for row in self.rows() if row.visible and row.sender != edge.uuid}
        edge.check()
        task = edge.start()
        entries = [plan_entry(path, raw, retry=retry) for path, raw in several.items()]
        sends = {
            each.path
            for each in edge.plan(task, entries)
            if each.action in (wire.Action.SEND, wire.Action.RESUME)
        }
        if sends:
            edge.batch(task, {path: several[path] for path in sends})
        edge.end(task, several)
        for path, outcome in edge.outcome(task).items():
            name = md5(several[path]).hexdigest()
            self._answered(self.points[name], outcome.result, retry, before, bad)
            if outcome.result is wire.Result.EXPIRED:
                assert name not in as_files, "it is there"

    def _answered(
        self,
        points: Keys,
        result: wire.Result,
        retry: bool,
        before: set[tuple[str, int]],
        bad: set[tuple[str, int]],
    ) -> None:
        self._count(str(result))
        if result is wire.Result.EXPIRED:
            assert not retry
            # One with its content may have gone while a merged file has the points.
            assert points & self.deleted or points <= before, "nobody deleted it"
            assert points <= self.deleted | before, "some of it is nowhere else"
        if result in (wire.Result.LOADED, wire.Result.ALREADY):
            self.acknowledged |= points
            if retry or points & bad:
                self.deleted -= points

    # -- the centre ----------------------------------------------------------------------------

    def merge(self) -> None:
        self.node.compactor.compact("root.sg")
        self._pass(100)
        self._count("merged", self.node.compactor.run_once())

    def final(self) -> None:
        self.merge()
        self.site.round({}, [row.path for row in self.rows(FileState.LIVE)])
        self.node.prover.run_once()
        self.files()
        self._pass(FINAL_AFTER + 1)
        self._count("final", self.node.final_merges.run_once())

    def prove(self) -> None:
        self.node.prover.run_once()

    def reap(self) -> None:
        self._pass(self.chance.choice((KEPT, HISTORY + KEPT)))
        self.visible()
        self.of_rows(row for row in self.rows(FileState.QUARANTINED))
        self.node.load.reaper.run_once()
        self.node.merged.let_go(self.clock.now)

    def restart(self) -> None:
        if self.chance.random() < 0.5:
            self.node.engine.checkpoint()
        self.node.close()
        self.node = self._open()
        self._again()

    def keep_copy(self) -> None:
        self.node.close()
        place = self.root / f"copy-{self.number}-{len(self.seen)}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.world.root, place)
        self.copy = place, set(self.deleted), set(self.acknowledged)
        self.node = self._open()
        self._again()

    def restore(self) -> None:
        """The centre is as it was: what was said since is not known to it, nor to the model."""
        if self.copy is None:
            return
        place, deleted, acknowledged = self.copy
        self.node.close()
        shutil.rmtree(self.world.root)
        shutil.copytree(place, self.world.root)
        self.deleted, self.acknowledged = set(deleted), set(acknowledged)
        self.node = self._open()
        self._again()
        self._count("restored")

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds
        self.node.engine.collect()

    # -- operators -----------------------------------------------------------------------------

    def _deletes(self, rows: Iterable[FileRow], delete: Callable[[], object]) -> None:
        points = self.of_rows(rows)
        delete()
        self.deleted |= points - self.visible()
        self._count("deleted", len(points))

    def delete_some(self) -> None:
        retired = self.rows(FileState.RETIRED)
        some = self.chance.sample(retired, min(len(retired), self.chance.randint(1, 3)))
        names, everywhere = [row.physical for row in some], self.chance.random() < 0.3
        self._deletes(some, lambda: delete_files(self.node.operator, names, everywhere=everywhere))

    def drop(self) -> None:
        merged = [row for row in self.rows(FileState.RETIRED) if "/merged-" in row.physical]
        rows = merged or self.rows(FileState.RETIRED)
        if rows:
            row = self.chance.choice(rows)
            self._deletes([row], lambda: drop_retired(self.node.operator, row.physical))

    def group(self) -> None:
        with self.node.engine.reading() as state:
            known = [group.nodes for group in state.schema.groups.rows()]
        if not known:
            return
        patterns = [parse_pattern("root.sg")]
        rows = [row for row in self.rows() if row.state is not FileState.DELETED]
        self._deletes(
            [row for row in rows if row.state is not FileState.SUPERSEDED],
            lambda: delete_groups(
                self.node.engine, patterns, with_data=True, held_from=None, allowed=None
            ),
        )

    def lose(self) -> None:
        """A verification finds a file bad; sometimes an operator gives it up."""
        rows = [row for row in self.rows() if row.visible]
        if not rows:
            return
        row = self.chance.choice(rows)
        self.of_row(row)
        self.node.engine.commit([records.FileQuarantined(row.physical, "bad")])
        self._count("quarantined")

    def give_up(self) -> None:
        rows = self.rows(FileState.QUARANTINED)
        if rows:
            row = self.chance.choice(rows)
            self._deletes(
                [row],
                lambda: drop_quarantined(self.node.operator, row.sender, row.path, row.physical),
            )

    def undelete(self) -> None:
        rows = self.rows(FileState.DELETED)
        some = self.chance.sample(rows, min(len(rows), 2))
        back = undelete_files(self.node.operator, [row.physical for row in some]).back
        for row in some:
            if row.physical in back:
                self.deleted -= self.of_row(row)
                self.acknowledged |= self.of_row(row)
                self._count("undeleted")

    def _count(self, what: str, how_often: int = 1) -> None:
        self.seen[what] = self.seen.get(what, 0) + how_often

    @property
    def steps(self) -> list[Callable[[], None]]:
        """Those that happen more often are named more often."""
        return [
            *[self.files, self.again] * 3,
            *[self.ends, self.merge, self.final, self.reap] * 2,
            *[self.delete_some, self.drop, self.prove, self.restart] * 2,
            self.group, self.lose, self.give_up, self.undelete, self.keep_copy, self.restore,
        ]  # fmt: skip

    def run(self, steps: int) -> None:
        """Live so many steps, and then be asked for all that there ever was."""
        for _ in range(steps):
            self.chance.choice(self.steps)()
            self.judge()
        for _ in range(4):
            self.again()
            self.judge()
