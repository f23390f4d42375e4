"""Partial uploads and true power cuts: an offset that was answered is there afterwards."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.durable import Tree
from receiver.transfer.receiving.partial import PartialUpload
from tests.property.receiver.transfer.test_partial_model import CONTENT, ID, meta, write
from tests.support import powercut, tiers
from tests.support.disk import heal

pytestmark = pytest.mark.slow
UPLOADS = "up"


@pytest.fixture
def disk(tmp_path, monkeypatch):
    heal(monkeypatch)
    with powercut.disk(tmp_path) as disk:
        with Tree(disk.path) as tree:
            tree.make_dirs(UPLOADS)
        yield disk


def killed_at(disk, point, size):
    """Send a block to a process that is killed at a crash point; nothing of it is answered."""

    def die(name):
        if name == point:
            raise SimulatedCrash(name)

    with suppress(SimulatedCrash), crash.arm(die), Tree(disk.path) as tree:
        partial = opened(tree)
        if partial is not None:
            partial.prepare()
        else:
            partial = PartialUpload.create(tree, UPLOADS, meta())
        write(tree, partial, size)


def opened(tree):
    """What a process that is started now finds."""
    if not tree.exists(f"{UPLOADS}/{ID}.upload"):
        return None
    return PartialUpload.open(tree, UPLOADS, ID)


def close_all(disk):
    """The kernel closes what a dead process had open."""
    powercut.let_go(disk.path)


def cut(disk):
    close_all(disk)
    disk.cut()


def is_sound(disk, least):
    with Tree(disk.path) as tree:
        partial = opened(tree)
        assert partial is not None
        partial.prepare()
        assert partial.offset >= least
        sent = (disk.path / partial.part).read_bytes()
        assert sent[: partial.offset] == CONTENT[: partial.offset]
        return partial.offset


def test_every_acknowledged_block_survives_and_the_first_answer_too(disk):
    with Tree(disk.path) as tree:
        partial = PartialUpload.create(tree, UPLOADS, meta())
    for size in (1000, 1, 1500, 700):
        disk.cut()
        before = is_sound(disk, partial.offset)
        with Tree(disk.path) as tree:
            partial = opened(tree)
            assert partial is not None
            partial.prepare()
            write(tree, partial, size)
        assert partial.offset == before + size
    disk.cut()
    is_sound(disk, partial.offset)


POINTS = ("durable.sync_file.before", "upload.block_synced", "durable.append.before",
          "durable.append.written", "upload.block_logged")  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_what_the_next_process_tells_of_a_killed_one_survives_a_power_cut(disk, point):
    """Its plan answers an offset from the log as it finds it, before any byte is read again."""
    with Tree(disk.path) as tree:
        write(tree, PartialUpload.create(tree, UPLOADS, meta()), 1000)
    killed_at(disk, point, 2000)
    close_all(disk)
    with Tree(disk.path) as tree:
        told = opened(tree).offset
    assert told in (1000, 3000)
    cut(disk)
    is_sound(disk, told)


TWICE = itertools.product(POINTS, ["upload.cut", *POINTS])


@pytest.mark.parametrize(("first", "second"), tiers.sample(TWICE, 2, kind=lambda points: points[1]))
def test_killed_twice_and_then_cut_nothing_acknowledged_is_gone(disk, first, second):
    with Tree(disk.path) as tree:
        write(tree, PartialUpload.create(tree, UPLOADS, meta()), 1000)
    for point in (first, second):
        killed_at(disk, point, 900)
        close_all(disk)
    cut(disk)
    is_sound(disk, 1000)
