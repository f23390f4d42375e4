"""The calls of a write over HTTP: in writers' and operators' hands alone, and described."""

import re

import msgspec
import pytest

from common.digests import md5, xxh3_64
from receiver.operator.edges.tokens import make_token
from receiver.operator.views.load_wire import CentreLoadAnswer
from receiver.operator.views.write_wire import (
    KnownDevicesAnswer,
    KnownDevicesRequest,
    StagedPart,
    WriteCommit,
    WriteOpened,
    WriteRequest,
)
from receiver.web.app import ROUTES, site_of
from receiver.web.routes import Role
from tests.support.node_world import tsfile

JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}
WRITE = f"/v1/writes/{'5' * 32}"
PART = f"{WRITE}/parts/{'6' * 32}/0"


@pytest.fixture
def ask(client, operator):
    def ask(method, path, kind=None, body=None, expected=200):
        data = None if body is None else msgspec.json.encode(body)
        answer = client.open(path, method=method, data=data, headers=operator | JSON)
        assert answer.status_code == expected, answer.get_data()
        return None if kind is None else msgspec.json.decode(answer.get_data(), type=kind)

    return ask


@pytest.fixture
def put(client, operator):
    def put(content, query, path=PART, headers=BYTES):
        return client.put(f"{path}?{query}", data=content, headers=operator | headers).status_code

    return put


def test_a_write_comes_in_blocks_and_is_loaded_by_its_commit(ask, put):
    opened = ask("PUT", WRITE, WriteOpened, WriteRequest())
    assert (opened.interval, opened.time_unit) == (604_800_000, "ms")
    request = KnownDevicesRequest(devices=["root.sg.d1"])
    (known,) = ask("POST", f"{WRITE}/devices", KnownDevicesAnswer, request).devices
    assert known.types == {}
    content = tsfile()
    for begin, end in ((0, 100), (100, len(content))):
        block = content[begin:end]
        assert put(block, f"offset={begin}&xxh3={xxh3_64(block)}") == 204
    part = StagedPart(
        attempt="6" * 32,
        number=0,
        group="root.sg",
        partition=0,
        size=len(content),
        md5=md5(content).hexdigest(),
    )
    done = ask("POST", f"{WRITE}/commit", CentreLoadAnswer, WriteCommit(parts=[part]))
    while not done.done:
        done = ask("POST", f"{WRITE}/commit", CentreLoadAnswer, WriteCommit(parts=[part]))
    assert [each.result for each in done.files] == ["loaded"]
    assert ask("GET", f"/v1/loads/{'5' * 32}", CentreLoadAnswer) == done
    assert put(b"x", f"offset=0&xxh3={xxh3_64(b'x')}") == 410
    ask("DELETE", WRITE, expected=204)


def test_blocks_say_where_they_belong_and_what_they_are(ask, put):
    ask("PUT", WRITE, body=WriteRequest())
    good = f"xxh3={xxh3_64(b'x')}"
    assert put(b"x", good) == 400
    assert put(b"x", f"offset=-1&{good}") == 400
    assert put(b"x", f"offset=0&{good}", headers={"Content-Type": "text/plain"}) == 415
    assert put(b"x", f"offset=0&{good}", path=f"{WRITE}/parts/{'6' * 32}/x") == 400
    assert put(b"x", f"offset=0&{good}", path=f"{WRITE}/parts/..%2F/0") in (400, 404)
    assert put(b"x", "offset=0&xxh3=") == 422
    assert put(b"x", f"offset=7&{good}") == 409


def test_a_writers_token_writes_and_does_nothing_else(client, app):
    site = site_of(app)
    engine = site.node.engine
    headers = {"Authorization": f"Bearer {make_token(engine, 'writer').token}"}
    body = msgspec.json.encode(WriteRequest())
    assert client.put(WRITE, data=body, headers=headers | JSON).status_code == 200
    content = tsfile()
    query = f"offset=0&xxh3={xxh3_64(content)}"
    assert client.put(f"{PART}?{query}", data=content, headers=headers | BYTES).status_code == 204
    before, refused = engine.newest_commit, set()
    for route in ROUTES:  # pages are for sessions
        path = re.sub("<(?:path:)?[a-z]+>", "a" * 32, route.path)
        answer = client.open(path, method=route.method, headers=headers)
        if route.role not in (Role.PUBLIC, Role.WRITER):
            assert answer.status_code == 403, (route.method, path, answer.status_code)
            refused.add(route.role)
    assert refused == set(Role) - {Role.PUBLIC, Role.PAGE, Role.WRITER}
    assert engine.newest_commit == before


@pytest.mark.parametrize("role", ["reader", "worker", "sender"])
def test_other_roles_write_nothing(client, node, role):
    token = make_token(node.engine, role, sender="a" * 32 if role == "sender" else None).token
    body = msgspec.json.encode(WriteRequest())
    headers = JSON | {"Authorization": f"Bearer {token}"}
    assert client.put(WRITE, data=body, headers=headers).status_code == 403


def test_nobody_without_a_token_writes(client, operator):
    body = msgspec.json.encode(WriteRequest())
    for method, path in (
        ("PUT", WRITE),
        ("POST", f"{WRITE}/devices"),
        ("PUT", PART),
        ("POST", f"{WRITE}/commit"),
        ("DELETE", WRITE),
    ):
        assert client.open(path, method=method, data=body, headers=JSON).status_code == 401
