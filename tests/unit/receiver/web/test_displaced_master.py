"""Once another receiver has taken over, nothing of the old one is taken for the master's."""

import re
import time

import pytest
from flask.testing import FlaskClient

from common import wire
from common.digests import xxh3_64
from common.errors import UnreachableError
from receiver.metadata.engine import Engine
from receiver.metadata.model.errors import FencedError
from receiver.web.app import EVERYTHING
from receiver.web.routes import Role
from tests.support.node_world import path_of, plan_entry, tsfile
from tests.unit.receiver.web.conftest import BLOCK, SENDER, TUS
from tests.unit.receiver.web.handlers.test_sync import TASK, check, read, send, started
from tests.unit.receiver.web.handlers.test_tus import create

__all__ = ["started"]

FENCED = FencedError("not master any more: another one is")
UNSURE = UnreachableError("etcd has taken no sign of life", retry_after=5.0)


def displace(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(Engine, "displaced", lambda self: error)


def undescribed(client: FlaskClient) -> FlaskClient:
    """One that asks for pages, too, of which OpenAPI knows nothing."""
    return FlaskClient(client.application, client.response_wrapper)


def calls(client, started):
    """Each has an answer that somebody does something for good on."""
    page = wire.PlanPage(entries=[plan_entry(path_of(1), tsfile())])
    yield check(client)
    yield send(client, "GET", f"/tasks/{TASK}")
    yield send(client, "POST", f"/tasks/{TASK}/plan", page, headers=started)
    yield send(client, "GET", "/inventory?look=true")
    yield send(client, "GET", "/settled?after=0")
    yield send(client, "POST", "/heartbeat", wire.Heartbeat(version="1"))
    yield client.get(f"/v1/copies?node={'1' * 32}&after=0")


def test_a_fenced_master_says_to_senders_and_nodes_that_it_is_none(client, started, monkeypatch):
    displace(monkeypatch, FENCED)
    for answer in calls(client, started):
        assert answer.status_code == 421
        assert answer.get_json()["type"] == "urn:tsferry:not-the-writer"
        assert answer.get_json()["detail"] == FENCED.message


def test_a_master_that_slept_past_its_lease_tells_nobody_what_it_remembers(
    client, started, monkeypatch
):
    displace(monkeypatch, UNSURE)
    *of_senders, _ = calls(client, started)
    for answer in of_senders:
        assert answer.status_code == 503
        assert answer.get_json()["type"] == "urn:tsferry:unreachable"
        assert answer.headers["Retry-After"] == "5"


def test_what_was_read_before_the_place_was_lost_is_not_told_either(client, monkeypatch):
    """The answer was made while it was the master, and another one may have gone on since."""
    answers = iter([None, FENCED])
    monkeypatch.setattr(Engine, "displaced", lambda self: next(answers, FENCED))
    assert check(client).status_code == 421


def test_that_there_is_no_such_task_is_an_answer_too(client, started, monkeypatch):
    """The sender would take it for a task that never was."""
    unknown = f"/tasks/{'f' * 32}"
    assert send(client, "GET", unknown).status_code == 404
    answers = iter([None])
    monkeypatch.setattr(Engine, "displaced", lambda self: next(answers, FENCED))
    assert send(client, "GET", unknown).status_code == 421


@pytest.mark.parametrize("error", [FENCED, UNSURE])
def test_who_follows_is_not_told_that_this_is_all(client, operator, monkeypatch, error):
    assert client.get("/v1/log?wait=0", headers=operator).status_code == 200
    displace(monkeypatch, error)
    answer = client.get("/v1/log?wait=0", headers=operator)
    assert answer.status_code == (421 if error is FENCED else 503)


def test_a_long_poll_ends_when_the_place_is_lost(client, started, monkeypatch):
    """Whoever waits for a load or a commit is not held by a master that is none any more."""
    asked = []

    def once(self: Engine) -> Exception | None:
        asked.append(self)
        return None if len(asked) < 4 else FENCED

    monkeypatch.setattr(Engine, "displaced", once)
    begin = time.monotonic()
    assert send(client, "GET", f"/tasks/{TASK}?wait=30").status_code == 421
    assert time.monotonic() - begin < 20


def test_bytes_are_taken_by_a_master_that_does_not_know_whether_it_is_one(
    client, started, monkeypatch
):
    """Nothing hangs on them before the end of their task, and etcd may be back by then."""
    content = tsfile()
    page = wire.PlanPage(entries=[plan_entry(path_of(1), content)])
    send(client, "POST", f"/tasks/{TASK}/plan", page, headers=started)
    displace(monkeypatch, UNSURE)
    made = create(client, len(content), headers={**started, **TUS}, path=path_of(1), task=TASK)
    assert made.status_code == 201
    block = client.patch(
        made.headers["Location"],
        data=content[:10],
        headers={**started, **TUS, **BLOCK, "Upload-Offset": "0"},
    )
    assert (block.status_code, block.headers["Upload-Offset"]) == (204, "10")


_TELLS = (
    "/sync/v1/catalogue",
    "/sync/v1/catalogue/compacted",
    "/sync/v1/catalogue/deletions",
    "/sync/v1/schema/changes",
    "/v1/copies/where?path=x",
    "/v1/copies/status",
    "/v1/files",
    "/v1/senders",
    "/v1/storage",
    "/v1/tables",
    "/v1/tree",
    "/v1/nodes",
    "/v1/tasks",
    "/v1/txn/1",
    "/v1/log",
    "/ui/",
    "/ui/files",
)


def test_readers_and_operators_are_not_told_how_things_stand(client, operator, monkeypatch):
    for error, status in ((FENCED, 421), (UNSURE, 503)):
        displace(monkeypatch, error)
        for path in _TELLS:
            answer = undescribed(client).get(path, headers=operator)
            assert (answer.status_code, path) == (status, path)
            assert error.message in answer.get_data(as_text=True)


def test_every_call_is_refused_that_does_not_say_it_may_be_made(client, operator, monkeypatch):
    """What answers all the same is of the process, or bytes that never change."""
    displace(monkeypatch, UNSURE)
    answered = set()
    for route in EVERYTHING:
        path = re.sub("<[^>]*>", "1" * 32, route.path)
        headers = {} if route.role is Role.PAGE else operator
        found = undescribed(client).open(path, method=route.method, headers=headers)
        if found.status_code not in (401, 403, 503):
            answered.add(f"{route.method} {route.path}")
    assert answered == {
        "OPTIONS /sync/v1/files",
        "OPTIONS /sync/v1/files/<upload>",
        "GET /sync/v1/catalogue/content",
        "GET /sync/v1/catalogue/digests",
        "GET /v1/status",
        "PUT /v1/writes/<task>/parts/<attempt>/<number>",
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /openapi.json",
        "GET /ui/static/<name>",
    }


def test_bytes_that_never_change_and_how_the_process_is_are_told_by_a_fenced_master(
    client, operator, monkeypatch
):
    displace(monkeypatch, FENCED)
    monkeypatch.setattr(Engine, "trouble", FENCED.message)
    assert client.get("/healthz").status_code == 200
    assert FENCED.message in client.get("/readyz").get_json()["detail"]
    assert client.get("/metrics").status_code == 200
    assert client.get("/v1/status", headers=operator).get_json()["problem"] == FENCED.message


@pytest.mark.parametrize(("error", "status"), [(FENCED, 421), (UNSURE, 503)])
def test_who_asks_for_what_another_master_may_have_is_not_told_that_there_is_none(
    client, operator, monkeypatch, error, status
):
    """A reader that names both would give up, and the file or the write is at the other one."""
    content = "/sync/v1/catalogue/content?path=x"
    digests = "/sync/v1/catalogue/digests?path=x"
    block = f"/v1/writes/{'1' * 32}/parts/{'2' * 32}/0?offset=0&xxh3={xxh3_64(b'x')}"

    def statuses() -> list[int]:
        put = client.put(block, data=b"x", headers=operator, mimetype="application/octet-stream")
        gets = [client.get(each, headers=operator) for each in (content, digests)]
        upload = client.head(f"/sync/v1/files/{'3' * 32}", headers={**SENDER, **TUS})
        return [each.status_code for each in (put, *gets, upload)]

    assert set(statuses()) <= {404, 410}
    displace(monkeypatch, error)
    assert set(statuses()) == {status}


def test_a_change_is_not_begun_and_one_that_was_made_is_told(client, operator, monkeypatch):
    group, token = {"statement": "create storage group root.a"}, {"role": "reader"}
    for path, body, looks, done in (("/v1/sql", group, 4, 200), ("/v1/tokens", token, 3, 201)):
        # It is master when the call comes in and when its change begins, and not behind that.
        answers = iter([None] * looks)
        monkeypatch.setattr(Engine, "displaced", lambda self, left=answers: next(left, UNSURE))
        assert client.post(path, json=body, headers=operator).status_code == done
        assert client.post(path, json=body, headers=operator).status_code == 503


def test_a_master_in_its_place_answers(client, started):
    assert read(check(client), wire.CheckAnswer).protocol == wire.PROTOCOL
    assert send(client, "GET", "/inventory", headers=SENDER).status_code == 200
