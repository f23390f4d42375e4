"""What rots at a node is found though nobody reads it, counts no more, and comes again."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common import crash
from common.digests import md5
from common.errors import StoppedError
from receiver.heartbeats.node_reports import ReportNews
from receiver.metadata.model import records
from receiver.tablet_copies.copy_scrub import SCRUB_PLACE, CopyScrub
from tests.support.copy_nodes import CopyCentre, Machine
from tests.support.web import until

RATE = 1 << 20


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[CopyCentre]:
    made = CopyCentre(tmp_path)
    yield made
    made.close()


class Clock:
    """The time, and how long was waited."""

    def __init__(self) -> None:
        self.now = 1e9
        self.waited = 0.0
        self.stop_after = float("inf")

    def wait(self, seconds: float) -> bool:
        self.waited += seconds
        self.now += seconds
        return self.waited >= self.stop_after


def scrub_of(node: Machine, clock: Clock | None = None, *, rate: int = RATE) -> CopyScrub:
    clock = clock or Clock()
    return CopyScrub(
        node.store,
        node.paths[0].parent,
        every=1000.0,
        rate=rate,
        clock=lambda: clock.now,
        wait=clock.wait,
    )


def places(node: Machine, physical: str) -> list[Path]:
    tablets = node.store.tablets()
    found = [path / "tablets" / each / physical for path in node.paths for each in tablets]
    return [each for each in found if each.exists()]


def damage(node: Machine, physical: str) -> bytes:
    """One byte of a file rots; returns what it was."""
    [place] = places(node, physical)
    good = place.read_bytes()
    place.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    return good


def report(centre: CopyCentre, node: Machine) -> None:
    held = node.store.held().tablets
    centre.reports[node.uuid] = {each.id: each for each in held}
    centre.assignment.heard(ReportNews(node.uuid, True, held, ()))


def test_a_byte_that_rots_is_found_counts_no_more_and_is_healed(centre: CopyCentre):
    one, two = centre.add(), centre.add()
    physical, other = centre.load(), centre.load()
    centre.settle()
    good = damage(one, physical)
    assert scrub_of(two).run_once() == 0
    assert scrub_of(one).run_once() == 1
    report(centre, one)
    assert centre.has(physical) == [two.uuid]  # before anybody reads or pulls
    assert one.names() == [other]
    assert one.store.rotten() == 1
    centre.pull()
    report(centre, one)
    assert centre.has(physical) == sorted([one.uuid, two.uuid])
    [place] = places(one, physical)
    assert place.read_bytes() == good
    assert one.store.rotten() == 0
    assert scrub_of(one).run_once() == 0


@pytest.mark.parametrize("roomier", [0, 1])
def test_what_has_rotted_is_not_given_in_a_later_life_either(centre: CopyCentre, roomier: int):
    node = centre.add(disks=2)
    node.free[node.paths[1 - roomier]] = 1 << 30
    physical = centre.load()
    centre.settle()
    good = damage(node, physical)
    scrub_of(node).run_once()
    node.restart()
    assert node.names() == []
    assert node.store.rotten() == 1
    [held] = node.store.held().tablets
    assert held.state == "damaged"
    assert len(places(node, physical)) == 1  # nobody knows yet whether there are better ones
    # The other disk is the roomier one now: the whole copy and the rotten one lie apart.
    node.free = {node.paths[roomier]: 1 << 30, node.paths[1 - roomier]: 1 << 40}
    node.puller.run_once()
    node.restart()
    [place] = places(node, physical)
    assert place.is_relative_to(node.paths[1 - roomier])
    assert place.read_bytes() == good
    assert node.names() == [physical]


@pytest.mark.parametrize("anew", [False, True])
def test_a_directory_in_which_a_file_has_rotted_is_the_last_to_take_another_one(
    centre: CopyCentre, anew: bool
):
    node = centre.add(disks=2)
    physical = centre.load()
    centre.settle()
    good = damage(node, physical)
    [bad] = [each for each in node.paths if places(node, physical)[0].is_relative_to(each)]
    [sound] = [each for each in node.paths if each != bad]
    node.free = {bad: 1 << 40, sound: 1 << 30}
    scrub_of(node).run_once()
    if anew:
        node.restart()
    else:
        report(centre, node)
    node.puller.run_once()
    [place] = places(node, physical)
    assert place.is_relative_to(sound)  # though the other one is the roomier
    assert place.read_bytes() == good
    node.free[sound] = 0
    later = centre.load()
    centre.settle()
    [place] = places(node, later)
    assert place.is_relative_to(bad)  # better than no copy


def test_a_death_at_any_step_behind_a_finding_leaves_no_rotten_file_that_counts(
    centre: CopyCentre,
):
    node = centre.add(disks=2)
    physical = centre.load()
    centre.settle()
    stop, seen = 0, 0

    def hook(name: str) -> None:
        nonlocal seen
        seen += 1
        if seen == stop + 1:
            raise crash.SimulatedCrash(name)

    while True:
        good = damage(node, physical)
        scrub_of(node).run_once()
        [place] = places(node, physical)
        roomy = next(each for each in node.paths if not place.is_relative_to(each))
        node.free = {each: (1 << 40 if each == roomy else 1 << 30) for each in node.paths}
        report(centre, node)
        seen = 0
        try:
            with crash.arm(hook):
                node.puller.run_once()
        except crash.SimulatedCrash:
            node.restart()
            for tablet in node.store.tablets():
                for each in node.files(tablet):
                    fd, file = node.store.replica(tablet).open_file(each)
                    assert md5(os.pread(fd, 1 << 20, 0)).hexdigest() == file.md5
                    os.close(fd)
            node.puller.run_once()
            [place] = places(node, physical)
            assert place.read_bytes() == good
            stop += 1
        else:
            assert stop > 3
            return


def test_a_file_that_cannot_be_read_has_rotted_and_on_a_disk_that_is_away_none_has(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
):
    node = centre.add()
    centre.load()
    centre.settle()

    def fail(fd: int, length: int, at: int) -> bytes:
        raise OSError(5, "Input/output error")

    scrub = scrub_of(node)
    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(scrub, "_is_there", lambda _: False)
    assert scrub.run_once() == 0  # and comes to its end, so what is on others is read
    assert node.store.rotten() == 0
    assert scrub.place.last
    monkeypatch.setattr(scrub, "_is_there", lambda _: True)
    assert scrub.run_once() == 1
    assert node.store.rotten() == 1


def test_what_is_read_wrongly_once_is_read_again_before_it_is_believed(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
):
    node = centre.add()
    centre.load()
    centre.settle()
    pread, calls = os.pread, []

    def once_wrong(fd: int, length: int, at: int) -> bytes:
        calls.append(at)
        found = pread(fd, length, at)
        return b"?" * len(found) if len(calls) == 1 else found

    monkeypatch.setattr(os, "pread", once_wrong)
    assert scrub_of(node).run_once() == 0
    assert node.store.rotten() == 0


def test_a_file_that_somebody_doubts_is_read_before_all_else_and_once_in_ten_minutes(
    centre: CopyCentre,
):
    node = centre.add()
    physical = centre.load()
    centre.settle()
    (tablet,) = node.store.tablets()
    now = [0.0]
    scrub = CopyScrub(
        node.store,
        node.paths[0].parent,
        every=None,
        rate=RATE,
        wait=Clock().wait,
        monotonic=lambda: now[0],
    )
    assert scrub.due() is None  # no rounds
    scrub.doubt(tablet, physical)
    assert scrub.look_at_doubted() == 0
    damage(node, physical)
    scrub.doubt(tablet, physical)
    assert scrub.look_at_doubted() == 0  # so no word of others has it read all the time
    now[0] = 601.0
    scrub.doubt(tablet, physical)
    assert scrub.look_at_doubted() == 1
    assert node.store.rotten() == 1


def test_the_thread_reads_what_is_doubted_where_no_rounds_are_wanted(centre: CopyCentre):
    node = centre.add()
    physical = centre.load()
    centre.settle()
    damage(node, physical)
    with CopyScrub(node.store, node.paths[0].parent, every=None, rate=1 << 40) as scrub:
        scrub.start()
        scrub.doubt(node.store.tablets()[0], physical)
        until(lambda: node.store.rotten() == 1, "the file is read")


def test_a_file_that_is_gone_is_found_too(centre: CopyCentre):
    node = centre.add()
    physical = centre.load()
    centre.settle()
    [place] = places(node, physical)
    place.unlink()
    assert scrub_of(node).run_once() == 1
    report(centre, node)
    assert centre.has(physical) == []
    centre.pull()
    assert node.names() == [physical]


def test_it_reads_no_faster_than_it_may(centre: CopyCentre):
    node = centre.add()
    physical = [centre.load() for _ in range(5)]
    centre.settle()
    clock = Clock()
    size = sum(places(node, each)[0].stat().st_size for each in physical)
    scrub_of(node, clock, rate=1000).run_once()
    assert size / 1000 - 0.25 <= clock.waited <= size / 1000 + 0.01


def test_it_goes_on_where_it_was_when_the_node_starts_anew(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
):
    node = centre.add()
    names = sorted(centre.load(partition=each % 2) for each in range(6))
    centre.settle()
    read: list[str] = []
    is_whole = CopyScrub._is_whole

    def noted(self: CopyScrub, replica, name, file) -> bool:  # type: ignore[no-untyped-def]
        found = is_whole(self, replica, name, file)
        read.append(name)
        return found

    monkeypatch.setattr(CopyScrub, "_is_whole", noted)
    clock = Clock()
    clock.stop_after = 1.0
    while True:  # each life reads a little, and is told to stop
        scrub = scrub_of(node, clock, rate=1000)
        begun = scrub.place.begun or clock.now
        try:
            scrub.run_once()
            break
        except StoppedError:
            clock.stop_after = clock.waited + 1.0
            node.restart()
    assert sorted(read) == names  # each once
    assert scrub.place.last == begun
    assert scrub.place.begun == 0
    assert scrub.due() == pytest.approx(begun + 1000 - clock.now)
    clock.now -= 1e6
    assert scrub.due() == 1000  # a clock that was set back


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"begun": "x"}', b"\xff"])
def test_a_place_that_cannot_be_read_is_no_place(centre: CopyCentre, content: bytes):
    node = centre.add()
    centre.load()
    centre.settle()
    (node.paths[0].parent / SCRUB_PLACE).write_bytes(content)
    scrub = scrub_of(node)
    assert scrub.run_once() == 0
    assert scrub.place.last > 0


def test_what_has_rotted_and_is_listed_no_more_goes_by_the_masters_word_alone(centre: CopyCentre):
    node = centre.add()
    physical = centre.load()
    centre.load()
    centre.settle()
    damage(node, physical)
    scrub_of(node).run_once()
    centre.engine.commit([records.FileDeleted(physical, "operator")])
    centre.settle()
    assert len(places(node, physical)) == 1  # a question about the past may want it
    centre.engine.commit([records.FileForgotten(physical)])
    node.restart()
    centre.settle()
    assert places(node, physical) == []
    assert node.store.rotten() == 0


def test_a_rotten_line_is_of_a_file_that_is_known(centre: CopyCentre):
    node = centre.add()
    physical = centre.load()
    centre.settle()
    [tablet] = node.store.tablets()
    replica = node.store.replica(tablet)
    file = replica.files()[physical]
    assert not replica.rot(physical, msgspec.structs.replace(file, md5="0" * 32))
    assert not replica.rot("sequence/x", file)
    assert replica.files() == {physical: file}


def test_doubts_that_come_while_others_are_looked_at_end_nothing(centre: CopyCentre):
    """A call puts one in between any two steps of who takes them out."""
    node = centre.add()
    scrub = scrub_of(node)
    interval = sys.getswitchinterval()
    done = threading.Event()

    def doubting() -> None:
        for number in range(20_000):
            scrub.doubt("1" * 32, str(number))
        done.set()

    calls = threading.Thread(target=doubting)
    sys.setswitchinterval(1e-6)
    try:
        calls.start()
        while not done.is_set():
            assert scrub.look_at_doubted() == 0
    finally:
        calls.join()
        sys.setswitchinterval(interval)
