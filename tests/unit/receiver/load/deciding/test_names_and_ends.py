"""Names of one content, products that go with ends, and what a sender's word takes away."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from common import wire
from receiver.metadata.model.ranks import NOW, stands_above
from receiver.metadata.state.table_rows import FileRow
from receiver.node import Node
from receiver.operator.edges.senders import accept_sender
from receiver.transfer.begun.look_numbers import latest_look
from tests.support.node_world import A, B, Edge, World, path_of, plan_entry, results, sender, tsfile
from tests.support.tsfile_bytes import build

ALL = wire.Propagate.ALL
ONE, TWO = tsfile(first=100), tsfile(first=200)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def rows_of(node: Node) -> list[FileRow]:
    with node.engine.reading() as state:
        return list(state.files.values())


def row_at(node: Node, path: str) -> FileRow:
    with node.engine.reading() as state:
        row = state.file_table.held(A, path)
    assert row is not None
    return row


def inventory(edge: Edge) -> list[str]:
    return [each.path for each in edge.node.listing.inventory(edge.who, A, None, 100).entries]


# -- names ------------------------------------------------------------------------------------


def test_a_renamed_file_keeps_its_row_and_does_not_travel(edge: Edge) -> None:
    edge.round({path_of(1): ONE})
    before = row_at(edge.node, path_of(1))
    task = edge.start(look=0)
    (decision,) = edge.plan(task, [plan_entry(path_of(9, partition=3), ONE)])
    assert decision.action is wire.Action.ALREADY
    edge.end(task, {path_of(9, partition=3): ONE}, [path_of(1)])
    outcome = edge.outcome(task)
    assert results(outcome) == {path_of(9, partition=3): "already", path_of(1): "deleted"}
    after = row_at(edge.node, path_of(9, partition=3))
    assert (after.physical, after.rank.first) == (before.physical, before.rank.first)
    assert len(rows_of(edge.node)) == 1
    assert inventory(edge) == [path_of(9, partition=3)]


def test_two_names_are_one_row_that_ends_with_its_last(edge: Edge) -> None:
    edge.round({path_of(1): ONE})
    edge.round({path_of(2): ONE})
    assert inventory(edge) == [path_of(1), path_of(2)]
    assert results(edge.round({}, [path_of(1)])) == {path_of(1): "deleted"}
    (row,) = rows_of(edge.node)
    assert (row.paths, row.visible, row.rank.last) == ((path_of(2),), True, NOW)
    assert results(edge.round({}, [path_of(2)])) == {path_of(2): "retired"}
    (row,) = rows_of(edge.node)
    assert (row.visible, row.retired) == (True, True)


def test_a_name_above_the_others_is_the_one_that_counts(edge: Edge, world: World) -> None:
    """The database has the content once more: what came between is below it."""
    edge.round({path_of(1): ONE})
    before = row_at(edge.node, path_of(1))
    edge.round({path_of(2): TWO})
    task = edge.round({path_of(3): ONE})
    assert results(task) == {path_of(3): "already"}
    row = row_at(edge.node, path_of(1))
    assert row.paths == (path_of(3), path_of(1))
    assert row.rank.first == row.rank.closed > before.rank.first
    assert stands_above(row.rank, row_at(edge.node, path_of(2)).rank)
    edge.round({path_of(0): ONE})
    lower = row_at(edge.node, path_of(1))
    assert lower.paths == (path_of(3), path_of(1), path_of(0))
    assert lower.rank == row.rank
    (world.data / row.physical).unlink()
    assert results(edge.round({path_of(1): ONE})) == {path_of(1): "loaded"}
    again = row_at(edge.node, path_of(1))
    assert again.physical != row.physical
    assert (again.paths, again.rank[:3]) == (lower.paths, row.rank[:3])
    edge.round({}, [path_of(3)])
    below = row_at(edge.node, path_of(1))
    assert below.paths == (path_of(1), path_of(0))
    assert stands_above(row_at(edge.node, path_of(2)).rank, below.rank)


def test_of_names_that_no_database_gave_the_one_that_came_last_counts(edge: Edge) -> None:
    first, second, third, fourth, fifth = (path_of(1).replace("1-1-0", each) for each in "edcba")
    edge.round({first: ONE})
    edge.round({second: TWO})

    def stands() -> tuple[tuple[str, ...], bool]:
        mine = next(each for each in rows_of(edge.node) if each.first == 100)
        return mine.paths, stands_above(mine.rank, row_at(edge.node, second).rank)

    assert stands() == ((first,), False)
    edge.round({third: ONE}, [first])
    assert stands() == ((third,), False), "it was renamed"
    edge.round({fourth: ONE})
    assert stands() == ((fourth, third), True)
    edge.round({}, [fourth])
    edge.round({}, [third])
    edge.round({fifth: TWO})
    assert stands() == ((third,), False)
    edge.round({first: ONE})
    assert stands() == ((first,), True), "it came once more, when it was gone"


def test_names_that_change_places(edge: Edge) -> None:
    edge.round({path_of(1): ONE, path_of(2): TWO})
    one, two = row_at(edge.node, path_of(1)), row_at(edge.node, path_of(2))
    both = [path_of(1), path_of(2)]
    edge.round({path_of(1): TWO, path_of(2): ONE}, replaces=both)
    assert row_at(edge.node, path_of(1)).physical == two.physical
    assert row_at(edge.node, path_of(2)).physical == one.physical
    assert {(row.retired, row.visible) for row in rows_of(edge.node)} == {(False, True)}


def test_content_whose_bytes_are_gone_travels_again_and_keeps_its_looks(
    edge: Edge, world: World
) -> None:
    edge.round({path_of(1): ONE})
    before = row_at(edge.node, path_of(1))
    (world.data / before.physical).unlink()
    for path in (path_of(1), path_of(2)):
        task = edge.start()
        (decision,) = edge.plan(task, [plan_entry(path, ONE)])
        assert decision.action is wire.Action.SEND
    assert results(edge.round({path_of(1): ONE})) == {path_of(1): "loaded"}
    after = row_at(edge.node, path_of(1))
    assert after.physical != before.physical
    assert after.rank.first == before.rank.first
    assert (world.data / after.physical).read_bytes() == ONE


def test_a_retired_file_comes_back_under_another_name(edge: Edge) -> None:
    edge.round({path_of(1): ONE})
    edge.round({}, [path_of(1)])
    assert results(edge.round({path_of(5): ONE})) == {path_of(5): "already"}
    (row,) = rows_of(edge.node)
    assert (row.paths, row.retired, row.rank.last) == ((path_of(5),), False, NOW)


# -- last copies: links of files that are gone --------------------------------------------------


def send_copies(edge: Edge, copies: dict[str, int], propagate: wire.Propagate) -> dict[str, str]:
    """A task of links with one content, whose names are gone, or not where the look is 0."""
    files = dict.fromkeys(copies, ONE)
    task = edge.start(propagate=propagate)
    edge.plan(task, [plan_entry(path, content) for path, content in files.items()])
    edge.batch(task, files)
    edge.end(task, files, looks=dict.fromkeys(files, (7, 7)), copies=copies)
    return results(edge.outcome(task))


@pytest.fixture(params=[wire.Propagate.REPLACED, ALL])
def mode(request: pytest.FixtureRequest) -> wire.Propagate:
    found: wire.Propagate = request.param
    return found


def test_a_name_that_is_gone_ends_alone_where_the_bytes_come_again(
    edge: Edge, world: World, mode: wire.Propagate
) -> None:
    edge.round({path_of(1): ONE}, propagate=mode)
    edge.round({path_of(2): ONE}, propagate=mode)
    (world.data / row_at(edge.node, path_of(1)).physical).unlink()
    assert send_copies(edge, {path_of(1): 7}, mode) == {path_of(1): "loaded"}
    (row,) = (each for each in rows_of(edge.node) if each.visible)
    assert (row.paths, row.retired) == ((path_of(2),), False)


def test_a_name_that_is_gone_gives_what_stands_no_name(edge: Edge, mode: wire.Propagate) -> None:
    edge.round({path_of(1): ONE}, propagate=mode)
    assert send_copies(edge, {path_of(2): 7}, mode) == {path_of(2): "already"}
    assert row_at(edge.node, path_of(1)).paths == (path_of(1),)


@pytest.mark.parametrize(
    ("again", "last"), [(path_of(1, partition=3), 7), (path_of(1, inner=1), 5)]
)
def test_what_had_ended_does_not_come_back_by_a_link_of_it(
    edge: Edge, again: str, last: int
) -> None:
    edge.round({path_of(1): ONE})
    task = edge.start()
    edge.end(task, {}, [path_of(1)], last_looks=[5])
    edge.outcome(task)
    send_copies(edge, {again: 7}, wire.Propagate.REPLACED)
    (row,) = rows_of(edge.node)
    assert (row.retired, row.rank.last) == (True, last)


def test_the_end_of_a_listed_name_waits_like_any_other(edge: Edge, mode: wire.Propagate) -> None:
    edge.round({path_of(1): ONE}, propagate=mode)
    send_copies(edge, {path_of(1): 7}, mode)
    assert row_at(edge.node, path_of(1)).visible


def test_what_a_mirror_keeps_does_not_go_by_a_link_of_it(edge: Edge) -> None:
    edge.round({path_of(1): ONE})
    task = edge.start(propagate=ALL, settle=False)  # what is gone by then is only retired
    edge.end(task, {}, [path_of(1)])
    edge.outcome(task)
    send_copies(edge, {path_of(1, partition=3): 7}, ALL)
    (row,) = rows_of(edge.node)
    assert (row.retired, row.visible) == (True, True)


def test_files_without_points_are_told_apart_by_their_paths(edge: Edge) -> None:
    empty = build({"root.sg.d1": {"s1": []}}, types={"s1": "INT64"})
    edge.round({path_of(1): empty})
    assert results(edge.round({path_of(2): empty})) == {path_of(2): "loaded"}
    assert len(rows_of(edge.node)) == 2


def test_nobody_elses_content_is_a_name_of_ones_own(edge: Edge) -> None:
    other = Edge(edge.node, B)
    other.round({path_of(1): tsfile("root.sg.b")})
    task = edge.start()
    (decision,) = edge.plan(task, [plan_entry(path_of(2), tsfile("root.sg.b"))])
    assert decision.action is wire.Action.CONFLICT


# -- products and ends ------------------------------------------------------------------------


def test_products_and_ends_of_a_partition_go_together_or_not_at_all(edge: Edge) -> None:
    edge.round({path_of(1): ONE, path_of(2): TWO})
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    files = {
        path_of(3): tsfile(first=300),
        path_of(1, inner=1): tsfile(first=100, salt=1),
        path_of(2, inner=1): tsfile("root.sg.b", salt=1),
    }
    outcome = edge.round(files, [path_of(1), path_of(2)])
    assert results(outcome) == {
        path_of(3): "loaded",
        path_of(1, inner=1): "held",
        path_of(1): "held",
        path_of(2): "held",
    }
    reason = outcome[path_of(1)].reason
    assert reason is not None
    assert path_of(2, inner=1) in reason
    del files[path_of(2, inner=1)]
    again = edge.round(files, [path_of(1), path_of(2)])
    assert results(again)[path_of(1, inner=1)] == "loaded"
    assert results(again)[path_of(1)] == "retired"


def test_an_original_in_conflict_holds_ends_in_a_mirror_only(edge: Edge) -> None:
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    foreign = {path_of(2): tsfile("root.sg.b", salt=1)}
    edge.round({path_of(1): ONE}, propagate=ALL)
    assert results(edge.round(foreign, [path_of(1)], propagate=ALL)) == {path_of(1): "held"}
    assert results(edge.round(foreign, [path_of(1)])) == {path_of(1): "retired"}


def test_an_end_outside_of_the_tokens_scope_is_held(node: Node) -> None:
    wide = Edge(node)
    wide.check()
    wide.round({path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile("root.sg.d2")})
    narrow = Edge(node, who=sender(A, scope=["root.sg.d2"]))
    narrow.epoch, narrow.last_task, narrow.mode = wide.epoch, wide.last_task, wide.mode
    outcome = narrow.round({}, [path_of(1), path_of(2)])
    assert results(outcome) == {path_of(1): "held", path_of(2): "retired"}
    assert outcome[path_of(1)].device == "root.sg.d1"


# -- content outside of the token's scope ---------------------------------------------------------


@pytest.fixture
def narrow(node: Node) -> Edge:
    """A sender that has a file, and whose token is limited to another storage group by now."""
    wide = Edge(node)
    wide.check()
    wide.round({path_of(1): ONE})
    edge = Edge(node, who=sender(A, scope=["root.other.**"]))
    edge.epoch, edge.last_task, edge.mode = wide.epoch, wide.last_task, wide.mode
    return edge


@pytest.mark.parametrize("path", [path_of(1), path_of(2, sg="root.other")])
def test_a_plan_does_not_tell_of_content_outside_of_the_scope(narrow: Edge, path: str) -> None:
    task = narrow.start()
    told = plan_entry(path, ONE)
    plan = [told, msgspec.structs.replace(told, devices=[]), plan_entry(path, TWO)]
    plan[2] = msgspec.structs.replace(plan[2], devices=[])
    found = [narrow.plan(task, [each])[0] for each in plan]
    assert [each.action for each in found[:2]] == [wire.Action.REFUSED, wire.Action.SEND]
    assert not any(each.md5 or hashlib.md5(ONE).hexdigest() in str(each) for each in found)


@pytest.mark.parametrize("sent", [False, True])
def test_content_outside_of_the_scope_gets_no_name(narrow: Edge, sent: bool) -> None:
    path = path_of(2, sg="root.other")
    task = narrow.start()
    narrow.plan(task, [plan_entry(path, ONE, devices=[])])
    if sent:
        narrow.batch(task, {path: ONE})
    narrow.end(task, {path: ONE})
    assert results(narrow.outcome(task)) == {path: "refused" if sent else "missing"}
    assert row_at(narrow.node, path_of(1)).paths == (path_of(1),)


# -- what a sender's word takes away ----------------------------------------------------------


def test_what_is_gone_when_a_sender_becomes_a_mirror_is_retired(edge: Edge) -> None:
    edge.round({path_of(1): ONE, path_of(2): TWO})
    task = edge.start(propagate=ALL, settle=False)
    edge.end(task, {}, [path_of(1)])
    assert results(edge.outcome(task)) == {path_of(1): "retired"}
    assert results(edge.round({}, [path_of(2)], propagate=ALL)) == {path_of(2): "deleted"}


@pytest.mark.parametrize("since", [False, True])
def test_what_was_gone_before_is_retired_in_whatever_round_it_is_told(
    edge: Edge, since: bool
) -> None:
    edge.round({path_of(1): ONE})
    before = edge.check().look
    changed = edge.check().look + 1
    task = edge.start(propagate=ALL, settle=False, look=changed)
    edge.end(task, {})  # the end of what was gone was held
    edge.outcome(task)
    task = edge.start(propagate=ALL, settle=False)
    edge.end(task, {}, [path_of(1)], last_looks=[changed if since else before])
    word = "deleted" if since else "retired"
    assert results(edge.outcome(task)) == {path_of(1): word}


def test_a_copy_that_was_gone_before_stays_as_well(edge: Edge) -> None:
    before = edge.check().look
    edge.round({path_of(1): TWO})
    task = edge.start(propagate=ALL, settle=False)
    edge.end(task, {})
    edge.outcome(task)
    send_copies(edge, {path_of(2): before}, ALL)
    (row,) = (row for row in rows_of(edge.node) if row.path == path_of(2))
    assert (row.retired, row.visible) == (True, True)


def test_an_upload_without_a_task_says_nothing_of_what_is_gone(edge: Edge) -> None:
    edge.round({path_of(1): ONE}, propagate=ALL)
    edge.upload(None, path_of(2), TWO)
    assert len(rows_of(edge.node)) == 2
    with edge.node.engine.reading() as state:
        assert state.senders[A].propagate is ALL
    assert results(edge.round({}, [path_of(1)], propagate=ALL)) == {path_of(1): "deleted"}


def test_a_name_that_ends_in_a_mirror_deletes_nothing_that_has_another(edge: Edge) -> None:
    edge.round({path_of(1): ONE}, propagate=ALL)
    edge.round({path_of(2): ONE}, [path_of(1)], propagate=ALL)
    (row,) = rows_of(edge.node)
    assert (row.paths, row.visible) == ((path_of(2),), True)


def test_what_a_list_that_begins_anew_lacks_had_ended_before_its_look(edge: Edge) -> None:
    edge.round({path_of(1): ONE})
    accept_sender(edge.node.engine, A)
    edge.check()
    look = latest_look(edge.node.engine) - 1
    task = edge.start(anew=True, look=look)
    edge.end(task, {}, [path_of(1)], last_looks=[7])  # a look of the copy's
    edge.outcome(task)
    (row,) = rows_of(edge.node)
    assert (row.retired, row.rank.last) == (True, look - 1)


def test_looks_stand_in_the_row(edge: Edge, tmp_path: Path) -> None:
    task = edge.start()
    edge.plan(task, [plan_entry(path_of(1), ONE)])
    edge.batch(task, {path_of(1): ONE})
    edge.end(task, {path_of(1): ONE}, looks={path_of(1): (7, 9)})
    edge.outcome(task)
    rank = row_at(edge.node, path_of(1)).rank
    assert (rank.first, rank.closed, rank.last) == (7, 9, NOW)
    task = edge.start()
    edge.end(task, {}, [path_of(1)], last_looks=[11])
    edge.outcome(task)
    (row,) = rows_of(edge.node)
    assert row.rank.last == 11
