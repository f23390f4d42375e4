"""Statements over HTTP: answers in pages, who may do what, and errors with their place."""

import msgspec
import pytest

from receiver.metadata.query.cursors import Cursors
from receiver.operator.edges.tokens import make_token
from receiver.web.app import site_of
from receiver.web.sql_wire import SqlAnswer, SqlRequest

JSON = {"Content-Type": "application/json"}
SERIES = [f"root.sg.d{d}.s{s}" for d in range(3) for s in range(4)]


@pytest.fixture
def ask(client, operator):
    def ask(method, path, body=None, *, expected=200, headers=operator):
        data = None if body is None else msgspec.json.encode(body)
        answer = client.open(path, method=method, data=data, headers=headers | JSON)
        assert answer.status_code == expected, answer.get_data()
        if expected == 200:
            return msgspec.json.decode(answer.get_data(), type=SqlAnswer)
        return msgspec.json.decode(answer.get_data()) if answer.get_data() else None

    return ask


@pytest.fixture
def run(ask):
    def run(statement, *, expected=200, headers=None, **more):
        request = SqlRequest(statement=statement, **more)
        given = {} if headers is None else {"headers": headers}
        return ask("POST", "/v1/sql", request, expected=expected, **given)

    return run


@pytest.fixture
def filled(run):
    run("set storage group to root.sg")
    for number, path in enumerate(SERIES):
        run(f"create timeseries {path} with datatype=INT32 tags(n='{number}') attributes(a=b)")


@pytest.fixture
def reader(node):
    return {"Authorization": f"Bearer {make_token(node.engine, 'reader').token}"}


def test_a_statement_that_changes_something_says_so_and_names_its_commit(run, node):
    answer = run("set storage group to root.sg")
    assert (answer.columns, answer.rows, answer.next) == ([], [], None)
    assert answer.message == "1 storage group set"
    assert answer.commit == node.engine.newest_commit


def test_a_statement_that_asks_gets_columns_and_rows(run, filled, node):
    answer = run("show timeseries root.sg.d1.s2")
    (row,) = answer.rows
    shown = dict(zip(answer.columns, row, strict=True))
    assert shown["timeseries"] == "root.sg.d1.s2"
    assert (shown["tags"], shown["attributes"], shown["alias"]) == ({"n": "6"}, {"a": "b"}, None)
    assert answer.commit == node.engine.newest_commit
    assert run("count timeseries").rows == [[12]]


def test_a_long_answer_comes_in_pages_as_of_one_commit(run, ask, filled):
    answer = run("show timeseries", fetch_size=5)
    run("create timeseries root.sg.d1.s9 with datatype=INT32")
    run("delete timeseries root.sg.d2.**")
    found = [row[0] for row in answer.rows]
    while answer.next is not None:
        assert len(answer.rows) == 5
        answer = ask("GET", f"/v1/sql/{answer.next}")
        found += [row[0] for row in answer.rows]
    assert found == SERIES


def test_a_page_that_was_lost_can_be_asked_for_again(run, ask, filled):
    first = run("show timeseries", fetch_size=5)
    second = ask("GET", f"/v1/sql/{first.next}")
    assert ask("GET", f"/v1/sql/{first.next}") == second
    third = ask("GET", f"/v1/sql/{second.next}")
    assert ask("GET", f"/v1/sql/{second.next}") == third
    assert ask("GET", f"/v1/sql/{first.next}", expected=410)["type"] == "urn:tsferry:gone"
    assert [row[0] for page in (first, second, third) for row in page.rows] == SERIES


def test_a_page_can_have_another_size_than_the_one_before(run, ask, filled):
    answer = run("show timeseries", fetch_size=2)
    answer = ask("GET", f"/v1/sql/{answer.next}?limit=7")
    assert [row[0] for row in answer.rows] == SERIES[2:9]
    ask("GET", f"/v1/sql/{answer.next}?limit=x", expected=400)


def test_a_closed_cursor_is_gone(run, ask, filled, app):
    answer = run("show timeseries", fetch_size=5)
    assert len(site_of(app).cursors) == 1
    ask("DELETE", f"/v1/sql/{answer.next}", expected=204)
    ask("DELETE", f"/v1/sql/{answer.next}", expected=204)
    assert len(site_of(app).cursors) == 0
    ask("GET", f"/v1/sql/{answer.next}", expected=410)
    for nonsense in ("x", "x-1", f"{'9' * 40}", answer.next.split("-")[0]):
        ask("GET", f"/v1/sql/{nonsense}", expected=410)


