"""Edges restored from a copy, judged by the oracle: the rows are those of the restored database.

What the restored database does not have and the centre once got is retired, and stays: nothing is
deleted because a copy is old.
"""

from __future__ import annotations

import pytest

from receiver.metadata.query.applied_deletions import applied_deletions
from receiver.metadata.query.past_files import files_at
from tests.support.oracle import Oracle, oracle

LISTS = "**/sync-sender/*/last_local_files.txt"
FACTS = "**/sync-sender/*/local_files.state"
LOOKS = "schema/sync/*/looks.state"


@pytest.fixture(params=["replaced", "all", "never"])
def world(request, tmp_path):
    with oracle(tmp_path, request.param) as made:
        yield made


def closed(world: Oracle, *points: tuple[str, int]) -> None:
    """A file, or two where some of the points are late."""
    for series, time in points:
        world.database.write(series, time)
    for file in world.database.opened():
        world.database.close(file)


def whole(world: Oracle) -> None:
    """A round after which all that the database gives is given, and nothing waits."""
    report = world.round()
    if report.held:
        report = world.round()
    assert (report.error, report.held, report.pending_files) == (None, [], 0)
    given = world.answer()
    for key, value in world.database.answer().items():
        assert given.get(key) == value, (key, given.get(key), value)
    assert world.read() == given
    view = world.view()
    listed = {(p, r.md5) for r in view.visible if not r.retired for p in r.paths}
    here = {(f.path(world.database.group), f.md5) for f in world.database.closed()}
    assert listed == here
    again = world.round()
    assert (again.sent, again.retired, again.held, again.lost) == (0, 0, [], [])


@pytest.mark.parametrize("lost", [(), (LISTS,), (FACTS,), (LOOKS,), (LISTS, FACTS, LOOKS)])
def test_what_the_copy_lacks_is_retired_below_all_that_it_has(world, lost):
    closed(world, ("a", 1), ("a", 2))
    whole(world)
    kept = world.backup()
    closed(world, ("a", 2), ("b", 2))  # late: it stands above
    closed(world, ("a", 5))
    whole(world)
    above = world.answer()["a", 2]
    world.restore(kept, lost=lost)
    whole(world)
    assert world.answer()["a", 2] < above
    assert world.answer()["a", 5]  # what the edge has no more is kept
    closed(world, ("a", 2), ("a", 6))
    whole(world)


def test_a_deletion_that_the_copy_does_not_have_is_taken_back_in_what_it_has(world):
    closed(world, ("a", 1), ("a", 2))
    closed(world, ("a", 3))
    whole(world)
    kept = world.backup()
    world.database.delete("a", 1, 3)
    whole(world)
    assert world.answer() == {}
    world.restore(kept)
    whole(world)
    assert set(world.answer()) == {("a", 1), ("a", 2), ("a", 3)}
    world.database.delete("a", 2, 2)
    whole(world)
    assert set(world.answer()) == {("a", 1), ("a", 3)}


@pytest.mark.parametrize("world", ["replaced", "never"], indirect=True)
def test_a_deletion_stays_in_what_had_ended(world):
    """A mirror keeps nothing that has ended."""
    closed(world, ("a", 1))
    closed(world, ("a", 2), ("a", 3))
    whole(world)
    world.database.delete("a", 3, 3)
    whole(world)
    kept = world.backup()
    world.database.remove(world.database.closed()[1:])
    whole(world)
    world.database.remove(world.database.closed())
    kept.database.files = kept.database.files[:1]
    world.restore(kept)
    whole(world)
    assert set(world.answer()) == {("a", 1), ("a", 2)}


def stood(world: Oracle, at: int) -> tuple[object, object]:
    """How files ranked, and what was deleted of which, at a commit."""
    engine = world.host.node.engine
    files = {row.physical: row.rank for row in files_at(engine, at).visible}
    with engine.reading() as state:
        applied = [
            (each.row.physical, each.content, each.floor)
            for each in applied_deletions(state.deletion_table, at)
        ]
    return files, sorted(applied, key=str)


def test_who_asks_for_an_earlier_time_is_answered_as_before(world):
    closed(world, ("a", 1), ("a", 2))
    closed(world, ("a", 5))
    whole(world)
    kept = world.backup()
    world.database.delete("a", 1, 1)
    closed(world, ("a", 7))
    whole(world)
    at = world.host.node.engine.newest_commit
    before = stood(world, at)
    world.restore(kept)
    whole(world)
    assert stood(world, at) == before
    assert stood(world, world.host.node.engine.newest_commit) != before


def test_an_edge_that_compacts_otherwise_after_its_restore(world):
    for time in range(8):
        closed(world, ("a", time), ("b", time))
    whole(world)
    kept = world.backup()
    world.database.inner(0, False, 0, 4)
    closed(world, ("a", 3))
    whole(world)
    world.database.cross(0)
    whole(world)
    world.restore(kept)
    closed(world, ("a", 4), ("b", 1))
    world.database.inner(0, False, 2, 3)
    whole(world)
    world.database.cross(0)
    world.database.delete("b", 0, 4)
    whole(world)


def test_it_takes_effect_with_a_whole_look_only(world):
    closed(world, ("a", 1), ("a", 2))
    whole(world)
    kept = world.backup()
    closed(world, ("a", 1), ("a", 4))  # the late one stands above what the copy has
    whole(world)
    before = world.answer()
    world.restore(kept)
    with world.linked(False):
        report = world.round()
        assert report.error is None
        assert any("waits for a whole look" in each.reason for each in report.held)
        assert world.answer() == before
    whole(world)
    assert world.answer()["a", 1] < before["a", 1]


def test_without_a_word_of_the_operator_a_copy_is_refused_and_changes_nothing(world):
    closed(world, ("a", 1))
    whole(world)
    kept = world.backup()
    closed(world, ("a", 4))
    whole(world)
    closed(world, ("a", 5))
    whole(world)
    before = world.answer()
    world.restore(kept, accept=False)
    report = world.round()
    assert report.error is not None
    assert report.error.slug == "clone"
    assert world.answer() == before
