"""What stands at a receiver: told once, and once more when it is over; also over a restart."""

import json

import pytest

from common.hooks.hook_service import HookService
from receiver.hooks import standing_looks
from receiver.hooks.standing_looks import StandingLooks
from receiver.metadata.model import records
from receiver.operator.edges.lost import acknowledge_lost
from tests.support.hooked import Ticks
from tests.support.node_world import A, B, Edge

DAY = 86400.0


class Told:
    """The looks of a node, and what its hook was told since the last question."""

    def __init__(self, node, out):
        self.node, self.out = node, out
        self.ticks = Ticks()
        self.looks = StandingLooks(node.hooks, node.operator, self.ticks)

    def look(self):
        self.ticks.now += 100
        self.looks.look()
        self.node.hooks.drain(20)
        found = [json.loads(line) for line in self.out.read_text().splitlines()]
        self.out.write_text("")
        return [(each["kind"], each["state"], each["what"]) for each in found]


@pytest.fixture
def told(world, out):
    out.write_text("")
    node = world.still_node()
    yield Told(node, out)
    node.close()


def test_an_edge_is_late_once_and_back_once(told, world, out):
    for uuid, label in ((A, "plant 7"), (B, "plant 8")):
        Edge(told.node, uuid).check()
        told.node.load.make_known(uuid, f"x_{uuid}", label)
    assert told.look() == []
    world.clock.now += DAY + 1
    Edge(told.node, B).check()
    ((kind, state, what),) = told.look()
    assert (kind, state, what["label"], what["late_after"]) == ("late", "raised", "plant 7", DAY)
    assert told.look() == []
    told.node.close()
    again = Told(world.still_node(), out)  # what was told is known after a restart
    assert again.look() == []
    Edge(again.node, A).check()
    ((kind, state, what),) = again.look()
    assert (kind, state, what["sender"]) == ("late", "resolved", A)
    assert again.look() == []
    again.node.close()


def test_a_short_disk_is_told_whatever_its_figures_do(told, monkeypatch):
    problem = ["7 bytes are free on the disk, 9 have to stay free"]
    monkeypatch.setattr(told.node.load, "problem", lambda: problem[0])
    assert told.look() == [("disk", "raised", {"problem": problem[0], "receiver": ""})]
    problem[0] = problem[0].replace("7", "6")
    assert told.look() == []
    problem[0] = None
    assert told.look() == [("disk", "resolved", {"problem": "", "receiver": ""})]


def test_a_failed_flush_is_told_also_where_nothing_can_be_written(told, monkeypatch):
    monkeypatch.setattr(standing_looks, "failed_sync", lambda: "the disk")
    assert told.look() == [("read_only", "raised", {"problem": "the disk", "receiver": ""})]


def test_lost_files_are_told_when_there_are_others_and_when_there_are_none(told):
    Edge(told.node, A).check()

    def lose(path):
        told.node.engine.commit([records.FileLost(A, path, "0" * 32, 5, reason="no copy")])

    lose("sequence/root.sg/0/0/1-1-0-0.tsfile")
    ((kind, state, what),) = told.look()
    assert (kind, state, what["files"]) == ("lost", "raised", 1)
    assert what["named"][0]["reason"] == "no copy"
    lose("sequence/root.sg/0/0/2-2-0-0.tsfile")
    assert [(each[1], each[2]["files"]) for each in told.look()] == [("raised", 2)]
    assert told.look() == []
    acknowledge_lost(told.node.engine, A, ())
    assert [(each[1], each[2]["files"]) for each in told.look()] == [("resolved", 0)]


def test_without_hooks_nobody_looks_at_senders(world, monkeypatch):
    from common.hooks.hooks_config import HooksConfig

    world.hooks = HooksConfig()
    node = world.still_node()
    monkeypatch.setattr(standing_looks, "presences", lambda *args: pytest.fail("it looked"))
    StandingLooks(node.hooks, node.operator, Ticks()).look()
    assert isinstance(node.hooks, HookService)
    node.close()
