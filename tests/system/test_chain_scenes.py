"""Histories of an edge's database through a centre that forwards: above as in the middle.

The histories are those of `test_oracle_scenes`; the forwarder's rounds come after each look of the
edge, only at the end, or now and then.
"""

from __future__ import annotations

import itertools

import msgspec
import pytest

from receiver.config import DeletesConfig
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.operator.stored.files import delete_files
from sender.config import StorageGroupFilter
from sender.send.calls import Client
from tests.support import tiers
from tests.support.oracle import points_read, receiver_at
from tests.support.oracle_chain import OracleChain, forwarding_to, oracle_chain
from tests.system.test_oracle_scenes import SCENES, played

EVERY, LAST, SOME = "each look", "the end", "each third look"
PLAYED = tiers.sample(itertools.product(SCENES, (EVERY, LAST, SOME)), 1, kind=lambda each: each[0])


def forwarding(world: OracleChain, how: str) -> None:
    """Let the forwarder follow the edge's rounds as `how` says."""
    whole, looks = world.round, 0

    def and_forward():
        nonlocal looks
        report = whole()
        looks += 1
        if how == EVERY or (how == SOME and not looks % 3):
            world.forward()
        return report

    world.round = and_forward


@pytest.mark.few(12)
@pytest.mark.parametrize(("name", "how"), PLAYED)
def test_the_centre_above_gives_what_the_one_in_the_middle_gives(name, how, tmp_path, monkeypatch):
    with oracle_chain(tmp_path) as world:
        forwarding(world, how)
        played(world, SCENES[name], monkeypatch)
        report = world.forward()
        assert (report.held, report.conflicts) == ([], [])
        assert world.read_above() == world.read()
        assert world.forward().quiet, "nothing is handed up twice"


def test_deletions_that_are_handed_up_with_the_very_content_hide_none_of_it(tmp_path):
    """They are of the file that had it before; the forwarder looked before and after all that."""
    with oracle_chain(tmp_path) as world:
        database = world.database
        database.write("a", 1, 7)
        database.close(*database.opened())
        world.round()
        world.forward()
        database.delete("a", 1, 1)
        world.round()
        database.write("a", 1, 7)
        database.close(*database.opened())
        database.cross(0)
        world.round()
        for _ in range(3):
            world.forward()
        assert world.read_above() == world.read() == {("a", 1): 7}


# -- what happens to a copy in the middle ----------------------------------------------------------

MODES = ["replaced", "all", "never"]


def states(rows) -> dict[str, FileState]:
    """Of each content that is there, by the value of its first point."""
    return {row.md5: row.state for row in rows if row.state is not FileState.DELETED}


def one_file(world: OracleChain) -> FileRow:
    """An edge's file with one point, in the middle and above."""
    world.database.write("a", 1)
    world.database.close(world.database.opened()[0])
    return both(world)[0]


def both(world: OracleChain) -> list[FileRow]:
    """A round of the edge and one of the forwarder; the rows in the middle."""
    assert world.round().error is None
    world.forward()
    return world.below_rows()


def commit(world: OracleChain, *ops: records.Op) -> None:
    world.host.node.engine.commit(ops)


@pytest.mark.parametrize("mode", MODES)
def test_a_copy_that_is_bad_in_the_middle_stays_above_and_does_not_travel_again(mode, tmp_path):
    with oracle_chain(tmp_path, forwarder_mode=mode) as world:
        row = one_file(world)
        before = world.rows_above()
        commit(world, records.FileQuarantined(row.physical, "rotten"))
        report = world.forward()
        assert (report.deleted, report.retired, report.pending_files) == (0, 0, 0)
        assert world.rows_above() == before
        assert world.round().sent == 1, "its edge sends it again"
        report = world.forward()
        assert (report.sent, report.bytes, report.error) == (0, 0, None)
        (above,) = world.rows_above()
        assert (above.physical, above.state) == (before[0].physical, FileState.LIVE)
        assert world.read_above() == world.read() == world.database.answer()
        assert world.forward().quiet


