"""A node that follows a receiver answers as it does, comes after it at once, and takes nothing."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import time
import typing
from contextlib import ExitStack

import msgspec
import pytest

from common import crash, wire
from common.config import Secret
from common.errors import ConfigError, UnauthorizedError
from receiver.config import FollowConfig
from receiver.follower.read_node import ReadNode
from receiver.metadata.sql import statements
from receiver.metadata.sql.executing import execute
from receiver.metadata.sql.parser import parse
from receiver.operator.stored.storage import running_storage
from receiver.operator.views.log_file_views import LogFilesView
from receiver.operator.views.status_views import StatusView
from receiver.web.app import ROUTES, close, create_app, site_of
from receiver.web.routes import Role
from tests.support.compacting import compact
from tests.support.followed import wait_for
from tests.support.node_world import A, Edge, path_of, tsfile
from tests.support.web import running
from tests.unit.receiver.web.conftest import Described

OPERATOR = {"Authorization": "Bearer operators-secret"}
MADE = "create timeseries root.sg.d9.{} with datatype=INT32, encoding=RLE"
ELSEWHERE = "https://centre.example.com:8765"


@pytest.fixture
def loaded(node):
    edge = Edge(node, uuid=A)
    edge.round({path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile("root.sg.d2", first=100)})
    execute(node.engine, f"{MADE.format('s1')} tags(unit=c)")
    return edge


@pytest.fixture
def server(app, operator, loaded):
    with running(app, gate=site_of(app).gate) as found:
        host, port = found.addresses[0]
        yield f"http://{host}:{port}"


@pytest.fixture
def config(app, world, server, tmp_path):
    config = site_of(app).config
    follow = FollowConfig(url=server, token=Secret("operators-secret"), writer=ELSEWHERE)
    return msgspec.structs.replace(config, schema_dir=tmp_path / "reader", follow=follow)


@pytest.fixture
def reader(config, monkeypatch):
    monkeypatch.setattr("receiver.follower.follower._WAIT", 0.1)
    app = create_app(config)
    app.test_client_class = Described
    site_of(app).access.accept_operator("operators-secret")
    node = site_of(app).node
    assert isinstance(node, ReadNode)
    wait_for(lambda: node.follows().level_at)
    yield app
    close(app)


def contents(app):
    """What the directories of a node hold, but for what names this process."""
    place = site_of(app).node.engine.directory.parent
    return {
        str(each): each.read_bytes()
        for each in place.rglob("*")
        if each.is_file() and each.name not in ("operator.token", "clock.json")
    }


def refusal(answer):
    problem = wire.decode(answer.get_data(), wire.Problem, "refusal")
    assert (answer.status_code, problem.type) == (421, "urn:tsferry:not-the-writer"), problem
    assert ELSEWHERE in problem.detail
    return problem


def test_a_node_that_has_the_store_of_the_receiver_that_it_follows_tells_of_it(config, tmp_path):
    (tmp_path / "bucket").mkdir()
    url = (tmp_path / "bucket").as_uri()
    storage = msgspec.structs.replace(config.storage, url=url)
    with ReadNode.open(msgspec.structs.replace(config, storage=storage)) as node:
        wait_for(lambda: node.follows().level_at)
        assert node.operator.config.storage.url == url
        assert running_storage(node.operator).url == url


def test_every_call_that_is_not_said_to_read_is_refused_and_says_where_the_writer_is(reader):
    before = contents(reader)
    refused = [route for route in ROUTES if not route.reads]
    assert {route.name for route in refused} >= {"check", "start_task", "create_token", "inventory"}
    client = reader.test_client()
    for route in refused:
        path = route.path
        for argument in route.arguments:
            path = path.replace(f"<{argument}>", A)
        for headers in ({}, OPERATOR, {"Tsferry-Sender": A}):
            answer = client.open(path, method=route.method, headers=headers, data=b"{}")
            if route.method == "HEAD":
                assert answer.status_code == 421
            else:
                refusal(answer)
    assert contents(reader) == before


def known(answer):
    """Without when senders were heard, which a node does not know."""
    for each in answer.get("senders", ()):
        for member in ("heard_at", "late", "version", "heartbeat", "heartbeat_at"):
            each.pop(member, None)
    return answer


def test_every_call_that_reads_answers_as_the_receiver_does_and_writes_nothing(app, client, reader):
    before = contents(reader)
    same = {"files", "owners", "quarantine", "retired", "held_deletes", "tokens", "lost_files",
            "catalogue_deletions", "openapi", "tree", "senders", "schema_changes"}  # fmt: skip
    physical = next(iter(site_of(app).node.engine._state.files))
    asked = []
    for route in [each for each in ROUTES if each.reads]:
        path, body = route.path.replace("<cursor>", "x"), b""
        if route.name == "run_sql":
            body = json.dumps({"statement": "show timeseries root.**"}).encode()
        elif route.name == "catalogue_fates":
            body = json.dumps({"paths": [physical]}).encode()
        both = [
            each.open(
                path,
                method=route.method,
                headers={**OPERATOR, "Content-Type": "application/json"},
                data=body,
            )
            for each in (client, reader.test_client())
        ]
        here, there = both
        assert here.status_code == there.status_code, (route.name, there.get_data())
        assert here.status_code < 500, route.name
        if route.name in same or body:
            assert known(json.loads(here.get_data())) == known(json.loads(there.get_data())), (
                route.name
            )
        asked.append(route.name)
    assert same <= set(asked)
    catalogue = [
        json.loads(each.get("/sync/v1/catalogue?devices=true", headers=OPERATOR).get_data())
        for each in (client, reader.test_client())
    ]
    assert catalogue[0] == catalogue[1]
    assert len(catalogue[0]["entries"]) == 2
    assert contents(reader) == before


STATEMENTS = {
    statements.CreateSnapshot: "create snapshot for schema",
    statements.SetStorageGroups: "set storage group to root.new",
    statements.DeleteStorageGroups: "delete storage group root.sg",
    statements.CreateTimeseries: "create timeseries root.sg.d1.s9 with datatype=INT32",
    statements.CreateAligned: "create aligned timeseries root.sg.d8(a INT32, b INT32)",
    statements.DeleteTimeseries: "delete timeseries root.sg.d1.s1",
    statements.SetTtl: "set ttl to root.sg 1000",
    statements.SetUpload: "set upload to root.sg never",
    statements.AlterTimeseries: "alter timeseries root.sg.d1.s1 add tags a=1",
}


def test_every_statement_that_changes_something_is_refused(reader):
    assert set(STATEMENTS) == set(typing.get_args(statements.ChangeStatement))
    client = reader.test_client()
    before = contents(reader)
    for kind, text in STATEMENTS.items():
        assert type(parse(text)) is kind
        answer = client.post("/v1/sql", json={"statement": text}, headers=OPERATOR)
        refusal(answer)
    assert contents(reader) == before


def test_a_node_is_less_than_a_second_behind_its_receiver(app, reader):
    node, writer = site_of(reader).node, site_of(app).node.engine
    lags = []
    for number in range(25):
        ts = execute(writer, MADE.format(f"n{number}")).commit
        began = time.monotonic()
        while node.engine.newest_commit < ts:
            assert time.monotonic() - began < 30
            time.sleep(0.0005)
        lags.append(time.monotonic() - began)
    print(f"behind by {statistics.median(lags) * 1000:.1f} ms, at most {max(lags) * 1000:.1f} ms")
    assert statistics.median(lags) < 1.0, lags
    # One that asked each second would be a quarter of one behind by a quarter of them.
    assert statistics.quantiles(lags, n=4)[0] < 0.2, lags
    found = node.follows()
    assert (found.problem, found.source_commit) == (None, ts)
    assert node.problem() is None


def test_status_says_where_a_node_stands(app, reader):
    answer = reader.test_client().get("/v1/status", headers=OPERATOR)
    view = wire.decode(answer.get_data(), StatusView, "status")
    assert view.ready
    assert view.follows is not None
    assert view.follows.commit == view.newest_commit == site_of(app).node.engine.newest_commit
    assert view.follows.writer == ELSEWHERE
    assert view.follows.behind is not None
    assert view.follows.behind < 60


def test_a_node_whose_receiver_is_gone_says_how_far_behind_it_is(app, config, operator, loaded):
    follow = msgspec.structs.replace(config.follow, most_behind=1.0)
    with ReadNode.open(msgspec.structs.replace(config, follow=follow)) as node:
        wait_for(lambda: node.follows().level_at)
        site_of(app).access.accept_operator("another")
        found = re.match(r"it is (\d+) s behind", wait_for(node.problem))
        assert found is not None
        assert 1 <= int(found[1]) < 60
        assert "not known here" in (node.follows().problem or "")
        assert node.engine.newest_commit == site_of(app).node.engine.newest_commit


def test_a_receiver_is_followed_by_an_operator_alone(config, clock):
    follow = msgspec.structs.replace(config.follow, token=Secret("no"))
    with pytest.raises(UnauthorizedError):
        ReadNode.open(msgspec.structs.replace(config, follow=follow))
    for url, token in (("http://10.1.2.3:80", Secret("x")), (config.follow.url, None)):
        follow = msgspec.structs.replace(config.follow, url=url, token=token)
        with pytest.raises(ConfigError):
            ReadNode.open(msgspec.structs.replace(config, follow=follow))


def test_the_log_is_served_to_operators_up_to_what_is_committed(app, client, loaded, operator):
    assert {route.role for route in ROUTES if route.path.startswith("/v1/log")} == {Role.OPERATOR}
    answer = client.get("/v1/log", headers=OPERATOR)
    view = wire.decode(answer.get_data(), LogFilesView, "log")
    engine = site_of(app).node.engine
    assert (view.ts, view.goes_on) == (engine.newest_commit, None)
    for lsn, ts, goes_on in (
        (view.lsn, view.ts, True),
        (view.lsn, view.ts - 1, False),
        (view.lsn + 1, view.ts + 5, False),
    ):
        answer = client.get(f"/v1/log?lsn={lsn}&ts={ts}", headers=OPERATOR)
        assert wire.decode(answer.get_data(), LogFilesView, "log").goes_on is goes_on
    name = f"mlog-{view.segments[-1].first_lsn}.tsf"
    body = client.get(f"/v1/log/{name}", headers=OPERATOR).get_data()
    assert len(body) == view.segments[-1].size
    tail = client.get(f"/v1/log/{name}?begin={len(body) - 9}", headers=OPERATOR).get_data()
    assert tail == body[-9:]
    for bad in ("operator.token", "..%2Fx", "clock.json", "mlog-.tsf"):
        assert client.get(f"/v1/log/{bad}", headers=OPERATOR).status_code in (400, 404)
    assert client.get("/v1/log/mlog-999999.tsf", headers=OPERATOR).status_code == 404


@pytest.mark.parametrize("new", [["c2", "c3", "c4"], ["c2"]], ids=["longer", "as long"])
def test_a_receiver_that_was_turned_back_is_followed_into_its_new_past_alone(
    world, tmp_path, monkeypatch, new
):
    monkeypatch.setattr("receiver.follower.follower._WAIT", 0.1)
    monkeypatch.setattr("receiver.follower.follower._SOONEST", 0.05)

    def made(engine):
        return {
            str(row[0]).rpartition(".")[2] for row in execute(engine, "show timeseries root.**")
        }

    def change(app, *names):
        for name in names:
            execute(site_of(app).node.engine, MADE.format(name))

    app = create_app(world.config)
    site_of(app).access.accept_operator("operators-secret")
    execute(site_of(app).node.engine, "set storage group to root.sg")
    change(app, "a1")
    shutil.copytree(world.config.schema_dir, tmp_path / "earlier")
    told = []
    with ExitStack() as stack:
        with running(app, gate=site_of(app).gate) as server:
            port = server.addresses[0][1]
            follow = FollowConfig(url=f"http://127.0.0.1:{port}", token=Secret("operators-secret"))
            config = msgspec.structs.replace(
                world.config, schema_dir=tmp_path / "reader", follow=follow
            )
            node = stack.enter_context(ReadNode.open(config, anew=lambda: told.append(1)))
            change(app, "b2", "b3")
            wait_for(lambda: made(node.engine) == {"a1", "b2", "b3"})
        close(app)
        shutil.rmtree(world.config.schema_dir)
        (tmp_path / "earlier").rename(world.config.schema_dir)
        app = create_app(world.config)
        site_of(app).access.accept_operator("operators-secret")
        change(app, *new)  # at the same LSNs
        with running(app, gate=site_of(app).gate, port=port):
            assert wait_for(lambda: told)
            assert made(node.engine) == {"a1", "b2", "b3"}
            node.close()
            with ReadNode.open(config) as node:
                assert made(node.engine) == {"a1", *new}
        close(app)


def test_what_is_not_committed_is_in_no_answer(app, client, loaded, operator):
    """Of a commit that is on the disk, and that nobody has been told of yet."""
    engine = site_of(app).node.engine
    now = engine.published()
    name = f"mlog-{now.segment}.tsf"
    asked = []

    def ask(point):
        if point == "mlog.commit.durable" and not asked:
            view = client.get("/v1/log", headers=OPERATOR).get_data()
            asked.append(wire.decode(view, LogFilesView, "log"))
            asked.append(client.get(f"/v1/log/{name}", headers=OPERATOR).get_data())

    with crash.arm(ask):
        execute(engine, MADE.format("late"))
    assert asked[0].lsn == now.lsn
    assert asked[0].segments[-1].size == len(asked[1]) == now.log_end
    assert engine.published().log_end > now.log_end


def test_a_node_names_what_stands_for_files_where_its_disks_have_it(app, client, reader):
    node = site_of(app).node
    with node.engine.reading() as state:
        names = sorted(state.files)
    data = next(each for each in node.config.data_dirs if (each / names[0]).exists())
    (output,) = compact(node.engine, node.config.schema_dir, data, names, 7)
    wait_for(lambda: site_of(reader).node.engine.newest_commit == node.engine.newest_commit)

    def told():
        url = f"{wire.BASE}/catalogue/compacted"
        answers = [each.get(url, headers=OPERATOR) for each in (client, reader.test_client())]
        assert answers[0].get_data() == answers[1].get_data()
        return wire.decode(answers[0].get_data(), wire.CompactedAnswer, "answer").entries

    (entry,) = told()
    assert (entry.inputs, [each.physical for each in entry.outputs]) == (
        names,
        [str(output.relative_to(data))],
    )
    url = f"{wire.BASE}/catalogue/content?path={entry.outputs[0].physical}"
    given = reader.test_client().get(url, headers=OPERATOR)
    assert given.get_data() == output.read_bytes()
    output.unlink()
    assert told() == []
    assert reader.test_client().get(url, headers=OPERATOR).status_code == 404
