"""What `nodes lost` says to people: of a directory and of a storage node what concerns each."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.console.cli import run
from receiver.cli.commands import cli
from receiver.cli.place_commands import node_commands
from receiver.operator.client import OperatorClient
from receiver.operator.views.node_views import LossView

UUID = "a" * 32


def said_of(
    view: LossView,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    monkeypatch.setattr(OperatorClient, "__init__", lambda self, config: None)
    monkeypatch.setattr(OperatorClient, "ask", lambda *_, **__: view)
    monkeypatch.setattr(node_commands, "chosen_node", lambda _, node: node)
    config = tmp_path / "receiver.toml"
    config.write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')
    assert run(cli, "tsferry-receiver", ["--config", str(config), "nodes", "lost", UUID]) == 0
    return capsys.readouterr().out.splitlines()


def test_of_a_storage_node_that_is_told_which_only_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view = LossView(node=UUID, name="http://node7", kind="remote", alone=2, alone_bytes=4096)
    said = said_of(view, tmp_path, monkeypatch, capsys)
    assert said[0] == f"http://node7 ({UUID}): silent"
    assert said[1].startswith("  nowhere else:     2 files, 4.0 KiB")
    assert not any("asked for again" in each or "gone for good" in each for each in said)
    assert said[-1] == "nothing was changed; --confirm has it so"


def test_of_a_directory_what_becomes_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view = LossView(node=UUID, name="/srv/disk2", wanted=3, wanted_bytes=2048)
    said = said_of(view, tmp_path, monkeypatch, capsys)
    assert said[0] == f"/srv/disk2 ({UUID}): away"
    assert said[1] == "  asked for again:  3 files, 2.0 KiB"
    assert not any("nowhere else" in each for each in said)
