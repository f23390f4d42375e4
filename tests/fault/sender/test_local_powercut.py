"""True power cuts in the local half of a round: what was not synced is gone."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
from contextlib import suppress

import pytest

from common import crash
from common.crash import SimulatedCrash
from tests.fault.sender.test_local_crash_points import Countdown, judge, points_of, prepare
from tests.support import powercut, tiers
from tests.support.disk import heal
from tests.support.model_centre import local_round
from tests.support.site import path, tsfile

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _healthy(monkeypatch):
    heal(monkeypatch)


@pytest.fixture
def disk(tmp_path):
    with powercut.disk(tmp_path, megabytes=32) as disk:
        yield disk


def database_syncs(disk):
    """A database flushes its files before it calls them closed."""
    fd = os.open(disk.path, os.O_RDONLY)
    ctypes.CDLL(None, use_errno=True).syncfs(fd)
    os.close(fd)


def fresh(disk):
    for each in disk.path.iterdir():
        if each.name != "lost+found":
            shutil.rmtree(each)
    made = prepare(disk.path / "site")
    database_syncs(disk)
    return made


def all_points(disk):
    """The names of all places of a local round; what it has open is closed before anything dies."""
    made = fresh(disk)
    found = points_of(*made)
    made[0].dirs.close()
    return found


def killed_at(n, made):
    """Like kill -9: the process is gone, what it wrote is still in the kernel's memory."""
    counter = Countdown(n)
    with suppress(SimulatedCrash), crash.arm(counter):
        local_round(*made)
    made[0].dirs.close()
    powercut.let_go(made[0].root)
    return counter.at


def test_after_a_power_cut_at_any_step_the_next_round_puts_all_right(disk):
    for n in tiers.passages(all_points(disk)):
        made = fresh(disk)
        at = killed_at(n, made)
        disk.cut()
        local_round(*made)
        try:
            judge(made[0], made[1])
        except AssertionError as error:
            raise AssertionError(f"cut at point {n}, {at}") from error
        made[0].dirs.close()


def test_what_a_killed_process_left_unsynced_is_not_relied_on(disk):
    """Killed, started again, killed again, and only then the power goes."""
    total = len(all_points(disk))
    chance = random.Random(7)
    for _ in range(tiers.examples(20)):
        made = fresh(disk)
        first = killed_at(chance.randrange(1, total), made)
        second = killed_at(chance.randrange(1, total // 2), made)
        disk.cut()
        local_round(*made)
        try:
            judge(made[0], made[1])
        except AssertionError as error:
            raise AssertionError(f"killed at {first} and {second}, then cut") from error
        made[0].dirs.close()


def test_what_is_in_the_snapshot_survives_a_power_cut(disk):
    site, _, _ = fresh(disk)
    scan = site.scan(site.ledger().entries)
    taken = site.snapshot().take(scan.files.values())
    site.dirs.close()
    disk.cut()
    site.reopen()
    assert {each.path for each in site.snapshot().leftovers()} == {
        each.path for each in taken.files
    }
    assert all(each.resource is not None for each in site.snapshot().leftovers())
    site.dirs.close()


def test_what_a_database_never_flushed_is_whole_in_the_snapshot(disk):
    site, _, _ = prepare(disk.path / "site")
    database_syncs(disk)
    late = path("99-1-0.tsfile")
    content = tsfile(device="root.a.late")
    site.put(late, content)
    scan = site.scan(site.ledger().entries)
    taken = site.snapshot().take(scan.files.values())
    site.remove(late)
    assert late in {each.path for each in taken.files}
    site.dirs.close()
    disk.cut()
    site.reopen()
    (link,) = (each for each in site.snapshot().leftovers() if each.path == late)
    assert (site.data_dirs[0] / link.rel).read_bytes() == content
    assert link.resource is not None
    site.dirs.close()
