"""Tables over HTTP: made, altered and asked about by operators alone."""

from __future__ import annotations

import msgspec
import pytest

from receiver.operator.edges.tokens import make_token
from receiver.operator.views.table_views import TableChange, TableRequest, TableStanding
from receiver.web.sql_wire import SqlRequest

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def ask(client, operator):
    def ask(method, path, body=None, code=200, headers=None):
        answer = client.open(
            path,
            method=method,
            data=None if body is None else msgspec.json.encode(body),
            headers=(operator if headers is None else headers) | JSON,
        )
        assert answer.status_code == code, answer.get_data()
        return answer.get_data()

    return ask


def standing(answer: bytes) -> TableStanding:
    return msgspec.json.decode(answer, type=TableStanding)


def test_a_table_is_made_told_of_and_altered(ask):
    made = standing(
        ask("POST", "/v1/tables", TableRequest(name="root.wind", splits=(1, 2)), code=201)
    )
    assert (made.name, made.state, made.tablets) == ("root.wind", "running", 1)
    for name in ("root.wind", made.id):
        assert standing(ask("GET", f"/v1/tables/{name}")) == made
    ask("POST", "/v1/tables", TableRequest(name="root.wind"), code=409)
    more = standing(ask("POST", "/v1/tables/root.wind", TableChange(splits=(2, 5))))
    assert more.tablets == 2
    ask("POST", "/v1/tables/root.wind", TableChange(replicas=2), code=400)
    ask("POST", "/v1/tables/root.sun", TableChange(splits=(2, 5)), code=404)
    ask("GET", "/v1/tables/root.sun", code=404)


def test_a_statement_makes_one_and_is_a_commit_of_its_own(ask):
    text = "create table root.wind with (partitions at (1, 2, 3))"
    assert b"2 tablets" in ask("POST", "/v1/sql", SqlRequest(statement=text))
    assert standing(ask("GET", "/v1/tables/root.wind")).tablets == 2
    begun = msgspec.json.decode(ask("POST", "/v1/sql", SqlRequest(statement="begin")))
    refused = SqlRequest(statement="create table root.sun", txn=begun["txn"])
    assert b"a commit of its own" in ask("POST", "/v1/sql", refused, code=400)


def test_readers_make_none(ask, node):
    reader = {"Authorization": f"Bearer {make_token(node.engine, 'reader').token}"}
    ask("POST", "/v1/tables", TableRequest(name="root.wind"), code=403, headers=reader)
    statement = SqlRequest(statement="create table root.wind")
    ask("POST", "/v1/sql", statement, code=403, headers=reader)
