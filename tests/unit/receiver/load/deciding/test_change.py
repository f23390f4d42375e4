"""What a task changes, through whole rounds: conflicts, replacements, deletions, quarantine."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import wire
from common.errors import ConflictError
from common.names import FilePath
from receiver.load.deciding.known_files.candidates import physical_name
from receiver.metadata.model.ranks import stands_above
from receiver.metadata.state.table_rows import FileRow
from receiver.node import Node
from receiver.operator.edges.owners import set_owner
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from receiver.operator.stored.quarantine import list_quarantine
from tests.support.node_world import (
    OPERATOR,
    A,
    B,
    Edge,
    World,
    path_of,
    plan_entry,
    results,
    sender,
    tsfile,
)

ALL, NEVER = wire.Propagate.ALL, wire.Propagate.NEVER


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def visible(node: Node, uuid: str = A) -> list[str]:
    return sorted(each.path for each in list_files(node.operator, sender=uuid).files)


def rows_of(node: Node) -> list[FileRow]:
    with node.engine.reading() as state:
        return list(state.files.values())


# -- physical names ------------------------------------------------


def test_a_physical_name_is_always_the_same_and_differs_by_sender_task_and_path() -> None:
    path, other = FilePath.parse(path_of(1)), FilePath.parse(path_of(2))
    name = physical_name(A, "1" * 32, path)
    assert name == physical_name(A, "1" * 32, path)
    assert name.name.startswith("1600000000001-1-0.")
    assert physical_name(A, "1" * 32, path.resource) == name.resource
    others = {
        physical_name(B, "1" * 32, path),
        physical_name(A, "2" * 32, path),
        physical_name(A, "1" * 32, other),
    }
    assert name not in others
    assert len(others) == 3


def test_two_senders_files_of_one_name_never_meet(edge: Edge, world: World) -> None:
    other = Edge(edge.node, B)
    mine, yours = tsfile("root.sg.a"), tsfile("root.sg.b")
    assert results(edge.round({path_of(1): mine})) == {path_of(1): "loaded"}
    assert results(other.round({path_of(1): yours})) == {path_of(1): "loaded"}
    assert sorted(world.loaded().values()) == sorted([mine, yours])
    other.round({}, [path_of(1)], propagate=ALL)
    assert visible(edge.node, A) == [path_of(1)]


def test_a_name_used_again_after_a_deletion_does_not_meet_the_old_file(
    edge: Edge, world: World
) -> None:
    edge.round({path_of(1): tsfile()})
    edge.round({}, [path_of(1)], propagate=ALL)
    edge.round({path_of(1): tsfile(salt=1)})
    assert sorted(world.loaded().values()) == sorted([tsfile(), tsfile(salt=1)])
    assert visible(edge.node) == [path_of(1)]


# -- conflicts ------------------------------------------------


def without_hint(edge: Edge, files: dict[str, bytes]) -> dict[str, wire.Outcome]:
    """A round whose plan names no devices, so that the load has to find the conflict."""
    task = edge.start()
    edge.plan(task, [plan_entry(path, content, devices=[]) for path, content in files.items()])
    edge.batch(task, files)
    edge.end(task, files)
    return edge.outcome(task)


def test_a_device_of_another_drops_the_file_and_not_the_task(edge: Edge, world: World) -> None:
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    outcome = without_hint(edge, {path_of(1): tsfile("root.sg.b"), path_of(2): tsfile("root.sg.a")})
    assert results(outcome) == {path_of(1): "conflict", path_of(2): "loaded"}
    assert outcome[path_of(1)].device == "root.sg.b"
    assert outcome[path_of(1)].owner is None
    (entry,) = list_quarantine(edge.node.engine)
    assert (entry.path, entry.hold, entry.device) == (path_of(1), False, "root.sg.b")


def test_whose_device_it_is_is_told_only_where_it_is_revealed(tmp_path: Path) -> None:
    world = World(tmp_path, reveal_owner=True)
    with world.node() as node:
        Edge(node, B).round({path_of(9): tsfile("root.sg.b")})
        outcome = without_hint(Edge(node), {path_of(1): tsfile("root.sg.b")})
        assert outcome[path_of(1)].owner == B


def test_a_conflict_found_at_load_need_not_travel_again(edge: Edge) -> None:
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    without_hint(edge, {path_of(1): tsfile("root.sg.b")})
    set_owner(edge.node.engine, OPERATOR, "root.sg.b", None)
    task = edge.start()
    (decision,) = edge.plan(task, [plan_entry(path_of(1), tsfile("root.sg.b"))])
    assert decision.action == "have"
    edge.end(task, {path_of(1): tsfile("root.sg.b")})
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}
    assert list_quarantine(edge.node.engine) == []


def test_a_conflict_found_in_the_plan_is_seen_by_the_operator_too(edge: Edge) -> None:
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    edge.round({path_of(1): tsfile("root.sg.b")})
    before = edge.node.engine.newest_commit
    (entry,) = list_quarantine(edge.node.engine)
    assert entry.path == path_of(1)
    edge.round({path_of(1): tsfile("root.sg.b")})
    (again,) = list_quarantine(edge.node.engine)
    assert again == entry
    assert edge.node.engine.newest_commit > before


def test_other_content_under_a_path_is_an_error_that_both_sides_see(
    edge: Edge, world: World
) -> None:
    edge.round({path_of(1): tsfile()})
    outcome = without_hint(edge, {path_of(1): tsfile(salt=1)})
    assert results(outcome) == {path_of(1): "conflict"}
    assert list(world.loaded().values()) == [tsfile()]
    assert len(list_quarantine(edge.node.engine)) == 1


def test_a_transfer_while_a_file_is_being_loaded_is_not_lost(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is made again when its ground has moved; the file goes back."""
    other = Edge(edge.node, B)
    other.round({path_of(9): tsfile("root.sg.z")})
    edge.round({path_of(5): tsfile("root.sg.a")})
    import receiver.load.loading as loading

    real, calls = loading.move_in, []

    def moved(tree: object, moves: object) -> None:
        real(tree, moves)  # type: ignore[arg-type]
        if not calls:
            calls.append(1)
            set_owner(edge.node.engine, OPERATOR, "root.sg.a", B)

    monkeypatch.setattr(loading, "move_in", moved)
    outcome = without_hint(edge, {path_of(1): tsfile("root.sg.a", first=500)})
    assert results(outcome) == {path_of(1): "conflict"}
    with edge.node.engine.reading() as state:
        rows = set(state.files)
    stems = {each.rpartition("/")[2] for each in rows}
    home = edge.node.load.disks.roomiest().path
    on_disk = {path.name for path in home.rglob("sequence/**/*.tsfile")
               if "sync-receiver" not in path.parts}  # fmt: skip
    assert on_disk == stems


