"""A round over HTTP, call by call, on a real node."""

import msgspec
import pytest

from common import wire, zstd
from receiver.web.app import site_of
from tests.support.node_world import A, B, batch_of, manifest_entry, path_of, plan_entry, tsfile
from tests.unit.receiver.web.conftest import SENDER

TASK = "1" * 32


def send(client, method, path, body=None, *, headers=SENDER, **more):
    data = None if body is None else wire.encode(body)
    given = dict(headers) | ({"Content-Type": "application/json"} if body is not None else {})
    return client.open(f"/sync/v1{path}", method=method, data=data, headers=given | more)


def read(answer, kind):
    return msgspec.json.decode(answer.get_data(), type=kind)


def check(client, sender=A, **more):
    request = wire.CheckRequest(
        protocol=1, version="1", sender=sender, partition_interval_ms=604_800_000, **more
    )
    return send(client, "POST", "/check", request)


@pytest.fixture
def started(client):
    """Headers of the calls of a task that was started."""
    engine = read(check(client), wire.CheckAnswer).engine
    answer = send(client, "PUT", f"/tasks/{TASK}", wire.StartRequest(engine=engine))
    epoch = read(answer, wire.TaskAnswer).epoch
    return {**SENDER, "Tsferry-Epoch": epoch}


def test_a_whole_round(client, started, world):
    path, content = path_of(1), tsfile()
    page = wire.PlanPage(entries=[plan_entry(path, content)])
    answer = send(client, "POST", f"/tasks/{TASK}/plan", page, headers=started)
    assert read(answer, wire.PlanAnswer).decisions[0].action is wire.Action.SEND
    answer = client.post(
        f"/sync/v1/tasks/{TASK}/batch",
        data=batch_of({path: content}),
        headers={**started, "Content-Type": wire.BATCH_TYPE},
    )
    assert read(answer, wire.BatchAnswer).results == [wire.BatchResult(path=path)]
    end = wire.EndRequest(manifest=[manifest_entry(path, content)])
    answer = send(client, "POST", f"/tasks/{TASK}/end", end, headers=started)
    assert answer.status_code in (200, 202)
    answer = send(client, "GET", f"/tasks/{TASK}?wait=20", headers=started)
    state = read(answer, wire.TaskAnswer)
    assert state.state is wire.TaskState.DONE
    assert [(each.path, each.result) for each in state.outcomes] == [(path, wire.Result.LOADED)]
    assert list(world.loaded().values()) == [content]
    again = send(client, "POST", f"/tasks/{TASK}/end", end, headers=started)
    assert again.status_code == 200
    assert read(again, wire.TaskAnswer).commit == state.commit
    inventory = read(send(client, "GET", "/inventory"), wire.InventoryAnswer)
    assert [entry.path for entry in inventory.entries] == [path]
    catalogue = read(client.get("/sync/v1/catalogue"), wire.CatalogueAnswer)
    assert [entry.original for entry in catalogue.entries] == [path]


def test_deletions_are_recorded(client, started):
    page = wire.DeletedPage(paths=[])
    assert send(client, "POST", f"/tasks/{TASK}/deleted", page, headers=started).status_code == 204


def test_a_heartbeat_is_answered(client):
    check(client)
    answer = send(client, "POST", "/heartbeat", wire.Heartbeat(version="1"))
    assert answer.status_code == 200


def test_pages_are_cut(client, started):
    files = {path_of(n): tsfile(f"root.sg.d{n}") for n in range(3)}
    page = wire.PlanPage(entries=[plan_entry(*each) for each in files.items()])
    send(client, "POST", f"/tasks/{TASK}/plan", page, headers=started)
    client.post(
        f"/sync/v1/tasks/{TASK}/batch",
        data=batch_of(files),
        headers={**started, "Content-Type": wire.BATCH_TYPE},
    )
    end = wire.EndRequest(manifest=[manifest_entry(*each) for each in files.items()])
    send(client, "POST", f"/tasks/{TASK}/end", end, headers=started)
    send(client, "GET", f"/tasks/{TASK}?wait=20", headers=started)
    first = read(send(client, "GET", "/inventory?limit=2"), wire.InventoryAnswer)
    assert len(first.entries) == 2
    second = read(
        send(client, "GET", f"/inventory?limit=2&after={first.next}"), wire.InventoryAnswer
    )
    assert [e.path for e in first.entries + second.entries] == sorted(files)


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", "9" * 20])
def test_a_limit_that_is_none_is_refused(client, limit):
    assert send(client, "GET", f"/inventory?limit={limit}").status_code == 400


@pytest.mark.parametrize(
    "wait",
    [
        "-1",
        "x",
        "nan",
        "inf",
        "1e999",
        "1_0",
        "+5",
        "%205",
        "%EF%BC%95",
        "1e1",
        ".5",
        "5.",
        "",
        "0x1",
    ],
)
def test_a_wait_that_is_none_is_refused(client, started, wait):
    assert send(client, "GET", f"/tasks/{TASK}?wait={wait}").status_code == 400


def test_a_page_with_too_many_items_is_too_large(client, started, world):
    page = wire.DeletedPage(paths=["x"] * (world.config.limits.max_page_items + 1))
    answer = send(client, "POST", f"/tasks/{TASK}/deleted", page, headers=started)
    assert answer.status_code == 413
    said = "a page of 1001 items, limits.max_page_items is 1000"
    assert answer.get_json(force=True)["detail"] == said


@pytest.mark.parametrize("task", ["x", "1" * 31, "G" * 32, "..", "1" * 32 + "%0a", "%2e%2e%2f"])
def test_a_task_id_that_is_none_is_refused(client, task):
    assert send(client, "GET", f"/tasks/{task}").status_code in (400, 404)


