"""The tree in the store at each commit is what readers saw at it, whatever came between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from common import crash
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.query.file_tree import directories_of
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.tree import tree_beginning, tree_merging, tree_shipping
from tests.support import tiers
from tests.support.tree_world import Duck, TreeCentre, bucket

POINTS = ("storage.tree.tables", "storage.tree.put")


class Life:
    """Random commits, shipments, deaths and takeovers; remembers what was seen at each commit."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.place = bucket(root)
        short = EngineOptions(history=0.0, history_commits=25)
        options = short if seed % 2 else EngineOptions()
        self.centre = TreeCentre(root, DirectoryStore(self.place), options)
        self.centre.between = self.between
        self.number = 0
        self.seen: dict[int, frozenset[str]] = {}
        for _ in range(self.chance.randrange(8)):
            self.commit()

    def rows(self, *states: FileState) -> list[FileRow]:
        with self.centre.engine.reading() as state:
            return sorted(
                (row for row in state.files.values() if row.state in states),
                key=lambda row: row.physical,
            )

    def one(self, *states: FileState) -> FileRow | None:
        found = self.rows(*states)
        return self.chance.choice(found) if found else None

    def ops(self) -> list[records.Op]:
        kind = self.chance.randrange(11)
        seen = self.one(FileState.LIVE, FileState.RETIRED)
        if kind < 3 or (seen is None and kind < 7):
            self.number += 1
            group = self.chance.choice(("root.a", "root.b", "root.b.c"))
            return [
                self.centre.loaded(self.number, group=group, partition=self.chance.randrange(2))
            ]
        if kind == 3:
            assert seen is not None
            self.number += 1
            return [records.FileDeleted(seen.physical, "replaced"), self.centre.loaded(self.number)]
        if kind == 4:
            assert seen is not None
            return [records.FileQuarantined(seen.physical, "bad")]
        if kind == 5:
            assert seen is not None
            retired = [] if seen.retired else [records.FileRetired(seen.physical)]
            return [*retired, records.FileSuperseded(seen.physical, ())]
        if kind == 6:
            every = self.one(*(each for each in FileState if each is not FileState.DELETED))
            return [] if every is None else [records.FileDeleted(every.physical, "operator")]
        back = {
            7: (FileState.QUARANTINED, records.FileRestored),
            8: (FileState.SUPERSEDED, records.FileRevived),
            10: (FileState.DELETED, records.FileForgotten),
        }
        if kind == 9:
            row = self.one(FileState.DELETED)
            if row is None:
                return []
            devices = [records.DeviceRange("root.x.d", row.first, row.last)]
            return [records.FileUndeleted(row.physical, devices)]
        state, made = back[kind]
        row = self.one(state)
        return [] if row is None else [made(row.physical)]

    def commit(self) -> None:
        ops = self.ops()
        if not ops:
            return
        try:
            self.centre.engine.commit(ops)
        except RefusedCommitError:
            return
        self.remember()

    def remember(self) -> None:
        with self.centre.engine.reading() as state:
            self.seen[state.newest] = frozenset(
                row.physical for row in state.files.values() if row.visible
            )

    def between(self) -> None:
        """While the shipper is at work."""
        if self.chance.random() < 0.5:
            self.commit()

    def die_while_shipping(self) -> None:
        point, times = self.chance.choice(POINTS), self.chance.randrange(1, 3)

        def die(name: str) -> None:
            nonlocal times
            if name == point:
                times -= 1
                if not times:
                    raise crash.SimulatedCrash

        try:
            with crash.arm(die):
                self.centre.ship()
        except crash.SimulatedCrash:
            self.centre.restart()
            self.centre.between = self.between

    def step(self) -> None:
        self.centre.engine.collect()
        kind = self.chance.randrange(20)
        if kind < 12:
            self.commit()
        elif kind < 14:
            self.centre.uploader.run_once()
            self.remember()
        elif kind < 17:
            self.centre.ship()
        elif kind < 19:
            self.die_while_shipping()
        elif self.chance.random() < 0.3:
            next_incarnation(self.centre.store, self.centre.home, self.centre.engine.uuid)
            self.centre.restart()
            self.centre.between = self.between

    def check(self) -> None:
        """All commits that the newest manifest is right for, and the directories too."""
        self.centre.between = lambda: None
        self.centre.ship()
        newest = self.centre.shipper.newest
        assert newest is not None
        duck = Duck(str(self.place))
        checked = 0
        for ts, seen in self.seen.items():
            if not newest.since <= ts <= newest.ts:
                continue
            rows = duck.at(ts)
            assert sorted(row[1] for row in rows if row[0] == "file") == sorted(seen), ts
            directories = {(each.kind, each.path) for one in seen for each in directories_of(one)}
            assert sorted(row[:2] for row in rows if row[0] != "file") == sorted(directories)
            checked += 1
        assert checked
        counts = {row[1]: row[4] for row in duck.at(newest.ts) if row[0] == "partition"}
        now = [directories_of(each)[-1].path for each in self.seen[max(self.seen)]]
        assert counts == {each: now.count(each) for each in now}
        self.centre.between = self.between


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(tiers.seed(), tiers.seed() + tiers.examples(2)))
def test_the_tree_at_each_commit_is_what_readers_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(tree_beginning, "_SLICE", 2)
    monkeypatch.setattr(tree_merging, "PART", 4)
    monkeypatch.setattr(tree_shipping, "PART", 4)
    monkeypatch.setattr(tree_merging, "_AT_ONCE", 3)
    monkeypatch.setattr(tree_merging, "_LEAST", 20)
    monkeypatch.setattr(tree_shipping, "_ROWS", 5)
    monkeypatch.setattr(tree_shipping, "_TOGETHER", 2)
    life = Life(tmp_path, seed)
    for _ in range(3):
        for _ in range(25):
            life.step()
        life.check()
    life.centre.stop()