# -- replacements ------------------------------------------------


@pytest.mark.parametrize("propagate", list(wire.Propagate))
def test_a_replacement_takes_the_place_of_the_old_content(
    edge: Edge, world: World, propagate: wire.Propagate
) -> None:
    edge.round({path_of(1): tsfile()})
    new = tsfile(salt=1)
    outcome = edge.round(
        {path_of(1): new}, [path_of(1)], replaces=[path_of(1)], propagate=propagate
    )
    assert results(outcome) == {path_of(1): "loaded"}
    rows = rows_of(edge.node)
    (row,) = [each for each in rows if each.held]
    assert world.loaded()[row.physical] == new
    (old,) = [each for each in rows if not each.held]
    assert old.state == ("deleted" if propagate is ALL else "retired")
    assert stands_above(row.rank, old.rank)


@pytest.mark.parametrize("propagate", list(wire.Propagate))
def test_a_replacement_that_cannot_be_loaded_leaves_the_old_one(
    edge: Edge, propagate: wire.Propagate
) -> None:
    edge.round({path_of(1): tsfile()})
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    new = tsfile("root.sg.b", salt=1)
    outcome = edge.round(
        {path_of(1): new}, [path_of(1)], replaces=[path_of(1)], propagate=propagate
    )
    assert results(outcome) == {path_of(1): "held"}
    assert visible(edge.node) == [path_of(1)]


# -- deletions ------------------------------------------------


