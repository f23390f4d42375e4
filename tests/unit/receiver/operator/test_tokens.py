from __future__ import annotations

import pytest

from common.errors import NotFoundError, TsferryError
from receiver.node import Node
from receiver.operator.tokens import hash_token, list_tokens, make_token, revoke_token
from tests.support.node_world import (
    A,
    World,
)


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
    ],
)
def test_a_token_that_makes_no_sense_is_refused(node: Node, more: dict[str, object]) -> None:
    with pytest.raises(TsferryError):
        make_token(node.engine, **more)  # type: ignore[arg-type]
    assert list_tokens(node.engine) == []


def test_a_token_that_is_none_is_not_found(node: Node) -> None:
    with pytest.raises(NotFoundError):
        revoke_token(node.engine, "x")
