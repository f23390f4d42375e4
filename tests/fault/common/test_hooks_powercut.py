"""True power cuts in the queue of a hook: what was said to be on the disk is there, in room."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.durable import Tree
from common.hooks import event_queue
from common.hooks.event_queue import EventQueue
from tests.support import powercut, tiers
from tests.support.disk import heal
from tests.support.hooked import event, said

pytestmark = pytest.mark.slow
_LIMIT = 4
_EVENTS = 9


@pytest.fixture
def disk(tmp_path, monkeypatch):
    heal(monkeypatch)
    monkeypatch.setattr(event_queue, "_SLACK", 500)  # so that it is written anew now and then
    with powercut.disk(tmp_path, megabytes=8) as disk:
        yield disk


class Hooked:
    """One life of a queue: what it said was on the disk, and what the hook took."""

    def __init__(self, disk) -> None:
        self.root = disk.path / "hooks"
        self.kept: list[str] = []
        self.taken: list[str] = []
        self.begun: list[str] = []

    def open(self) -> tuple[Tree, EventQueue]:
        tree = Tree(self.root, create=True)
        return tree, EventQueue.open(tree, "command", limit=_LIMIT, clock=lambda: 5.0)

    def live(self) -> None:
        _, queue = self.open()
        for number in range(_EVENTS):
            text = f"event {number:02} {'x' * 60}"
            self.begun.append(text)
            if queue.put(event(text), key="disk", standing=text):
                self.kept.append(text)
            if number % 3 == 1:
                queue.failed("exit code 1", "this one")
            if number % 3 == 2 and (head := queue.head()) is not None:
                self.taken.append(said(head.event))
                queue.delivered(seq=head.seq)

    def dies(self, hook) -> None:
        """As a process does that is killed: what it had open is closed, and nothing flushed."""
        with suppress(SimulatedCrash), crash.arm(hook):
            self.live()
        powercut.let_go(self.root)

    def judge(self) -> None:
        tree, queue = self.open()
        with tree, queue:
            there = [said(each.event) for each in queue._waiting]
            dropped = queue.standing.dropped
            assert len(there) <= _LIMIT
            assert there == sorted(there), "in order"
            assert set(there) <= set(self.begun)
            lost = set(self.kept) - set(there) - set(self.taken)
            # The oldest go where there is no room, and each is counted: that is told.
            assert len(lost) <= dropped == sum(queue.untold.values())
            assert all(each < min(there, default="z") for each in lost)
            if self.kept:
                assert queue.stands("disk") >= self.kept[-1], "what stands is known"


def test_what_a_queue_said_to_be_on_the_disk_is_told_after_a_power_cut_at_any_step(disk):
    names: list[str] = []
    Hooked(disk).dies(names.append)
    assert {"hooks.put", "hooks.delivered", "hooks.rewritten"} <= set(names)
    for at in tiers.passages(names, keep=3):
        disk.clear()
        os.sync()
        left = [at]

        def at_that_step(name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise SimulatedCrash(name)

        life = Hooked(disk)
        life.dies(at_that_step)
        disk.cut()
        try:
            life.judge()
        except AssertionError as error:
            raise AssertionError(f"cut at {names[at - 1]} ({at})") from error
    disk.off()
    disk.check()
    disk.mount()
