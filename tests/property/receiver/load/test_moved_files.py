"""Loads, drains, kills and lost disks in any order, against what was acknowledged.

The oracle knows which content was acknowledged under which path, and looks at the bytes on the
disks by itself; of the receiver's beliefs it shares none. After each step every content is whole on
at least one disk, and readers get it. A disk that is lost takes along what is nowhere else, by the
bytes; that, and nothing more, is asked for again.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from common import crash
from common.errors import ConflictError
from receiver.config import ReceiverConfig
from receiver.load.placing import tree_of
from receiver.node import Node
from receiver.operator.places.node_lists import drain_node, list_nodes, undrain_node
from receiver.operator.places.node_losses import lose_node
from receiver.operator.views.node_views import LossRequest
from tests.support import tiers
from tests.support.moved_bytes import contents, lost_of, places_of
from tests.support.node_world import A, B, Clock, Edge, World, fsck_of, path_of, results, tsfile

DISKS = ("data", "data2", "data3")
SENDERS = (A, B)


class ThreeDisks(World):
    """A receiver with three data directories."""

    @property
    def config(self) -> ReceiverConfig:
        disks = tuple(self.root / name for name in DISKS)
        return msgspec.structs.replace(super().config, data_dirs=disks)


class Walk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(dir=tiers.memory()))
        self.world = ThreeDisks(self.home, keep_deleted=0.0, clock=Clock())
        self.ledger: dict[str, dict[str, bytes]] = {each: {} for each in SENDERS}
        self.replaced: dict[str, list[bytes]] = {}
        self.number = 0
        self.draining: set[str] = set()
        self.node: Node | None = None

    @initialize()
    def open(self) -> None:
        self.node = self.world.still_node()
        self.edges = {each: Edge(self.node, each) for each in SENDERS}

    def teardown(self) -> None:
        if self.node is not None:
            self.node.close()
        shutil.rmtree(self.home)

    def again(self) -> Node:
        assert self.node is not None
        self.node.close()
        self.node = self.world.still_node()
        for each in self.edges.values():
            each.node = self.node
        return self.node

    @property
    def acknowledged(self) -> dict[str, bytes]:
        return {path: content for files in self.ledger.values() for path, content in files.items()}

    # -- steps -------------------------------------------------------------------------------

    @rule(of=st.sampled_from(SENDERS), count=st.integers(1, 3), resource=st.booleans())
    def load(self, of: str, count: int, resource: bool) -> None:
        files: dict[str, bytes] = {}
        for _ in range(count):
            self.number += 1
            path = path_of(self.number, sg=f"root.{of[0]}", partition=self.number % 2)
            files[path] = tsfile(f"root.{of[0]}.d{self.number}", salt=self.number)
        resources = {next(iter(files)): b"of %d" % self.number} if resource else None
        done = results(self.edges[of].round(files, resources=resources))
        assert set(done.values()) == {"loaded"}
        self.ledger[of] |= files

    @precondition(lambda self: any(self.ledger.values()))
    @rule(of=st.sampled_from(SENDERS), at=st.integers(0, 20))
    def replace(self, of: str, at: int) -> None:
        if not self.ledger[of]:
            return
        path = sorted(self.ledger[of])[at % len(self.ledger[of])]
        self.number += 1
        content = tsfile(f"root.{of[0]}.d{self.number}", salt=self.number)
        done = results(self.edges[of].round({path: content}, replaces=[path]))
        assert done == {path: "loaded"}
        self.replaced.setdefault(path, []).append(self.ledger[of][path])
        self.ledger[of][path] = content

    @rule(name=st.sampled_from(DISKS))
    def drain(self, name: str) -> None:
        assert self.node is not None
        others = set(DISKS) - {name} - self.draining
        if others or name in self.draining:
            drain_node(self.node.operator, str(self.home / name))
            self.draining.add(name)
        else:
            with pytest.raises(ConflictError):
                drain_node(self.node.operator, str(self.home / name))

    @rule(name=st.sampled_from(DISKS))
    def undrain(self, name: str) -> None:
        assert self.node is not None
        undrain_node(self.node.operator, str(self.home / name))
        self.draining.discard(name)

    @rule()
    def move(self) -> None:
        assert self.node is not None
        self.node.load.mover.run_once()

    @rule()
    def move_to_the_end(self) -> None:
        assert self.node is not None
        while self.node.load.mover.run_once():
            pass
        for view in list_nodes(self.node.operator).nodes:
            if view.state == "draining":
                assert view.drain is not None
                assert view.drain.empty, view
                assert contents(Path(view.name)) == {}

    @rule(passage=st.integers(1, 120), more=st.integers(0, 40))
    def die_while_it_moves(self, passage: int, more: int) -> None:
        """A life ends at some step of a pass, and the next one at one of its first."""
        for wanted in (passage, more):
            count = 0

            def dies(_: str, wanted: int = wanted) -> None:
                nonlocal count
                count += 1
                if count == wanted:
                    raise crash.SimulatedCrash

            assert self.node is not None
            try:
                with crash.arm(dies):
                    self.node.load.mover.run_once()
            except crash.SimulatedCrash:
                pass
            self.again()

    @rule()
    def restart(self) -> None:
        self.again()

    @rule(name=st.sampled_from(DISKS))
    def lose(self, name: str) -> None:
        """A disk is lost, and an empty one comes in its place; senders bring what is wanted."""
        assert self.node is not None
        if self.draining >= set(DISKS) - {name}:
            return
        place = self.home / name
        others = [self.home / each for each in DISKS if each != name]
        gone = set(lost_of(others, self.acknowledged))
        self.node.close()
        shutil.rmtree(place)
        place.mkdir()
        self.node = self.world.still_node()
        request = LossRequest(confirm=True, replace=str(place))
        view = lose_node(self.node.operator, str(place), request)
        assert view.wanted == len(gone)
        self.draining.discard(name)
        node = self.again()
        assert node.problem() is None
        for of, edge in self.edges.items():
            wanted = {each.path for each in edge.check().wanted}
            assert wanted == gone & self.ledger[of].keys()
            files = {path: self.ledger[of][path] for path in wanted}
            if files:
                assert set(results(edge.round(files)).values()) == {"loaded"}

    # -- what holds --------------------------------------------------------------------------

    @invariant()
    def each_content_is_whole_somewhere_and_readers_get_it(self) -> None:
        if self.node is None:
            return
        disks = [self.home / name for name in DISKS]
        assert lost_of(disks, self.acknowledged) == []
        with self.node.engine.reading() as state:
            rows = [row for row in state.files.values() if row.visible]
        live = [row for row in rows if not row.retired]
        assert {row.path for row in live} == self.acknowledged.keys()
        for row in rows:
            tree = tree_of(self.node.load.disks.trees, row)
            assert tree is not None
            content = tree.read(row.physical)
            if row.retired:
                assert content in self.replaced[row.path]
            else:
                assert content == self.acknowledged[row.path]
            assert (Path(row.data_dir) / row.physical).read_bytes() == content

    @invariant()
    def a_check_of_the_directories_finds_nothing(self) -> None:
        if self.node is None:
            return
        found = [each for each in fsck_of(self.node).found if each.kind != "resource"]
        assert found == []
        for path, content in self.acknowledged.items():
            places = places_of([self.home / name for name in DISKS], path, content)
            assert len(places) <= 1 + len(self.draining) + 1


Walk.TestCase.settings = settings(
    max_examples=tiers.examples(12),
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_loads_drains_kills_and_losses_leave_all_that_was_acknowledged = pytest.mark.slow(Walk.TestCase)
