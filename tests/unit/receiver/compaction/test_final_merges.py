"""Merged files take the place of what they were made of, and give back its room: no sooner."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from common import wire
from common.config import UploadRules
from common.durable import Tree
from common.errors import UsageError
from receiver.compaction import merged_upkeep
from receiver.compaction.final_merges import FinalMerges
from receiver.compaction.making import merge_comparing
from receiver.compaction.merge_pace import MergePace
from receiver.compaction.worth_merging.merge_asked import (
    ComparisonAsked,
    ComparisonReply,
    MergeAnswer,
    MergeAsked,
)
from receiver.load.deciding.told_deletions.operators_deletions import deleted_by_operator
from receiver.load.merge_verdicts import ProvedMerge, record_merges
from receiver.load.upkeep import asked_again
from receiver.load.upkeep.fsck import fsck
from receiver.load.upkeep.verdicts import (
    Verdict,
    record_verdicts,
)
from receiver.metadata.commit.group_deletion import delete_groups
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.query.lost import lost_files, unknown_here
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.place_tables.placements import PlacementRow
from receiver.node import Node
from receiver.operator.asked_work.compact import merge_totals
from receiver.operator.stored.files import delete_files, undelete_files
from receiver.operator.stored.retired import drop_retired, show_retired
from receiver.points import TsFileReader
from receiver.storage.cache.file_restore import is_of_restore, restore_files
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.uploading.upload_queue import UploadQueue
from tests.support.copy_nodes import place_tablets
from tests.support.merging_node import (
    ComparedHere,
    MergedHere,
    compactions,
    given_by,
    merge_here,
    small_files,
    with_interval,
)
from tests.support.node_world import READER, A, B, Clock, Edge, World, fsck_of, plan_entry
from tests.support.proving import Site, content, in_this_process

AFTER, HISTORY, KEPT = 500.0, 1000.0, 100.0
OTHER = "sequence/root.sg/0/9/99-99-0-0.tsfile"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    merge = {"final_after": AFTER, "quiet": 0.0}
    return World(
        tmp_path, clock=clock, keep_deleted=KEPT, metadata={"history": HISTORY}, merge=merge
    )


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.still_node() as node:
        merge_here(node)
        in_this_process(node)
        yield node


@pytest.fixture
def site(node: Node) -> Site:
    """Four files are merged into one, and were gone at the edge before its last round."""
    site = Site(node)
    paths = small_files(site, 4)
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    assert len(compactions(node)) == 1
    site.round({}, gone=paths)
    node.prover.run_once()
    site.round({OTHER: {"a": {900: 9}}})
    return site


def pass_time(node: Node, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    node.engine.collect()


def made_final(node: Node, clock: Clock) -> FileRow:
    pass_time(node, clock, AFTER + 1)
    assert node.final_merges.run_once() == 1
    with node.engine.reading() as state:
        (row,) = (each for each in state.files.values() if "/merged-" in each.physical)
    return row


def in_two(node: Node, clock: Clock) -> tuple[Site, list[FileRow]]:
    """Four files are merged into two for good."""
    with_interval(node, 25)
    site = Site(node)
    paths = small_files(site, 4)
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    site.round({}, gone=paths)
    node.prover.run_once()
    site.round({OTHER: {"a": {900: 9}}})
    pass_time(node, clock, AFTER + 1)
    assert node.final_merges.run_once() == 1
    rows = merged_rows(node)
    assert len(rows) == 2
    return site, rows


def merged_rows(node: Node) -> list[FileRow]:
    with node.engine.reading() as state:
        found = [row for row in state.files.values() if "/merged-" in row.physical]
    return sorted(found, key=lambda row: row.physical)


def visible_merged(node: Node) -> list[str]:
    return [row.physical for row in merged_rows(node) if row.visible]


def reaped(node: Node, clock: Clock) -> None:
    pass_time(node, clock, HISTORY + KEPT)
    node.load.reaper.run_once()
    assert site_rows(node) == []


def gives(node: Node, physical: str) -> dict[tuple[str, int], int]:
    row: Any = SimpleNamespace(outputs=[SimpleNamespace(physical=physical)])
    return given_by(node, row)


def mine(site: Site) -> dict[tuple[str, int], int]:
    return {key: value for key, value in site.answer().items() if key[1] != 900}


def test_merged_files_take_the_place_of_what_is_gone_at_the_edge_and_its_room_comes_back(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    answer, loaded = mine(site), set(world.loaded())
    assert node.final_merges.run_once() == 0, "too early"
    row = made_final(node, clock)
    assert gives(node, row.physical) == answer
    assert set(world.loaded()) == loaded, "who asks for the past reads the inputs"
    pass_time(node, clock, HISTORY + KEPT)
    node.load.reaper.run_once()
    assert gives(node, row.physical) == answer
    assert set(world.loaded()) == {row.physical, site.row(OTHER).physical}
    assert fsck_of(node).found == []
    node.merged.recover()
    node.merged.let_go(clock.now + 1e9)
    assert set(world.loaded()) == {row.physical, site.row(OTHER).physical}
    totals = merge_totals(node.operator)
    assert (totals.compactions, totals.final, totals.final_inputs) == (0, 1, 4)
    view = show_retired(node.operator, row.physical)
    assert (view.merged, len(view.made_of)) == (4, 4)


def test_nothing_of_it_shows_at_the_edge(
    node: Node, clock: Clock, site: Site, world: World
) -> None:
    with node.engine.reading() as state:
        listed = state.file_table.listed.of(A)
        before = [row.path for row in state.files.values() if row.retired]
    row = made_final(node, clock)
    assert row.path not in before
    with node.engine.reading() as state:
        assert state.file_table.listed.of(A) == listed
    told = node.settled.page(site.edge.who, A, 0, None, None).files
    assert told == [], "only the merged file has their points"
    md5 = {each.path: each.md5 for each in site_rows(node)}
    lost = [records.FileLost(A, path, each, 9) for path, each in md5.items()]
    pass_time(node, clock, HISTORY + KEPT)
    node.load.reaper.run_once()
    assert site_rows(node) == []
    with node.engine.reading() as state:
        assert unknown_here(state, lost) == []
    drop_retired(node.operator, row.physical)
    told = node.settled.page(site.edge.who, A, 0, None, None).files
    assert {(each.path, each.md5) for each in told} == set(md5.items())


def site_rows(node: Node) -> list[FileRow]:
    with node.engine.reading() as state:
        return [row for row in state.files.values() if row.superseded]


def test_it_is_no_news_for_a_stream_that_had_its_inputs(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    with node.engine.reading() as state:
        loaded = max(row.created for row in state.files.values() if row.retired)
    row = made_final(node, clock)
    page = node.listing.catalogue(READER, None, None)
    (entry,) = (each for each in page.entries if each.path == row.physical)
    assert (entry.news, entry.commit) == (loaded, row.created)
    assert all(each.news == 0 for each in page.entries if each is not entry)


def test_a_merged_file_that_has_rotted_is_dissolved_and_not_made_final(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    """Since the verification found it to be right."""
    answer = mine(site)
    (compacted,) = compactions(node)
    record_merges(node.engine, [ProvedMerge.of(compacted)], by="verification")
    place = world.data / compacted.outputs[0].physical
    place.write_bytes(place.read_bytes()[:-9] + b"123456789")
    pass_time(node, clock, AFTER + 1)
    assert node.final_merges.run_once() == 0
    assert compactions(node) == []
    assert mine(site) == answer


def test_it_waits_while_this_receiver_is_forwarded_from(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    (world.data / "sync-sender" / "above_8443").mkdir(parents=True)
    pass_time(node, clock, AFTER + 1)
    assert node.final_merges.run_once() == 0
    assert "forwarded from" in (merge_totals(node.operator).kept_back or "")
    (world.data / "sync-sender" / "above_8443").rmdir()
    pass_time(node, clock, AFTER)
    assert node.final_merges.run_once() == 1
    assert merge_totals(node.operator).kept_back is None


def test_it_waits_for_the_sender_and_for_proofs(node: Node, clock: Clock) -> None:
    site = Site(node)
    paths = small_files(site, 4)
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    site.round({}, gone=paths)
    pass_time(node, clock, AFTER + 1)
    assert node.final_merges.run_once() == 0
    assert list(node.final_merges.kept_back.values()) == ["its sender has not been here since"]
    site.round({OTHER: {"a": {900: 9}}})
    pass_time(node, clock, AFTER)
    assert node.final_merges.run_once() == 0
    assert list(node.final_merges.kept_back.values()) == ["files of it may yet be given by others"]
    node.prover.run_once()
    pass_time(node, clock, AFTER)
    assert node.final_merges.run_once() == 1


def test_nothing_is_final_unless_it_is_configured(node: Node, clock: Clock, site: Site) -> None:
    pass_time(node, clock, AFTER + 1)
    never = FinalMerges(node.engine, node.load.disks, after=None, awaits_proof=lambda _, __: False)
    assert never.run_once() == 0
    assert len(compactions(node)) == 1


def test_content_that_is_at_the_edge_again_comes_as_a_new_file(
    node: Node, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    path = "sequence/root.sg/0/0/1-1-0-0.tsfile"
    before = site.row(path)
    site.round({path: site.points[before.physical]})
    again = site.row(path)
    assert again.physical != before.physical
    assert again.md5 == before.md5
    assert again.rank.first > row.rank.last
    with node.engine.reading() as state:
        assert state.files[before.physical].state == "superseded"


def test_a_file_that_comes_between_too_late_is_held_and_named(
    node: Node, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    late = "sequence/root.sg/0/0/2-2-0-0.tsfile".replace("2-2", "7-2")
    points = {"a": {20: 5}}
    edge = site.edge
    edge.check()
    task = edge.start()
    edge.plan(task, [plan_entry(late, content(points))])
    edge.batch(task, {late: content(points)})
    edge.end(task, {late: content(points)}, looks={late: (row.rank.first, row.rank.first)})
    outcome = edge.outcome(task)[late]
    assert outcome.result is wire.Result.QUARANTINED
    assert row.physical in (outcome.reason or "")
    with node.engine.reading() as state:
        (entry,) = state.quarantine.values()
    assert (entry.path, entry.hold) == (late, True)


def test_what_an_operator_drops_takes_along_what_is_in_it(
    node: Node, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    drop_retired(node.operator, row.physical)
    with node.engine.reading() as state:
        assert [each.path for each in state.files.values() if each.visible] == [OTHER]
    with pytest.raises(RefusedCommitError):
        node.engine.commit([records.FileRestored(row.physical)])


def test_what_is_in_the_store_stays_until_the_merged_files_are_there(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    inputs = site_rows(node)
    node.engine.commit([uploaded(each) for each in inputs])
    pass_time(node, clock, HISTORY + KEPT)
    node.load.reaper.run_once()
    assert len(site_rows(node)) == 4
    assert len(world.loaded()) == 6
    node.engine.commit([uploaded(row)])
    node.load.reaper.run_once()
    assert len(world.loaded()) == 2


def test_what_has_left_for_nodes_stays_until_they_have_the_merged_file(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    """Nobody is heard from: what was proved counts, and of the merged file nothing was."""
    place_tablets(node.engine)
    with node.engine.reading() as state:
        placed = next(iter(state.placement_table.rows.values()))
        inputs = [each for each in state.files.values() if each.retired]
    node.engine.commit([released(each, placed) for each in inputs])
    row = made_final(node, clock)
    for each in inputs:
        (world.data / each.physical).unlink()
    pass_time(node, clock, HISTORY + KEPT)
    node.load.reaper.run_once()
    assert len(site_rows(node)) == 4
    node.engine.commit([released(row, placed)])
    node.load.reaper.run_once()
    assert site_rows(node) == []


def test_what_nodes_have_stays_until_as_many_have_the_merged_file(
    node: Node, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    count = {each.physical: 2 for each in site_rows(node)} | {row.physical: 1}
    node.load.reaper.nodes_with = lambda state, file: count[file.physical]
    node.load.reaper.nodes_perhaps = node.load.reaper.nodes_with
    pass_time(node, clock, HISTORY + KEPT)
    node.load.reaper.run_once()
    assert len(site_rows(node)) == 4
    count[row.physical] = 2
    node.load.reaper.run_once()
    assert site_rows(node) == []


def test_behind_a_start_what_nodes_may_have_stays_until_they_have_spoken(
    node: Node, clock: Clock, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merged file is on one disk, as far as anybody knows; nobody has asked the nodes yet."""
    place_tablets(node.engine)
    made_final(node, clock)
    pass_time(node, clock, HISTORY + KEPT)
    node.load.reaper.run_once()
    assert len(site_rows(node)) == 4
    now = node.copies.condition._monotonic() + 901
    monkeypatch.setattr(node.copies.condition, "_monotonic", lambda: now)
    node.load.reaper.run_once()
    assert site_rows(node) == []


