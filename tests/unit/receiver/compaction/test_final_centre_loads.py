"""What was loaded at the centre is merged for good, too: no list has it that it would go from."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from receiver.load.upkeep.verdicts import Verdict, record_verdicts
from receiver.metadata.model import records
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.node import Node
from receiver.operator.asked_work.compact import merge_totals
from receiver.operator.centre.point_overlaps import PointOverlaps, SharedPoints
from receiver.operator.stored.files import delete_files, undelete_files
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadRequest
from receiver.shared_points.common_points import compare
from receiver.shared_points.compare_process import CompareProcess
from receiver.storage.cache.file_restore import is_of_restore, restore_files
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_keys import data_key
from tests.support.merging_node import compactions, merge_here, points_of
from tests.support.node_world import A, Clock, Edge, World, fsck_of, path_of, plan_entry
from tests.support.proving import in_this_process
from tests.support.tsfile_bytes import build

AFTER, HISTORY, KEPT = 500.0, 1000.0, 100.0
Points = dict[int, int]
HERE = {at * 10 + each: at for at in range(1, 4) for each in range(5)}
"""What three files of a load give."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    merge = {"final_after": AFTER, "quiet": 0.0}
    history = {"history": HISTORY}
    return World(tmp_path, clock=clock, keep_deleted=KEPT, metadata=history, merge=merge)


@pytest.fixture
def node(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(CompareProcess, "ask", lambda _, asked, __: compare(asked))
    with world.still_node() as node:
        merge_here(node)
        in_this_process(node)
        yield node


def content(points: Points, device: str = "root.sg.d1") -> bytes:
    return build({device: {"a": sorted(points.items())}})


def lay(root: Path, *files: Points) -> Path:
    place = root / secrets.token_hex(4)
    for at, points in enumerate(files, 1):
        file = place / path_of(at)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content(points))
    return place


def load(node: Node, place: Path, **more: Any) -> CentreLoadAnswer:
    request = CentreLoadRequest(task=secrets.token_hex(16), paths=[str(place)], **more)
    return node.operator.centre.load(request)


def results(answer: CentreLoadAnswer) -> set[str]:
    return {each.result for each in answer.files}


def three(root: Path) -> Path:
    return lay(root, *({at * 10 + each: at for each in range(5)} for at in range(1, 4)))


def merged(node: Node) -> None:
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    assert len(compactions(node)) == 1


def made_final(node: Node, clock: Clock) -> FileRow:
    clock.now += AFTER + 1
    assert node.final_merges.run_once() == 1, node.final_merges.kept_back
    (row,) = merged_rows(node)
    return row


def rows(node: Node) -> list[FileRow]:
    with node.engine.reading() as state:
        return list(state.files.values())


def merged_rows(node: Node) -> list[FileRow]:
    return [row for row in rows(node) if "/merged-" in row.physical]


def visible(node: Node) -> set[str]:
    return {row.physical for row in rows(node) if row.visible}


def gives(node: Node, row: FileRow) -> Points:
    return {time: value for (_, time), value in points_of(node, [row.physical]).items()}


def reaped(node: Node, clock: Clock) -> None:
    clock.now += HISTORY + KEPT + 1
    node.engine.collect()
    node.load.reaper.run_once()
    assert not [row for row in rows(node) if row.superseded]


def test_what_was_loaded_at_the_centre_gives_back_its_room_once_it_is_merged_for_good(
    node: Node, world: World, clock: Clock, tmp_path: Path
) -> None:
    assert results(load(node, three(tmp_path))) == {"loaded"}
    before, at = visible(node), node.engine.newest_commit
    merged(node)
    assert node.final_merges.run_once() == 0, "too early"
    row = made_final(node, clock)
    assert gives(node, row) == HERE
    assert (row.state, row.retired) == (FileState.LIVE, False), "nobody has let go of it"
    assert visible(node) == {row.physical}
    past = files_at(node.engine, at).visible
    assert {each.physical for each in past} == before
    assert not any(each.retired for each in past)
    reaped(node, clock)
    assert set(world.loaded()) == {row.physical}
    assert fsck_of(node).found == []
    assert merge_totals(node.operator).kept_back is None