def compacted(*numbers: int) -> bytes:
    """A file whose times span those of the files of these numbers."""
    first = min(numbers) * 100
    return tsfile(first=first, points=(max(numbers) - min(numbers)) * 100 + 5)


OLD = {path_of(number): tsfile(first=number * 100) for number in range(1, 6)}


def test_what_a_compaction_spans_is_retired_and_stays_visible(edge: Edge) -> None:
    edge.round(OLD)
    outcome = edge.round({path_of(6, inner=1): compacted(1, 2, 3)}, list(OLD))
    assert results(outcome) == {
        path_of(6, inner=1): "loaded",
        **dict.fromkeys(OLD, "retired"),
    }
    assert visible(edge.node) == sorted([path_of(6, inner=1), *OLD])
    inventory = edge.node.listing.inventory(edge.who, A, None, 100).entries
    assert [each.path for each in inventory] == [path_of(6, inner=1)]


def test_a_compaction_is_one_change(edge: Edge) -> None:
    edge.round(OLD)
    edge.round({path_of(6, inner=1): compacted(1, 2, 3, 4, 5)}, list(OLD))
    changed = {each.changed for each in rows_of(edge.node)}
    assert len(changed) == 1


def test_if_the_new_file_cannot_be_loaded_the_old_ones_stay(edge: Edge) -> None:
    edge.round(OLD)
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    for propagate in (wire.Propagate.REPLACED, ALL):
        new = {path_of(6, inner=1): tsfile("root.sg.b", first=900)}
        outcome = edge.round(new, list(OLD), propagate=propagate)
        assert set(results(outcome).values()) == {"held"}
        assert visible(edge.node) == sorted(OLD)


def test_if_the_new_file_is_missing_the_old_ones_stay(edge: Edge) -> None:
    edge.round(OLD)
    task = edge.start(propagate=ALL)
    edge.plan(task, [plan_entry(path_of(6, inner=1), compacted(1, 5))])
    edge.deleted(task, list(OLD))
    edge.end(task, {})  # it was given up after too many tries
    assert set(results(edge.outcome(task)).values()) == {"held"}
    assert visible(edge.node) == sorted(OLD)


def test_a_failure_in_one_partition_holds_nothing_in_another(edge: Edge) -> None:
    edge.round({path_of(1): tsfile(), path_of(1, partition=7): tsfile(first=700)})
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    outcome = edge.round(
        {path_of(2): tsfile("root.sg.b")}, [path_of(1), path_of(1, partition=7)], propagate=ALL
    )
    assert results(outcome) == {path_of(1): "held", path_of(1, partition=7): "deleted"}


def test_sequence_and_unsequence_of_a_partition_hang_together(edge: Edge) -> None:
    edge.round({path_of(1): tsfile()})
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    late = path_of(2).replace("sequence", "unsequence", 1)
    outcome = edge.round({late: tsfile("root.sg.b")}, [path_of(1)], propagate=ALL)
    assert results(outcome) == {path_of(1): "held"}


def test_the_seeds_mode_deletes(edge: Edge) -> None:
    edge.round(OLD)
    assert set(results(edge.round({}, list(OLD), propagate=ALL)).values()) == {"deleted"}
    assert visible(edge.node) == []


def test_never_keeps_everything_at_the_centre(edge: Edge) -> None:
    edge.round(OLD)
    assert set(results(edge.round({}, list(OLD), propagate=NEVER)).values()) == {"retired"}
    assert visible(edge.node) == sorted(OLD)


def test_a_deletion_of_what_is_not_there_is_done(edge: Edge) -> None:
    assert results(edge.round({}, [path_of(1)])) == {path_of(1): "deleted"}


def test_a_deletion_touches_only_its_own_senders_file(edge: Edge) -> None:
    Edge(edge.node, B).round({path_of(1): tsfile("root.sg.b")})
    edge.round({}, [path_of(1)], propagate=ALL)
    assert visible(edge.node, B) == [path_of(1)]


def test_the_end_of_a_file_at_the_edge_clears_its_quarantine(edge: Edge) -> None:
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    without_hint(edge, {path_of(1): tsfile("root.sg.b")})
    assert len(list_quarantine(edge.node.engine)) == 1
    edge.round({}, [path_of(1)])
    assert list_quarantine(edge.node.engine) == []
    assert running_status(edge.node.operator, edge.node.problem()).staged_bytes == 0


