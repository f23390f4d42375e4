"""Files leave the master for nodes, and the power goes: at both, at any step behind the proofs.

The master and its nodes lie on disks of their own: the flushes of one make nothing last of the
other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from common import crash
from tests.support import powercut
from tests.support.disk import heal
from tests.support.releasing_centre import ReleasingCentre
from tests.support.spark_world import World

pytestmark = pytest.mark.slow

HOSTS = ("centre", "node1", "node2")


class CutCentre:
    """A master and two nodes, each on a disk whose power can be cut."""

    def __init__(self, root: Path, disks: list[powercut.Disk], patch: pytest.MonkeyPatch) -> None:
        self.disks = disks
        for name, disk in zip(HOSTS, disks, strict=True):
            (root / name).symlink_to(disk.path, target_is_directory=True)
        self.centre = ReleasingCentre(root, patch)
        self.centre.add(), self.centre.add()

    def cut(self) -> None:
        """The power goes everywhere, and comes back."""
        self.centre.fetcher.close()
        self.centre.assignment.close()
        for node in self.centre.nodes:
            node.stop()
        powercut.let_go(*(each.path for each in self.disks))
        for each in self.disks:
            each.cut()
        self.centre.tree = None
        self.centre.world = World.reopened(self.centre.root / "centre")
        self.centre.live()
        for node in self.centre.nodes:
            node.start()


@pytest.fixture
def cut_centre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CutCentre]:
    heal(monkeypatch)
    with ExitStack() as stack:
        disks = []
        for name in HOSTS:
            (tmp_path / f"of_{name}").mkdir()
            disks.append(stack.enter_context(powercut.disk(tmp_path / f"of_{name}")))
        made = CutCentre(tmp_path, disks, monkeypatch)
        yield made
        made.centre.close()


@pytest.mark.parametrize(
    "point",
    [
        "copies.release_proved",
        "mlog.commit.before",
        "copies.released",
        "storage.evict.before",
        "storage.evicted",
        "at the end",
    ],
)
def test_what_a_node_has_proved_is_there_and_what_has_left_is_said_to_be_there(
    cut_centre: CutCentre, point: str
) -> None:
    centre = cut_centre.centre
    names = [centre.load() for _ in range(2)]
    os.sync()  # what is loaded is on the master's disk; the nodes have nothing of it yet
    centre.settle()

    def dies(here: str) -> None:
        if here == point:
            raise crash.SimulatedCrash(here)

    with crash.arm(dies), suppress(crash.SimulatedCrash):
        centre.evict()
        assert point == "at the end", f"{point} was not passed"
    assert {name for _, name in centre.asked} == set(names)
    cut_centre.cut()
    for node in centre.nodes:  # they have proved it
        assert node.names() == sorted(names)
    for name in names:
        assert centre.whole_at(name) == ["host1", "host2"]
        if not centre.is_here(name):
            assert centre.said(name) == tuple(sorted(each.uuid for each in centre.nodes))
        elif point != "at the end":
            assert (centre.world.data / name).read_bytes() == centre.contents[name]
    if point == "at the end":
        assert not any(centre.is_here(name) for name in names)
