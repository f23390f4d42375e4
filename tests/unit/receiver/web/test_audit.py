"""The audit log has who did what, and who was refused; nothing in it is a secret."""

from __future__ import annotations

import io
import json
import logging

import pytest

from common.console.logs import AUDIT, JsonFormatter, LogConfig, set_up
from receiver.operator.edges.tokens import make_token
from receiver.web.app import EVERYTHING
from receiver.web.audit import AuditLog
from receiver.web.routes import Role


@pytest.fixture
def lines():
    """What the audit log has, as objects."""

    class Lines(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.found = []
            self.setFormatter(JsonFormatter())

        def emit(self, record):
            entry = json.loads(self.format(record))
            assert entry.pop("logger") == AUDIT
            del entry["time"]
            self.found.append(entry)

    handler, log = Lines(), logging.getLogger(AUDIT)
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler.found
    log.removeHandler(handler)
    log.setLevel(before)


@pytest.fixture
def operator(node):
    made = make_token(node.engine, "operator")
    return made.id, {"Authorization": f"Bearer {made.token}"}


def test_a_token_that_is_made_and_revoked_is_told_without_its_secret(client, operator, lines):
    name, headers = operator
    asked = {"role": "reader", "note": "dash\nboard"}
    made = client.post("/v1/tokens", json=asked, headers=headers).json
    client.delete(f"/v1/tokens/{made['id']}", headers=headers)
    client.delete("/v1/tokens/nothing", headers=headers)
    assert made["token"] not in json.dumps(lines)
    told = [(each["message"], each["event"], each["target"], each["status"]) for each in lines]
    assert told == [
        ("done", "create_token", f"token={made['id']}", 201),
        ("done", "revoke_token", f"token={made['id']}", 204),
        ("not done", "revoke_token", "token=nothing", 404),
    ]
    assert all(each["token"] == name and each["peer"] == "127.0.0.1" for each in lines)
    assert json.loads(lines[0]["asked"])["note"] == "dash\nboard"


def test_questions_are_not_told_and_statements_that_change_something_are(client, operator, lines):
    _, headers = operator
    client.get("/v1/tokens", headers=headers)
    client.post("/v1/sql", json={"statement": "show devices"}, headers=headers)
    assert lines == []
    statement = "set storage group to root.x"
    client.post("/v1/sql", json={"statement": statement}, headers=headers)
    assert [(each["event"], each["asked"]) for each in lines] == [("run_sql", statement)]


def test_who_is_refused_is_told_once_a_minute_with_the_number_of_the_others(
    app, client, operator, lines, monkeypatch
):
    now = 100.0
    monkeypatch.setattr(app.extensions["tsferry"].audit, "_clock", lambda: now)
    headers = {"Authorization": "Bearer tsf_0123abcd_secret", "Tsferry-Sender": "a" * 32}
    for _ in range(5):
        assert client.get("/v1/tokens", headers=headers).status_code == 401
    now = 161.0
    assert client.get("/v1/tokens", headers=headers).status_code == 401
    assert [each["more"] for each in lines] == [0, 4]
    assert "secret" not in json.dumps(lines)
    reason = lines[0].pop("reason")
    assert "not known" in reason
    assert lines[0] == {
        "level": "warning", "message": "refused", "event": "tokens", "token": "0123abcd",
        "sender": "a" * 32, "peer": "127.0.0.1", "status": 401, "more": 0,
        "certificate": None,
    }  # fmt: skip


def test_a_flood_of_addresses_fills_neither_log_nor_memory(app, lines):
    from receiver.web.server import RequestHead

    audit = app.extensions["tsferry"].audit
    for n in range(5000):
        audit.refused(RequestHead(f"10.0.{n >> 8}.{n & 255}", "", "GET", "/", {}), None, 401, "no")
    assert len(lines) == 1000
    assert len(audit._refused) == 1000


def test_every_call_by_which_operators_and_writers_change_something_is_told():
    changing = {each.name for each in EVERYTHING if each.changes}
    assert {"create_token", "revoke_token"} <= changing
    for each in EVERYTHING:
        if each.role is Role.OPERATOR and each.method in ("POST", "PUT", "PATCH", "DELETE"):
            assert each.name in changing


def test_the_audit_log_is_written_whatever_the_level_is():
    out = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        set_up(LogConfig(level="error"), stream=out)
        logging.getLogger(AUDIT).info("done", extra={"event": "x"})
        logging.getLogger("receiver").info("not this")
        assert "INFO audit: done event=x" in out.getvalue()
        assert "not this" not in out.getvalue()
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def test_a_certificate_that_ends_a_handshake_is_told_once_a_minute_of_each_address(lines):
    now = 100.0
    audit = AuditLog(lambda: now)
    for _ in range(3):
        audit.handshake_refused("10.1.2.3", "certificate has expired")
    audit.handshake_refused("10.1.2.4", "certificate revoked")
    now = 161.0
    audit.handshake_refused("10.1.2.3", "certificate has expired")
    told = [(each["event"], each["peer"], each["reason"], each["more"]) for each in lines]
    assert told == [
        ("handshake", "10.1.2.3", "certificate has expired", 0),
        ("handshake", "10.1.2.4", "certificate revoked", 0),
        ("handshake", "10.1.2.3", "certificate has expired", 2),
    ]