def test_cursors_that_nobody_uses_take_no_memory_for_ever(run, ask, filled, app):
    site_of(app).cursors = Cursors(most=3)
    answers = [run("show timeseries", fetch_size=5) for _ in range(10)]
    assert len(site_of(app).cursors) == 3
    ask("GET", f"/v1/sql/{answers[0].next}", expected=410)
    ask("GET", f"/v1/sql/{answers[-1].next}")


def test_an_answer_of_one_page_leaves_no_cursor(run, filled, app):
    assert run("show timeseries", fetch_size=12).next is not None  # may be more, for all it knows
    assert run("show timeseries").next is None
    assert run("show timeseries limit 5", fetch_size=5).next is None


def test_the_past_is_asked_by_a_commit_or_a_time(run, filled, node, clock):
    before = node.engine.newest_commit
    clock.now += 10
    run("delete timeseries root.sg.d1.**")
    assert run("count timeseries").rows == [[8]]
    assert run("count timeseries", at=before).rows == [[12]]
    assert run(f"count timeseries at {before}").rows == [[12]]
    assert run("count timeseries", at="2023-11-14T22:13:25Z").rows == [[12]]
    assert run(f"count timeseries at {before}", at=1 << 62).rows == [[12]]
    assert "no time" in run("count timeseries", at="soon", expected=400)["detail"]
    assert run("set storage group to root.b", at=before, expected=400)["type"].endswith("usage")


def test_an_error_has_its_place_and_its_kind(run, filled):
    problem = run("show timeserie", expected=400)
    assert (problem["type"], problem["line"], problem["column"]) == ("urn:tsferry:sql", 1, 6)
    assert "TIMESERIES" in problem["detail"]
    problem = run("show timeseries root..s", expected=400)
    assert (problem["type"], problem["column"]) == ("urn:tsferry:illegal-path", 22)
    assert run("show timeseries where a=b", expected=400)["type"] == "urn:tsferry:not-a-tag"
    problem = run("create timeseries root.sg.d0.s0 with datatype=INT32", expected=409)
    assert "root.sg.d0.s0" in problem["detail"]
    run("show timeseries", fetch_size=0, expected=400)


def test_a_reader_may_ask_and_change_nothing(run, ask, filled, reader, node):
    assert run("count timeseries", headers=reader).rows == [[12]]
    answer = run("show timeseries", headers=reader, fetch_size=10)
    assert len(ask("GET", f"/v1/sql/{answer.next}", headers=reader).rows) == 2
    newest = node.engine.newest_commit
    for statement in (
        "delete timeseries root.**",
        "set ttl to root.sg 1",
        "create snapshot for schema",
    ):
        problem = run(statement, headers=reader, expected=403)
        assert "show and count" in problem["detail"]
    assert node.engine.newest_commit == newest


def test_without_a_token_nobody_asks_not_even_from_this_machine(run, ask, node):
    run("show timeseries", headers={}, expected=401)
    ask("GET", "/v1/sql/x-1", headers={}, expected=401)
    sender = make_token(node.engine, "sender", sender="a" * 32).token
    run("show timeseries", headers={"Authorization": f"Bearer {sender}"}, expected=403)


def test_no_page_is_larger_than_the_receiver_says(world, make_app, run_in):
    world.metadata = {"fetch_size": 3, "history": 3600.0}
    run = run_in(make_app())
    run("set storage group to root.sg")
    for path in SERIES:
        run(f"create timeseries {path} INT32")
    assert len(run("show timeseries", fetch_size=1000).rows) == 3
    assert len(run("show timeseries").rows) == 3
    assert len(run("show timeseries", fetch_size=2).rows) == 2


@pytest.fixture
def run_in(operator_of):
    def run_in(app):
        client, headers = app.test_client(), operator_of(app)

        def run(statement, **more):
            body = msgspec.json.encode(SqlRequest(statement=statement, **more))
            answer = client.post("/v1/sql", data=body, headers=headers | JSON)
            assert answer.status_code == 200, answer.get_data()
            return msgspec.json.decode(answer.get_data(), type=SqlAnswer)

        return run

    return run_in


@pytest.fixture
def operator_of():
    def operator_of(app):
        made = make_token(site_of(app).node.engine, "operator")
        return {"Authorization": f"Bearer {made.token}"}

    return operator_of
