"""Random loads at the centre: a dry run says what the load then does, and readers get its points.

The model has points by device, series and time: `error` adds what is new or changes nothing, `keep`
and `replace` put theirs above, `skip` theirs below. A load is taken whole, or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from receiver.metadata.model.centre_source import centre_uuid
from receiver.node import Node
from receiver.operator.views.load_wire import CentreLoadRequest
from receiver.shared_points.common_points import compare
from receiver.shared_points.compare_process import CompareProcess
from tests.support import tiers
from tests.support.merging_node import merge_here
from tests.support.node_world import A, B, Clock, Edge, World, path_of
from tests.support.proving import in_this_process
from tests.support.tsfile_bytes import build
from tests.support.writing_world import config_of, rows_of

DEVICES = [f"root.sg.d{each}" for each in range(4)]
Points = dict[tuple[str, str, int], int]


@dataclass
class Plant:
    """A receiver, two edges that send to it, and what is expected of it."""

    node: Node
    root: Path
    chance: random.Random
    points: Points = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    edges: dict[str, Edge] = field(default_factory=dict)
    number: int = 0
    begin: int = 0
    """Of the times of edges: with other ones their files are not merged with those of loads."""

    def content(self, devices: Iterable[str], begin: int = 0) -> tuple[bytes, Points]:
        """A file that no other one has the bytes of, and its points."""
        self.number += 1
        found: Points = {}
        for device in devices:
            for series in self.chance.sample(["s1", "s2"], self.chance.randint(1, 2)):
                times = self.chance.sample(range(begin, begin + 30), self.chance.randint(1, 4))
                found |= {(device, series, time): self.number * 100 + time for time in times}
        made: dict[str, dict[str, list[tuple[int, int]]]] = {}
        for (device, series, time), value in sorted(found.items()):
            made.setdefault(device, {}).setdefault(series, []).append((time, value))
        return build(made), found

    def send(self, edge: str) -> None:
        """An edge loads a file of a device of its own, or of one that nobody has yet."""
        mine = [each for each in DEVICES if self.owners.get(each, edge) == edge]
        if not mine:
            return
        device = self.chance.choice(mine)
        content, found = self.content([device], self.begin)
        if edge not in self.edges:
            self.edges[edge] = Edge(self.node, edge)
        self.edges[edge].check()
        self.edges[edge].round({path_of(self.number): content})
        self.owners[device] = edge
        # What is loaded later, and seen later, stands above.
        self.points |= found

    def load(self) -> None:
        """A load, with what it has to do, and to say before."""
        chance = self.chance
        place = self.root / f"load{self.number}"
        files = [
            self.content(chance.sample(DEVICES, chance.randint(1, 2)))
            for _ in range(chance.randint(1, 3))
        ]
        brought: Points = {}
        for at, (content, found) in enumerate(files):
            file = place / path_of(1000 + at)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            brought |= found  # of one load the later name stands above
        policy = chance.choice(["error", "keep", "replace", "skip"])
        named = chance.choice([[], [A], [B], [A, B], ["*"], [A, "*"]])
        request = CentreLoadRequest(
            task=f"{chance.getrandbits(128):032x}",
            paths=[str(place)],
            owner=named[0] if named and named[0] != "*" else "",
            others=named[1:] if named and named[0] != "*" else named,
            on_duplicate=policy,
        )
        before = self.node.engine.newest_commit
        centre = self.node.operator.centre
        dry = centre.load(msgspec.structs.replace(request, dry_run=True))
        assert self.node.engine.newest_commit == before
        done = centre.load(request)
        assert msgspec.structs.replace(dry, dry_run=False) == done
        own = centre_uuid(self.node.engine.uuid)
        devices = {device for device, _, _ in brought}
        foreign = {self.owners[each] for each in devices if each in self.owners} - {own, *named}
        shared = brought.keys() & self.points.keys()
        refused = ("*" not in named and bool(foreign)) or (policy == "error" and bool(shared))
        assert {each.result for each in done.files} == {"refused" if refused else "loaded"}, done
        if refused:
            assert self.node.engine.newest_commit == before
            return
        for each in devices:
            self.owners.setdefault(each, request.owner or own)
        self.points = brought | self.points if policy == "skip" else self.points | brought

    def merge(self) -> None:
        """What can be merged is, and in the end for good where it was loaded at the centre."""
        self.node.compactor.compact("root.sg")
        self.node.compactor.run_once()
        self.node.final_merges.run_once()

    def check(self) -> None:
        """Readers get the points of the model."""
        config = config_of(self.node, self.root / "receiver.toml")
        _, batches = rows_of(catalog=config, devices="root.sg.*", form="long")
        read = {
            (row["device"], row["measurement"], row["time"]): row["value_long"]
            for batch in batches
            for row in batch.to_pylist()
        }
        assert read == self.points
        with self.node.engine.reading() as state:
            assert {name: row.sender for name, row in state.owners.items()} == self.owners


@pytest.mark.parametrize("life", range(tiers.examples(12)))
def test_a_dry_run_says_what_the_load_does_and_readers_get_what_it_says(
    tmp_path: Path, life: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompareProcess, "ask", lambda _, asked, __: compare(asked))
    world = World(tmp_path / "world")
    with world.node() as node:
        plant = Plant(node, tmp_path, random.Random(f"{tiers.seed()} {life}"))
        plant.send(A)
        plant.send(B)
        for _ in range(6):
            world.clock.now += 2  # type: ignore[attr-defined]
            chosen = plant.chance.random()
            if chosen < 0.4:
                plant.send(plant.chance.choice([A, B]))
            else:
                plant.load()
        plant.check()


@pytest.mark.slow
def test_so_do_loads_beside_what_was_merged_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompareProcess, "ask", lambda _, asked, __: compare(asked))
    finals = 0
    for life in range(tiers.examples(4)):
        merge = {"final_after": 50.0, "quiet": 0.0}
        world = World(tmp_path / f"world{life}", clock=Clock(), merge=merge)
        with world.still_node() as node:
            merge_here(node)
            in_this_process(node)
            plant = Plant(node, tmp_path / f"{life}", random.Random(f"{tiers.seed()} {life}"))
            plant.root.mkdir()
            plant.begin = 100
            plant.send(A)
            plant.send(B)
            for _ in range(12):
                world.clock.now += 2  # type: ignore[union-attr]
                chosen = plant.chance.random()
                if chosen < 0.15:
                    plant.send(plant.chance.choice([A, B]))
                elif chosen < 0.7:
                    plant.load()
                else:
                    plant.send(A)  # who has devices of them is to have been here since
                    plant.send(B)
                    plant.merge()
                    world.clock.now += 60  # type: ignore[union-attr]
                    plant.merge()
                    plant.check()
            plant.check()
            with node.engine.reading() as state:
                finals += len(state.compacted_table.finals.all())
    assert finals