@pytest.mark.parametrize("reason", ["expired", "operator"])
@pytest.mark.parametrize("mode", MODES)
def test_what_was_dropped_in_the_middle_stays_above(mode, reason, tmp_path):
    with oracle_chain(tmp_path, forwarder_mode=mode) as world:
        row = one_file(world)
        commit(world, records.FileDeleted(row.physical, reason))
        report = world.forward()
        assert (report.deleted, report.retired, report.held) == (0, 1, [])
        (above,) = world.rows_above()
        assert above.state is FileState.RETIRED
        assert world.read_above() == world.database.answer()
        assert world.forward().quiet


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", MODES)
def test_what_ended_in_the_middle_is_retired_above_and_proved_there_anew(mode, tmp_path):
    with oracle_chain(tmp_path, forwarder_mode=mode) as world:
        database = world.database
        database.write("b", 1)
        one_file(world)
        database.write("a", 1)
        database.close(database.opened()[0])
        both(world)
        database.cross(0)
        assert world.round().error is None
        assert world.host.prove() == 2
        world.forward()
        kinds = sorted(row.state for row in world.rows_above())
        assert kinds == [FileState.LIVE, FileState.RETIRED, FileState.RETIRED]
        assert world.read_above() == world.read() == database.answer()
        if mode != "never":
            assert world.above.prove() == 2
            assert world.read_above() == database.answer()
        assert world.forward().quiet


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("edge", "forwarder", "wanted"),
    [
        ("all", "all", FileState.DELETED),
        ("all", "replaced", FileState.RETIRED),
        ("all", "never", FileState.RETIRED),
        ("replaced", "all", FileState.RETIRED),
    ],
)
def test_only_what_a_mirror_below_deleted_is_deleted_in_a_mirror_above(
    edge, forwarder, wanted, tmp_path
):
    with oracle_chain(tmp_path, edge, forwarder) as world:
        one_file(world)
        database = world.database
        database.write("a", 2)
        database.close(database.opened()[0])
        both(world)
        database.remove(database.closed()[:1])
        both(world)
        assert sorted(row.state for row in world.rows_above()) == sorted([FileState.LIVE, wanted])
        assert world.forward().quiet


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", MODES)
def test_what_an_operator_deletes_everywhere_is_deleted_above(mode, tmp_path):
    with oracle_chain(tmp_path, forwarder_mode=mode) as world:
        row = one_file(world)
        database = world.database
        database.write("a", 2)
        database.close(database.opened()[0])
        database.remove(database.closed()[:1])
        both(world)
        assert states(world.rows_above())[row.md5] is FileState.RETIRED
        (live,) = (each for each in world.below_rows() if each.physical != row.physical)
        told = [row.physical, live.physical, "nothing"]
        answer = delete_files(world.host.node.operator, told, everywhere=True)
        assert answer.deleted == [row.physical], "what an edge has is not deleted"
        assert [each.physical for each in answer.failed] == told[1:]
        assert world.forward().deleted == 1
        assert row.md5 not in states(world.rows_above())
        assert world.read_above() == database.answer()
        assert world.forward().quiet


def test_what_had_ended_before_the_forwarder_came_is_above_and_not_pending(tmp_path):
    with oracle_chain(tmp_path) as world:
        database = world.database
        for time in (1, 2):
            database.write("a", time)
            database.close(database.opened()[0])
        assert world.round().error is None
        database.remove(database.closed()[:1])
        assert world.round().retired == 1
        report = world.forward()
        assert (report.sent, report.pending_files) == (2, 0)
        assert sorted(states(world.rows_above()).values()) == [FileState.LIVE, FileState.RETIRED]
        assert world.forward().quiet


def test_nothing_of_a_storage_group_that_is_left_out_is_handed_up(tmp_path):
    with oracle_chain(tmp_path) as world:
        world.forwarder.with_settings(storage_groups=StorageGroupFilter(exclude=("root.e",)))
        row = one_file(world)
        world.database.delete("a", 1, 1)
        both(world)
        with world.host.reading() as state:
            assert list(state.deletion_table)
        world.database.remove(world.database.closed())
        both(world)
        delete_files(world.host.node.operator, [row.physical], everywhere=True)
        world.forward()
        with world.above.reading() as state:
            assert not state.files
            assert not list(state.deletion_table)


def test_the_guard_above_holds_what_is_too_much_to_delete_everywhere(tmp_path):
    with oracle_chain(tmp_path, deletes=DeletesConfig()) as world:
        database = world.database
        for time in range(1, 13):
            database.write("a", time)
            database.close(database.opened()[0])
        both(world)
        database.remove(database.closed()[:11])
        rows = [row.physical for row in both(world) if row.state is FileState.RETIRED]
        assert len(rows) == 11
        delete_files(world.host.node.operator, rows, everywhere=True)
        for _ in range(2):
            report = world.forward()
            assert (report.deleted, len(report.held)) == (0, 11)
        with world.above.node.engine.reading() as state:
            (held,) = state.held_deletes.rows.values()
        assert world.read_above().keys() == {("a", time) for time in range(1, 13)}
        world.above.node.engine.commit([records.DeletesSettled(held.digest, "allow")])
        assert world.forward().deleted == 11
        assert world.read_above().keys() == {("a", 12)}
        assert world.forward().quiet


