"""What is held, deleted and let through, over windows and digests, against a small model."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common import wire
from receiver.operator.stored.deletes import (
    allow_held_deletes,
    drop_held_deletes,
    list_held_deletes,
)
from receiver.operator.stored.files import list_files
from tests.support import tiers
from tests.support.node_world import Clock, Edge, World, path_of, tsfile

ALL = wire.Propagate.ALL
PATHS = [path_of(number) for number in range(1, 13)]
SUBSETS = st.sets(st.sampled_from(PATHS), min_size=1)
DAY = 86_400


class Deletes(RuleBasedStateMachine):
    """An edge that deletes, a clock, an operator; no look is told, so each task is one."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.world = World(Path(self.directory.name), deletes={})
        assert isinstance(self.world.clock, Clock)
        self.clock = self.world.clock
        self.node = self.world.still_node()
        self.edge = Edge(self.node)
        self.edge.check()
        files = {path: tsfile(first=n * 10, salt=n) for n, path in enumerate(PATHS)}
        self.edge.round(files, propagate=ALL)
        self.listed = set(PATHS)
        self.retired: set[str] = set()
        self.waiting: frozenset[str] = frozenset()
        self.let: tuple[str, frozenset[str]] | None = None
        self.used = False
        self.begun: float | None = None
        self.base = self.count = 0

    def teardown(self) -> None:
        self.node.close()
        self.directory.cleanup()

    @rule(chosen=SUBSETS)
    def told(self, chosen: set[str]) -> None:
        gone = chosen & self.listed
        if not gone:
            return
        passing: set[str] = set()
        dropped: set[str] = set()
        if self.let is not None:
            verdict, names = self.let
            mine = gone & names
            if self.used:
                self.let = None
            elif mine:
                self.used = True
                if not (names & self.listed) - mine:
                    self.let = None
                passing = mine
                if verdict == "drop":
                    self.retired |= mine
                    dropped = mine
        if self.begun is None or self.clock.now - self.begun >= DAY:
            base, count, begins = len(self.listed), 0, True
        else:
            base, count, begins = self.base, self.count, False
        left = gone - passing
        fresh = left - self.waiting
        held = left & self.waiting
        total = count + len(gone - dropped)
        if fresh and ((base >= 10 and total > base / 2) or gone == self.listed):
            held = left
        if held:
            self.waiting = frozenset(held)
        applied = gone - held
        if applied - dropped:
            if begins:
                self.begun, self.base, self.count = self.clock.now, base, 0
            self.count += len(applied - dropped)
        self.listed -= applied
        outcome = self.edge.round({}, sorted(gone), propagate=ALL)
        assert {path for path, each in outcome.items() if each.result == "held"} == held

    @rule(hours=st.integers(1, 30))
    def time_goes(self, hours: int) -> None:
        self.clock.now += hours * 3600

    @precondition(lambda self: self.waiting and self.let is None)
    @rule(verdict=st.sampled_from(["allow", "drop"]))
    def decided(self, verdict: str) -> None:
        (held,) = list_held_deletes(self.node.engine)
        decide = allow_held_deletes if verdict == "allow" else drop_held_deletes
        decide(self.node.engine, held.digest)
        self.let, self.used = (verdict, self.waiting), False
        self.waiting = frozenset()

    @rule(checkpoint=st.booleans())
    def restarted(self, checkpoint: bool) -> None:
        if checkpoint:
            self.node.engine.checkpoint()
        self.node.close()
        self.node = self.edge.node = self.world.still_node()

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        files = list_files(self.node.operator).files
        states = {
            state: {f.path for f in files if f.state == state} for state in ("live", "retired")
        }
        assert states == {"live": self.listed, "retired": self.retired}
        lists = list_held_deletes(self.node.engine)
        assert [set(each.files) for each in lists] == ([set(self.waiting)] if self.waiting else [])


TestDeletes = Deletes.TestCase
TestDeletes.settings = settings(
    max_examples=tiers.examples(25), stateful_step_count=20, deadline=None
)