@pytest.mark.parametrize("owner", ["", A])
def test_what_is_loaded_once_more_is_here_already_though_its_bytes_are_gone(
    node: Node, clock: Clock, tmp_path: Path, owner: str
) -> None:
    Edge(node).round({path_of(1, sg="root.other"): content({1: 1}, "root.other.d")})
    place = three(tmp_path)
    answer = load(node, place, owner=owner)
    merged(node)
    row = made_final(node, clock)
    reaped(node, clock)
    assert node.operator.centre.is_visible(answer.task)
    again = load(node, place, owner=owner)
    assert results(again) == {"already"}
    assert {each.reason for each in again.files} == {f"as {row.physical}"}
    assert delete_files(node.operator, [row.physical], everywhere=False).deleted
    assert results(load(node, place, owner=owner)) == {"loaded"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("error", None), ("keep", {12: 9, 99: 9}), ("replace", {12: 9, 99: 9}), ("skip", {99: 9})],
)
def test_what_is_loaded_later_stands_as_it_would_against_the_files_themselves(
    node: Node, clock: Clock, tmp_path: Path, policy: str, expected: Points | None
) -> None:
    """Below in its own place, too: one load of the three was beneath the others."""
    load(node, three(tmp_path))
    load(node, lay(tmp_path, {21: 7, 60: 7}), on_duplicate="skip")
    merged(node)
    row = made_final(node, clock)
    assert gives(node, row) == HERE | {60: 7}
    answer = load(node, lay(tmp_path, {12: 9, 99: 9}), on_duplicate=policy)
    assert results(answer) == ({"refused"} if expected is None else {"loaded"})
    clock.now += 1
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    (last,) = compactions(node) or [None]
    names = [row.physical] if last is None else [each.physical for each in last.outputs]
    found = {time: value for (_, time), value in points_of(node, names).items()}
    assert found == HERE | {60: 7} | (expected or {})