def test_where_the_memory_of_what_was_handed_up_is_lost_nothing_changes_above(tmp_path):
    with oracle_chain(tmp_path) as world:
        one_file(world)
        database = world.database
        database.write("a", 1)
        database.close(database.opened()[0])
        database.remove(database.closed()[:1])
        both(world)
        world.forward()
        before = states(world.rows_above())
        assert sorted(before.values()) == [FileState.LIVE, FileState.RETIRED]
        (memory,) = world.forwarder.schema.glob("sync/*/handed.state")
        memory.unlink()
        report = world.forward()
        assert (report.sent, report.bytes, report.already) == (0, 0, 2)
        assert states(world.rows_above()) == before
        assert world.forward().quiet


def test_what_stands_otherwise_in_the_middle_by_a_new_name_does_so_above(tmp_path):
    """The product is the very content of a late file, and comes after what stood above that one."""
    with oracle_chain(tmp_path) as world:
        one_file(world)
        database = world.database
        for _ in range(2):
            database.write("a", 1)
            database.close(database.opened()[0])
        both(world)
        database.remove(database.closed(late=True)[1:])
        both(world)
        database.cross(0)
        both(world)
        assert world.read_above() == world.read() == database.answer()
        assert world.forward().quiet


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name",
    [
        "updated and compacted",
        "an end is held while looks go by",
        "compacted, then deleted, in one look",
        "a deletion, in an open file, of what was freed",
    ],
)
def test_a_third_centre_gives_what_the_first_gives(name, tmp_path, monkeypatch):
    with oracle_chain(tmp_path) as world, receiver_at(tmp_path / "top") as top:
        upper = forwarding_to(tmp_path / "second forwarder", world.above.url, top.url, "replaced")
        forwarding(world, SOME)
        played(world, SCENES[name], monkeypatch)
        world.forward()
        assert upper.round().error is None
        assert points_read(top, world.database.shape) == world.read_above() == world.read()
        assert upper.round().quiet


def test_ranks_from_below_survive_a_checkpoint(tmp_path, monkeypatch):
    with oracle_chain(tmp_path) as world:
        played(world, SCENES["an end is held while looks go by"], monkeypatch)
        world.forward()
        world.above.node.engine.checkpoint()
        assert world.read_above() == world.read()


@pytest.mark.parametrize("harm", ["quarantined", "expired"])
def test_a_mirror_above_of_an_older_version_is_not_told_what_no_edge_deleted(
    harm, tmp_path, monkeypatch
):
    check = Client.check

    def of_old(self, request):
        return msgspec.structs.replace(check(self, request), origins=False)

    with oracle_chain(tmp_path, "all", "all") as world:
        monkeypatch.setattr(Client, "check", of_old)
        row = one_file(world)
        database = world.database
        database.write("a", 2)
        database.close(database.opened()[0])
        both(world)
        if harm == "quarantined":
            commit(world, records.FileQuarantined(row.physical, "rotten"))
        else:
            commit(world, records.FileDeleted(row.physical, "expired"))
        report = world.forward()
        assert (report.deleted, report.retired) == (0, 0)
        assert [each.state for each in world.rows_above()] == [FileState.LIVE] * 2
        database.remove(database.closed()[1:])
        both(world)
        assert [each.state for each in world.rows_above()].count(FileState.DELETED) == 1
        monkeypatch.undo()
        world.forward()
        assert {each.origin.sender for each in world.rows_above() if each.origin} == {
            world.edge.uuid
        }, "after the upgrade it learns where they come from"


def test_what_became_of_very_many_files_is_asked_at_once(tmp_path):
    paths = [f"sequence/root.{'g' * 190}/0/0/{number}-1-0-0.tsfile" for number in range(2500)]
    with oracle_chain(tmp_path) as world:
        client = world.forwarder.remote().source_client()
        answer = client.fates(paths)
        client.close()
    assert [each.path for each in answer.fates] == paths
