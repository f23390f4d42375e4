"""A box that was replaced: its successor goes on in its place, and nothing is there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import crash
from common.errors import NotFoundError, UsageError
from common.wire import DeletionsForm, DeletionsPage, DeletionsPart, Propagate
from receiver.metadata.model import records
from receiver.metadata.model.ranks import stands_above
from receiver.metadata.state.table_rows import FileRow
from receiver.node import Node
from receiver.operator.edges.owners import adopt_sender, set_owner
from receiver.operator.edges.senders import list_senders
from receiver.operator.edges.tokens import make_token
from receiver.operator.status import running_status
from receiver.operator.stored.deletes import allow_held_deletes, list_held_deletes
from receiver.operator.views.retired_views import KeptView
from receiver.transfer.begun.look_numbers import latest_look
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
from tests.support.proving import in_this_process
from tests.support.tsfile_bytes import build

DELETION = b"DELETION,root.sg.d1.s1,9223372036854775807,100,101\n"
FILES = {path_of(n): tsfile(f"root.sg.d{n}", first=n * 100) for n in (1, 2)}


@pytest.fixture
def old(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    edge.round(FILES)
    return edge


def rows_of(node: Node) -> list[FileRow]:
    with node.engine.reading() as state:
        return list(state.files.values())


def successor(old: Edge) -> Edge:
    edge = Edge(old.node, B)
    edge.check()
    return edge


def load(
    edge: Edge, files: dict[str, bytes], look: int, propagate: Propagate = Propagate.REPLACED
) -> dict[str, str]:
    task = edge.start(propagate=propagate)
    edge.plan(task, [plan_entry(path, content) for path, content in files.items()])
    edge.batch(task, files)
    edge.end(task, files, looks=dict.fromkeys(files, (look, look)))
    return results(edge.outcome(task))


def test_a_successor_has_the_devices_and_all_that_the_old_one_listed_ends(old: Edge) -> None:
    new = successor(old)
    look = new.check().look
    moved = adopt_sender(old.node.engine, OPERATOR, A, B)
    assert (moved.devices, moved.retired) == (2, 2)
    assert {row.retired for row in rows_of(old.node)} == {True}
    assert set(load(new, FILES, look).values()) == {"loaded"}


def test_one_device_may_move_and_only_its_files_end(old: Edge) -> None:
    successor(old)
    moved = set_owner(old.node.engine, OPERATOR, "root.sg.d1", B)
    assert (moved.devices, moved.retired) == (1, 1)
    assert {row.path: row.retired for row in rows_of(old.node)} == {
        path_of(1): True,
        path_of(2): False,
    }


def test_a_file_with_a_device_that_stays_does_not_end(old: Edge) -> None:
    both = build({f"root.sg.d{n}": {"s1": [(5, 5)]} for n in (1, 2)})
    old.round({path_of(3): both})
    successor(old)
    set_owner(old.node.engine, OPERATOR, "root.sg.d1", B)
    assert [row.retired for row in rows_of(old.node) if row.path == path_of(3)] == [False]


def test_a_file_does_not_come_back_just_as_its_device_becomes_anothers(old: Edge) -> None:
    successor(old)
    old.round({}, [path_of(1)])
    moved: list[int] = []

    def transferring(name: str) -> None:
        if name == "load.decided" and not moved:
            moved.append(set_owner(old.node.engine, OPERATOR, "root.sg.d1", B).devices)

    with crash.arm(transferring):
        assert results(old.round({path_of(1): FILES[path_of(1)]})) == {path_of(1): "missing"}
    assert moved == [1]
    assert {row.path: row.retired for row in rows_of(old.node)}[path_of(1)]


def test_patterns_move_and_free_many(old: Edge) -> None:
    successor(old)
    assert set_owner(old.node.engine, OPERATOR, "root.sg.*", B).devices == 2
    freed = set_owner(old.node.engine, OPERATOR, "root.**", None)
    assert (freed.devices, freed.retired) == (2, 0)
    with pytest.raises(NotFoundError):
        set_owner(old.node.engine, OPERATOR, "root.sg.*", None)


def test_said_once_more_it_changes_nothing(old: Edge) -> None:
    successor(old)
    adopt_sender(old.node.engine, OPERATOR, A, B)
    again = adopt_sender(old.node.engine, OPERATOR, A, B)
    assert (again.devices, again.retired) == (0, 0)


def test_only_senders_that_are_known_and_differ(old: Edge) -> None:
    for one, two in ((A, B), (B, A)):
        with pytest.raises(NotFoundError):
            adopt_sender(old.node.engine, OPERATOR, one, two)
    with pytest.raises(UsageError):
        adopt_sender(old.node.engine, OPERATOR, A, A)


def test_what_was_closed_before_a_transfer_was_closed_then_whenever_it_is_loaded(old: Edge) -> None:
    new = successor(old)
    look = new.check().look
    set_owner(old.node.engine, OPERATOR, "root.sg.d1", B)
    late = path_of(9)
    assert load(new, {late: tsfile("root.sg.d1", first=7)}, look) == {late: "loaded"}
    (rank,) = (row.rank for row in rows_of(old.node) if row.path == late)
    assert rank.closed == look < rank.first


@pytest.mark.parametrize("proved", [False, True])
def test_what_a_box_lists_that_is_in_charge_again_stands_above_its_successors(
    old: Edge, proved: bool
) -> None:
    new = successor(old)
    adopt_sender(old.node.engine, OPERATOR, A, B)
    late = path_of(9).replace("sequence", "unsequence")
    assert load(new, {late: FILES[path_of(1)]}, new.check().look) == {late: "loaded"}
    assert not proved or prove(old.node) == 1
    adopt_sender(old.node.engine, OPERATOR, B, A)
    assert set(load(old, FILES, old.check().look).values()) == {"already"}
    ranks = {row.path: row.rank for row in rows_of(old.node)}
    assert stands_above(ranks[path_of(1)], ranks[late])


# -- a mirror in the place of another box -------------------------------------------------------


def mirror(old: Edge, files: dict[str, bytes]) -> Edge:
    """A successor in mode `all` that brings files."""
    new = successor(old)
    look = new.check().look
    adopt_sender(old.node.engine, OPERATOR, A, B)
    load(new, files, look, Propagate.ALL)
    return new


def end(edge: Edge, *paths: str, files: dict[str, bytes] | None = None) -> None:
    edge.round(files or {}, list(paths), propagate=Propagate.ALL)


def prove(node: Node) -> int:
    in_this_process(node)
    return node.prover.run_once()


def states_of(node: Node, sender: str = A) -> dict[str, str]:
    return {row.path: str(row.state) for row in rows_of(node) if row.sender == sender}


@pytest.mark.parametrize("proved", [False, True])
def test_what_a_mirror_had_goes_with_its_end_and_what_it_never_had_stays(
    old: Edge, proved: bool
) -> None:
    new = mirror(old, {path_of(1): FILES[path_of(1)]})
    if proved:
        assert not proved or prove(old.node) == 1
    end(new, path_of(1))
    assert states_of(old.node) == {path_of(1): "deleted", path_of(2): "retired"}


def test_what_a_mirrors_files_were_proved_to_give_goes_with_them(old: Edge) -> None:
    both = build({f"root.sg.d{n}": {"s1": [(n * 100, 7), (n * 100 + 1, 7)]} for n in (1, 2)})
    old.round({path_of(3): build({"root.sg.d1": {"s1": [(100, 1)]}})})
    new = mirror(old, {path_of(4): both})
    assert prove(old.node) > 0
    before = states_of(old.node)
    assert before[path_of(3)] == "superseded"
    end(new, path_of(4))
    assert states_of(old.node)[path_of(3)] == "deleted"


@pytest.mark.parametrize("proved", [False, True])
def test_a_box_that_was_replaced_twice_leaves_nothing_that_the_last_one_had(
    old: Edge, proved: bool
) -> None:
    mirror(old, FILES)
    assert not proved or prove(old.node) == 2
    last = Edge(old.node, "c" * 32)
    look = last.check().look
    adopt_sender(old.node.engine, OPERATOR, B, last.uuid)
    load(last, FILES, look, Propagate.ALL)
    assert not proved or prove(old.node) == 2
    end(last, *FILES)
    assert {str(row.state) for row in rows_of(old.node)} == {"deleted"}


@pytest.mark.parametrize("proved", [False, True])
def test_what_a_successor_deletes_is_deleted_of_what_can_come_back(old: Edge, proved: bool) -> None:
    new = mirror(old, FILES)
    assert not proved or prove(old.node) == 2
    record = DeletionsPart(
        path=path_of(1),
        form=DeletionsForm.MODS,
        base=0,
        content=DELETION,
        floor=latest_look(new.node.engine) - 1,
    )
    task = new.start(propagate=Propagate.ALL)
    page = DeletionsPage(parts=[record])
    assert new.node.tasks.deletions(new.who, new.uuid, task, new.epoch, page).again == []
    new.end(task, {})
    new.outcome(task)
    with old.node.engine.reading() as state:
        noted = [(row.path, row.content) for row in state.deletion_table.of_sender(A)]
    assert noted == [(path_of(1), DELETION)]


@pytest.mark.parametrize("time", [100, 5000])
def test_what_another_database_had_shows_again_where_what_gave_its_points_is_deleted(
    old: Edge, time: int
) -> None:
    new = successor(old)
    set_owner(old.node.engine, OPERATOR, "root.sg.d1", B)
    late = path_of(9).replace("sequence", "unsequence")
    load(new, {late: FILES[path_of(1)]}, new.check().look)
    assert prove(old.node) == 1
    record = DeletionsPart(
        path=late,
        form=DeletionsForm.MODS,
        base=0,
        content=f"DELETION,root.sg.d1.s1,9223372036854775807,{time},{time}\n".encode(),
        floor=latest_look(old.node.engine) - 1,
    )
    task = new.start()
    new.node.tasks.deletions(new.who, new.uuid, task, new.epoch, DeletionsPage(parts=[record]))
    new.end(task, {})
    new.outcome(task)
    states = {(row.sender, row.path): str(row.state) for row in rows_of(old.node)}
    assert states[A, path_of(1)] == ("retired" if time == 100 else "superseded")


def test_what_was_proved_by_files_of_others_too_comes_back(old: Edge) -> None:
    new = mirror(old, {path_of(4): build({"root.sg.d1": {"s1": [(100, 1)]}})})
    rows = {(row.sender, row.path): row.physical for row in rows_of(old.node)}
    rests = [rows[B, path_of(4)], rows[A, path_of(2)]]
    old.node.engine.commit([records.FileSuperseded(rows[A, path_of(1)], rests)])
    end(new, path_of(4))
    assert states_of(old.node) == {path_of(1): "retired", path_of(2): "retired"}


def test_a_device_that_another_sender_has_by_now_keeps_its_file(old: Edge) -> None:
    new = mirror(old, FILES)
    set_owner(old.node.engine, OPERATOR, "root.sg.d1", None)
    end(new, *FILES)
    assert states_of(old.node) == {path_of(1): "retired", path_of(2): "deleted"}


def test_what_the_guard_holds_takes_nothing_with_it(tmp_path: Path) -> None:
    with World(tmp_path, deletes={"max_fraction": 0.5}).node() as node:
        old = Edge(node)
        old.round(FILES)
        end(mirror(old, FILES), *FILES)  # the last ones of their storage group
        assert set(states_of(node, B).values()) == {"live"}
        assert set(states_of(node).values()) == {"retired"}


@pytest.mark.parametrize("vetoed", [False, True])
def test_records_that_hide_what_only_the_old_box_had_are_counted_too(
    tmp_path: Path, vetoed: bool
) -> None:
    several = {path_of(n): tsfile(first=n * 100) for n in range(1, 13)}
    with World(tmp_path, deletes={"max_fraction": 0.5}).node() as node:
        Edge(node).round(several)
        token = make_token(node.engine, "sender", sender=B, allow_deletes=not vetoed)
        new = Edge(node, B, sender(B, token=token.id))
        new.check()
        adopt_sender(node.engine, OPERATOR, A, B)
        if not vetoed:
            load(new, {path_of(n): tsfile(first=n * 100) for n in range(50, 60)}, new.check().look)
        record = DeletionsPart(  # of all that the old box had, and of one file of the new one's
            path=path_of(50),
            form=DeletionsForm.MODS,
            base=0,
            content=b"DELETION,root.sg.d1.*,9223372036854775807,-9000,5001\n",
            floor=latest_look(node.engine) - 1,
        )
        task = new.start()
        page = DeletionsPage(parts=[record])
        assert new.node.tasks.deletions(new.who, new.uuid, task, new.epoch, page).again == []
        new.end(task, {})
        new.outcome(task)
        (held,) = list_held_deletes(node.engine)
        assert set(several) <= set(held.files)
        assert applied(node) == {False}
        allow_held_deletes(node.engine, held.digest)
        assert applied(node) == {True}


def applied(node: Node) -> set[bool]:
    """Whether what both boxes deleted is applied."""
    with node.engine.reading() as state:
        rows = [*state.deletion_table.of_sender(A), *state.deletion_table.of_sender(B)]
    assert len(rows) == 2
    return {each.applied for row in rows for each in row.segments}


def test_status_says_what_a_mirror_never_had(old: Edge) -> None:
    mirror(old, {path_of(1): FILES[path_of(1)]})
    assert prove(old.node) == 1
    size = len(FILES[path_of(2)])
    numbers = {each.uuid: (each.files, each.listed) for each in list_senders(old.node.engine)}
    assert numbers == {A: (1, 0), B: (1, 1)}
    kept = running_status(old.node.operator, None).kept
    assert kept == (KeptView(sender=A, by=B, files=1, bytes=size),)


@pytest.mark.parametrize("mode", [Propagate.REPLACED, Propagate.NEVER])
def test_no_mirror_takes_nothing(old: Edge, mode: Propagate) -> None:
    new = mirror(old, FILES)
    end(new)
    new.round({}, list(FILES), propagate=mode)
    assert set(states_of(old.node).values()) == {"retired"}
