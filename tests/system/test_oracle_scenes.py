"""Histories of one partition, each the shortest that a wrong rule answers wrongly, played for real.

The words of a history:

    w a 3         write a point of series a at time 3; its value is the number of the write
    w a 3 7       the same, with the value 7
    flush 0       flush the open file of a kind (0 in order, 1 late); close 0 closes it
    del a 1 4     delete; ttl 2 lets expire what is below a time; rm 0 frees the lowest of a kind
    del a 1 4 1   the same, with the very record of the first deletion
    inner 1       compact the files of a kind into one; cross merges late ones into those in order,
    cross1        of the late ones only the first
    move 0        the lowest closed file moves to the other data directory
    rename 0      the lowest closed file of a kind has the name of its next inner compaction
    look          a round; look 0 reaches only one kind; look 01 1: products of kind 1 are not ready
    away          a round while the data directory has lost its marker
    die           a round whose sender dies when it has linked what it is to send
    torn          a round in the middle of whose scan late files are merged
    = a 1 3       what a reader of the centre gets there; - for nothing
"""

from __future__ import annotations

import contextlib

import pytest

from common import crash
from common.crash import SimulatedCrash
from sender.select.walk import Walk
from tests.support import tiers
from tests.support.oracle import Oracle, oracle

BASE = "w a 1, w a 2, close 0, w a 1, close 1, look, "
SCENES = {
    "TTL drops the upper file": BASE + "ttl 2, look, = a 1 3",
    "the upper file is freed before the lower": BASE + "rm 1, look, rm 0, look, = a 1 3",
    "a product comes late": BASE + "w a 1, close 1, look, inner 1, look 01 1, = a 1 4",
    "half of the partition is not looked at": BASE + "cross, look 1, = a 1 3",
    "a torn look": BASE + "torn, = a 1 3",
    "compacted, then deleted, in one look": BASE + "cross, del a 1 1, look, = a 1 -",
    "moved and deleted, in one look": "w a 1, close 0, look, move 0, del a 1 1, look, = a 1 -",
    "a deletion is seen before the end is told": BASE + "cross, del a 1 1, look 0, look, = a 1 -",
    "a deletion older than what had ended": "w a 1, flush 0, del a 1 1, w a 1, close 1, look, "
    "ttl 2, look, w a 3, close 0, look, = a 1 2",
    "the lower file is renamed when the upper had ended": BASE
    + "ttl 2, look, rename 0, look, = a 1 3",
    "a move dates a deletion anew": "w a 1, w a 3, close 0, del a 1 1, look, w a 1, close 1, look, "
    "ttl 2, look, move 0, look, = a 1 3",
    "the lower file is closed after the upper had ended": "w a 1, flush 0, w a 1, close 1, look, "
    "ttl 2, w a 3, close 0, look, = a 1 2",
    "the lower file is out of sight for a look": "w a 1, flush 0, w a 1, close 1, look, look 1, "
    "ttl 2, w a 3, close 0, look, = a 1 2",
    "the lower file is moved when the upper ends": BASE + "ttl 2, move 0, look, = a 1 3",
    "a deletion, in an open file, of what was freed": "w a 1, w a 2, close 0, look, rm 0, look, "
    "w a 3, w b 3, flush 0, w a 4, del a 1 4, close 0, look, = a 1 -",
    "the same content under its compacted name": "w a 1, close 0, look, w b 1, close 0, look, "
    "w b 1, close 1, look, cross, look, = a 1 1, = b 1 3",
    "an end is held while looks go by": BASE + "w a 1, close 1, cross, look 01 1, look, = a 1 4",
    "an end is held while its directory is away": BASE + "w a 1, close 1, cross, look 01 1, "
    "away, look, = a 1 4",
    "an end is not looked at, and its directory is away": BASE + "w a 1, close 1, cross, look 0, "
    "away, look, = a 1 4",
    "a product comes while what it was made of is away": "w a 1, w a 2, close 0, w a 1, close 1, "
    "move 0, look, w a 1, close 1, cross, away, look, = a 1 4",
    "a product is the very content of a late file": "w a 1, close 0, w a 1, close 1, w a 1, "
    "close 1, look, cross, look, = a 1 3",
    "a value that a point gets again": "w a 1 7, close 0, w a 1 8, close 1, look, "
    "w a 1 7, close 1, look, = a 1 7",
    "compacted into the very content of the lowest": "w a 1 7, close 0, w a 1 8, close 1, look, "
    "w a 1 7, close 1, cross, look, = a 1 7",
    "deleted, written again, and compacted into the very content": "w a 1, w a 2, close 0, look, "
    "del a 2 2, look, w a 2 2, close 1, cross, look, = a 2 2",
    "deleted, freed, and compacted into the very content": "w a 1, w a 2, close 0, look, "
    "del a 2 2, look, w a 2 2, close 1, look, cross, look 0, w b 1, close 0, look, = a 2 2",
    "the same deletion once more, of what was freed": "w a 1, w a 2, close 0, del a 2 2, look, "
    "w a 2, close 1, look, rm 1, look, w a 3, close 0, inner 0, w a 2, close 1, del a 2 2 1, look, "
    "= a 2 -",
    "a product that lives on as a link only": "w a 1, close 0, w a 2, close 0, look, w a 2, "
    "close 1, cross, die, w a 2, close 1, cross, inner 0, look, = a 2 4",
    "compacted into the very content of the lowest, above what lives on as a link only": "w a 1 7, "
    "close 0, look, w a 1 8, close 1, die, w a 1 7, close 1, cross, look, = a 1 7",
    "two deletions, of which a round that died had seen the first": "w a 1, w a 2, close 0, look, "
    "del a 1 1, w a 1, close 1, die, del a 2 2, look, = a 1 3, = a 2 -",
    "updated and compacted": BASE + "cross, look, = a 1 3, = a 2 2",
    "deleted and compacted": BASE + "del a 1 1, look, cross, look, = a 1 -, = a 2 2",
}

