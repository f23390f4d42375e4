import errno
import logging
import os

import pytest

from common.errors import BusyError, ForbiddenError, LockedError, UnauthorizedError
from receiver.web.app import close, create_app, site_of
from receiver.web.server import RequestHead
from tests.support.node_world import A
from tests.unit.receiver.web.conftest import SENDER


def test_an_application_opens_its_engine_and_lets_it_go(world):
    app = create_app(world.config)
    with pytest.raises(LockedError):
        create_app(world.config)
    close(app)
    close(app)
    close(create_app(world.config))


def test_a_node_that_was_handed_in_stays_open(world):
    with world.node() as node:
        close(create_app(world.config, node))
        assert node.problem() is None


def test_health(client):
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 200


def test_not_ready_says_why_and_the_process_still_lives(client, node, monkeypatch):
    monkeypatch.setattr(node, "problem", lambda: "the disk is full")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.get_json(force=True)["detail"] == "the disk is full"
    assert answer.headers["Retry-After"] == "10"
    lives = client.get("/healthz")
    assert (lives.status_code, lives.get_json()["status"]) == (200, "degraded")
    monkeypatch.setattr(node, "problem", lambda: None)
    assert client.get("/healthz").get_json() == {"status": "ok"}


def test_a_closed_application_is_not_ready(world, clock):
    app = create_app(world.config, clock=clock)
    close(app)
    close(app)
    assert app.test_client().get("/readyz").status_code == 503


def test_a_full_disk_is_not_ready(world, clock):
    world.limits = {"min_free_bytes": 1 << 60}
    app = create_app(world.config, clock=clock)
    try:
        answer = app.test_client().get("/readyz")
        assert answer.status_code == 503
        assert "free" in answer.get_json(force=True)["detail"]
    finally:
        close(app)


@pytest.mark.parametrize(
    ("code", "status", "slug"),
    [
        (errno.EIO, 503, "disk"),
        (errno.EROFS, 503, "read-only-disk"),
        (errno.ENOSPC, 507, "no-space"),
        (errno.ENOENT, 500, "internal"),
    ],
)
def test_a_disk_that_fails_to_read_is_told_as_one_that_fails_to_write(
    client, node, monkeypatch, code, status, slug
):
    def fail(*_):
        raise OSError(code, os.strerror(code), "plan.log")

    monkeypatch.setattr(node.listing, "inventory", fail)
    answer = client.get("/sync/v1/inventory", headers=SENDER)
    assert answer.status_code == status
    assert answer.get_json(force=True)["type"] == f"urn:tsferry:{slug}"


def test_an_error_that_nobody_foresaw_has_a_number_and_its_details_only_in_the_log(
    client, node, monkeypatch, caplog
):
    def fail(*_):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(node.listing, "inventory", fail)
    with caplog.at_level(logging.ERROR):
        answer = client.get("/sync/v1/inventory", headers=SENDER)
    assert answer.status_code == 500
    assert "secret" not in answer.get_data(as_text=True)
    number = answer.get_json(force=True)["detail"].rpartition(" ")[2]
    assert number in caplog.text
    assert "secret detail" in caplog.text


def test_retry_after_is_a_header_too(client, node, monkeypatch):
    def busy(*_):
        raise BusyError("loading", retry_after=3.4)

    monkeypatch.setattr(node.listing, "inventory", busy)
    answer = client.get("/sync/v1/inventory", headers=SENDER)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "3"
    assert answer.get_json(force=True)["retry_after"] == 3.4


@pytest.mark.parametrize("path", ["/nope", "/sync/v1", "/sync/v1/files/", "//healthz/..", "/%2e"])
def test_an_unknown_path_is_a_problem_document(client, path):
    answer = client.get(path)
    assert answer.status_code in (404, 405)
    assert answer.mimetype == "application/problem+json"


def test_another_method_is_refused_and_the_right_ones_named(client):
    answer = client.delete("/sync/v1/check")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"


def test_answers_are_not_cached_or_sniffed(client):
    for path in ("/healthz", "/nope"):
        answer = client.get(path)
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in answer.headers


def gate(app, method, path, **headers):
    return site_of(app).gate(RequestHead("127.0.0.1", "", method, path, headers))


def test_the_gate_knows_how_long_each_body_may_be(app, world):
    limits, listen = world.config.limits, world.config.listen
    assert gate(app, "POST", "/sync/v1/check") == 65536
    assert gate(app, "POST", f"/sync/v1/tasks/{A}/plan") == listen.max_request_bytes
    assert gate(app, "PATCH", f"/sync/v1/files/{A}") == limits.max_chunk_bytes
    assert gate(app, "POST", "/nope") == 65536
    override = {"X_HTTP_METHOD_OVERRIDE": "PATCH"}
    assert gate(app, "POST", f"/sync/v1/files/{A}", **override) == limits.max_chunk_bytes


def test_the_operators_token_is_for_its_owner_alone(app, client, world):
    path = site_of(app).give_operator_token()
    assert path.parent == world.config.schema_dir
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/v1/status", headers=headers).status_code == 200


# -- what is counted -------------------------------------------------------------------------------


def test_what_is_refused_at_the_gate_is_counted(app):
    with pytest.raises(UnauthorizedError):
        gate(app, "GET", "/v1/status")
    with pytest.raises(ForbiddenError):
        gate(app, "POST", "/nothing", ORIGIN="https://elsewhere")
    counted = site_of(app).requests.answered.sums()
    assert counted == {("status", "4xx"): 1, ("none", "4xx"): 1}


def test_what_is_answered_is_counted_by_call_and_status(app, client):
    client.get("/healthz")
    client.get("/v1/status")
    client.get("/nothing")
    counted = site_of(app).requests
    assert counted.answered.sums() == {
        ("healthz", "2xx"): 1,
        ("status", "4xx"): 1,
        ("none", "4xx"): 1,
    }
    assert counted.seconds.distribution().buckets[float("inf")] == 3
