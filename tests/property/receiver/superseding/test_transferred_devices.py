"""Devices go from sender to sender while files of several come and end: what is read, and proved.

Of each time that the owner of a device lists, its own answer is given; and no proof ever changes an
answer, whatever is transferred behind it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from common.wire import Action
from receiver.metadata.model.ranks import NOW, cut_in, highest, name_rank, rank_in
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.transfer_cuts import TransferCuts
from receiver.operator.edges.owners import set_owner
from tests.support.node_world import OPERATOR, A, B, Edge, World, plan_entry, results
from tests.support.oracle import rows_read
from tests.support.proving import in_this_process
from tests.support.tsfile_bytes import build

DEVICES = ("root.sg.d1", "root.sg.d2", "root.sg.d3")
TIMES = range(4)
Points = dict[str, dict[int, int]]
Answer = dict[tuple[str, int], int]


class Play:
    """Two edges at a centre, by the dice."""

    def __init__(self, root: Path, seed: int) -> None:
        self.world = World(root)
        self.dice = random.Random(seed)
        self.listed: dict[str, dict[str, Points]] = {A: {}, B: {}}
        self.points: dict[str, Points] = {}
        self.proved = 0
        self.count = 0

    def run(self, steps: int) -> None:
        with self.world.still_node() as node:
            self.node = node
            in_this_process(node)
            self.edges = {uuid: Edge(node, uuid) for uuid in (A, B)}
            for each in self.edges.values():
                each.check()
                each.round({})
            for _ in range(steps):
                what = self.dice.choices(
                    (self.file, self.end, self.rename, self.transfer, self.prove), (5, 3, 1, 2, 2)
                )
                what[0]()
                self.check()

    def owner(self, device: str) -> str | None:
        with self.node.engine.reading() as state:
            row = state.owners.get(device)
        return None if row is None else row.sender

    def round(self, uuid: str, files: dict[str, Points], gone: list[str]) -> None:
        edge = self.edges[uuid]
        look = edge.check().look
        bytes_of = {
            path: build({each: {"s1": sorted(some.items())} for each, some in points.items()})
            for path, points in files.items()
        }
        task = edge.start(look=look)
        entries = [plan_entry(path, content) for path, content in bytes_of.items()]
        sent = [each.path for each in edge.plan(task, entries) if each.action is Action.SEND]
        if gone:
            edge.deleted(task, gone)
        edge.batch(task, {each: bytes_of[each] for each in sent})
        looks = dict.fromkeys(bytes_of, (look, look))
        edge.end(
            task,
            bytes_of,
            gone,
            looks=looks,
            last_looks=[self.last_look(uuid, each) for each in gone],
        )
        assert set(results(edge.outcome(task)).values()) <= {
            "loaded",
            "already",
            "retired",
            "deleted",
        }

    def last_look(self, uuid: str, path: str) -> int:
        """Of one that is gone: what was transferred meanwhile came behind it, or before."""
        with self.node.engine.reading() as state:
            row = state.file_table.held(uuid, path)
            assert row is not None
            return self.dice.choice((row.rank.first, state.newest - 1))

    def file(self) -> None:
        uuid = self.dice.choice((A, B))
        mine = [each for each in DEVICES if self.owner(each) in (None, uuid)]
        chosen = [each for each in mine if self.dice.random() < 0.8]
        if not chosen:
            return
        path = self.name()
        points = {
            each: {time: self.count * 10 + time for time in TIMES if self.dice.random() < 0.6}
            for each in chosen
        }
        points = {each: some for each, some in points.items() if some}
        if points:
            self.listed[uuid][path] = points
            self.round(uuid, {path: points}, [])
            with self.node.engine.reading() as state:
                (row,) = [row for row in state.files.values() if row.path == path]
            self.points[row.physical] = points

    def name(self) -> str:
        self.count += 1
        kind = self.dice.choice(("sequence", "unsequence"))
        version = self.dice.randrange(50) * 100 + self.count
        return f"{kind}/root.sg/0/0/{version}-{version}-0-0.tsfile"

    def end(self) -> None:
        self.leave(self.dice.choice((A, B)))

    def rename(self) -> None:
        """The same content under a name of another rank."""
        self.leave(self.dice.choice((A, B)), self.name())

    def leave(self, uuid: str, other: str | None = None) -> None:
        if not self.listed[uuid]:
            return
        gone = self.dice.choice(sorted(self.listed[uuid]))
        points = self.listed[uuid].pop(gone)
        with self.node.engine.reading() as state:
            is_held = state.file_table.held(uuid, gone) is not None
        if not is_held:  # it ended with a transfer, and is not looked at any more
            return
        if other is not None:
            self.listed[uuid][other] = points
        self.round(uuid, {} if other is None else {other: points}, [gone])

    def transfer(self) -> None:
        device = self.dice.choice(DEVICES)
        if self.owner(device) is not None:
            set_owner(self.node.engine, OPERATOR, device, self.dice.choice((A, B)))

    def prove(self) -> None:
        self.proved += self.node.prover.run_once()

    # -- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        if not self.points:
            return
        found: Answer = {}
        for row in rows_read(self.world.config.schema_dir):
            key = row["device"], row["time"]
            assert key not in found
            found[key] = row["value_long"]
        assert found == self.answer()
        for device in DEVICES:
            owner = self.owner(device)
            if owner is not None:
                theirs = self.of_owner(owner, device)
                given = {key: value for key, value in found.items() if key in theirs}
                assert given == theirs, (device, owner)

    def of_owner(self, uuid: str, device: str) -> Answer:
        """What the database of an edge would give of what the centre lists of it.

        But for times that its own ended files have as well: in one look with others, they may
        stand above these.
        """
        with self.node.engine.reading() as state:
            mine = [row for row in state.files.values() if row.sender == uuid]
        held = [row for row in mine if row.held]
        ended = {
            time
            for row in mine
            if not row.held
            for time in self.points[row.physical].get(device, {})
        }
        held.sort(key=lambda row: name_rank(row.parsed) or ())
        return {
            (device, time): value
            for row in held
            for time, value in self.points[row.physical].get(device, {}).items()
            if time not in ended
        }

    def answer(self) -> Answer:
        """The answer as if nothing had ever been proved."""
        giving: dict[tuple[str, int], dict] = defaultdict(dict)
        with self.node.engine.reading() as state:
            cuts = TransferCuts(state.owner_table.moves, NOW)
            for row in state.files.values():
                if row.state is FileState.DELETED:
                    continue
                for device, points in self.points[row.physical].items():
                    rank = rank_in(row.rank, cut_in(cuts.of(row), device))
                    for time, value in points.items():
                        giving[device, time][rank] = value
        return {key: each[highest(each)] for key, each in giving.items()}


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_the_owners_answer_is_given_and_proofs_change_nothing(tmp_path: Path, seed: int) -> None:
    Play(tmp_path, seed).run(30)