MODES = ["replaced", "never"]
PLAYED = [(name, "replaced") for name in SCENES]
PLAYED += tiers.sample([(name, "never") for name in SCENES], 8)


def played(world: Oracle, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = world.database

    def lowest(kind: str, *, opened: bool):
        found = database.opened() if opened else database.closed()
        return next(each for each in found if each.late is (kind == "1"))

    for step in text.split(", "):
        match step.split():
            case ["w", series, time, *value]:
                database.write(series, int(time), *map(int, value))
            case ["flush", kind]:
                database.flush(lowest(kind, opened=True))
            case ["close", kind]:
                database.close(lowest(kind, opened=True))
            case ["del", series, low, high, *like]:
                if like:
                    database.log = {number: database.log[number] for number in range(1, int(*like))}
                database.delete(series, int(low), int(high))
            case ["ttl", floor]:
                database.expire(int(floor))
            case ["rm", kind]:
                database.remove([lowest(kind, opened=False)])
            case ["inner", kind]:
                database.inner(0, kind == "1")
            case ["cross"]:
                database.cross(0)
            case ["cross1"]:
                database.cross(0, 1)
            case ["move", at]:
                file = database.closed()[int(at)]
                database.move(file, 1 - file.home)
            case ["rename", kind]:
                file = lowest(kind, opened=False)
                database.rename(file, (*file.name[:3], file.name[3] + 1, file.name[4]))
            case ["look", *how]:
                look(world, *how)
            case ["away"]:
                with world.unmarked(0):
                    assert world.round().error is None
            case ["die"]:
                die(world)
            case ["torn"]:
                torn(world, monkeypatch)
            case ["=", series, time, value]:
                wanted = None if value == "-" else int(value)
                assert world.answer().get((series, int(time))) == wanted, step
                assert world.read() == world.answer()


def look(world: Oracle, kinds: str = "01", late: str = "") -> None:
    if kinds == "01" and not late:
        return whole(world)
    with contextlib.ExitStack() as stack:
        for home in range(2) if kinds != "01" else ():
            stack.enter_context(world.linked(kinds == "0", home))
        products = [each for each in world.database.closed() if each.is_product]
        stack.enter_context(world.delayed([world.database.where(each) for each in products]))
        assert world.round().error is None
    return None


def whole(world: Oracle) -> None:
    report = world.round()
    assert report.error is None
    assert (report.held, report.pending_files, report.conflicts) == ([], 0, [])
    given, wanted = world.answer(), world.database.answer()
    assert [key for key in wanted if given.get(key, 0) < wanted[key]] == []
    assert world.round().sent == 0


def die(world: Oracle) -> None:
    """The sender dies with links to what it was about to send."""

    def hook(name: str) -> None:
        if name == "snapshot.synced":
            raise SimulatedCrash(name)

    with pytest.raises(SimulatedCrash), crash.arm(hook):
        world.round()


def torn(world: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is late is merged into what is in order, between the two parts of a scan."""
    partition = Walk._partition

    def and_then(self, kind, *rest):
        if kind == "unsequence":
            world.database.cross(0)
        partition(self, kind, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Walk, "_partition", and_then)
        assert world.round().error is None


@pytest.mark.parametrize(("name", "mode"), PLAYED)
def test_a_reader_gets_what_the_edges_database_would_have_given(name, mode, tmp_path, monkeypatch):
    with oracle(tmp_path, mode) as world:
        played(world, SCENES[name], monkeypatch)


@pytest.mark.parametrize("mode", MODES)
def test_what_a_look_without_one_directory_had_together_ranks_so(mode, tmp_path):
    """Both came in it, and one of them lives on as a link only when the other directory is back."""
    with oracle(tmp_path, mode) as world:
        database = world.database
        database.write("b", 5)
        database.close(database.opened()[0])
        whole(world)
        for late in (False, True):
            database.write("a", 1)
            database.close(next(each for each in database.opened() if each.late is late))
        updated = database.answer()["a", 1]
        for file in database.closed():
            if file.points.keys() == {("a", 1)}:
                database.move(file, 1)
        with world.unmarked(0):
            die(world)
        database.remove([each for each in database.closed() if each.late])
        whole(world)
        assert world.answer()["a", 1] == updated
        assert world.read() == world.answer()
