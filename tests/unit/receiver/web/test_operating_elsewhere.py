"""Commands on a machine that is not the receiver's, which name all that may lead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from flask import Flask

from common import wire
from common.errors import UnreachableError, UsageError
from receiver.cli.commands import cli
from receiver.metadata.engine import Engine
from receiver.operator.client import NotRunningError
from receiver.web.app import site_of
from tests.support.ports import free_port
from tests.support.web import running

DEAD = "http://127.0.0.1:1"
ENVIRON = {
    "TSFERRY_RECEIVER_OPERATOR__TOKEN": "operators-secret",
    "TSFERRY_RECEIVER_CONFIG": None,
    "TSFERRY_RECEIVER_LISTEN__PORT": "0",
}


@pytest.fixture
def url(app: Flask) -> Iterator[str]:
    site_of(app).access.accept_operator("operators-secret")
    port = free_port()
    with running(app, gate=site_of(app).gate, port=port):
        yield f"http://127.0.0.1:{port}"


def run(*words: str, **environ: str | None) -> Result:
    return CliRunner().invoke(cli, words, env=ENVIRON | environ)


def said(*words: str) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_questions_and_changes_are_put_to_the_one_that_answers_without_any_configuration(
    app: Flask, url: str
) -> None:
    several = f"{DEAD},{url}"
    engine = site_of(app).node.engine.uuid
    assert said("--url", several, "status")["engine"] == engine
    assert said("--url", several, "files")["files"] == []
    made = said("--url", several, "token", "create", "--role", "reader", "--note", "x")
    assert [each["id"] for each in said("--url", url, "token", "list")["tokens"]] == [made["id"]]
    done = run("--url", several, "sql", "create timeseries root.a.d.s with datatype=INT32")
    assert done.exit_code == 0, done.output


def test_the_configuration_may_say_it_and_needs_no_directories_then(
    tmp_path: Path, url: str
) -> None:
    secret = tmp_path / "token"
    secret.write_text("operators-secret\n")
    secret.chmod(0o600)
    config = tmp_path / "operator.toml"
    config.write_text(f'[operator]\nurl = "{url}"\ntoken_file = "{secret}"\n')
    without = {"TSFERRY_RECEIVER_OPERATOR__TOKEN": None}
    done = run("--config", str(config), "tables", "--json", **without)
    assert done.exit_code == 0, (done.output, done.exception)


def test_no_directory_is_shown_that_stands_in_for_one_and_what_is_shown_loads(
    tmp_path: Path,
) -> None:
    file, shown = tmp_path / "r.toml", tmp_path / "shown.toml"
    file.write_text(f'[operator]\nurl = "{DEAD}"\n')
    found = said("--config", str(file), "config", "show")
    assert (found["schema_dir"], found["data_dirs"]) == (None, None)
    found = said("--config", str(file), "config", "show", "--origin")
    assert found["schema_dir"] == {
        "value": None,
        "origin": {"kind": "default", "where": "default"},
    }
    done = run("--config", str(file), "config", "show")
    assert done.exit_code == 0
    assert "_dir" not in done.stdout.partition("[listen]")[0]
    shown.write_text(done.stdout)
    assert run("--config", str(shown), "config", "show").stdout == done.stdout
    named = run("--config", str(file), "--set", "schema_dir=/a", "config", "show")
    assert 'schema_dir = "/a"' in named.stdout, "what somebody set is shown"


def test_a_change_is_said_to_the_one_that_leads_alone(url: str) -> None:
    """It is found out by a question: what was said to two might be done twice."""
    seen: list[tuple[str, str]] = []

    def displaced(environ: dict[str, Any], start: Any) -> list[bytes]:
        seen.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        lost = "urn:tsferry:not-the-writer"
        body = wire.encode(wire.Problem(type=lost, title=lost, status=421, detail="none any more"))
        headers = [("Content-Type", wire.PROBLEM_TYPE), ("Content-Length", str(len(body)))]
        start("421 Misdirected Request", headers)
        return [body]

    with running(displaced, port=free_port()) as server:
        several = f"http://127.0.0.1:{server.addresses[0][1]},{url}"
        made = said("--url", several, "token", "create", "--role", "reader")
    assert made["id"] in [each["id"] for each in said("--url", url, "token", "list")["tokens"]]
    assert seen == [("GET", "/v1/log")]


def test_how_it_is_is_told_of_the_one_that_leads(app: Flask, url: str) -> None:
    """The one that has lost its place says how it is, too, to whoever names it alone."""
    headers = {"Authorization": "Bearer operators-secret"}
    found = app.test_client().get("/v1/status", headers=headers).get_json()
    assert found["ready"]
    lost = "urn:tsferry:not-the-writer"
    told = wire.Problem(type=lost, title=lost, status=421, detail="none any more")

    def displaced(environ: dict[str, Any], start: Any) -> list[bytes]:
        is_status = environ["PATH_INFO"] == "/v1/status"
        body = json.dumps({**found, "ready": False}).encode() if is_status else wire.encode(told)
        kind = "application/json" if is_status else wire.PROBLEM_TYPE
        status = "200 OK" if is_status else "421 Misdirected Request"
        start(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    with running(displaced, port=free_port()) as server:
        old = f"http://127.0.0.1:{server.addresses[0][1]}"
        assert said("--url", f"{old},{url}", "status")["ready"]
        for several in (old, f"{old},{DEAD}"):
            done = run("--url", several, "status", "--json")
            assert json.loads(done.stdout)["ready"] is False


@pytest.mark.parametrize(
    "words",
    [("serve",), ("fsck",), ("backup", "x"), ("clock", "confirm"), ("senders",)],
)
def test_nothing_is_done_on_this_machine_in_the_place_of_the_other(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("--url", DEAD, *words)
    assert isinstance(done.exception, (UsageError, UnreachableError)), done.exception
    assert not isinstance(done.exception, NotRunningError)
    assert f"{DEAD}/v1" in str(done.exception) or "receiver's own machine" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("serve",),
        ("serve", "--node", "--master", "http://127.0.0.1:1"),
        ("fsck",),
        ("backup", "copy"),
        ("export", "out"),
        ("mlog", "dump"),
        ("hooks", "list"),
        ("init", "--adopt"),
        ("--set", "storage.url=s3://somewhere", "storage", "takeover"),
        ("--set", "storage.url=s3://somewhere", "restore"),
    ],
    ids=lambda words: " ".join(words),
)
def test_directories_that_are_configured_are_not_those_of_the_receiver_there(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator who tries `--url` on a machine with a receiver must not work on that one."""
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "receiver.toml"
    config.write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')
    done = run("--config", str(config), "--url", DEAD, *words)
    assert "receiver's own machine" in str(done.exception), (done.output, done.exception)
    assert list(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize("by", ["flag", "file"])
@pytest.mark.parametrize("words", [("fsck", "--repair"), ("backup", "x"), ("serve",), ("senders",)])
def test_the_directories_of_this_machine_are_not_taken_for_those_of_the_other(
    tmp_path: Path, words: tuple[str, ...], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stands at the one and names the other repairs, or copies, the wrong one."""
    monkeypatch.chdir(tmp_path)
    Engine.open(tmp_path / "schema").close()
    (tmp_path / "data").mkdir()
    before = {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*")}
    config = tmp_path / "schema" / "receiver.toml"
    text = f'schema_dir = "{tmp_path}/schema"\ndata_dirs = ["{tmp_path}/data"]\n'
    config.write_text(text + (f'[operator]\nurl = "{DEAD}"\n' if by == "file" else ""))
    before |= {each: each.stat().st_mtime_ns for each in (config, config.parent)}
    done = run("--config", str(config), *(("--url", DEAD) if by == "flag" else ()), *words)
    assert isinstance(done.exception, (UsageError, UnreachableError)), done.exception
    assert f"{DEAD}/v1" in str(done.exception) or "receiver's own machine" in str(done.exception)
    assert {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*")} == before


def test_no_token_goes_where_others_can_read_it_and_none_is_asked_for() -> None:
    done = run("--url", "http://centre.example.com:1", "files")
    assert "operator.url = 'http://centre.example.com:1': expected https" in str(done.exception)
    done = run("--url", DEAD, "files", TSFERRY_RECEIVER_OPERATOR__TOKEN=None)
    assert "expected with operator.token_file" in str(done.exception)
