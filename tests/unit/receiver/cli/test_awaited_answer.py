"""How far a work of the server is, for whoever called the command that waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.console.cli import run
from common.console.progress_bar import WorkProgress
from common.errors import BusyError
from receiver.cli import awaited_load
from receiver.cli.awaited_answer import awaited
from receiver.cli.commands import cli
from receiver.cli.content_commands import centre_load
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadFile, CentreLoadRequest
from receiver.operator.views.step_now import StepNow
from tests.unit.common.console.test_progress_bar import Terminal

REQUEST = CentreLoadRequest(task="1" * 32, paths=["/mnt"])


class Server:
    """Answers as it was told, one after the other."""

    def __init__(self, *answers: CentreLoadAnswer | Exception) -> None:
        self.answers = list(answers)
        self.calls: list[str] = []

    def ask(self, method: str, path: str, kind: type, **more: Any) -> CentreLoadAnswer:
        assert more["query"] == {"wait": 1}
        self.calls.append(f"{method} {path}")
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def going(done: int, step: str = "copying", trouble: str | None = None) -> CentreLoadAnswer:
    now = StepNow(step=step, done=done, total=4, bytes=done << 20, total_bytes=4 << 20)
    return CentreLoadAnswer(task=REQUEST.task, done=False, progress=now, trouble=trouble)


DONE = CentreLoadAnswer(task=REQUEST.task, done=True)


def asked(server: Server, progress: WorkProgress, **more: Any) -> CentreLoadAnswer:
    return awaited(
        server,  # type: ignore[arg-type]
        "/v1/loads", REQUEST.task, REQUEST, CentreLoadAnswer, progress, **more,
    )  # fmt: skip


def test_a_bar_shows_how_far_the_server_is_until_it_has_done_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal, heard = Terminal(), list[CentreLoadAnswer]()
    server = Server(going(1), going(2), DONE)
    assert asked(server, WorkProgress(terminal, drawn=0.0), heard=heard.append) is DONE
    assert server.calls == ["POST /v1/loads", *[f"GET /v1/loads/{REQUEST.task}"] * 2]
    shown = terminal.getvalue()
    assert "copying:  25%|" in shown
    assert "copying:  50%|" in shown
    assert "2.00M/4.00M" in shown
    assert " left, 2 of 4" in shown
    assert shown.rpartition("\r")[2] == ""
    assert heard == [going(1), going(2)]


def test_a_refusal_is_raised_and_leaves_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with pytest.raises(BusyError):
        asked(Server(going(1), BusyError("another")), WorkProgress(terminal, drawn=0.0))
    assert terminal.getvalue().rpartition("\r")[2] == ""


@pytest.mark.parametrize(
    ("result", "code"),
    [("loaded", 0), ("already", 0), ("expired", 0), ("refused", 3), ("missing", 3)],
)
def test_a_load_ends_well_only_if_nobody_needs_the_originals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result: str, code: int
) -> None:
    file = CentreLoadFile(source="a", path="a", size=1, result=result)
    answer = CentreLoadAnswer(task=REQUEST.task, done=True, files=[file])
    monkeypatch.setattr(awaited_load, "awaited", lambda *_: answer)
    monkeypatch.setattr(centre_load, "OperatorClient", lambda *_, **__: None)
    (tmp_path / "receiver.toml").write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')
    monkeypatch.chdir(tmp_path)
    assert run(cli, "tsferry-receiver", ["--config", "receiver.toml", "load", "a"]) == code


class Interrupted(Server):
    """The operator presses Ctrl-C while the load is under way."""

    def ask(self, method: str, path: str, kind: type, **more: Any) -> CentreLoadAnswer:
        if self.calls:
            raise KeyboardInterrupt
        return super().ask(method, path, kind, **more)


def told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Server, *arguments: str
) -> int:
    monkeypatch.setattr(centre_load, "OperatorClient", lambda *_, **__: server)
    monkeypatch.setattr(centre_load.secrets, "token_hex", lambda _: REQUEST.task)
    (tmp_path / "receiver.toml").write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')
    monkeypatch.chdir(tmp_path)
    return run(cli, "tsferry-receiver", ["--config", "receiver.toml", "load", *arguments])


def test_whoever_ends_the_command_is_told_that_the_load_goes_on_and_how_to_end_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told_of(monkeypatch, tmp_path, Interrupted(going(1)), "a") == 130
    said = capsys.readouterr().err
    assert f"load --wait {REQUEST.task}" in said
    assert f"tasks cancel {REQUEST.task}" in said


def test_a_load_that_was_begun_before_is_waited_for_and_not_begun_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = Server(going(1), DONE)
    assert told_of(monkeypatch, tmp_path, server, "--wait", REQUEST.task) == 0
    assert server.calls == [f"GET /v1/loads/{REQUEST.task}"] * 2
    assert told_of(monkeypatch, tmp_path, server, "--wait", REQUEST.task, "a") == 2
    assert told_of(monkeypatch, tmp_path, server) == 2
