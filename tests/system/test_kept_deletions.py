"""Deletions that were told to be only kept, once their edge wants them applied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from receiver.metadata.state.deletion_rows import DeletionsSegment
from sender.round.round_words.round_report import RoundReport
from tests.support.oracle import Oracle, oracle, rows_read
from tests.support.oracle_chain import oracle_chain
from tests.support.oracle_host import Host
from tests.system.sender.test_held_records import A_PART, call, delete


def turned(world: Oracle, mode: str) -> RoundReport:
    """A round once the configuration says so."""
    world.edge.with_settings(deletion_files=mode)
    report = world.round()
    assert report.error is None
    assert (report.held, report.conflicts) == ([], [])
    return report


def segments(host: Host) -> Iterator[DeletionsSegment]:
    with host.reading() as state:
        for row in state.deletion_table:
            yield from row.segments


def some_files(world: Oracle) -> None:
    for late in (False, True):
        for time in range(4):
            world.database.write("a", time)
        (file,) = world.database.opened()
        assert file.late is late
        world.database.close(file)
    assert world.round().error is None


def test_what_was_kept_applies_once_the_edge_wants_it_applied(tmp_path):
    with oracle(tmp_path) as world:
        some_files(world)
        whole = world.read()
        world.database.delete("a", 1, 1)
        assert turned(world, "keep").tasks
        assert world.read() == whole
        assert turned(world, "keep").quiet
        world.database.delete("a", 2, 2)
        assert turned(world, "apply").tasks
        assert world.read() == world.database.answer() != whole
        assert turned(world, "apply").quiet


def test_real_programs_apply_what_was_kept_and_an_earlier_commit_has_it_still(centre, make_edge):
    edge = make_edge(centre.start())
    paths = [edge.write(1), edge.write(2, points=3)]
    delete(edge, paths[0], A_PART)
    keeps = ("sync", "--json")

    def times(as_of: int | None = None) -> list[int]:
        return sorted(each["time"] for each in rows_read(centre.root / "schema", as_of))

    assert call(edge.write_config(deletion_files="keep"), *keeps)[0] == 0
    every = [*range(1000, 1010), 2000, 2001, 2002]
    assert times() == every
    kept = int(centre.call("status")["newest_commit"])
    centre.kill()
    centre.start()
    assert call(edge.write_config(), *keeps)[0] == 0
    centre.kill()
    centre.start()
    assert times() == every[2:]
    assert times(kept) == every


def test_modes_that_change_to_and_fro_apply_what_was_told_meanwhile(tmp_path):
    with oracle(tmp_path) as world:
        some_files(world)
        world.database.delete("a", 0, 0)
        turned(world, "apply")
        deleted = world.read()
        assert deleted == world.database.answer()
        world.database.delete("a", 1, 1)
        turned(world, "keep")
        assert world.read() == deleted
        assert {each.applied for each in segments(world.host)} == {True, False}
        turned(world, "apply")
        assert world.read() == world.database.answer() != deleted
        assert turned(world, "keep").quiet
        assert world.read() == world.database.answer()


@pytest.mark.parametrize("lost", ["schema/sync/*/looks.state", "data/sync-sender/*/*"])
def test_a_sender_that_forgot_what_it_told_has_it_applied(tmp_path, lost):
    with oracle(tmp_path) as world:
        some_files(world)
        world.database.delete("a", 1, 1)
        turned(world, "keep")
        for found in world.edge.root.glob(lost):
            if found.is_file():
                found.unlink()
        turned(world, "apply")
        turned(world, "apply")
        assert world.read() == world.database.answer()


def test_what_had_ended_when_a_copy_was_accepted_keeps_its_points(tmp_path):
    with oracle(tmp_path) as world:
        some_files(world)
        for time in (8, 9):
            world.database.write("a", time)
            world.database.close(world.database.opened()[0])
        world.database.delete("a", 1, 9)
        turned(world, "keep")
        whole = world.read()
        gone = world.database.closed()[-2:-1]
        assert gone[0].keys == {("a", 9)}
        world.database.remove(gone)
        turned(world, "keep")
        world.restore(world.backup())
        turned(world, "apply")
        left = world.database.answer().keys() | {("a", 9)}
        assert world.read() == {key: value for key, value in whole.items() if key in left}
        assert turned(world, "apply").resources, "a list that was made anew asks for them once"
        assert turned(world, "apply").quiet


def taken_over(world: Oracle, mode: str) -> None:
    """Another box goes on with the database, as the manual says."""
    old = world.exchange()
    world.edge.with_settings(deletion_files=mode)
    world.round()
    world.host.adopt(old, world.edge.uuid)
    turned(world, mode)
    turned(world, mode)


@pytest.mark.parametrize("compacted", [False, True])
def test_what_a_box_that_took_over_had_only_kept_applies_to_what_the_old_one_listed(
    tmp_path, compacted
):
    with oracle(tmp_path) as world:
        some_files(world)
        taken_over(world, "keep")
        if compacted:
            world.database.cross(0)
        whole = world.read()
        world.database.delete("a", 1, 1)
        turned(world, "keep")
        assert world.read() == whole
        turned(world, "apply")
        assert world.read() == world.database.answer() != whole


@pytest.mark.parametrize("before", ["keep", "apply"])
def test_what_the_old_box_had_only_kept_applies_once_the_new_one_wants_it_applied(tmp_path, before):
    with oracle(tmp_path) as world:
        some_files(world)
        whole = world.read()
        world.database.delete("a", 1, 1)
        turned(world, "keep")
        taken_over(world, before)
        if before == "keep":
            assert world.read() == whole
            turned(world, "apply")
        assert world.read() == world.database.answer() != whole


@pytest.mark.parametrize("both", [False, True])
def test_a_chain_applies_above_what_applies_in_the_middle(tmp_path, both):
    with oracle_chain(tmp_path) as world:
        some_files(world)
        if both:
            world.forwarder.with_settings(deletion_files="keep")
        world.forward()
        world.database.delete("a", 1, 1)
        turned(world, "keep")
        world.forward()
        whole = world.read()
        assert world.read_above() == whole
        turned(world, "apply")
        assert world.read() == world.database.answer() != whole
        world.forward()
        if both:
            assert world.read_above() == whole
            world.forwarder.with_settings(deletion_files="apply")
            world.forward()
        assert world.read_above() == world.read()
        assert world.forward().quiet
