"""A log of 0.1.0 that runs ahead of the time, because the clock once jumped, is healed."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from common import wire
from common.errors import NotFoundError
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.timestamps import to_seconds
from receiver.node import Node
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from tests.support.followed_clock import clock_followed_blindly
from tests.support.node_world import B, Edge, World, path_of, tsfile
from tests.support.wrong_clocks import WrongMachine

HOUR, DAY = 3600.0, 86400.0
YEARS = 730 * DAY
HISTORY = 7 * DAY


class Healed:
    """A receiver that ran by 0.1.0; `moments` are those of its commits, by what was done."""

    def __init__(self, root: Path) -> None:
        self.machine = WrongMachine()
        self.world = World(
            root, clock=self.machine.clock, keep_deleted=DAY, metadata={"history": HISTORY}
        )
        self.stamps: dict[str, int] = {}
        self.moments: dict[str, float] = {}
        with clock_followed_blindly(), self.node() as node:
            edge = Edge(node)
            self.does("loaded", edge, {1: 0, 2: 0, 3: 0, 4: 0})
            self.machine.passes(2 * DAY)
            self.does("deleted before", edge, {}, gone=1)
            self.machine.passes(DAY)
            self.machine.is_set(YEARS)
            self.does("deleted while it was ahead", edge, {}, gone=2)
            self.machine.passes(2 * HOUR)
            self.machine.is_set(0.0)
            self.does("deleted since", edge, {}, gone=3)
            self.machine.passes(2 * HOUR)
        assert to_seconds(self.stamps["deleted since"]) - self.machine.true > YEARS - DAY

    def node(self) -> Node:
        self.world.clock = self.machine.clock
        return self.world.still_node()

    def does(self, what: str, edge: Edge, files: dict[int, int], gone: int | None = None) -> None:
        content = {path_of(number): self.file(number) for number in files}
        ended = [] if gone is None else [path_of(gone)]
        edge.round(content, ended, propagate=wire.Propagate.ALL)
        self.stamps[what] = edge.node.engine.newest_commit
        self.moments[what] = self.machine.true

    def file(self, number: int, *, age: float = 0.0) -> bytes:
        newest = int((self.machine.true - age) * 1000)
        return tsfile(f"root.sg.d{number}", first=newest - 4, points=5)

    def heals(self, node: Node) -> None:
        self.machine.synchronises()
        self.machine.passes(2.0)
        node.engine.collect()
        assert node.engine.clock.doubt() is None


@pytest.fixture
def healed(tmp_path: Path) -> Healed:
    return Healed(tmp_path)


def on_disk(healed: Healed) -> set[int]:
    """Which of the files have their bytes."""
    return {int(each.rpartition("/")[2].partition("-")[0]) % 1000 for each in healed.world.loaded()}


def at(node: Node, seconds: float) -> int:
    return node.engine.at(datetime.datetime.fromtimestamp(seconds, datetime.UTC))


def visible(node: Node, ts: int) -> set[str]:
    return {each.path for each in list_files(node.operator, at=ts).files}


def test_until_something_says_that_the_clock_is_right_nothing_goes_by_either(healed):
    with healed.node() as node:
        told = running_status(node.operator, node.problem()).clock
        assert told.ahead == pytest.approx(-YEARS, abs=DAY)
        node.engine.commit([records.TtlSet("root.sg", int(30 * DAY * 1000))])
        assert node.load.ttl.run_once() == 0
        healed.machine.passes(HOUR)
        assert node.load.reaper.run_once() == 0


def test_bytes_go_when_the_history_has_truly_passed(healed):
    with healed.node() as node:
        healed.heals(node)
        first = healed.moments["deleted before"] + HISTORY
        healed.machine.true = first - HOUR
        assert node.load.reaper.run_once() == 0
        healed.machine.true = first + HOUR
        assert node.load.reaper.run_once() == 1
        # Of what was done while it was ahead, and since, the healing is as early as is known.
        healed.machine.true = healed.moments["deleted since"] + HISTORY - HOUR
        assert node.load.reaper.run_once() == 0
        healed.machine.true = healed.moments["deleted since"] + HISTORY + 5 * HOUR
        assert node.load.reaper.run_once() == 2


def test_ttl_neither_takes_what_is_young_nor_waits_for_two_years(healed):
    with healed.node() as node:
        healed.heals(node)
        node.engine.commit([records.TtlSet("root.sg", int(30 * DAY * 1000))])
        assert node.load.ttl.run_once() == 0
        healed.machine.passes(26 * DAY)
        assert node.load.ttl.run_once() == 0
        healed.machine.passes(DAY)
        assert node.load.ttl.run_once() == 1


def test_a_time_finds_the_right_version_before_and_after(healed):
    with healed.node() as node:
        healed.heals(node)
        edge = Edge(node, B)
        healed.machine.passes(HOUR)
        healed.does("loaded after", edge, {5: 0})
        healed.machine.passes(HOUR)
        before = at(node, healed.moments["loaded"] + DAY)
        assert healed.stamps["loaded"] <= before < healed.stamps["deleted before"]
        between = at(node, healed.moments["deleted before"] + 0.5 * DAY)
        assert healed.stamps["deleted before"] <= between
        assert between < healed.stamps["deleted while it was ahead"]
        after = at(node, healed.moments["loaded after"] - 0.5 * HOUR)
        assert healed.stamps["deleted since"] <= after < healed.stamps["loaded after"]
        now = at(node, healed.moments["loaded after"] + 0.5 * HOUR)
        assert now >= healed.stamps["loaded after"]


def test_timestamps_grow_on_and_come_back_to_the_time(healed):
    with healed.node() as node:
        newest = node.engine.newest_commit
        healed.heals(node)
        begin = node.engine.newest_commit
        assert begin > newest
        ahead = to_seconds(begin) - healed.machine.true
        healed.machine.passes(100 * DAY)
        node.engine.commit([records.StorageGroupSet("root.a")])
        later = node.engine.newest_commit
        assert to_seconds(later) - healed.machine.true == pytest.approx(ahead - 50 * DAY, abs=60)
        healed.machine.passes(2 * YEARS)
        node.engine.commit([records.StorageGroupSet("root.b")])
        newest = node.engine.newest_commit
        assert to_seconds(newest) == pytest.approx(healed.machine.true, abs=1)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_healing_outlives_a_restart(healed, checkpoint):
    with healed.node() as node:
        healed.heals(node)
        pieces = node.engine.times.pieces
        if checkpoint:
            node.engine.checkpoint()
    healed.machine.passes(DAY)
    with healed.node() as node:
        assert node.engine.times.pieces == pieces
        assert node.engine.clock.doubt() is None
        assert node.engine.clock() == pytest.approx(healed.machine.true, abs=1)


def test_history_is_refused_by_the_moment_that_is_kept(healed):
    with healed.node() as node:
        healed.heals(node)
        healed.machine.true = healed.moments["deleted before"] + HISTORY + HOUR
        node.engine.collect()
        with pytest.raises(HistoryGoneError):
            at(node, healed.moments["loaded"])
        assert at(node, healed.moments["deleted before"] + 2 * HOUR)


def test_without_ntp_an_operator_heals_it(healed):
    with healed.node() as node:
        assert node.engine.confirm_clock() is not None
        assert node.engine.clock() == pytest.approx(healed.machine.true, abs=1)
        assert running_status(node.operator, node.problem()).clock.why == "operator"


def test_senders_heal_it(healed):
    with healed.node() as node:
        for number in "ab":
            node.engine.clock.heard(number * 32, number, healed.machine.true + 5)
        node.engine.collect()
        assert node.engine.clock.doubt() is None


def test_an_upload_that_was_begun_while_the_time_was_behind_stays(tmp_path):
    machine = WrongMachine()
    world = World(tmp_path, clock=machine.clock, limits={"upload_expiry": DAY})
    with world.still_node():
        pass
    machine.reboots(off=30 * DAY, error=0.0)
    world.clock = machine.clock
    with world.still_node() as node:
        edge = Edge(node)
        edge.check()
        begun = node.uploads.create(edge.who, edge.uuid, 1000, {"path": path_of(1)}).id
        assert node.engine.clock.doubt() is not None
        machine.synchronises()
        machine.passes(60.0)
        node.load.reaper.run_once()
        assert node.uploads.head(edge.who, begun)
        machine.passes(1.1 * DAY)
        node.load.reaper.run_once()
        with pytest.raises(NotFoundError):
            node.uploads.head(edge.who, begun)
