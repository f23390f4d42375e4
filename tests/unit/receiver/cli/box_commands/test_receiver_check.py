from __future__ import annotations

import msgspec
import pytest

from common.console.cli import run
from common.errors import UnreachableError
from receiver.cli.box_commands.receiver_check import check_line_of, node_check_line
from receiver.cli.commands import cli
from receiver.operator.client import OperatorClient
from receiver.operator.views.sender_views import LateView
from receiver.operator.views.status_views import AwayView, ClockView, StatusView
from receiver.storagenode.node_status import NodeStatus

FINE = StatusView(
    engine="e" * 32, version="0.2.0", newest_commit=1, ready=True, senders=3, files=9, late=0
)


def test_where_all_is_well_it_says_what_is_there() -> None:
    line = check_line_of(FINE, running=True)
    assert line.level == 0
    assert line.text().startswith("TSFERRY OK - 3 edges, 9 files | ")
    assert {"edges=3", "late=0;0", "lost=0;;0", "free=0B"} <= set(line.text().split())


@pytest.mark.parametrize(
    ("changes", "level", "said"),
    [
        ({"ready": False, "problem": "too little space"}, 2, "too little space"),
        ({"lost": 2}, 2, "2 files are lost"),
        ({"away": (AwayView(path="/d", reason="no marker"),)}, 2, "1 directory is away"),
        ({"quarantined": 4}, 1, "4 files are not taken"),
        ({"held_deletes": 1}, 1, "1 list of deletes is held"),
        ({"concerns": ("the certificate ends on 2026-12-01",)}, 1, "the certificate ends"),
        ({"clock": ClockView(doubt="it jumped")}, 1, "the clock is not believed"),
        (
            {"late": 5, "late_senders": (LateView(sender="a", label="plant 7"),)},
            1,
            "5 edges are late (plant 7, ...)",
        ),
        ({"late": None}, 0, "3 edges"),
    ],
)
def test_what_is_wrong_is_said_and_is_the_exit_code(changes, level, said) -> None:
    line = check_line_of(msgspec.structs.replace(FINE, **changes), running=True)
    assert (line.level, said in line.text()) == (level, True)


def test_a_receiver_that_does_not_run_is_critical() -> None:
    view = msgspec.structs.replace(FINE, problem="no receiver is running")
    line = check_line_of(view, running=False)
    assert (line.level, "no receiver is running" in line.text()) == (2, True)


def test_a_wrong_configuration_is_unknown_on_standard_output(tmp_path, capsys):
    config = tmp_path / "receiver.toml"
    config.write_text("nonsense = 1\n")
    for _ in range(2):
        assert run(cli, "tsferry-receiver", ["--config", str(config), "status", "--check"]) == 3
        said = capsys.readouterr().out
        assert said.startswith("TSFERRY UNKNOWN - ")
        assert said.count("\n") == 1
        config.unlink(missing_ok=True)


def test_a_storage_node_has_the_line_too(tmp_path, capsys, monkeypatch):
    config = tmp_path / "node.toml"
    config.write_text(
        f'schema_dir = "{tmp_path / "schema"}"\ndata_dirs = ["{tmp_path}"]\n'
        '[node]\nmaster = ["http://127.0.0.1:1"]\n'
    )
    typed = ["--config", str(config), "status", "--check"]
    assert run(cli, "tsferry-receiver", typed) == 2, "it does not run"
    assert capsys.readouterr().out.startswith("TSFERRY CRITICAL - ")
    view = NodeStatus(node="n", instance=1, version="1", concerns=("a disk is slow",), rotten=2)
    line = node_check_line(view)
    assert (line.level, "a disk is slow" in line.text(), "rotten=2;0" in line.text()) == (
        1,
        True,
        True,
    )


def test_a_receiver_that_cannot_be_asked_is_critical(tmp_path, monkeypatch, capsys) -> None:
    def expired(*_asked: object) -> None:
        raise UnreachableError("https://centre:8765 does not answer: certificate has expired")

    monkeypatch.setattr(OperatorClient, "__init__", lambda *_: None)
    monkeypatch.setattr(OperatorClient, "ask", expired)
    monkeypatch.chdir(tmp_path)
    assert run(cli, "tsferry-receiver", ["init"]) == 0
    capsys.readouterr()
    assert run(cli, "tsferry-receiver", ["-c", "receiver.toml", "status", "--check"]) == 2
    said = capsys.readouterr().out
    assert said.startswith("TSFERRY CRITICAL - https://centre:8765 does not answer: certificate")
