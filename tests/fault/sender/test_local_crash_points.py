"""Dying at every step of the local half of a round, and in the recovery from that as well."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.errors import UnreachableError
from sender.round.recovery import recover
from tests.support import tiers
from tests.support.model_centre import Centre, local_round
from tests.support.site import Site, digest, path, tsfile

OLD = [path(f"{n}-1-0.tsfile") for n in (1, 2, 3)]
MERGED = path("1-1-1.tsfile")
OTHER = path("1-1-0.tsfile", partition=1)
MOVED = path("2-1-0.tsfile", partition=1)
TOUCHED = path("3-1-0.tsfile", partition=1)
REPLACED = path("4-1-0.tsfile", partition=1)
NEW = path("5-1-0.tsfile", partition=2)


def ids():
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):032x}"


def prepare(root):
    """A site that is in sync, and then changes in every way that there is."""
    site, centre, task_id = Site(root, dirs=2), Centre(), ids()
    for each in (*OLD, OTHER, MOVED, TOUCHED, REPLACED):
        site.put(each, tsfile(value=each.stem.created))
    local_round(site, centre, task_id)
    for each in OLD:
        site.remove(each)
    site.put(MERGED, tsfile(value=100))
    site.remove(MOVED)
    site.put(MOVED, tsfile(value=MOVED.stem.created), data_dir=1)
    site.put(TOUCHED, tsfile(value=TOUCHED.stem.created), age=5)
    site.put(REPLACED, tsfile(value=200))
    site.put(NEW, tsfile(value=300), data_dir=1)
    return site, centre, task_id


EXPECTED = {
    MERGED: digest(tsfile(value=100)),
    OTHER: digest(tsfile(value=1)),
    MOVED: digest(tsfile(value=2)),
    TOUCHED: digest(tsfile(value=3)),
    REPLACED: digest(tsfile(value=200)),
    NEW: digest(tsfile(value=300)),
}


class Countdown:
    """Dies at the n-th point that is passed, and remembers which."""

    def __init__(self, n):
        self.left = n
        self.at = None

    def __call__(self, name):
        self.left -= 1
        if self.left == 0:
            self.at = name
            raise SimulatedCrash(name)


@pytest.fixture
def root(tmp_path):
    """In memory where there is such a place: some hundred rounds, each with dozens of syncs."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    where = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield where
    shutil.rmtree(where)


def points_of(site, centre, task_id):
    """The names of the points that a round passes."""
    names = []
    with crash.arm(names.append):
        local_round(site, centre, task_id)
    return names


def dies(action, n):
    counter = Countdown(n)
    with crash.arm(counter):
        try:
            action()
        except SimulatedCrash:
            assert counter.at
            return True
    return False


def judge(site, centre):
    assert centre.loaded == EXPECTED
    ledger = site.ledger()
    assert {at: each.md5 for at, each in ledger.entries.items()} == EXPECTED
    assert not ledger.doubts
    assert set(centre.loads.values()) == {1}, "something was loaded twice"
    assert site.logs().left_over() == {}
    assert site.snapshot().leftovers() == []
    for number in (0, 1):
        names = {each.name for each in site.sender_dir(number).iterdir()}
        assert names == {"last_local_files.txt", "local_files.state"}
    before = dict(centre.outcomes)
    local_round(site, centre, ids())
    assert centre.outcomes == before, "the next round had something to do"


def test_dying_at_any_step_of_a_round_the_next_one_puts_all_right(root):
    names = points_of(*prepare(root / "count"))
    assert len(names) > 100
    for n in tiers.passages(names, 2):
        site, centre, task_id = prepare(root / f"n{n}")
        assert dies(lambda s=site, c=centre, t=task_id: local_round(s, c, t), n)
        local_round(site, centre, task_id)
        judge(site, centre)


@pytest.mark.few(1)
@pytest.mark.parametrize("first", ["model.before_commit", "model.after_commit"])
def test_dying_again_at_any_step_of_the_recovery(root, first):
    def begun(where):
        site, centre, task_id = prepare(where)

        def hook(name):
            if name == first:
                raise SimulatedCrash(name)

        with pytest.raises(SimulatedCrash), crash.arm(hook):
            local_round(site, centre, task_id)
        return site, centre, task_id

    for n in tiers.passages(points_of(*begun(root / "count"))):
        site, centre, task_id = begun(root / f"n{n}")
        assert dies(lambda s=site, c=centre, t=task_id: local_round(s, c, t), n)
        local_round(site, centre, task_id)
        judge(site, centre)


def test_dying_while_sources_vanish_loses_no_unloaded_file(root):
    """The database deletes each source as soon as the sender is dead and the receiver away."""
    for n in tiers.passages(points_of(*prepare(root / "count"))):
        site, centre, task_id = prepare(root / f"n{n}")
        dies(lambda s=site, c=centre, t=task_id: local_round(s, c, t), n)
        held = {each.path for each in site.snapshot().leftovers()} & {NEW, MERGED}
        for each, number in itertools.product(held, (0, 1)):
            site.remove(each, number)
        centre.up = False
        with suppress(UnreachableError):
            recover(site.ledger(), site.logs(), site.snapshot(), site.dirs, centre.outcome_of)
        centre.up = True
        local_round(site, centre, task_id)
        assert held <= {at for at, _ in centre.loads}, f"lost at step {n}"
        local_round(site, centre, task_id)
        assert not held & set(centre.loaded)  # and now gone, as at the edge
        assert set(site.ledger().entries) == set(centre.loaded)
