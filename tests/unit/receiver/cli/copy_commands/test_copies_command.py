"""What `copies status` says to people."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.console.cli import run
from receiver.cli.commands import cli
from receiver.operator.client import OperatorClient
from receiver.operator.views.copy_views import (
    CopiesView,
    NodeBalance,
    RebalanceRequest,
    RebalanceView,
)

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


@pytest.mark.parametrize("confirm", [False, True])
def test_who_asks_what_would_go_is_told_that_nothing_was_changed(
    confirm: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[object] = []

    def ask(self: OperatorClient, *call: object, body: object) -> RebalanceView:
        asked.append(body)
        has = NodeBalance(node="a" * 32, name="http://node7", before=4096, after=2048)
        return RebalanceView(tablets=1, size=2048, moving=2, nodes=(has,), done=confirm)

    monkeypatch.setattr(OperatorClient, "__init__", lambda self, config: None)
    monkeypatch.setattr(OperatorClient, "ask", ask)
    config = tmp_path / "receiver.toml"
    config.write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')
    words = ["--config", str(config), "copies", "rebalance", *["--confirm"] * confirm]
    assert run(cli, "tsferry-receiver", words) == 0
    said = capsys.readouterr().out.splitlines()
    assert asked == [RebalanceRequest(confirm=confirm)]
    assert said[1].split() == ["aaaaaaaa", "http://node7", "4.0", "KiB", "2.0", "KiB"]
    does = "go" if confirm else "would go"
    assert said[2] == f"1 tablet, 2.0 KiB, {does} to other nodes"
    assert said[3] == "2 tablets not whole yet where placed: left alone"
    assert said[4:] == ([] if confirm else ["nothing was changed; --confirm has it so"])
