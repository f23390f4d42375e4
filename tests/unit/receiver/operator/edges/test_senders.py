from __future__ import annotations

import pytest

from common.errors import CloneError, NotFoundError
from common.wire import Action
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.edges.senders import accept_all, accept_sender, list_senders, remove_sender
from receiver.operator.edges.tokens import make_token
from tests.support.node_world import OPERATOR, A, B, Edge, path_of, plan_entry, results, tsfile

FILES = {path_of(n): tsfile(f"root.sg.d{n}", first=n * 100) for n in (1, 2)}


def test_a_sender_that_was_never_here_is_not_found(node: Node) -> None:
    with pytest.raises(NotFoundError):
        accept_sender(node.engine, A)
    with pytest.raises(NotFoundError):
        remove_sender(node.operator, OPERATOR, A)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    edge.round(FILES)
    return edge


def test_of_a_removed_sender_the_data_stays_and_nothing_else(edge: Edge) -> None:
    node = edge.node
    make_token(node.engine, records.SENDER, sender=A)
    open_task = edge.start()
    answer = remove_sender(node.operator, OPERATOR, A)
    assert (answer.tokens, answer.devices, answer.retired, answer.files) == (1, 2, 2, 2)
    with node.engine.reading() as state:
        assert not state.owners
        assert not state.tokens
        assert [row.visible and row.retired for row in state.files.values()] == [True, True]
    with pytest.raises(CloneError, match="removed by an operator"):
        edge.plan(open_task, [])
    with pytest.raises(CloneError, match="removed by an operator"):
        edge.start()
    assert [each.removed for each in list_senders(node.engine)] == [True]
    again = remove_sender(node.operator, OPERATOR, A)
    assert (again.tokens, again.devices, again.retired, again.files) == (0, 0, 0, 2)


def test_a_removed_sender_comes_again_only_if_it_is_accepted(edge: Edge) -> None:
    remove_sender(edge.node.operator, OPERATOR, A)
    assert accept_all(edge.node.engine) == [], "who was removed is not let in with the others"
    accept_sender(edge.node.engine, A)
    assert results(edge.round(FILES)) == dict.fromkeys(FILES, "already")


def test_all_senders_are_accepted_at_once(edge: Edge) -> None:
    other = Edge(edge.node, B)
    other.check()
    other.round({path_of(3): tsfile("root.sg.d3")})
    edge.epoch = other.epoch = "1.0"
    with pytest.raises(CloneError):
        edge.start()
    assert sorted(accept_all(edge.node.engine)) == [A, B]
    assert restored(edge) == [False, False], "the receiver was restored: no list begins anew"
    edge.start()
    other.start()
    accept_sender(edge.node.engine, B)
    assert restored(edge) == [False, True]


def restored(edge: Edge) -> list[bool]:
    with edge.node.engine.reading() as state:
        return [state.senders[each].restored > 0 for each in (A, B)]


def test_somebody_elses_content_is_refused_as_that_with_the_way_out(edge: Edge) -> None:
    """A box that was replaced and not adopted, or two senders that read one directory."""
    other = Edge(edge.node, B)
    other.check()
    task = other.start()
    path, content = path_of(1), FILES[path_of(1)]
    foreign = tsfile("root.sg.d1", first=7)
    same, else_ = other.plan(task, [plan_entry(path, content), plan_entry(path_of(9), foreign)])
    assert (same.action, else_.action) == (Action.CONFLICT, Action.CONFLICT)
    assert "this very content is here already" in (same.reason or "")
    assert "senders adopt" in (same.reason or "")
    assert "very content" not in (else_.reason or "")