def test_what_was_compared_before_it_was_merged_for_good_counts_as_compared(
    node: Node, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(node, three(tmp_path))
    merged(node)
    looks = node.operator.centre._looks
    judged = type(looks._judge).outcomes

    def meanwhile(*args: Any, **more: Any) -> Any:
        found = judged(*args, **more)
        if not merged_rows(node):
            made_final(node, clock)
        return found

    monkeypatch.setattr(type(looks._judge), "outcomes", meanwhile)
    answer = load(node, lay(tmp_path, {17: 9}))
    assert results(answer) == {"loaded"}, answer
    assert merged_rows(node)


@pytest.mark.parametrize(("late", "expected"), [({17: 5}, "refused"), ({19: 5}, "loaded")])
def test_what_came_since_and_went_into_what_was_compared_counts_as_not_compared(
    node: Node, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: Points,
    expected: str,
) -> None:  # fmt: skip
    """Of one that is deleted by then nothing says any more where each device had its points."""
    load(node, three(tmp_path))
    compared = SharedPoints(compared=tuple(sorted(visible(node))))
    load(node, lay(tmp_path, late))
    clock.now += 1
    merged(node)
    row = made_final(node, clock)
    (gone,) = {each.physical for each in rows(node)} - {row.physical, *compared.compared}
    delete_files(node.operator, [gone], everywhere=False)
    (state,) = (each.state for each in rows(node) if each.physical == gone)
    assert state is FileState.DELETED
    monkeypatch.setattr(PointOverlaps, "find", lambda *_, **__: compared)
    answer = load(node, lay(tmp_path, {16: 9, 17: 9}))
    assert results(answer) == {expected}, answer
    assert gives(node, row) == HERE | late


def test_a_bad_one_gives_way_to_its_inputs_which_nobody_has_let_go_of(
    node: Node, clock: Clock, tmp_path: Path
) -> None:
    load(node, three(tmp_path))
    before = visible(node)
    merged(node)
    row = made_final(node, clock)
    record_verdicts(node.engine, [Verdict(row.physical, row.md5, "found bad")])
    assert visible(node) == before
    assert {each.state for each in rows(node) if each.visible} == {FileState.LIVE}
    merged(node)


@pytest.mark.parametrize("has", ["nothing", "inputs", "merged", "all"])
def test_a_restore_reads_it_or_else_what_it_was_made_of_or_else_names_it(
    node: Node, world: World, clock: Clock, tmp_path: Path, has: str
) -> None:
    """The machine is gone, and the store has what had been copied by then."""
    load(node, three(tmp_path))
    before = visible(node)
    merged(node)
    row = made_final(node, clock)
    standing = {"inputs": before, "merged": {row.physical}, "all": {*before, row.physical}}
    store = tmp_path / "store"
    store.mkdir()
    for each in rows(node):
        if each.physical in standing.get(has, ()):
            target = store / data_key(node.engine.uuid, 1, each.physical)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((world.data / each.physical).read_bytes())
            node.engine.commit([records.FileUploaded(each.physical, 1, each.size, "etag=x")])
        (world.data / each.physical).unlink()
    start = node.engine.newest_commit
    named: list[str] = []
    for _ in range(2):  # one that was cut off is said once more
        made = restore_files(DirectoryStore(store), node.engine, node.load.disks.trees)
        named += [path for _, path in made.lacking]
        assert all(map(is_of_restore, node.engine.log_since(start)))
        reads = {"nothing": set(), "inputs": before}.get(has, {row.physical})
        assert visible(node) == reads
        assert {each.state for each in rows(node) if each.visible} <= {FileState.LIVE}
    assert named == ([row.path] if has == "nothing" else [])
    found = {time: value for (_, time), value in points_of(node, sorted(reads)).items()}
    assert found == (HERE if reads else {})
    if has != "nothing":
        assert fsck_of(node).found == []
    clock.now += 1
    answer = load(node, three(tmp_path))
    assert results(answer) == ({"loaded"} if has == "nothing" else {"already"})


def test_an_operator_deletes_what_was_loaded_and_what_was_made_of_it(
    node: Node, clock: Clock, tmp_path: Path
) -> None:
    load(node, three(tmp_path))
    merged(node)
    (one, *_) = sorted(visible(node))
    assert delete_files(node.operator, [one], everywhere=False).deleted == [one]
    assert compactions(node) == [], "the others are read again"
    assert undelete_files(node.operator, [one]).back == [one]
    assert {row.state for row in rows(node) if row.visible} == {FileState.LIVE}
    merged(node)
    row = made_final(node, clock)
    assert delete_files(node.operator, [row.physical], everywhere=False).deleted
    assert visible(node) == set(), "what it was made of goes with it"
    assert undelete_files(node.operator, [row.physical]).back == [row.physical]
    assert [each.state for each in rows(node) if each.visible] == [FileState.LIVE]
    assert gives(node, row) == HERE


def test_what_an_edge_saw_before_all_of_it_and_brings_late_stays_below(
    node: Node, clock: Clock, tmp_path: Path
) -> None:
    """Its file was open when the load came, and had been looked at."""
    edge = Edge(node)
    edge.round({path_of(1): content({900: 1})})
    with node.engine.reading() as state:
        seen = state.newest
    clock.now += 1
    load(node, three(tmp_path), owner=A)
    merged(node)
    row = made_final(node, clock)
    brought(edge, path_of(2), {12: 8, 13: 8}, seen)
    (late,) = (each for each in rows(node) if each.path == path_of(2))
    assert late.visible
    assert late.rank.first < row.rank.first


def brought(edge: Edge, path: str, points: Points, look: int) -> str:
    edge.check()
    task = edge.start()
    made = content(points)
    edge.plan(task, [plan_entry(path, made)])
    edge.batch(task, {path: made})
    edge.end(task, {path: made}, looks={path: (look, look)})
    return str(edge.outcome(task)[path].result)


def test_of_several_loads_it_waits_for_those_whose_devices_they_have(
    node: Node, clock: Clock, tmp_path: Path
) -> None:
    edge = Edge(node)
    edge.round({path_of(1): content({900: 1})})
    clock.now += 1
    load(node, lay(tmp_path, {1: 1, 2: 1}), owner=A)
    between = max(row.rank.first for row in rows(node)) + 1
    clock.now += 1
    load(node, lay(tmp_path, {3: 2, 4: 2}, {5: 2}), owner=A)
    merged(node)
    clock.now += AFTER + 1
    assert node.final_merges.run_once() == 0
    assert set(node.final_merges.kept_back.values()) == {"its sender has not been here since"}
    other = path_of(3, sg="root.other")
    edge.round({other: content({1: 1}, "root.other.d")})
    clock.now += AFTER + 1
    assert node.final_merges.run_once() == 1, node.final_merges.kept_back
    assert brought(edge, path_of(2), {2: 8, 3: 8}, between) == "quarantined", "it is between"


def test_devices_that_were_transferred_keep_it_beside_its_files(
    node: Node, clock: Clock, tmp_path: Path
) -> None:
    Edge(node).round({path_of(1): content({900: 1})})
    load(node, three(tmp_path), owner=A)
    node.engine.commit([records.OwnerSet("root.sg.d1", None, "for a test")])
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    clock.now += AFTER + 1
    assert node.final_merges.run_once() == 0
