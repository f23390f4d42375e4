from __future__ import annotations

import pytest

from common.errors import ConflictError, NotFoundError, TsferryError, UsageError
from receiver.metadata.model.centre_source import centre_uuid
from receiver.node import Node
from receiver.operator.edges.senders import remove_sender
from receiver.operator.edges.tokens import hash_token, list_tokens, make_token, revoke_token
from tests.support.node_world import OPERATOR, A, Edge, World, path_of, tsfile


def test_a_token_is_shown_once_and_kept_as_a_hash(node: Node, world: World) -> None:
    made = make_token(
        node.engine, "sender", sender=A, scope=["root.a.**"], note="site A", expires=5.0
    )
    with node.engine.reading() as state:
        row = state.token_table.by_hash(hash_token(made.token))
    assert row is not None
    assert (row.id, row.sender, row.scope) == (made.id, A, ("root.a.**",))
    for file in (world.root / "schema").rglob("*"):
        assert not file.is_file() or made.token.encode() not in file.read_bytes()
    (view,) = list_tokens(node.engine)
    assert view.note == "site A"
    revoke_token(node.engine, made.id)
    assert list_tokens(node.engine) == []


@pytest.mark.parametrize(
    "more",
    [
        {"role": "king"},
        {"role": "sender"},
        {"role": "reader", "sender": A},
        {"role": "sender", "sender": "../x"},
        {"role": "reader", "scope": ["root.**"]},
        {"role": "sender", "sender": A, "scope": ["root..x"]},
        {"role": "sender", "sender": A, "owners": [A]},
        {"role": "reader", "owners": ["*"]},
        {"role": "reader", "allow_deletes": False},
        {"role": "writer", "sender": A},
        {"role": "writer", "owners": ["nobody"]},
    ],
)
def test_a_token_that_makes_no_sense_is_refused(node: Node, more: dict[str, object]) -> None:
    with pytest.raises(TsferryError):
        make_token(node.engine, **more)  # type: ignore[arg-type]
    assert list_tokens(node.engine) == []


def test_a_token_that_is_none_is_not_found(node: Node) -> None:
    with pytest.raises(NotFoundError):
        revoke_token(node.engine, "x")


def test_a_writers_token_is_bound_to_uuids_whatever_they_are_called_later(node: Node) -> None:
    centre = centre_uuid(node.engine.uuid)
    Edge(node).round({path_of(1): tsfile()})
    made = make_token(
        node.engine, "writer", owners=[A, "centre", A], scope=["root.sg.**"], allow_deletes=False
    )
    assert (made.owners, made.scope, made.allow_deletes) == ([A, centre], ["root.sg.**"], False)
    assert make_token(node.engine, "writer").owners == [centre]
    assert make_token(node.engine, "writer", owners=["*"]).owners == ["*"]
    first, *_ = list_tokens(node.engine)
    assert (first.owners, first.allow_deletes) == ([A, centre], False)


def test_tokens_of_writers_are_there_after_a_restart_and_go_with_their_sender(world: World) -> None:
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        alone = make_token(node.engine, "writer", owners=[A])
        other = make_token(node.engine, "writer", owners=[A, "centre"], scope=["root.**"])
        node.engine.checkpoint()
    with world.node() as node:
        rows = {each.id: (each.owners, each.scope) for each in list_tokens(node.engine)}
        assert rows == {each.id: (each.owners, each.scope) for each in (alone, other)}
        remove_sender(node.operator, OPERATOR, A)
        assert [each.id for each in list_tokens(node.engine)] == [other.id]


def test_a_certificate_is_bound_once_and_is_free_again_when_it_is_revoked(world: World) -> None:
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        made = make_token(node.engine, "sender", sender=A, certificate="Edge7.example")
        assert (made.token, made.certificate) == ("", "edge7.example")
        node.engine.checkpoint()
    with world.node() as node:
        with pytest.raises(ConflictError, match=made.id):
            make_token(node.engine, "operator", certificate="EDGE7.example")
        (view,) = list_tokens(node.engine)
        assert view.certificate == "edge7.example"
        assert remove_sender(node.operator, OPERATOR, A).tokens == 1
        other = make_token(node.engine, "operator", certificate="edge7.example")
    with world.node() as node:  # by the log
        with node.engine.reading() as state:
            row = state.token_table.by_certificate("edge7.example")
        assert row is not None
        assert (row.id, row.role) == (other.id, "operator")


@pytest.mark.parametrize(
    "name",
    [
        *("", "*.example", "a..b", "a b", "10.0.0.7", "a.example.", "\u00e9.example", "x" * 64),
        *("a\0b", "spiffe:", "a:\u00e9", "://x", "a@b.example", "a.example/b"),
    ],
)
def test_what_no_certificate_is_known_by_is_not_bound(node: Node, name: str) -> None:
    with pytest.raises(UsageError, match="no name of a certificate"):
        make_token(node.engine, "operator", certificate=name)
