"""Edges restored from a copy, judged by the oracle: the rows are those of the restored database.

What the restored database does not have and the centre once got is retired, and stays: nothing is
deleted because a copy is old.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from common import crash
from common.crash import SimulatedCrash
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


@pytest.fixture
def cut(world):
    """Whose tasks have one file, or end, or deletion file."""
    world.edge.with_settings(task_max_files=1)
    return world


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


@pytest.mark.few(4, always="replaced-lost0")
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


@pytest.mark.few(1, always="replaced")
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


@pytest.mark.few(1)
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


@pytest.mark.few(1)
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


@pytest.mark.few(1, always="replaced")
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


@pytest.mark.few(2)
@pytest.mark.parametrize("tasks_since", [1, 2])
def test_without_a_word_of_the_operator_a_copy_is_refused_and_changes_nothing(world, tasks_since):
    """Though it may have nothing to send: all that it has is there."""
    closed(world, ("a", 1))
    whole(world)
    kept = world.backup()
    for time in range(4, 4 + tasks_since):
        closed(world, ("a", time))
        whole(world)
    before = world.answer()
    world.restore(kept, accept=False)
    report = world.round()
    assert report.error is not None
    assert report.error.slug == "clone"
    assert world.answer() == before


# -- more than a task may have -------------------------------------------------------------------


def a_copy_that_lacks_much(world: Oracle) -> set[tuple[str, int]]:
    """Restore one; what the centre gave until then."""
    for time in range(4):
        closed(world, ("a", time), ("b", time))
    world.database.delete("b", 0, 0)
    whole(world)
    kept = world.backup()
    world.database.delete("b", 1, 1)
    world.database.inner(0, late=False, count=2)
    closed(world, ("a", 0), ("a", 1))
    closed(world, ("a", 9))
    whole(world)
    world.restore(kept)
    for time in (0, 2, 11):  # late ones, too: nobody has them yet
        closed(world, ("a", time), ("b", 12 + time))
    return set(world.answer())


@pytest.mark.few(1, always="replaced")
def test_a_list_that_begins_anew_is_cut_into_tasks_and_no_answer_between_them_is_wrong(cut):
    before, given = a_copy_that_lacks_much(cut), []

    def hook(name: str) -> None:
        if name == "round.task_done":
            given.append(set(cut.read()))
            assert given[-1] == set(cut.answer())

    with crash.arm(hook):
        assert cut.round().error is None
    assert len(given) > 2
    for each in given:
        assert before <= each, "what was given is given"
        assert ("b", 0) not in each, "what was deleted is not visible"
    whole(cut)
    assert cut.answer().keys() == before | cut.database.answer().keys()


@pytest.mark.few(2)
@pytest.mark.parametrize("task", [1, 2])
def test_a_sender_that_dies_between_the_tasks_of_such_a_list_goes_on_behind_them(cut, task):
    a_copy_that_lacks_much(cut)
    left = task

    def hook(name: str) -> None:
        nonlocal left
        if name != "round.task_done":
            return  # the receiver's threads go on
        left -= 1
        if not left:
            raise SimulatedCrash(name)

    with pytest.raises(SimulatedCrash), crash.arm(hook):
        cut.round()
    closed(cut, ("a", 1), ("a", 8))
    whole(cut)
    assert cut.answer()["a", 9]


@pytest.mark.few(1, always="replaced")
def test_other_content_of_a_listed_name_is_there_after_a_cut_list_has_begun(cut):
    closed(cut, ("a", 1))
    cut.database.write("a", 2)
    cut.database.flush(*cut.database.opened())
    kept = cut.backup()
    closed(cut, ("a", 3))
    whole(cut)
    cut.restore(kept)
    assert {row.path for row in cut.view().rows} == {
        each.path(cut.database.group) for each in cut.database.closed()
    }
    closed(cut, ("a", 5))
    whole(cut)
    assert cut.answer().keys() == {("a", 1), ("a", 2), ("a", 3), ("a", 5)}


@pytest.mark.few(1, always="replaced")
def test_more_than_a_receiver_takes_at_once_is_named_and_files_come_all_the_same(
    world, monkeypatch
):
    closed(world, ("a", 1))
    kept = world.backup()
    for time in range(2, 5):
        closed(world, ("a", time))
    whole(world)
    world.restore(kept)
    closed(world, ("a", 7))
    checks = world.host.node.checks
    limits = replace(checks._config.limits, max_task_items=2)
    with monkeypatch.context() as patch:
        patch.setattr(checks, "_config", replace(checks._config, limits=limits))
        report = world.round()
    assert (report.error, report.sent) == (None, 1)
    assert any("it waits: 3 files end at once" in each.reason for each in report.held)
    assert world.answer().keys() >= {("a", 1), ("a", 4), ("a", 7)}
    whole(world)
