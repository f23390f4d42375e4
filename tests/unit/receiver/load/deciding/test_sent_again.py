"""Content that comes again: its other names, its deletions, and whose it is by now."""

from __future__ import annotations

import pytest

from common import wire
from receiver.metadata.model import records
from receiver.metadata.model.ranks import stands_above
from receiver.metadata.state.table_rows import FileRow
from receiver.node import Node
from receiver.operator.edges import owners
from receiver.operator.edges.owners import set_owner
from tests.support.node_world import OPERATOR, A, B, Edge, path_of, plan_entry, results, tsfile

ALL = wire.Propagate.ALL
ONE, TWO = tsfile(first=100), tsfile(first=200)
P, Q = path_of(1), path_of(2)
FIRST, SECOND = (f"DELETION,root.sg.d1.s1,99,{n},{n}\n".encode() for n in (1, 2))


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


@pytest.fixture
def bad(edge: Edge) -> Edge:
    """An edge of whose file with two names the bytes were found bad."""
    edge.round({P: ONE})
    assert results(edge.round({Q: ONE})) == {Q: "already"}
    quarantine(edge.node, P)
    return edge


def held(node: Node, path: str, uuid: str = A) -> FileRow | None:
    with node.engine.reading() as state:
        return state.file_table.held(uuid, path)


def row_at(node: Node, path: str, uuid: str = A) -> FileRow:
    row = held(node, path, uuid)
    assert row is not None
    return row


def quarantine(node: Node, path: str) -> None:
    node.engine.commit([records.FileQuarantined(row_at(node, path).physical, "rot")])


def tell(
    edge: Edge, task: str, content: bytes, base: int = 0, path: str = P, floor: int = 7
) -> list[str]:
    form = wire.DeletionsForm.MODS
    part = wire.DeletionsPart(path=path, form=form, base=base, content=content, floor=floor)
    page = wire.DeletionsPage(parts=[part])
    return edge.node.tasks.deletions(edge.who, edge.uuid, task, edge.epoch, page).again


def test_other_names_go_over_to_the_new_file(bad: Edge) -> None:
    bad.round({P: ONE})
    assert set(row_at(bad.node, Q).paths) == {P, Q}
    bad.round({}, [P], propagate=ALL)
    assert row_at(bad.node, Q).visible


def test_another_name_may_end_in_the_same_task(bad: Edge) -> None:
    assert results(bad.round({P: ONE}, [Q])) == {P: "loaded", Q: "deleted"}
    assert row_at(bad.node, P).paths == (P,)


def test_another_name_may_get_other_content_in_the_same_task(bad: Edge) -> None:
    outcome = bad.round({P: ONE, Q: TWO}, replaces=[Q])
    assert results(outcome) == {P: "loaded", Q: "loaded"}
    assert row_at(bad.node, P).paths == (P,)


def test_both_names_may_come_again(bad: Edge) -> None:
    assert results(bad.round({P: ONE, Q: ONE})) == {P: "loaded", Q: "already"}
    assert set(row_at(bad.node, Q).paths) == {P, Q}


def test_deletions_are_added_to_those_that_the_old_file_had(edge: Edge) -> None:
    edge.round({P: ONE})
    task = edge.start()
    tell(edge, task, FIRST)
    edge.end(task, {})
    edge.outcome(task)
    quarantine(edge.node, P)
    task = edge.start()
    edge.plan(task, [plan_entry(P, ONE)])
    assert tell(edge, task, SECOND, base=len(FIRST)) == []
    edge.batch(task, {P: ONE})
    edge.end(task, {P: ONE})
    assert results(edge.outcome(task)) == {P: "loaded"}
    with edge.node.engine.reading() as state:
        (row,) = state.deletion_table.of_file(row_at(edge.node, P).physical)
    assert row.content == FIRST + SECOND


@pytest.mark.parametrize("names", [("1-1-0", "2-2-0"), ("a", "b")], ids=["ranked", "not ranked"])
def test_what_moves_keeps_its_deletions_to_itself(edge: Edge, names: tuple[str, str]) -> None:
    """The same bytes stand beside it, loaded once more when points of it were deleted."""
    at, other = (f"sequence/root.sg/0/0/{name}.tsfile" for name in names)
    edge.round({at: ONE})
    task = edge.start()
    tell(edge, task, FIRST, path=at)
    edge.end(task, {})
    edge.outcome(task)
    assert results(edge.round({other: ONE})) == {other: "loaded"}
    before = row_at(edge.node, at)
    moved = at.replace("/0/0/", "/0/3/")
    assert results(edge.round({moved: ONE}, [at])) == {moved: "already", at: "deleted"}
    assert row_at(edge.node, moved).physical == before.physical
    assert row_at(edge.node, other).paths == (other,)


@pytest.mark.parametrize(("time", "outlived"), [(100, True), (500, False)])
def test_a_later_name_that_has_outlived_a_deletion_is_another_file(
    edge: Edge, time: int, outlived: bool
) -> None:
    """Its points were deleted and written again: if it had been there, it would have a record."""
    edge.round({P: ONE, Q: TWO})
    before = row_at(edge.node, P)
    task = edge.start()
    line = f"DELETION,root.sg.d1.s1,99,{time},{time}\n".encode()
    tell(edge, task, line, path=Q, floor=before.closed)
    edge.end(task, {})
    edge.outcome(task)
    later = P.replace("-0.tsfile", "-1.tsfile")
    outcome = results(edge.round({later: ONE}, [P]))
    assert outcome[later] == ("loaded" if outlived else "already")
    assert (row_at(edge.node, later).physical != before.physical) is outlived


# -- transferred ------------------------------------------------------------------------------


def heir_of(edge: Edge) -> Edge:
    heir = Edge(edge.node, B)
    heir.check()
    heir.round({path_of(9): tsfile("root.sg.b")})
    return heir


def test_what_was_transferred_does_not_come_back(edge: Edge) -> None:
    edge.round({P: ONE})
    heir_of(edge)
    set_owner(edge.node.engine, OPERATOR, "root.sg.d1", B)
    edge.round({P: ONE})
    assert held(edge.node, P) is None


def test_a_transfer_that_was_cut_off_is_finished_by_saying_it_once_more(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge.round({P: ONE})
    heir_of(edge)

    def cut_off(*_arguments: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as cut:
        cut.setattr(owners, "_end_files", cut_off)
        with pytest.raises(InterruptedError):
            set_owner(edge.node.engine, OPERATOR, "root.sg.d1", B)
    assert set_owner(edge.node.engine, OPERATOR, "root.sg.d1", B).retired == 1
    assert held(edge.node, P) is None


def test_a_successor_stands_above_whatever_the_names_say(edge: Edge) -> None:
    late = P.replace("sequence/", "unsequence/")
    edge.round({late: ONE})
    old = row_at(edge.node, late).physical
    heir = heir_of(edge)
    look = heir.check().look  # before it owns the device
    set_owner(edge.node.engine, OPERATOR, "root.sg.d1", B)
    content = tsfile(salt=3)
    task = heir.start()
    heir.plan(task, [plan_entry(Q, content)])
    heir.batch(task, {Q: content})
    heir.end(task, {Q: content}, looks={Q: (look, look)})
    assert results(heir.outcome(task)) == {Q: "loaded"}
    with edge.node.engine.reading() as state:
        assert stands_above(row_at(edge.node, Q, B).rank, state.files[old].rank)