@pytest.mark.parametrize("sender", ["../other", "A" * 32, "a" * 31, "", "a" * 33])
def test_a_sender_that_is_none_is_refused(client, sender):
    answer = send(client, "GET", "/inventory", headers={"Tsferry-Sender": sender})
    assert answer.status_code in (400, 403)


def test_without_a_sender_the_header_is_asked_for(client):
    answer = send(client, "GET", "/inventory", headers={})
    assert answer.status_code == 400
    assert "Tsferry-Sender" in answer.get_json(force=True)["detail"]


def test_a_body_that_speaks_for_another_sender_is_refused(client):
    assert check(client, sender=B).status_code == 403


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"protocol": "x"}', b"\xff", b"[" * 100_000, b"null"]
)
def test_a_body_that_is_no_such_json_is_refused(client, body):
    headers = {**SENDER, "Content-Type": "application/json"}
    answer = client.post("/sync/v1/check", data=body, headers=headers)
    assert answer.status_code == 400


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_a_form_could_send_is_refused(client, media):
    headers = {**SENDER, "Content-Type": media}
    assert client.post("/sync/v1/check", data=b"{}", headers=headers).status_code == 415
    answer = client.post(f"/sync/v1/tasks/{TASK}/batch", data=b"TSFB\1", headers=headers)
    assert answer.status_code == 415


def test_the_errors_of_the_node_come_with_their_status(client, started):
    assert send(client, "GET", f"/tasks/{'2' * 32}").status_code == 404
    other = wire.StartRequest(engine="e" * 32)
    assert send(client, "PUT", f"/tasks/{'2' * 32}", other).status_code == 410
    stale = {**SENDER, "Tsferry-Epoch": "1.0000000000000000"}
    answer = send(client, "POST", f"/tasks/{TASK}/plan", wire.PlanPage(entries=[]), headers=stale)
    assert answer.status_code == 409
    assert answer.get_json(force=True)["type"] == "urn:tsferry:clone"


def test_the_catalogue_is_asked_about_a_commit_and_since_one(client):
    now = read(client.get("/sync/v1/catalogue"), wire.CatalogueAnswer).commit
    past = client.get(f"/sync/v1/catalogue?at={now}&since=0&quarantined=true")
    assert read(past, wire.CatalogueAnswer).commit == now
    for wrong in ("at=x", "at=-1", "since=1e3", "quarantined=maybe", f"at={'9' * 30}"):
        answer = client.get(f"/sync/v1/catalogue?{wrong}")
        assert answer.status_code == 400, wrong
        assert wrong.partition("=")[0] in answer.get_json(force=True)["detail"]


def test_a_reader_reads_the_catalogue_and_nothing_else(app, client, operator):
    node = site_of(app).node
    from receiver.operator.edges.tokens import make_token

    made = make_token(node.engine, "reader")
    reader = {"Authorization": f"Bearer {made.token}"}
    assert client.get("/sync/v1/catalogue", headers=reader).status_code == 200
    assert client.get("/sync/v1/inventory", headers={**reader, **SENDER}).status_code == 403
    assert client.get("/sync/v1/catalogue").status_code == 401
    assert client.get("/sync/v1/schema/changes", headers=reader).status_code == 200
    assert client.get("/sync/v1/schema/changes", headers=operator).status_code == 200
    other = make_token(node.engine, "sender", sender=SENDER["Tsferry-Sender"])
    sending = {"Authorization": f"Bearer {other.token}"}
    assert client.get("/sync/v1/schema/changes", headers=sending).status_code == 403
    assert client.get("/v1/status", headers=reader).status_code == 403
    assert client.get("/v1/status", headers=operator).status_code == 200


@pytest.mark.parametrize(
    ("call", "name"), [("/catalogue", "at"), ("/catalogue", "since"), ("/schema/changes", "after")]
)
@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1_0", "%201", "1%20", "%EF%BC%95", "1.0", "9223372036854775808"]
)
def test_numbers_in_queries_are_as_strict_as_in_headers(client, call, name, text):
    answer = client.get(f"/sync/v1{call}?{name}={text}", headers=SENDER)
    assert answer.status_code == 400
    assert name in answer.get_json(force=True)["detail"]


def test_a_member_that_comes_twice_is_refused(client):
    for query in (
        "limit=1&limit=2",
        "at=1&at=1",
        "after=a&after=b",
        "quarantined=true&quarantined=",
    ):
        assert client.get(f"/sync/v1/catalogue?{query}", headers=SENDER).status_code == 400


def test_one_who_forwards_asks_what_became_of_files(client):
    """As many at once as it asks for, of names as long as they may be."""
    paths = [f"sequence/root.{'g' * 190}/0/0/{number}-1-0-0.tsfile" for number in range(1000)]
    body = wire.encode(wire.FatesRequest(paths=paths))
    found = read(
        client.post("/sync/v1/catalogue/fates", data=body, content_type="application/json"),
        wire.FatesAnswer,
    )
    assert [each.path for each in found.fates] == paths
    assert {(each.here, each.end) for each in found.fates} == {(False, None)}, "nobody knows them"
    more = wire.encode(wire.FatesRequest(paths=[*paths, paths[0]]))
    refused = client.post("/sync/v1/catalogue/fates", data=more, content_type="application/json")
    assert refused.status_code == 413


@pytest.mark.parametrize("library", [zstd.codec(), None], ids=["a library", "none"])
def test_compression_is_offered_where_there_is_a_library(client, monkeypatch, library):
    monkeypatch.setattr(zstd, "codec", lambda: library)
    offered = read(check(client), wire.CheckAnswer).limits.encodings
    assert offered == ([] if library is None else ["zstd"])