def test_a_file_that_the_engine_never_takes_does_not_stop_the_others(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    import receiver.metadata.commit.judging.file_rules as rules
    from receiver.metadata.model.errors import RefusedCommitError

    real = rules.check_content

    def strict(op: object) -> None:
        if op.path == path_of(1):  # type: ignore[attr-defined]
            raise RefusedCommitError("a rule of tomorrow")
        real(op)  # type: ignore[arg-type]

    monkeypatch.setattr(rules, "check_content", strict)
    outcome = edge.round({path_of(1): tsfile(), path_of(2): tsfile(first=100)})
    assert results(outcome) == {path_of(1): "quarantined", path_of(2): "loaded"}
    assert outcome[path_of(1)].hold


def test_a_task_that_is_too_large_for_one_commit_comes_in_several_rounds(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    from common.errors import TooLargeError
    from receiver.metadata.model.records import FileLoaded

    real = edge.node.engine.commit

    def small(ops: object, guards: object = ()) -> int:
        if sum(isinstance(each, FileLoaded) for each in ops) > 2:  # type: ignore[attr-defined]
            raise TooLargeError("does not fit into a frame")
        return real(ops, guards)  # type: ignore[arg-type]

    monkeypatch.setattr(edge.node.engine, "commit", small)
    outcome = edge.round(OLD)
    assert sorted(results(outcome).values()) == ["loaded"] * 2 + ["missing"] * 3
    while "missing" in results(outcome).values():
        outcome = edge.round(OLD)
    assert sorted(world.loaded().values()) == sorted(OLD.values())


def test_two_senders_race_for_a_device_and_one_of_them_wins_whole(node: Node) -> None:
    import threading

    edges = [Edge(node, A), Edge(node, B)]
    tasks = []
    for edge in edges:
        task = edge.start()
        edge.batch(task, {path_of(1): tsfile("root.sg.x")})
        tasks.append(task)
    threads = [
        threading.Thread(target=edge.end, args=(task, {path_of(1): tsfile("root.sg.x")}))
        for edge, task in zip(edges, tasks, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [
        results(edge.outcome(task))[path_of(1)] for edge, task in zip(edges, tasks, strict=True)
    ]
    assert sorted(found) == ["conflict", "loaded"]
    assert len(list_files(node.operator).files) == 1


def test_an_upload_without_a_task_while_a_task_is_open_disturbs_it_not(edge: Edge) -> None:
    task = edge.start()
    edge.batch(task, {path_of(1): tsfile()})
    edge.upload(None, path_of(2), tsfile(first=100))
    with pytest.raises(ConflictError):
        edge.upload(None, path_of(2), tsfile(first=100, salt=1))
    edge.end(task, {path_of(1): tsfile()})
    assert results(edge.outcome(task)) == {path_of(1): "loaded"}
    assert visible(edge.node) == [path_of(1), path_of(2)]


def test_of_several_retired_files_of_a_name_any_may_come_back(edge: Edge, world: World) -> None:
    contents = [tsfile(salt=salt) for salt in range(3)]
    for content in contents:
        edge.round({path_of(1): content})
        edge.round({}, [path_of(1)], propagate=NEVER)
    for content in contents:
        assert results(edge.round({path_of(1): content})) == {path_of(1): "already"}
        edge.round({}, [path_of(1)], propagate=NEVER)
    assert sorted(world.loaded().values()) == sorted(contents)


def test_a_retired_file_that_comes_back_is_its_senders_again(edge: Edge, world: World) -> None:
    edge.round({path_of(1): tsfile()})
    edge.round({}, [path_of(1)], propagate=NEVER)
    edge.round({path_of(1): tsfile()})
    inventory = edge.node.listing.inventory(sender(A), A, None, 10)
    assert [each.path for each in inventory.entries] == [path_of(1)]
    assert results(edge.round({}, [path_of(1)], propagate=ALL)) == {path_of(1): "deleted"}
    assert visible(edge.node) == []
