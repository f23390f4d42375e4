"""What `copies status` says to people."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.console.cli import run
from receiver.cli.commands import cli
from receiver.operator.client import OperatorClient
from receiver.operator.views.copy_views import CopiesView

LOST = "sequence/root.a/0/0/1-1-0-0.0123456789abcdef.tsfile"


def test_files_that_nothing_let_go_and_nobody_has_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a restore, or where a disk is lost: none has left the disks for nodes."""
    view = CopiesView(
        replicas=1, before_ack=0, tablets=1, placed=1, creating=0, short=0, whole=0,
        nowhere=1, first_nowhere=(LOST,),
    )  # fmt: skip
    monkeypatch.setattr(OperatorClient, "__init__", lambda self, config: None)
    monkeypatch.setattr(OperatorClient, "ask", lambda *_, **__: view)
    config = tmp_path / "receiver.toml"
    config.write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')
    assert run(cli, "tsferry-receiver", ["--config", str(config), "copies", "status"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == ["nowhere known    1 file", f"  {LOST}"]
    assert not any(each.startswith("off the disks") for each in said)
