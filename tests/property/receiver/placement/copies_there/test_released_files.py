"""Whatever becomes of nodes and masters, what has left the disks is whole at nodes, twice.

Histories of a master with a small disk and its nodes, by chance, with an oracle that looks at all
disks byte by byte. Copies are taken by what the world does to nodes (a node is lost, bytes rot),
and by nothing else: neither by orders of the master nor by what it forgets in between.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from common import crash
from common.errors import TsferryError
from tests.support import tiers
from tests.support.copy_nodes import Machine
from tests.support.releasing_centre import ReleasingCentre

_POINTS = (
    "copies.release_proved",
    "copies.released",
    "storage.evict.before",
    "storage.evicted",
    "storage.fetch.written",
    "storage.fetch.named",
    "copies.pull_written",
    "copies.drop_noted",
    "assignment.placed",
)
_NODES = 6


class ReleasedFilesMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.root = Path(tempfile.mkdtemp())
        self.centre = ReleasingCentre(self.root, self.patch)
        self.alive: list[str] = []
        self.gone: set[str] = set()
        self.least: dict[str, int] = {}

    @initialize()
    def begin(self) -> None:
        for _ in range(3):
            self.centre.add()
        self.load(0)
        self.load(1)
        self.settle(2)
        self.evict()

    def teardown(self) -> None:
        try:
            self.all_is_readable_in_the_end()
        finally:
            self.centre.close()
            self.patch.undo()
            shutil.rmtree(self.root)

    # -- what goes on ------------------------------------------------------------------------

    @rule(partition=st.integers(0, 2))
    def load(self, partition: int) -> None:
        self.alive.append(self.centre.load(partition))

    @rule(rounds=st.integers(1, 3))
    def settle(self, rounds: int) -> None:
        self.centre.settle(rounds)

    @rule()
    def a_pass(self) -> None:
        self.centre.now += 6.0
        self.centre.assignment.run_once()

    @rule()
    def passes_in_which_nobody_pulls(self) -> None:
        for _ in range(3):
            self.centre.now += 6.0
            self.centre.assignment.run_once()
            self.centre.report()

    @rule(at=st.integers(0, _NODES - 1))
    def one_reports_and_pulls(self, at: int) -> None:
        node = self._node(at)
        self.centre.report(node)
        self.centre.pull(node)
        self.centre.report(node)

    @rule()
    def evict(self) -> None:
        self.centre.settle(1)
        self.centre.evict()

    @rule(data=st.data())
    def fetch(self, data: st.DataObject) -> None:
        if not self.alive:
            return
        physical = data.draw(st.sampled_from(self.alive))
        try:
            assert self.centre.fetched(physical) == self.centre.contents[physical]
        except TsferryError:
            holders = self.centre.whole_at(physical)
            assert not any(
                each.is_up and not each.is_silent and each.uuid not in self.centre.lost
                for each in self.centre.nodes
                if each.host in holders and self._reports(each, physical)
            ), f"{physical} does not come, and is whole at {holders}"

    def _reports(self, node: Machine, physical: str) -> bool:
        """Whether the master knows that a node has the tablet."""
        with self.centre.engine.reading() as state:
            row = state.released_table.rows.get(physical)
        return row is not None and row.tablet in self.centre.reports.get(node.uuid, {})

    @rule(data=st.data(), forget=st.booleans())
    def delete(self, data: st.DataObject, forget: bool) -> None:
        if len(self.alive) < 2:
            return
        physical = data.draw(st.sampled_from(self.alive))
        self.centre.end(physical, forget=forget)
        self.alive.remove(physical)
        self.least.pop(physical, None)

    @rule(copies=st.integers(0, 3), evict_copies=st.sampled_from((0, 2)))
    def configure(self, copies: int, evict_copies: int) -> None:
        rules = self.centre.rules._replace(copies=copies, evict_copies=evict_copies)
        self.centre.rules = rules
        self.centre.live()
        self.settle(2)

    @rule()
    def restart_of_the_master(self) -> None:
        self.centre.live()

    @rule(point=st.sampled_from(_POINTS), what=st.sampled_from(("evict", "settle")))
    def death(self, point: str, what: str) -> None:
        """The master, or a node, dies at a step."""

        def hook(name: str) -> None:
            if name == point:
                raise crash.SimulatedCrash(name)

        with crash.arm(hook):
            try:
                if what == "evict":
                    self.centre.evict()
                else:
                    self.centre.settle(1)
            except crash.SimulatedCrash:
                for each in self.centre.nodes:
                    if each.is_up:
                        each.restart()
        self.centre.live()

    # -- what the world does to nodes --------------------------------------------------------

    @precondition(lambda self: len(self.centre.nodes) < _NODES)
    @rule()
    def a_new_node(self) -> None:
        self.centre.add()

    @rule(at=st.integers(0, _NODES - 1))
    def stop_or_start(self, at: int) -> None:
        node = self._node(at)
        if node.is_up:
            node.stop()
        elif node.uuid not in self.centre.lost:
            node.start()

    @rule(at=st.integers(0, _NODES - 1))
    def silence(self, at: int) -> None:
        node = self._node(at)
        node.is_silent = not node.is_silent
        self.centre.silence[node.uuid] = 1000.0 if node.is_silent else 0.0

    @rule(at=st.integers(0, _NODES - 1))
    def drain_or_not(self, at: int) -> None:
        self.centre.draining ^= {self._node(at).uuid}

    @rule()
    def drain_all_that_there_are(self) -> None:
        """New ones take their place."""
        self.centre.draining |= {each.uuid for each in self.centre.nodes}
        while len(self.centre.nodes) < _NODES:
            self.centre.add()

    @rule(at=st.integers(0, _NODES - 1))
    def lose(self, at: int) -> None:
        """A node burns down, as long as each file has another copy."""
        node = self._node(at)
        for each in self.alive:
            if set(self._copies(each)) <= {node.host}:
                return
        node.stop()
        for path in node.paths:
            shutil.rmtree(path)
            path.mkdir()
        self.centre.lost.add(node.uuid)
        self._count_anew()

    @rule(data=st.data())
    def rot(self, data: st.DataObject) -> None:
        """Bytes of a copy change, as long as there is another one."""
        away = [each for each in self.alive if len(self.centre.whole_at(each)) > 1]
        if not away:
            return
        physical = data.draw(st.sampled_from(away))
        host = data.draw(st.sampled_from(sorted(set(self.centre.whole_at(physical)))))
        node = next(each for each in self.centre.nodes if each.host == host)
        if len(self._copies(physical)) > 1:
            self.centre.damage(node, physical)
            self._count_anew()

    def _node(self, at: int) -> Machine:
        return self.centre.nodes[at % len(self.centre.nodes)]

    # -- the oracle --------------------------------------------------------------------------

    def _copies(self, physical: str) -> list[str]:
        here = self.centre.world.data / physical
        is_here = here.exists() and here.read_bytes() == self.centre.contents[physical]
        return [*self.centre.whole_at(physical), *(["here"] if is_here else [])]

    def _count_anew(self) -> None:
        for physical in self.alive:
            self.least[physical] = min(2, len(self.centre.whole_at(physical)))

    @invariant()
    def nothing_but_the_world_takes_copies(self) -> None:
        for physical in self.alive:
            copies = len(self.centre.whole_at(physical))
            if self.centre.is_here(physical):
                self.least.pop(physical, None)
                continue
            assert self.centre.said(physical), f"{physical} is nowhere here, and nobody said so"
            before = self.least.get(physical, 2)
            assert copies >= before, f"{physical}: {copies} copies, and {before} there were"
            self.least[physical] = min(2, copies)

    def all_is_readable_in_the_end(self) -> None:
        self.centre.draining.clear()
        self.centre.rules = self.centre.rules._replace(copies=2, evict_copies=2)
        for node in self.centre.nodes:
            node.is_silent = False
            self.centre.silence.pop(node.uuid, None)
            if not node.is_up and node.uuid not in self.centre.lost:
                node.start()
        self.centre.live()
        self.centre.settle(3)
        for physical in self.alive:
            assert self.centre.fetched(physical) == self.centre.contents[physical]


@pytest.mark.slow
def test_what_has_left_the_disks_is_whole_at_nodes_whatever_happens() -> None:
    run_state_machine_as_test(
        ReleasedFilesMachine,
        settings=settings(
            max_examples=tiers.examples(8),
            stateful_step_count=25,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink one takes minutes
        ),
    )
