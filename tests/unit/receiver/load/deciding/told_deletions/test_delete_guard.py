"""What a sender may delete within a window, and what is held until an operator decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common import wire
from common.errors import NotFoundError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.timestamps import from_seconds
from receiver.metadata.query.applied_deletions import applied_deletions
from receiver.node import Node
from receiver.operator.edges.tokens import make_token
from receiver.operator.status import running_status
from receiver.operator.stored.deletes import (
    allow_held_deletes,
    drop_held_deletes,
    list_held_deletes,
)
from receiver.operator.stored.files import list_files
from tests.support.node_world import (
    A,
    Clock,
    Edge,
    World,
    path_of,
    plan_entry,
    results,
    sender,
    tsfile,
)
from tests.support.tsfile_bytes import build

ALL, REPLACED = wire.Propagate.ALL, wire.Propagate.REPLACED
DAY = 86_400
FAR = from_seconds(Clock().now) + 1_000_000
"""A look behind all of a test."""


@pytest.fixture
def guarded(tmp_path: Path) -> World:
    return World(tmp_path, deletes={})


@pytest.fixture
def node(guarded: World) -> Iterator[Node]:
    with guarded.node() as node:
        yield node


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def load(edge: Edge, count: int, *, sg: str = "root.sg") -> list[str]:
    files = {
        path_of(n, sg=sg): tsfile(f"{sg}.d1", first=n * 10, salt=n) for n in range(1, count + 1)
    }
    outcome = edge.round(files, propagate=ALL)
    assert set(results(outcome).values()) == {"loaded"}
    return list(files)


def visible(node: Node) -> set[str]:
    return {each.path for each in list_files(node.operator).files if each.state == "live"}


def gone(edge: Edge, paths: list[str]) -> set[str]:
    """The results of telling these as gone."""
    return set(results(edge.round({}, paths, propagate=ALL)).values())


def digests(node: Node) -> list[str]:
    return [each.digest for each in list_held_deletes(node.engine)]


def test_half_of_a_group_may_go_and_no_more(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    assert gone(edge, paths[:5]) == {"deleted"}
    outcome = edge.round({}, paths[5:6], propagate=ALL)[paths[5]]
    assert outcome.result == "held"
    assert outcome.reason is not None
    assert "max_fraction" in outcome.reason
    (held,) = list_held_deletes(node.engine)
    assert held.digest in outcome.reason
    assert (held.files, held.group, held.sender) == (paths[5:6], "root.sg", A)
    assert visible(node) == set(paths[5:])


def test_fewer_than_ten_files_may_go_but_the_last_one_may_not(edge: Edge, node: Node) -> None:
    paths = load(edge, 4)
    assert gone(edge, paths[:3]) == {"deleted"}
    assert gone(edge, paths[3:]) == {"held"}
    assert visible(node) == set(paths[3:])


def test_groups_are_counted_apart(edge: Edge, node: Node) -> None:
    paths, others = load(edge, 10), load(edge, 10, sg="root.other")
    assert gone(edge, [*paths[:5], *others[:2]]) == {"deleted"}
    outcome = edge.round({}, [paths[5], others[2]], propagate=ALL)  # 8 of all 20 together
    assert results(outcome) == {paths[5]: "held", others[2]: "deleted"}


def test_a_window_ends_by_the_times_of_commits_and_what_is_held_stays_held(
    guarded: World, edge: Edge, node: Node
) -> None:
    paths = load(edge, 40)
    assert gone(edge, paths[:20]) == {"deleted"}
    assert gone(edge, paths[20:22]) == {"held"}
    assert isinstance(guarded.clock, Clock)
    guarded.clock.now += DAY
    edge.check()
    assert gone(edge, paths[22:30]) == {"deleted"}
    assert gone(edge, paths[20:22]) == {"held"}
    assert len(digests(node)) == 1


def test_the_list_that_was_let_through_is_deleted_when_it_is_told_once_more(
    edge: Edge, node: Node
) -> None:
    paths = load(edge, 10)
    assert gone(edge, paths[:8]) == {"held"}
    (digest,) = digests(node)
    allow_held_deletes(node.engine, digest)
    assert visible(node) == set(paths)
    assert gone(edge, paths[:8]) == {"deleted"}
    assert visible(node) == set(paths[8:])
    assert digests(node) == []


def test_another_list_has_another_digest_and_is_not_let_through_with_it(
    edge: Edge, node: Node
) -> None:
    paths = load(edge, 10)
    gone(edge, paths[:7])
    (first,) = digests(node)
    gone(edge, paths[:8])
    (second,) = digests(node)
    assert first != second
    with pytest.raises(NotFoundError):
        allow_held_deletes(node.engine, first)
    gone(edge, paths[:7])
    assert digests(node) == [first]
    allow_held_deletes(node.engine, first)
    outcome = results(edge.round({}, paths[:8], propagate=ALL))
    assert {path for path, result in outcome.items() if result == "held"} == {paths[7]}
    assert visible(node) == set(paths[7:])


def test_what_came_back_after_it_was_let_through_is_judged_anew(edge: Edge, node: Node) -> None:
    paths = load(edge, 12)
    gone(edge, paths[:8])
    (digest,) = digests(node)
    allow_held_deletes(node.engine, digest)
    assert gone(edge, paths[:7]) == {"deleted"}  # the eighth is there again
    assert gone(edge, paths[7:8]) == {"held"}


def test_a_list_that_was_dropped_is_retired(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    gone(edge, paths[:8])
    (digest,) = digests(node)
    drop_held_deletes(node.engine, digest)
    assert gone(edge, paths[:8]) == {"retired"}
    states = [each.state for each in list_files(node.operator).files]
    assert sorted(states) == ["live"] * 2 + ["retired"] * 8


def test_what_a_compaction_of_the_same_commit_spans_is_not_counted(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    product = path_of(1, inner=1)
    outcome = edge.round({product: tsfile("root.sg.d1", first=10, points=95)}, paths, propagate=ALL)
    assert set(results(outcome).values()) == {"loaded", "deleted"}
    assert visible(node) == {product}


def test_a_compaction_that_spans_less_explains_nothing(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    product = path_of(1, inner=1)
    outcome = edge.round({product: tsfile("root.sg.d1", first=70, points=35)}, paths, propagate=ALL)
    held = {path for path, result in results(outcome).items() if result == "held"}
    assert held == set(paths[:6])
    (digest,) = digests(node)
    allow_held_deletes(node.engine, digest)
    edge.round({}, paths[:6], propagate=ALL)
    outcome = edge.round({}, [product], propagate=ALL)
    assert results(outcome) == {product: "held"}  # the last file


@pytest.mark.parametrize(("points", "counted"), [(2, True), (24, True), (25, False), (90, False)])
def test_a_compaction_that_has_few_of_the_points_explains_nothing(
    edge: Edge, node: Node, points: int, counted: bool
) -> None:
    paths = load(edge, 10)  # 50 points, from 10 to 104
    product = path_of(1, inner=1)
    times = [10, *range(11, 9 + points), 104]
    content = build({"root.sg.d1": {"s1": [(time, 1) for time in times]}})
    outcome = results(edge.round({product: content}, paths, propagate=ALL))
    assert outcome.pop(product) == "loaded"
    assert set(outcome.values()) == {"held" if counted else "deleted"}


def test_a_file_that_goes_on_under_another_name_is_not_counted(edge: Edge, node: Node) -> None:
    (path,) = load(edge, 1)
    other = path_of(7)
    outcome = edge.round({other: tsfile("root.sg.d1", first=10, salt=1)}, [path], propagate=ALL)
    assert results(outcome) == {other: "already", path: "deleted"}
    assert digests(node) == []


def test_the_other_modes_delete_nothing_and_nothing_is_held(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    edge.round({}, propagate=REPLACED)
    assert set(results(edge.round({}, paths, propagate=REPLACED)).values()) == {"retired"}
    assert digests(node) == []


def test_a_token_that_forbids_deletes_holds_them_and_an_operator_may_let_them_through(
    node: Node,
) -> None:
    token = make_token(node.engine, "sender", sender=A, allow_deletes=False)
    edge = Edge(node, who=sender(token=token.id))
    edge.check()
    paths = load(edge, 20)
    outcome = edge.round({}, paths[:1], propagate=ALL)[paths[0]]
    assert (outcome.result, "forbids" in (outcome.reason or "")) == ("held", True)
    allow_held_deletes(node.engine, digests(node)[0])
    assert gone(edge, paths[:1]) == {"deleted"}


def test_what_is_held_outlives_a_restart_and_a_checkpoint(guarded: World) -> None:
    with guarded.node() as node:
        edge = Edge(node)
        edge.check()
        paths = load(edge, 10)
        gone(edge, paths[:5])
        gone(edge, paths[5:7])
        before = list_held_deletes(node.engine)
        node.engine.checkpoint()
    with guarded.node() as node:
        assert list_held_deletes(node.engine) == before
        edge.node = node
        assert gone(edge, paths[7:8]) == {"held"}  # the window is the same
        allow_held_deletes(node.engine, digests(node)[0])
    with guarded.node() as node:
        edge.node = node
        assert gone(edge, paths[7:8]) == {"deleted"}


def test_status_and_health_say_that_something_is_held(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    assert node.concerns() == []
    gone(edge, paths)
    assert running_status(node.operator, None).held_deletes == 1
    assert node.concerns() == [
        "1 list of deletes is held: `tsferry-receiver deletes list` says what"
    ]


# -- deletion files --------------------------------------------------------------------------------


def tell(
    edge: Edge, path: str, line: str, *, floor: int = 0, base: int = 0, applied: bool = True
) -> int:
    task = edge.start(propagate=edge.mode or REPLACED)
    content = line.encode()
    part = wire.DeletionsPart(
        path=path, form="mods", base=base, content=content, floor=floor, applied=applied
    )
    page = wire.DeletionsPage(parts=[part])
    edge.node.tasks.deletions(edge.who, edge.uuid, task, edge.epoch, page)
    edge.end(task, {})
    edge.outcome(task)
    return base + len(content)


def hidden(node: Node) -> list[bool]:
    with node.engine.reading() as state:
        return [each.applied for row in state.deletion_table for each in row.segments]


EVERYTHING = f"DELETION,root.sg.d1.*,{2**63 - 1},{-(2**63)},{2**63 - 1}\n"
A_PART = f"DELETION,root.sg.d1.*,{2**63 - 1},10,12\n"


def test_records_that_hide_a_part_of_files_are_applied(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    tell(edge, paths[0], A_PART)
    assert hidden(node) == [True]
    assert digests(node) == []


def test_records_that_hide_too_many_files_whole_wait_until_they_are_let_through(
    edge: Edge, node: Node
) -> None:
    paths = load(edge, 10)
    tell(edge, paths[0], EVERYTHING, floor=FAR)
    assert hidden(node) == [False]
    (held,) = list_held_deletes(node.engine)
    assert (held.records, held.files) == (True, paths)
    before = node.engine.newest_commit
    allow_held_deletes(node.engine, held.digest)
    with node.engine.reading() as state:
        (segment,) = [each for row in state.deletion_table for each in row.segments]
    assert segment.applied
    assert segment.commit > before  # who asks for an earlier time sees the points
    assert digests(node) == []


def test_records_that_hide_all_of_one_group_wait_however_many_files_others_have(
    edge: Edge, node: Node
) -> None:
    paths = load(edge, 10)
    load(edge, 30, sg="root.other")
    tell(edge, paths[0], EVERYTHING, floor=FAR)  # a quarter of all
    assert hidden(node) == [False]
    (held,) = list_held_deletes(node.engine)
    assert (held.group, held.files) == ("root.sg", paths)


def test_records_that_were_dropped_never_hide(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    tell(edge, paths[0], EVERYTHING, floor=FAR)
    drop_held_deletes(node.engine, digests(node)[0])
    tell(edge, paths[0], EVERYTHING, floor=FAR)
    assert hidden(node) == [False]
    assert digests(node) == []


def only_kept(node: Node) -> list[tuple[bool, bool | None]]:
    with node.engine.reading() as state:
        return [(each.applied, each.kept) for row in state.deletion_table for each in row.segments]


def test_what_was_only_kept_is_applied_from_the_commit_on_that_is_told_so(guarded: World) -> None:
    with guarded.node() as node:
        edge = Edge(node)
        edge.check()
        paths = load(edge, 10)
        size = tell(edge, paths[0], A_PART)
        tell(edge, paths[0], A_PART, base=size, applied=False)
        tell(edge, paths[1], A_PART, applied=False)
        tell(edge, paths[1], A_PART, applied=False)
        node.engine.checkpoint()
    with guarded.node() as node:
        edge.node = node
        assert only_kept(node) == [(True, None), (False, True), (False, True)]
        tell(edge, paths[1], A_PART)
        assert only_kept(node) == [(True, None), (False, True), (True, None)]
        before = node.engine.newest_commit
        tell(edge, paths[0], A_PART + A_PART + A_PART)
        with node.engine.reading() as state:
            (row,) = state.deletion_table.of_file(state.file_table.held(A, paths[0]).physical)  # type: ignore[union-attr]
            assert [each.commit > before for each in row.segments] == [False, True, True]
            assert len(list(applied_deletions([row], before))) == 1
            assert len(list(applied_deletions([row], state.newest))) == 3
        node.engine.checkpoint()
    with guarded.node() as node:
        assert [each for each, _ in only_kept(node)] == [True] * 4
        assert digests(node) == []


def test_a_part_of_what_was_kept_together_does_not_apply_it(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    tell(edge, paths[0], A_PART + A_PART, applied=False)
    tell(edge, paths[0], A_PART)
    assert hidden(node) == [False]
    tell(edge, paths[0], A_PART * 2)
    assert hidden(node) == [True]


def test_what_was_kept_of_a_file_to_come_applies_when_it_comes(edge: Edge, node: Node) -> None:
    load(edge, 10)
    path, content = path_of(11), tsfile(first=110, salt=11)
    tell(edge, path, A_PART, applied=False)
    task = edge.start(propagate=ALL)
    edge.plan(task, [plan_entry(path, content)])
    part = wire.DeletionsPart(path=path, form="mods", base=0, content=A_PART.encode(), floor=0)
    page = wire.DeletionsPage(parts=[part])
    edge.node.tasks.deletions(edge.who, edge.uuid, task, edge.epoch, page)
    edge.batch(task, {path: content})
    edge.end(task, {path: content})
    assert results(edge.outcome(task)) == {path: "loaded"}
    assert hidden(node) == [True]


def test_what_a_task_tells_to_be_kept_and_then_to_be_applied_is_applied(
    edge: Edge, node: Node
) -> None:
    paths = load(edge, 10)
    task = edge.start(propagate=ALL)
    for applied in (False, True):  # its sender died in between, and goes on with another mode
        part = wire.DeletionsPart(
            path=paths[0], form="mods", base=0, content=A_PART.encode(), floor=0, applied=applied
        )
        page = wire.DeletionsPage(parts=[part])
        edge.node.tasks.deletions(edge.who, edge.uuid, task, edge.epoch, page)
    edge.end(task, {})
    edge.outcome(task)
    assert only_kept(node) == [(True, None)]


@pytest.mark.parametrize("verdict", [allow_held_deletes, drop_held_deletes])
def test_what_was_kept_and_hides_too_much_is_held(
    edge: Edge, node: Node, verdict: Callable[[Engine, str], object]
) -> None:
    paths = load(edge, 10)
    tell(edge, paths[0], EVERYTHING, floor=FAR, applied=False)
    assert digests(node) == []
    for _ in range(2):
        tell(edge, paths[0], EVERYTHING, floor=FAR)
        assert hidden(node) == [False]
        (held,) = list_held_deletes(node.engine)
        assert (held.records, held.files) == (True, paths)
    verdict(node.engine, held.digest)
    tell(edge, paths[0], EVERYTHING, floor=FAR)
    assert hidden(node) == [verdict is allow_held_deletes]
    assert digests(node) == []


def test_what_was_kept_counts_in_the_window(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    for path in paths[:3]:
        tell(edge, path, EVERYTHING, applied=False)
    for path in paths[:6]:
        tell(edge, path, EVERYTHING)
    assert hidden(node) == [True] * 5 + [False]
    assert len(digests(node)) == 1


def test_what_an_earlier_version_noted_waits_for_an_operator(edge: Edge, node: Node) -> None:
    paths = load(edge, 10)
    with node.engine.reading() as state:
        physical = state.file_table.held(A, paths[0]).physical  # type: ignore[union-attr]
    note = records.DeletionsNoted(
        A, paths[0], physical, "mods", 0, A_PART.encode(), 0, applied=False
    )
    node.engine.commit([note])
    tell(edge, paths[0], A_PART)
    assert hidden(node) == [False]
    (held,) = list_held_deletes(node.engine)
    assert "did not note whether an operator" in held.reason
    allow_held_deletes(node.engine, held.digest)
    assert hidden(node) == [True]


def test_records_of_series_count_when_all_of_a_device_are_named(edge: Edge, node: Node) -> None:
    (path,) = load(edge, 1)
    tell(edge, path, f"DELETION,root.sg.d1.s1,{2**63 - 1},{-(2**63)},{2**63 - 1}\n")
    assert hidden(node) == [False]  # the last file


def test_a_file_of_which_nothing_is_to_be_seen_any_more_is_not_counted_again(
    edge: Edge, node: Node
) -> None:
    paths = load(edge, 10)
    for number in range(5):
        first = (number + 1) * 10
        tell(edge, paths[number], f"DELETION,root.sg.d1.*,{2**63 - 1},{first},{first + 9}\n")
    assert digests(node) == []
    assert gone(edge, paths[:5]) == {"deleted"}
    assert gone(edge, paths[5:6]) == {"held"}


def test_retired_files_are_hidden_as_little_as_listed_ones(edge: Edge, node: Node) -> None:
    paths = load(edge, 12)
    edge.round({}, paths[1:], propagate=REPLACED)  # one is listed
    tell(edge, paths[0], f"DELETION,root.sg.d1.*,{2**63 - 1},10,89\n", floor=FAR)
    assert hidden(node) == [False]
    assert list_held_deletes(node.engine)[0].files == paths[:8]


def test_records_told_with_a_token_that_forbids_deletes_are_held(node: Node) -> None:
    token = make_token(node.engine, "sender", sender=A, allow_deletes=False)
    edge = Edge(node, who=sender(token=token.id))
    edge.check()
    paths = load(edge, 10)
    tell(edge, paths[0], A_PART)
    assert hidden(node) == [False]
    allow_held_deletes(node.engine, digests(node)[0])
    assert hidden(node) == [True]


def test_records_that_hide_points_outside_of_the_scope_are_held(edge: Edge, node: Node) -> None:
    load(edge, 3)
    (path,) = load(edge, 1, sg="root.b")
    edge.who = sender(scope=["root.b.**"])
    tell(edge, path, f"DELETION,root.**,{2**63 - 1},0,12\n", floor=FAR)
    assert hidden(node) == [True]  # which reaches nothing of the other storage group
    tell(edge, path_of(1), A_PART)
    assert hidden(node) == [True, False]
    (held,) = list_held_deletes(node.engine)
    assert (held.group, held.files) == ("root.sg", [path_of(1)])
    assert "scope" in held.reason


def test_held_records_outlive_a_checkpoint_and_a_file_that_comes_again(guarded: World) -> None:
    with guarded.node() as node:
        edge = Edge(node)
        edge.check()
        paths = load(edge, 10)
        tell(edge, paths[0], EVERYTHING, floor=FAR)
        (digest,) = digests(node)
        node.engine.checkpoint()
    with guarded.node() as node:
        assert digests(node) == [digest]
        assert hidden(node) == [False]
        allow_held_deletes(node.engine, digest)
    with guarded.node() as node:
        assert hidden(node) == [True]


def test_held_records_are_told_by_the_task_and_by_each_check_until_somebody_decides(
    edge: Edge, node: Node
) -> None:
    def told() -> list[list[wire.HeldRecords]]:
        assert edge.last_task is not None
        answer = node.tasks.answer(edge.who, edge.uuid, edge.last_task.task)
        return [answer.held_records, edge.check().held_records]

    paths = load(edge, 10)
    assert gone(edge, paths[:9]) == {"held"}  # ends are told by outcomes
    assert told() == [[], []]
    tell(edge, paths[0], EVERYTHING, floor=FAR)
    (list_of_records,) = [each for each in list_held_deletes(node.engine) if each.records]
    first, second = told()
    assert first == second
    (held,) = first
    assert (held.group, held.files) == ("root.sg", 10)
    assert f"deletes allow {list_of_records.digest}" in held.reason
    allow_held_deletes(node.engine, list_of_records.digest)
    assert told() == [[], []]
