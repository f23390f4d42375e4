"""What goes wrong while tablets are created and deleted, case by case (section 2 of the seed)."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from common import crash
from common.errors import ProtocolError, UnreachableError
from receiver.heartbeats.node_wire import NodeStart
from receiver.load.upkeep.table_upkeep import TableUpkeep
from receiver.metadata.model import records
from receiver.tablet_copies.copies_wire import DropOrder, GoneAsked, HeldCopies, HeldCopy
from receiver.tablet_copies.replica_store import DoubtedMasterError
from tests.support.copy_nodes import CopyCentre, Machine
from tests.support.spark_world import World


@pytest.fixture
def centre(tmp_path: Path):
    centre = CopyCentre(tmp_path, lost_after=60.0)
    yield centre
    centre.close()


def leader_of(centre: CopyCentre) -> Machine:
    with centre.engine.reading() as state:
        row = state.placement_table.rows[centre.tablets()[0]]
    return next(each for each in centre.nodes if each.uuid == row.leader)


def drop_table(centre: CopyCentre) -> None:
    with centre.engine.reading() as state:
        physicals = list(state.files)
        [table] = state.loaded_tables.there()
    gone = [records.FileDeleted(each, "operator") for each in physicals]
    centre.engine.commit([*gone, records.TableDropped(table.id)])


@pytest.mark.parametrize(
    "place", ["assignment.placed", "assignment.make_call", "assignment.running"]
)
def test_a_master_that_dies_at_a_step_of_the_creation_goes_on_in_its_next_life(
    centre: CopyCentre, place: str
):
    centre.add(), centre.add()
    physical = centre.load()

    def die(here: str) -> None:
        if here == place:
            raise crash.SimulatedCrash(here)

    def passes() -> None:
        for _ in range(3):
            centre.assignment.run_once()
            if place == "assignment.make_call" and centre.orders == []:
                raise crash.SimulatedCrash(place)  # it dies in the thread of the call
            centre.report()

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        passes()
    before = centre.placed()
    centre.assignment.close()
    centre.live()
    centre.settle()
    assert centre.placed() == before
    assert len(centre.has(physical)) == 2


def test_nothing_is_asked_of_a_node_when_the_commit_fails(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
):
    centre.add(), centre.add()
    centre.load()

    def fail(*_: object, **__: object) -> int:
        raise UnreachableError("etcd is away")

    with monkeypatch.context() as patch:
        patch.setattr(centre.engine, "commit", fail)
        with pytest.raises(UnreachableError):
            centre.assignment.run_once()
    assert centre.orders == []
    centre.settle()
    assert centre.assignment.last.short == 0


def test_no_node_is_alive(centre: CopyCentre):
    node = centre.add()
    node.is_silent = True
    physical = centre.load()
    centre.settle()
    assert centre.placed() == ()
    assert centre.assignment.last.short == 1
    node.is_silent = False
    centre.settle()
    assert centre.has(physical) == [node.uuid]


def test_time_out_then_the_late_report_of_the_replaced_tablet(centre: CopyCentre):
    for _ in range(2):
        centre.add()
    physical = centre.load()
    centre.assignment.run_once()
    slow = centre.nodes[0]
    [tablet] = centre.tablets()
    slow.is_silent = True  # it has made the replica, and its report does not come
    assert slow.store.tablets() == [tablet]
    centre.add()
    centre.settle()
    centre.now += 31
    centre.settle()
    assert slow.uuid not in centre.placed()
    assert len(centre.has(physical)) == 2
    slow.is_silent = False
    centre.settle()
    assert slow.store.tablets() == []


def test_the_leader_reports_before_the_call_is_answered(centre: CopyCentre):
    centre.add(), centre.add()
    centre.load()
    make = centre.make

    def report_first(node, orders):  # type: ignore[no-untyped-def]
        make(node, orders)
        centre.report()
        raise UnreachableError("the answer is lost")

    centre.make = report_first  # type: ignore[method-assign]
    centre.assignment.run_once()
    centre.assignment.run_once()
    with centre.engine.reading() as state:
        assert state.placement_table.rows[centre.tablets()[0]].running


def test_the_leader_dies_after_the_files_and_before_the_report(centre: CopyCentre):
    centre.add(), centre.add()
    physical = centre.load()
    centre.assignment.run_once()
    leader = leader_of(centre)
    centre.pull(leader)
    leader.restart()
    assert leader.names() == [physical]
    centre.settle()
    assert len(centre.has(physical)) == 2
    assert leader.pulled == [("master", physical)]  # once


def test_a_full_disk_at_a_node_is_told_and_breaks_nothing_else(centre: CopyCentre):
    full, other = centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    full.free = dict.fromkeys(full.paths, 0)
    new = centre.load()
    centre.settle(1)
    assert centre.has(physical) == sorted([full.uuid, other.uuid])
    assert centre.has(new) == [other.uuid]
    assert any("bytes are to come" in each for each in full.store.troubles.values())
    assert centre.reports[full.uuid][centre.tablets()[0]].state == "copying"
    full.free = dict.fromkeys(full.paths, 1 << 30)
    centre.settle(1)
    assert len(centre.has(new)) == 2
    assert full.store.troubles == {}


def test_a_delete_during_a_creation(centre: CopyCentre):
    centre.add(), centre.add()
    centre.load()
    centre.assignment.run_once()
    drop_table(centre)
    centre.report()
    centre.settle()
    assert [each.store.tablets() for each in centre.nodes] == [[], []]
    assert [each.on_disk() for each in centre.nodes] == [[], []]


def test_the_master_dies_after_the_flag_of_a_deletion(centre: CopyCentre):
    centre.add(), centre.add()
    centre.load()
    centre.settle()
    drop_table(centre)
    centre.assignment.close()
    centre.live()  # nothing was sent; the next reports bring it about
    centre.settle()
    assert [each.on_disk() for each in centre.nodes] == [[], []]


def test_a_node_that_was_offline_for_a_day_is_told_of_the_deletion_when_it_comes(
    centre: CopyCentre,
):
    centre.add(), centre.add()
    centre.load()
    centre.settle()
    away = centre.nodes[0]
    away.stop()
    drop_table(centre)
    centre.now += 86400
    centre.settle()
    away.start()
    centre.settle()
    assert away.on_disk() == []


def test_a_node_restored_from_a_backup_with_deleted_tablets_drops_them_again(
    centre: CopyCentre, tmp_path: Path
):
    centre.add(), centre.add()
    centre.load()
    centre.settle()
    node = centre.nodes[0]
    node.stop()
    shutil.copytree(node.paths[0], tmp_path / "backup")
    node.start()
    drop_table(centre)
    centre.settle()
    assert node.on_disk() == []
    node.stop()
    shutil.rmtree(node.paths[0])
    shutil.copytree(tmp_path / "backup", node.paths[0])
    node.start()
    assert node.store.tablets() != []
    centre.settle()
    assert node.on_disk() == []


def test_a_drop_of_another_generation_is_harmless_and_of_none_is_no_error(centre: CopyCentre):
    centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    node = centre.nodes[0]
    [tablet] = centre.tablets()
    mark = centre.lists.mark()
    node.store.drop([DropOrder(tablet=tablet, generation=7)], mark)
    assert node.names() == [physical]
    node.store.drop([DropOrder(tablet=tablet, generation=1)], mark)
    node.store.drop([DropOrder(tablet=tablet, generation=1)], mark)
    assert node.names() == []


def test_what_the_catalogue_does_not_know_is_shown_and_never_dropped(centre: CopyCentre):
    node = centre.add()
    centre.load()
    centre.settle()
    [tablet] = centre.tablets()
    mark = centre.lists.mark()
    strange = centre.order(tablet)
    strange = msgspec.structs.replace(strange, tablet="f" * 32)
    newer = msgspec.structs.replace(centre.order(tablet), generation=9)
    node.store.make([strange, newer], mark)
    centre.settle()
    assert centre.assignment.last.strange == {(node.uuid, "f" * 32), (node.uuid, tablet)}
    assert node.store.tablets() == sorted([tablet, "f" * 32])
    assert not [each for each in centre.orders if each[0] == "drop"]


def test_a_doubted_master_takes_nothing_away(centre: CopyCentre):
    centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    node = centre.nodes[0]
    node.home.doubt = "it was restored from an older copy"
    drop_table(centre)
    centre.settle()
    assert node.names() == [physical]
    node.home.doubt = ""
    centre.settle()
    assert node.names() == []


def test_an_order_of_a_master_that_knows_less_than_the_node_is_refused(centre: CopyCentre):
    centre.add(), centre.add()
    centre.load()
    old = centre.lists.mark()
    centre.load()
    centre.settle()
    node = centre.nodes[0]
    [tablet] = centre.tablets()
    with pytest.raises(DoubtedMasterError):
        node.store.drop([DropOrder(tablet=tablet, generation=1)], old)
    assert node.store.tablets() == [tablet]


def test_a_file_whose_commit_a_master_never_had_is_unknown_to_it_whatever_else_was_heard(
    centre: CopyCentre,
):
    centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    [tablet], node = centre.tablets(), centre.nodes[0]
    with centre.engine.reading() as state:
        commit = state.files[physical].created
    seen = centre.engine.newest_commit
    centre.end(physical)
    had = set(centre.engine.window.commits)  # of one millisecond and the next, perhaps
    never = next(each for each in range(commit + 1, commit + 1000) if each not in had)
    for given, gone in ((commit, True), (never, False)):
        asked = GoneAsked(generation=1, commit=seen, seen=seen, files=[(physical, given)])
        said = centre.lists.gone(node.uuid, tablet, asked)
        assert said.files == ([physical] if gone else [])
        assert said.unknown == (() if gone else (physical,))


def test_a_replica_with_files_that_no_master_knew_is_not_dropped(centre: CopyCentre):
    """Though a human trusts the master by now: what it orders is of all but these."""
    centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    node, [tablet] = centre.nodes[0], centre.tablets()
    node.store.replica(tablet).keep([physical])
    drop = [DropOrder(tablet=tablet, generation=1)]
    node.store.drop(drop, centre.lists.mark())
    assert node.names() == [physical]
    assert any("copies offered" in each for each in node.store.troubles.values())
    node.store.replica(tablet).note(node.store.replica(tablet).files().values())  # it is listed
    node.store.drop(drop, centre.lists.mark())
    assert node.names() == []
    assert not node.store.troubles


@pytest.mark.parametrize("how", ["the same", "files"])
def test_a_master_that_is_trusted_again_drops_nothing_before_it_has_listed_it(
    centre: CopyCentre, how: str
):
    centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    node, [tablet] = centre.nodes[0], centre.tablets()
    node.store.keep_unlisted()
    node.restart()
    drop = [DropOrder(tablet=tablet, generation=1)]
    node.store.drop(drop, centre.lists.mark())
    assert node.names() == [physical]
    if how == "files":
        centre.load()
    node.puller.look_anew()
    centre.pull(node)
    assert not node.store.replica(tablet).why_it_stays
    node.store.drop(drop, centre.lists.mark())
    assert node.names() == []


def test_a_change_that_is_told_while_a_master_is_trusted_again_is_no_list_of_all(
    centre: CopyCentre,
):
    """Else it waited for one for good: what comes later is told by what changed alone."""
    centre.add(), centre.add()
    centre.load()
    centre.settle()
    node, [tablet] = centre.nodes[0], centre.tablets()
    replica = node.store.replica(tablet)
    seen, losses = replica.commit, replica.losses
    node.store.keep_unlisted()
    replica.completed(seen, losses)  # a change was on its way then
    node.puller.look_anew()
    centre.load()
    centre.pull(node)
    assert not replica.why_it_stays


def test_files_that_a_restored_master_has_never_heard_of_stay_and_are_told(
    centre: CopyCentre, tmp_path: Path
):
    centre.add(), centre.add()
    centre.load()
    centre.settle()
    engine = centre.engine
    engine.close()
    home = centre.world.root / "schema"
    shutil.copytree(home, tmp_path / "copy")
    centre.world = World.reopened(centre.world.root)
    centre.live()
    newer = centre.load()
    centre.settle()
    assert all(newer in each.names() for each in centre.nodes)
    centre.engine.close()
    shutil.rmtree(home)
    shutil.copytree(tmp_path / "copy", home)  # the copy of before
    centre.world = World.reopened(centre.world.root)
    centre.live()
    centre.load()
    centre.settle()
    for node in centre.nodes:
        assert newer in node.names()
        assert any("does not know" in each for each in node.store.troubles.values())


def test_a_file_of_a_commit_that_a_master_never_had_stays_whatever_its_node_has_heard(
    centre: CopyCentre,
):
    """It may have heard of this master only since; each file tells where it comes from."""
    node = centre.add()
    centre.rules = centre.rules._replace(copies=1)
    ours = centre.load()
    centre.settle()
    with centre.engine.reading() as state:
        created = state.files[ours].created
    centre.end(ours)
    heard = centre.lists.news(node.uuid, 0).master.commit
    own = set(centre.engine.window.commits)
    strange = next(each for each in range(created, heard + 2) if each not in own)
    files = [(ours, created), ("sequence/root.wind/0/0/9-9-0-0.tsfile", strange)]
    for seen, goes in (heard, [ours]), (heard + 1, [ours]):
        asked = GoneAsked(generation=1, commit=heard, seen=seen, files=files)
        said = centre.lists.gone(node.uuid, centre.tablets()[0], asked)
        assert (said.files, said.unknown) == (goes, (files[1][0],))


def test_a_number_alone_is_no_proof_that_a_commit_is_of_this_engine(centre: CopyCentre):
    """By a clock that was set back another history has counted on from the same commit."""
    node = centre.add()
    centre.rules = centre.rules._replace(copies=1)
    ours = centre.load()
    centre.settle()
    with centre.engine.reading() as state:
        commit = state.files[ours].created
    centre.end(ours)
    heard, theirs = centre.engine.newest_commit, "sequence/root.wind/0/0/9-9-0-0.tsfile"
    files = [(ours, commit), (theirs, commit)]
    centre.lists._had = lambda life, at: life == "mine" and at <= heard
    for unplaced in (False, True):
        for life, seen in (("", 0), ("other", heard)):
            asked = GoneAsked(
                generation=1,
                commit=heard,
                seen=seen,
                files=files,
                life=life,
                lives=("mine", "other"),
                unplaced=unplaced,
            )
            said = centre.lists.gone(node.uuid, centre.tablets()[0], asked)
            assert (said.files, said.unknown) == ([ours], (theirs,))
    asked = msgspec.structs.replace(asked, lives=("mine",))
    with pytest.raises(ProtocolError):
        centre.lists.gone(node.uuid, centre.tablets()[0], asked)


def test_a_copy_that_is_complete_by_the_list_of_another_life_does_not_count(centre: CopyCentre):
    """Both lists were of commits with one number, of which this one is not known to be here."""
    node = centre.add()
    centre.rules = centre.rules._replace(copies=1)
    centre.load()
    centre.settle()
    [tablet] = centre.tablets()
    centre.load()
    page = centre.lists.page(node.uuid, tablet, None, "", 0)
    copy = HeldCopy(tablet=tablet, generation=1, commit=page.commit, digest="", life="other")
    start = NodeStart(uuid=node.uuid, instance=1, boot="b" * 32)
    said = HeldCopies(start=start, copies=[copy])
    before = centre.book.commit(node.uuid, tablet, 1)
    centre.lists.held(said)
    assert centre.book.commit(node.uuid, tablet, 1) == before < page.commit
    assert centre.book.again(node.uuid) == [tablet]
    copy = msgspec.structs.replace(copy, life="")
    centre.lists.held(msgspec.structs.replace(said, copies=[copy]))
    assert centre.book.commit(node.uuid, tablet, 1) == page.commit


def test_a_dropped_table_is_forgotten_when_no_node_has_anything_of_it(centre: CopyCentre):
    centre.add(), centre.add()
    centre.load()
    centre.settle()
    drop_table(centre)
    kept = [True]
    upkeep = TableUpkeep(centre.engine, may_forget=lambda _: not kept[0])
    for _ in range(3):
        centre.engine.commit([records.KeysWritten((), {"k": "v"})])
    with centre.engine.reading():
        centre.engine.window.move(centre.engine.newest_commit)
    assert upkeep.forget() == 0
    kept[0] = False
    assert upkeep.forget() == 1
    with centre.engine.reading() as state:
        assert state.placement_table.rows == {}
        assert state.placement_table.of_node(centre.nodes[0].uuid) == []


def test_a_node_restored_from_a_backup_older_than_the_history_keeps_deleted_tablets_as_strange_ones(
    centre: CopyCentre, tmp_path: Path
):
    """Nobody knows any more that they were deleted: shown, and no part of what came since."""
    centre.add(), centre.add()
    old = centre.load()
    centre.settle()
    node, [tablet] = centre.nodes[0], centre.tablets()
    node.stop()
    shutil.copytree(node.paths[0], tmp_path / "backup")
    node.start()
    drop_table(centre)
    centre.settle()
    forget_what_is_past(centre)
    assert centre.tablets() == []
    new = centre.load()
    centre.settle()
    node.stop()
    shutil.copytree(tmp_path / "backup", node.paths[0], dirs_exist_ok=True)
    node.start()
    centre.orders.clear()
    centre.settle()
    assert centre.assignment.last.strange == {(node.uuid, tablet)}
    assert not [each for each in centre.orders if each[0] == "drop"]
    assert node.files(tablet) == [old]
    with centre.engine.reading() as state:
        assert [each for each in state.files if state.files[each].visible] == [new]
        assert tablet not in state.tablet_table.rows
        assert tablet not in state.placement_table.rows


def forget_what_is_past(centre: CopyCentre) -> None:
    """The history ends behind all that was dropped."""
    for _ in range(3):
        centre.engine.commit([records.KeysWritten((), {"k": "v"})])
    with centre.engine.reading():
        centre.engine.window.move(centre.engine.newest_commit)
    assert TableUpkeep(centre.engine).forget() == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_a_restored_master_does_not_know_stays_though_it_is_older_than_the_history(
    centre: CopyCentre, tmp_path: Path, is_restarted: bool
):
    centre.add(), centre.add()
    centre.load()
    centre.settle()
    home = centre.world.root / "schema"
    centre.engine.close()
    shutil.copytree(home, tmp_path / "copy")
    centre.world = World.reopened(centre.world.root)
    centre.live()
    newer = centre.load()
    centre.settle()
    centre.engine.close()
    shutil.rmtree(home)
    shutil.copytree(tmp_path / "copy", home)
    centre.world = World.reopened(centre.world.root)
    centre.live()
    for _ in range(3):
        centre.load()
        with centre.engine.reading():
            centre.engine.window.move(centre.engine.newest_commit)
        if is_restarted:
            for node in centre.nodes:
                node.restart()
        centre.settle(2)
        for node in centre.nodes:
            assert newer in node.names()
            assert any("does not know" in each for each in node.store.troubles.values())