def released(row: FileRow, placed: PlacementRow) -> records.FileReleased:
    return records.FileReleased(row.physical, placed.tablet, 1, placed.nodes)


def uploaded(row: FileRow) -> records.FileUploaded:
    return records.FileUploaded(row.physical, 1, row.size, "etag=x")


def test_a_start_takes_no_file_for_what_an_unfinished_merge_left(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    ident = row.physical.rpartition("merged-")[2].split("-")[0]
    staged = world.data / "merging" / ident
    staged.mkdir(parents=True)
    (staged / "partition").write_text("root.sg/0/0")
    node.merged.recover()
    assert (world.data / row.physical).exists()
    assert not staged.exists()


def test_a_bad_one_gives_way_to_its_inputs_and_nothing_of_it_is_on_hold(
    node: Node, clock: Clock, site: Site
) -> None:
    answer = mine(site)
    row = made_final(node, clock)
    record_verdicts(node.engine, [Verdict(row.physical, row.md5, "bad", as_sent=True)])
    assert (mine(site), site_rows(node), visible_merged(node)) == (answer, [], [])
    with node.engine.reading() as state:
        assert not state.quarantine, "its hold would keep the partition from becoming final, ever"
        assert lost_files(state) == []
    # Its edge goes on remembering what it freed: it alone can say so at a centre that is restored.
    assert node.settled.page(site.edge.who, A, 0, None, None).files == []


def test_a_bad_one_of_which_nothing_is_left_is_lost_by_name(
    node: Node, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    reaped(node, clock)
    record_verdicts(node.engine, [Verdict(row.physical, row.md5, "bad", as_sent=True)])
    with node.engine.reading() as state:
        assert [each.physical for each in lost_files(state)] == [row.physical]
        assert not state.quarantine
    assert node.settled.page(site.edge.who, A, 0, None, None).files == []


def test_what_a_bad_one_is_made_of_its_edge_goes_on_remembering(
    node: Node, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    with node.engine.reading() as state:
        gone = [each.physical for each in state.files.values() if not each.visible]
    node.engine.commit([records.FileDeleted(gone[0], "superseded")])  # its bytes may be gone
    record_verdicts(node.engine, [Verdict(row.physical, row.md5, "bad", as_sent=True)])
    with node.engine.reading() as state:
        assert state.files[row.physical].state is FileState.QUARANTINED
    assert node.settled.page(site.edge.who, A, 0, None, None).files == []


def test_bad_ones_of_one_merge_give_way_together(node: Node, clock: Clock) -> None:
    site, rows = in_two(node, clock)
    assert [len(each.rests) for each in site_rows(node)] == [1, 1, 1, 1]
    node.prover.run_once()
    record_verdicts(node.engine, [Verdict(row.physical, row.md5, "bad") for row in rows])
    assert (site_rows(node), visible_merged(node)) == ([], [])
    assert len(mine(site)) == 20


def test_fsck_has_their_inputs_read_again(node: Node, world: World, clock: Clock) -> None:
    site, rows = in_two(node, clock)
    for row in rows:
        (world.data / row.physical).write_bytes(b"rot")
    node.close()
    found = fsck(world.config, repair=True)
    assert found.good
    assert {each.repair for each in found.found} == {
        "quarantine it: what it is made of is read again, as far as that is still here"
    }
    with world.still_node() as again:
        site.again(again)
        assert (site_rows(again), visible_merged(again)) == ([], [])
        assert len(mine(site)) == 20


@pytest.mark.parametrize("are_kept", [False, True], ids=["reaped", "kept"])
def test_a_repair_with_empty_disks_asks_before_it_gives_up_what_was_merged_for_good(
    node: Node, world: World, clock: Clock, site: Site, monkeypatch, are_kept: bool
) -> None:
    """No edge has it any more, and what it was made of is no more here than it is itself."""
    row = made_final(node, clock)
    if not are_kept:
        reaped(node, clock)
    monkeypatch.setattr(asked_again, "_FROM", 2)
    place_tablets(node.engine, "5" * 32)
    with node.engine.reading() as state:
        rows = [each for each in state.files.values() if each.state is not FileState.DELETED]
    assert len(rows) == (6 if are_kept else 2)
    node.close()
    for each in rows:
        (world.data / each.physical).unlink()
    with pytest.raises(UsageError) as refused:
        fsck(world.config, repair=True, without_nodes=True)
    assert "2 of 2 files" in refused.value.message
    assert "1 of these their senders have no more" in refused.value.message
    with world.still_node() as after:
        assert visible_merged(after) == [row.physical]


def test_a_repair_by_which_what_was_merged_gives_way_to_its_inputs_asks_nobody(
    node: Node, world: World, clock: Clock, site: Site, monkeypatch
) -> None:
    row = made_final(node, clock)
    monkeypatch.setattr(asked_again, "_FROM", 1)
    node.close()
    (world.data / row.physical).unlink()
    assert fsck(world.config, repair=True).good
    with world.still_node() as after:
        assert visible_merged(after) == []
        with after.engine.reading() as state:
            assert sum(each.visible for each in state.files.values()) == 5


def test_what_is_nowhere_at_a_start_gives_way_while_its_inputs_are_there(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    answer = mine(site)
    row = made_final(node, clock)
    (world.data / row.physical).unlink()
    first, *others = site_rows(node)
    beside = (world.data / first.physical).with_suffix(".away")
    (world.data / first.physical).rename(beside)
    node.merged.recover()
    assert visible_merged(node) == [row.physical], "what nobody has is for fsck to tell"
    beside.rename(world.data / first.physical)
    node.engine.commit([uploaded(each) for each in others])
    for each in others:
        (world.data / each.physical).unlink()
    node.merged.recover()
    assert (mine(site), visible_merged(node)) == (answer, [])


def test_one_that_is_in_the_store_only_stays_what_it_is(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    node.engine.commit([uploaded(row)])
    (world.data / row.physical).unlink()
    node.merged.recover()
    assert visible_merged(node) == [row.physical]
    assert fsck_of(node).remote == 1


def test_a_restore_that_lacks_it_reads_its_inputs_and_names_nothing(
    node: Node, world: World, clock: Clock, site: Site, tmp_path: Path
) -> None:
    answer = mine(site)
    row = made_final(node, clock)
    (world.data / row.physical).unlink()
    before = node.engine.newest_commit
    store = tmp_path / "store"
    store.mkdir()
    made = restore_files(DirectoryStore(store), node.engine, node.load.disks.trees)
    assert (mine(site), visible_merged(node), made.lacking) == (answer, [], [])
    commits = list(node.engine.log_since(before))
    assert commits
    assert all(map(is_of_restore, commits)), "it goes on when it is said once more"


def test_it_is_uploaded_when_what_it_is_made_of_would_be(
    node: Node, clock: Clock, site: Site
) -> None:
    rules = UploadRules.parse(AFTER / 2)
    row = made_final(node, clock)
    queue = UploadQueue(node.engine, rules, clock)
    found = queue.missing()
    assert row.physical in found.due, "its inputs are out of sight"
    clock.now -= AFTER
    assert row.physical in UploadQueue(node.engine, rules, clock).missing().kept


def test_a_copy_of_it_at_the_edge_is_a_file_of_its_own(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    path = "sequence/root.sg/0/0/70-70-0-0.tsfile"
    outcome = site.edge.round({path: (world.data / row.physical).read_bytes()})
    assert outcome[path].result is wire.Result.LOADED
    new = site.row(path)
    assert (new.physical != row.physical, new.md5) == (True, row.md5)
    assert new.rank.first > row.rank.last
    (old,) = merged_rows(node)
    assert (old.path, old.retired) == (row.path, True)


def test_with_the_storage_group_goes_what_they_are_made_of(
    node: Node, clock: Clock, site: Site
) -> None:
    made_final(node, clock)
    groups = [parse_pattern("root.sg")]
    delete_groups(node.engine, groups, with_data=True, held_from=None, allowed=None)
    with node.engine.reading() as state:
        assert [row for row in state.files.values() if row.state != "deleted"] == []


def dropped_merged(node: Node, clock: Clock, *, is_forgotten: bool) -> None:
    """An operator deletes all that was merged; what that was made of is forgotten already."""
    reaped(node, clock)
    for row in merged_rows(node):
        drop_retired(node.operator, row.physical)
    if is_forgotten:
        reaped(node, clock)
        node.merged.let_go(clock.now)
        with node.engine.reading() as state:
            assert (merged_rows(node), state.compacted_table.finals.all()) == ([], [])


def contents(node: Node, world: World, site: Site) -> dict[str, bytes]:
    return {
        row.path: (world.data / row.physical).read_bytes()
        for row in site_rows(node)
        if row.path != OTHER and "/merged-" not in row.physical
    }


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["deleted", "forgotten"])
def test_what_an_operator_deleted_merged_does_not_come_again_as_what_it_was_made_of(
    node: Node, world: World, clock: Clock, site: Site, monkeypatch, is_forgotten: bool
) -> None:
    """An edge that was restored has the files, also elsewhere; so has another one with its disk."""
    monkeypatch.setattr(merged_upkeep, "_BATCH", 3)
    made_final(node, clock)
    raw = contents(node, world, site)
    dropped_merged(node, clock, is_forgotten=is_forgotten)
    moved = {path.replace("/0/0/", "/1/3/"): content for path, content in raw.items()}
    for edge in (site.edge, Edge(node, B)):
        for several in (raw, moved):
            outcomes = edge.round(several)
            assert {each.result for each in outcomes.values()} == {wire.Result.EXPIRED}
    with node.engine.reading() as state:
        for path, content in moved.items():
            entry = plan_entry(path, content)
            assert deleted_by_operator(state, B, path, tail=entry.tail, size=entry.size, md5=None)
        assert not deleted_by_operator(
            state, A, OTHER, tail=entry.tail[::-1], size=entry.size, md5=entry.md5
        )


def test_what_was_merged_and_is_called_back_may_come_again(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    made_final(node, clock)
    raw = contents(node, world, site)
    reaped(node, clock)
    (row,) = merged_rows(node)
    drop_retired(node.operator, row.physical)
    assert undelete_files(node.operator, [row.physical]).back == [row.physical]
    outcomes = site.edge.round(raw)
    assert {each.result for each in outcomes.values()} == {wire.Result.LOADED}


def test_what_was_within_a_merged_file_that_is_called_back_is_not_deleted_though_it_is_forgotten(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    raw = contents(node, world, site)
    drop_retired(node.operator, row.physical)
    assert undelete_files(node.operator, [row.physical]).back == [row.physical]
    reaped(node, clock)
    outcomes = site.edge.round(raw)
    assert {each.result for each in outcomes.values()} == {wire.Result.LOADED}


@pytest.mark.parametrize("within", [True, False], ids=["merged", "by name"])
def test_what_was_superseded_and_an_operator_gives_up_stays_as_long_as_all_that_is_deleted(
    node: Node, world: World, clock: Clock, site: Site, within: bool
) -> None:
    """The kept history shows it a while longer, and it can be brought back."""
    before = node.engine.newest_commit
    row = made_final(node, clock)
    raw = contents(node, world, site)
    inputs = [each.physical for each in site_rows(node) if each.path in raw]
    pass_time(node, clock, KEPT)
    if within:
        drop_retired(node.operator, row.physical)
    else:
        delete_files(node.operator, inputs, everywhere=False)
    pass_time(node, clock, KEPT)
    node.load.reaper.run_once()
    past = files_at(node.engine, at=before)
    assert {each.physical for each in past.visible}.issuperset(inputs)
    assert undelete_files(node.operator, inputs).back == inputs
    assert sorted((world.data / each).read_bytes() for each in inputs) == sorted(raw.values())


def test_deleting_a_merged_file_by_name_brings_nothing_back_of_what_it_was_made_of(
    node: Node, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    assert delete_files(node.operator, [row.physical], everywhere=False).deleted == [row.physical]
    assert [each.path for each in merged_rows(node) if each.visible] == []
    assert mine(site) == {}


@pytest.mark.parametrize("by", ["row", "note", "checkpoint"])
def test_of_what_became_several_merged_files_that_comes_again_of_which_none_was_deleted(
    node: Node, world: World, clock: Clock, by: str
) -> None:
    site, rows = in_two(node, clock)
    raw = contents(node, world, site)
    reaped(node, clock)
    first = min(rows, key=lambda row: row.first or 0)
    drop_retired(node.operator, first.physical)
    if by == "note":
        reaped(node, clock)
    if by == "checkpoint":
        with node.engine.reading() as state:
            table = state.compacted_table
            for each in table.finals.all():
                table.restore(msgspec.structs.replace(each, dropped=()))
            table.finals.restore_dropped()
    outcomes = site.edge.round(raw)
    expired = [path for path, each in outcomes.items() if each.result is wire.Result.EXPIRED]
    assert sorted(expired) == sorted(raw)[:2]
    assert {each.result for each in outcomes.values()} == {wire.Result.EXPIRED, wire.Result.LOADED}


def test_what_has_points_of_a_bad_merged_file_comes_though_another_one_was_deleted(
    node: Node, world: World, clock: Clock
) -> None:
    site, rows = in_two(node, clock)
    raw = contents(node, world, site)
    reaped(node, clock)
    drop_retired(node.operator, rows[0].physical)
    node.engine.commit([records.FileQuarantined(rows[1].physical, "bad")])
    outcomes = site.edge.round(raw)
    assert wire.Result.LOADED in {each.result for each in outcomes.values()}


def test_what_expires_does_not_come_back_as_what_it_was_made_of(node: Node, clock: Clock) -> None:
    site, rows = in_two(node, clock)
    node.engine.commit([records.FileDeleted(rows[0].physical, "expired")])
    assert visible_merged(node) == [rows[1].physical]
    assert len(site_rows(node)) == 4
    reaped(node, clock)
    assert visible_merged(node) == [rows[1].physical]
    assert site.state(OTHER) == "live"


def test_a_device_that_goes_to_another_box_keeps_what_was_merged_for_good(
    node: Node, clock: Clock, site: Site
) -> None:
    row = made_final(node, clock)
    Edge(node, B).check()
    node.engine.commit([records.OwnerSet("root.sg.d1", B, "a new box")])
    assert visible_merged(node) == [row.physical]
    reaped(node, clock)
    assert fsck_of(node).found == []


def test_what_is_read_again_stands_back_and_stops(node: Node, clock: Clock, site: Site) -> None:
    stood, stopped = [], [False, True]
    merges = FinalMerges(
        node.engine,
        node.load.disks,
        after=AFTER,
        awaits_proof=lambda _, __: False,
        stopped=lambda: stopped.pop(0) if stopped else False,
        stand_back=lambda: stood.append(1),
    )
    pass_time(node, clock, AFTER + 1)
    assert merges.run_once() == 0
    assert stood
    assert len(compactions(node)) == 1, "nothing is wrong with it"
    pass_time(node, clock, AFTER)
    assert merges.run_once() == 1


def test_what_is_read_again_is_read_no_faster_than_merges_may(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(MergePace, "take", lambda self, size: taken.append(size))
    merge = {"final_after": AFTER, "quiet": 0.0, "max_bytes_per_second": 65_536}
    history = {"history": HISTORY}
    world = World(tmp_path, clock=clock, keep_deleted=KEPT, metadata=history, merge=merge)
    with world.still_node() as node:
        in_this_process(node)
        ripe(node, clock)
        (row,) = compactions(node)
        record_merges(node.engine, [ProvedMerge.of(row)], by="verification")
        taken.clear()
        assert node.final_merges.run_once() == 1
        assert taken == [each.size for each in row.outputs]
        assert node.final_merges._pace._budget.rate() == 65_536


def test_who_is_told_to_stop_does_not_wait_for_the_rest_of_a_file(
    node: Node, clock: Clock, site: Site
) -> None:
    pauses: list[float] = []
    stops = [False, False]
    pace = MergePace(64, lambda: bool(pauses), clock=lambda: 0.0, sleep=pauses.append)
    merges = FinalMerges(
        node.engine, node.load.disks, after=AFTER, awaits_proof=lambda _, __: False,
        stopped=lambda: stops.pop() if stops else False, pace=pace,
    )  # fmt: skip
    pass_time(node, clock, AFTER + 1)
    assert merges.run_once() == 0
    assert len(pauses) == 1
    assert len(compactions(node)) == 1, "nothing is wrong with it"


def test_one_that_cannot_be_read_is_named_and_keeps_no_other_back(
    node: Node, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad sector: it says nothing of what was made, and status says why nothing comes of it."""
    site = Site(node)
    paths: list[str] = []
    for number in (1, 2):
        part = [
            f"sequence/root.sg/0/{number}/{number}{at}-{number}{at}-0-0.tsfile" for at in (1, 2)
        ]
        site.round({path: {"a": {number * 100 + at: at}} for at, path in enumerate(part)})
        paths += part
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    (first, second) = compactions(node)
    site.round({}, gone=paths)
    node.prover.run_once()
    site.round({OTHER: {"a": {900: 9}}})
    bad = first.outputs[0].physical
    opened = Tree.open_read

    def failing(tree: Tree, rel: str, *more: Any) -> int:
        if rel == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO), rel)
        return opened(tree, rel, *more)

    monkeypatch.setattr(Tree, "open_read", failing)
    pass_time(node, clock, AFTER + 1)
    assert [node.final_merges.run_once() for _ in range(2)] == [0, 1], "each has its turn"
    assert [row.id for row in compactions(node)] == [first.id]
    assert second.id != first.id
    said = f"{bad} cannot be read: {os.strerror(errno.EIO)}"
    assert list(node.final_merges.kept_back.values()) == [said]
    assert said in (merge_totals(node.operator).kept_back or "")
    monkeypatch.undo()
    pass_time(node, clock, AFTER)
    assert node.final_merges.run_once() == 1


def test_what_was_in_quarantine_meanwhile_stands_where_it_stood(node: Node, clock: Clock) -> None:
    """One look had it with the lower input; it ended before the look that had the other first."""
    site = Site(node)
    low, between, high = (f"sequence/root.sg/0/0/{at}-{at}-0-0.tsfile" for at in (5, 7, 9))
    site.round({low: {"a": {1: 5, 2: 5}}, between: {"a": {2: 7, 3: 7}}})
    site.round({}, gone=[between])
    site.round({high: {"a": {8: 9}}})
    site.round({}, gone=[low, high])
    answer = site.answer()
    assert answer["a", 2] == 7
    row = site.row(between)
    record_verdicts(node.engine, [Verdict(row.physical, row.md5, "found bad")])
    node.prover.run_once()
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    assert len(compactions(node)) == 1
    site.round({OTHER: {"a": {900: 9}}})
    node.prover.run_once()
    pass_time(node, clock, AFTER + 1)
    assert node.final_merges.run_once() == 0
    (why,) = node.final_merges.kept_back.values()
    assert why == f"{row.physical} does not stand above all of it"
    node.engine.commit([records.FileRestored(row.physical)])
    assert mine(site) == answer, "what was merged would stand above it"


# -- compared by somebody else than who merged ------------------------------------------------


class Lying(MergedHere):
    """Merges, and gives one value out of many otherwise: as many points, the same times."""

    def ask(
        self, asked: MergeAsked, stopped: Callable[[], bool], paused: Callable[[], bool]
    ) -> MergeAnswer:
        answer = super().ask(asked, stopped, paused)
        (made,) = answer.outputs
        place = Path(asked.directory) / Path(made.path).name
        points = {(name, time): value for name, time, value in points_of(place)}
        (first, *_) = points
        bytes_ = content({"a": {time: v for (_, time), v in (points | {first: -1}).items()}})
        place.write_bytes(bytes_)
        other = msgspec.structs.replace(made, size=len(bytes_), md5=hashlib.md5(bytes_).hexdigest())
        return msgspec.structs.replace(answer, outputs=(other,))


def points_of(place: Path) -> Iterator[tuple[str, int, int]]:
    with TsFileReader(place) as reader:
        for batch in reader.read_series(reader.tail.devices[0], "a"):
            times, values = (column.to_pylist() for column in batch.columns)
            yield from (("a", time, value) for time, value in zip(times, values, strict=True))


def ripe(node: Node, clock: Clock, process: MergedHere | None = None) -> Site:
    """Four files are merged, and gone at the edge long enough."""
    merge_here(node, process)
    site = Site(node)
    paths = small_files(site, 4)
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    assert len(compactions(node)) == 1
    site.round({}, gone=paths)
    node.prover.run_once()
    site.round({OTHER: {"a": {900: 9}}})
    pass_time(node, clock, AFTER + 1)
    return site


def asked_of(node: Node) -> list[ComparisonAsked]:
    process = node.merge_comparer._process
    assert isinstance(process, ComparedHere)
    return process.asked


def test_what_merged_wrongly_is_not_final_and_its_inputs_are_read_again(
    node: Node, clock: Clock
) -> None:
    site = ripe(node, clock, Lying())
    (row,) = compactions(node)
    assert given_by(node, row) != mine(site), "and whoever merged has said that it is right"
    assert node.final_merges.run_once() == 0
    assert compactions(node) == []
    with node.engine.reading() as state:
        reason = state.compacted_table.rows[row.id].reason
        assert all(each.visible for each in state.files.values())
    assert reason.startswith("compared anew: root.sg.d1.a: its ")
    assert "are not those that readers get" in reason


def test_what_is_final_was_compared_by_this_receiver_or_the_verification(
    node: Node, clock: Clock, site: Site
) -> None:
    (before,) = compactions(node)
    made_final(node, clock)
    assert len(asked_of(node)) == 1
    with node.engine.reading() as state:
        row = state.compacted_table.rows[before.id]
    assert (row.verifier, row.verified < row.final) == ("receiver", True)


def test_what_the_verification_has_compared_is_not_compared_again(
    node: Node, clock: Clock, site: Site
) -> None:
    (row,) = compactions(node)
    assert record_merges(node.engine, [ProvedMerge.of(row)], by="verification") == 1
    made_final(node, clock)
    assert asked_of(node) == []


def test_a_verdict_on_an_earlier_merge_of_the_same_files_does_not_count(
    node: Node, clock: Clock, site: Site
) -> None:
    (row,) = compactions(node)
    node.engine.commit([records.CompactionDissolved(row.id, "for a test")])
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    (again,) = compactions(node)
    assert record_merges(node.engine, [ProvedMerge.of(row)], by="verification") == 0
    other = ProvedMerge(again.id, ProvedMerge.of(row).outputs)
    assert record_merges(node.engine, [other], by="verification") == 0
    (again,) = compactions(node)
    assert again.verified == 0


def test_where_this_machine_merges_nothing_the_verification_is_waited_for(
    node: Node, clock: Clock, site: Site
) -> None:
    node.merge_comparer._here = False
    pass_time(node, clock, AFTER + 1)
    assert node.final_merges.run_once() == 0
    totals = merge_totals(node.operator)
    assert totals.kept_back == (
        "root.sg/0/0: tsferry-verify has not compared it with its files yet (merge.here is false)"
    )
    assert (totals.kept_back_count, totals.unverified) == (1, 1)
    (row,) = compactions(node)
    record_merges(node.engine, [ProvedMerge.of(row)], by="verification")
    pass_time(node, clock, AFTER)
    assert node.final_merges.run_once() == 1
    totals = merge_totals(node.operator)
    assert (totals.kept_back, totals.kept_back_count, totals.unverified) == (None, 0, 0)


def test_an_input_that_cannot_be_read_keeps_all_of_them_and_is_tried_again_in_a_day(
    node: Node, world: World, clock: Clock, site: Site
) -> None:
    (row,) = compactions(node)
    place = world.data / row.inputs[0]
    whole = place.read_bytes()
    place.write_bytes(whole[:-1] + b"?")
    pass_time(node, clock, AFTER + 1)
    for _ in range(2):
        assert node.final_merges.run_once() == 0
        assert "are not those that were loaded" in (merge_totals(node.operator).kept_back or "")
        pass_time(node, clock, AFTER)
    assert len(asked_of(node)) == 1
    place.write_bytes(whole)
    pass_time(node, clock, 86_400.0)
    assert node.final_merges.run_once() == 1


class Moving(ComparedHere):
    """Compares when what it was asked about lies in another data directory by then."""

    def __init__(self, place: Path, target: Path) -> None:
        super().__init__()
        self.place, self.target = place, target

    def ask(
        self,
        asked: ComparisonAsked,
        stopped: Callable[[], bool],
        paused: Callable[[], bool] = lambda: False,
    ) -> ComparisonReply:
        if not self.asked:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self.place.rename(self.target)
        return super().ask(asked, stopped, paused)


@pytest.mark.parametrize("which", ["merged", "input"])
def test_what_was_moved_while_it_was_compared_is_neither_bad_nor_unreadable(
    node: Node, clock: Clock, which: str
) -> None:
    """A directory may be drained meanwhile."""
    ripe(node, clock)
    (row,) = compactions(node)
    physical = row.outputs[0].physical if which == "merged" else row.inputs[0]
    (home,) = (each for each in node.load.disks.trees if each.exists(physical))
    other = next(each.path for each in node.load.disks.trees if each is not home)
    node.merge_comparer._process = Moving(home.path / physical, other / physical)
    assert node.final_merges.run_once() == 0
    assert [each.id for each in compactions(node)] == [row.id]
    pass_time(node, clock, AFTER)
    assert node.final_merges.run_once() == 1


def test_who_merges_has_a_turn_behind_each_that_was_compared(node: Node, clock: Clock) -> None:
    """There may be thousands, behind an upgrade: an operator's merge does not wait for them all."""
    paths = []
    site = Site(node)
    for partition in range(3):
        some = {
            f"sequence/root.sg/0/{partition}/{at}-{at}-0-0.tsfile": {
                "a": {partition * 1000 + at * 10 + each: at for each in range(5)}
            }
            for at in range(1, 5)
        }
        site.round(some)
        paths += list(some)
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    assert len(compactions(node)) == 3
    site.round({}, gone=paths)
    node.prover.run_once()
    site.round({OTHER: {"a": {9000: 9}}})
    pass_time(node, clock, AFTER + 1)
    node.compactor.compact("root.none")
    assert node.final_merges.run_once() == 1
    assert len(asked_of(node)) == 1
    assert node.compactor._thread.is_woken, "the others come at once, behind whatever waits"
    node.compactor._thread._woken.clear()
    node.compactor.run_once()
    assert len(asked_of(node)) == 3


def test_a_comparison_reads_no_faster_than_merges_may(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []

    class Pace:
        def __init__(self, rate: int) -> None:
            self.rate = rate

        def take(self, size: int) -> None:
            taken.append((self.rate, size))

    monkeypatch.setattr(merge_comparing, "MergePace", Pace)
    merge = {"final_after": AFTER, "quiet": 0.0, "max_bytes_per_second": 65_536}
    history = {"history": HISTORY}
    world = World(tmp_path, clock=clock, keep_deleted=KEPT, metadata=history, merge=merge)
    with world.still_node() as node:
        in_this_process(node)
        ripe(node, clock)
        assert node.final_merges.run_once() == 1
        assert {rate for rate, _ in taken} == {65_536}
        (asked,) = asked_of(node)
        read = sum(each.size for each in (*asked.merge.files, *asked.outputs))
        assert sum(size for _, size in taken) >= read


def test_no_verdict_is_waited_for_where_it_is_configured_so(tmp_path: Path, clock: Clock) -> None:
    merge = {"final_after": AFTER, "quiet": 0.0, "final_verified": False}
    history = {"history": HISTORY}
    world = World(tmp_path, clock=clock, keep_deleted=KEPT, metadata=history, merge=merge)
    with world.still_node() as node:
        merge_here(node)
        in_this_process(node)
        ripe(node, clock)
        assert node.final_merges.run_once() == 1
        assert asked_of(node) == []
