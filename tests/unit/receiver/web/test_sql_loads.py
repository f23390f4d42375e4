"""`load` in SQL: files below the directories that the configuration names, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from common.errors import UsageError
from receiver.metadata.sql.executing import execute
from receiver.operator import sql_loads
from receiver.operator.edges.tokens import make_token
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import CentreLoadRequest
from receiver.web.app import close, create_app, site_of
from receiver.web.sql_wire import SqlAnswer, SqlRequest
from tests.support.node_world import A, B, Edge, path_of, tsfile
from tests.support.tsfile_bytes import build
from tests.support.web import BOUND

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    place = tmp_path / "shared" / path_of(1)
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile())
    return tmp_path / "shared"


@pytest.fixture
def app(world, clock, shared, monkeypatch):
    monkeypatch.setattr(sql_loads, "_PATIENCE", BOUND)  # the machine may be slow
    config = world.config
    load = msgspec.structs.replace(config.load, paths=(shared,))
    app = create_app(msgspec.structs.replace(config, load=load), clock=clock)
    yield app
    close(app)


@pytest.fixture
def run(client, operator):
    def run(statement, expected=200, headers=None, **more):
        body = msgspec.json.encode(SqlRequest(statement=statement, **more))
        answer = client.post("/v1/sql", data=body, headers=(headers or operator) | JSON)
        assert answer.status_code == expected, answer.get_data()
        if expected == 200:
            return msgspec.json.decode(answer.get_data(), type=SqlAnswer)
        return answer.get_data().decode()

    return run


def test_files_below_a_directory_that_is_named_are_loaded_and_told(run, shared, node):
    answer = run(f"load '{shared}'")
    assert answer.columns == ["result", "size", "source", "device", "reason"]
    assert [row[0] for row in answer.rows] == ["loaded"]
    assert (answer.message, answer.commit) == ("1 loaded", node.engine.newest_commit)
    assert run(f"load '{shared / path_of(1)}'").message == "1 already"
    (shared / path_of(1)).write_bytes(tsfile(first=3, salt=1))
    refused = run(f"load '{shared}'")
    assert refused.rows[0][0] == "refused"
    assert "root.sg.d1" in (refused.rows[0][4] or "")
    assert run(f"load '{shared}' on duplicate skip").message == "1 loaded"
    assert len(list_files(node.operator).files) == 2


def test_nothing_else_is_read_not_by_links_and_not_by_dots(run, shared, tmp_path, node):
    place = tmp_path / "secret" / path_of(2)
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile("root.secret.d"))
    (shared / "link").symlink_to(tmp_path / "secret")
    os.link(place, shared / "unrelated")  # no TsFile's name: a directory leaves it out
    for path in (
        tmp_path / "secret",
        tmp_path / "nowhere",
        shared / "link",
        shared / ".." / "secret",
        Path("/etc/passwd"),
    ):
        assert "load.paths" in run(f"load '{path}'", 403)
    assert "absolute" in run("load 'shared'", 400)
    assert "no such file" in run(f"load '{shared}/nowhere'", 404)
    run(f"load '{shared}', '{tmp_path}'", 403)
    assert list_files(node.operator).files == []
    assert run(f"load '{shared}'").message == "1 loaded"


def test_a_call_with_a_token_is_bound_to_the_same_directories_and_this_machine_is_not(
    client, operator, node, shared, tmp_path
):
    place = tmp_path / "secret" / path_of(2)
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile("root.secret.d"))
    (shared / "link").symlink_to(tmp_path / "secret")
    made = {"Authorization": f"Bearer {make_token(node.engine, 'operator').token}"}

    def load(path, headers, number):
        request = CentreLoadRequest(task=str(number) * 32, paths=[str(path)])
        body = msgspec.json.encode(request)
        answer = client.post("/v1/loads", data=body, headers=headers | JSON)
        return answer.status_code, answer.get_data(as_text=True)

    for at, path in enumerate(
        (tmp_path / "secret", shared / "link", shared / ".." / "secret", "/x")
    ):
        status, text = load(path, made, at)
        assert (status, "load.paths" in text) == (403, True)
    assert list_files(node.operator).files == []
    assert load(shared, made, 5)[0] == 200
    node.operator.centre.answer("5" * 32, 60.0)
    assert load(tmp_path / "secret", operator, 6)[0] == 200
    node.operator.centre.answer("6" * 32, 60.0)
    assert len(list_files(node.operator).files) == 2


def test_devices_of_several_senders_are_loaded_by_a_statement(run, shared, node):
    Edge(node).round({path_of(4): tsfile("root.sg.a")})
    Edge(node, B).round({path_of(5): tsfile("root.sg.b")})
    (shared / path_of(1)).write_bytes(
        build({f"root.sg.{each}": {"s1": [(99, 1)]} for each in "ab"})
    )
    assert run(f"load '{shared}' as '{A}'").message == "1 refused"
    assert run(f"load '{shared}' as '{A}', '{B}'").message == "1 loaded"


def test_by_default_nothing_may_be_read(world, clock, shared):
    app = create_app(world.config, clock=clock)
    site_of(app).access.accept_operator("s")
    body = msgspec.json.encode(SqlRequest(statement=f"load '{shared}'"))
    headers = {"Authorization": "Bearer s"} | JSON
    answer = app.test_client().post("/v1/sql", data=body, headers=headers)
    assert answer.status_code == 403
    close(app)


def test_readers_transactions_and_engines_load_nothing(run, shared, node):
    reader = {"Authorization": f"Bearer {make_token(node.engine, 'reader').token}"}
    run(f"load '{shared}'", 403, headers=reader)
    txn = run("begin").txn
    assert "of its own" in run(f"load '{shared}'", 400, txn=txn)
    run("rollback", txn=txn)
    with pytest.raises(UsageError, match="by a receiver that runs"):
        execute(node.engine, "load '/x'")
    assert list_files(node.operator).files == []


def test_a_load_that_takes_longer_goes_on_and_says_where_to_ask(run, shared, node, monkeypatch):
    monkeypatch.setattr(sql_loads, "_PATIENCE", 0.0)
    with node.load.centre_folder().lock:
        answer = run(f"load '{shared}'")
    assert (answer.columns, answer.rows) == ([], [])
    assert f"the load goes on: GET /v1/loads/{answer.load} says" in (answer.message or "")


def test_who_asks_says_for_how_long_an_answer_may_wait(run, shared, node):
    with node.load.centre_folder().lock:
        assert run(f"load '{shared}'", wait=0.0).load is not None


def test_the_loads_that_are_under_way_are_listed_and_cancelled_by_their_ids(
    client, operator, node, shared, run
):
    request = CentreLoadRequest(task="a" * 32, paths=[str(shared)])
    with node.load.centre_folder().lock:
        node.operator.centre.begin(request)
        (load,) = msgspec.json.decode(client.get("/v1/loads", headers=operator).get_data())["loads"]
        assert (load["task"], load["paths"]) == ("a" * 32, [str(shared)])
        assert not load.get("committed")
        status = msgspec.json.decode(client.get("/v1/status", headers=operator).get_data())
        assert [each["task"] for each in status["centre_loads"]] == ["a" * 32]
        node.operator.centre._runs.get("a" * 32).cancel("by hand")  # its end is not waited for
    assert client.get(f"/v1/loads/{'a' * 32}", headers=operator).status_code == 409

    def cancel(task):
        answer = client.post(
            f"/v1/tasks/{task}/cancel", data=b'{"reason": ""}', headers=operator | JSON
        )
        return answer.status_code, answer.get_data(as_text=True)

    assert cancel("a" * 32)[0] == 409
    assert ((found := cancel("b" * 32))[0], "under way" in found[1]) == (404, True)
    assert list_files(node.operator).files == []
