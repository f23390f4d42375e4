"""What each command of a sender writes with --json is what it says it writes, to the member."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.console.cli import run
from common.wire import HeldRecords, LostFile, LostFiles, Outcome, Result
from scripts import json_page
from sender.cli.commands import cli
from sender.cli.event_lines import EVENT_SHAPES
from tests.support.edge import Edge
from tests.support.json_schema import check_output
from tests.support.old_tool import OldSenderTree
from tests.support.scripted_receiver import ScriptedReceiver

_S = "tsferry-sender "
Written = Callable[..., Any]


@pytest.fixture
def edge(receiver: ScriptedReceiver, tmp_path: Path) -> Edge:
    return Edge(tmp_path / "edge", receiver.url)


@pytest.fixture
def written(edge: Edge, capsys: pytest.CaptureFixture[str]) -> Written:
    """What a command with further words and --json writes, once it is what it says."""
    config = edge.write_config()

    def command(words: str, *more: str, when: str = "", code: int = 0, **how: bool) -> Any:
        capsys.readouterr()
        in_lines = words.endswith("--jsonl")
        typed = [*words.split(), *more, *([] if in_lines else ["--json"])]
        got = run(cli, "tsferry-sender", ["--config", str(config), *typed])
        out = capsys.readouterr()
        assert got == code, out
        if in_lines:
            return [
                check_output(_S + words, line, f"with `event` = `{json.loads(line)['event']}`")[0]
                for line in out.out.splitlines()
            ]
        return check_output(_S + words, out.out, when, **how)

    return command


def test_each_command_with_json_is_run_by_a_test_here() -> None:
    of_it = {each.removeprefix(_S) for each in json_page.json_options() if each.startswith(_S)}
    here = Path(__file__).read_text()
    assert {each for each in of_it if f'written("{each}"' not in here} == set()
    assert "tsferry-verify" in json_page.json_options()  # test_verify_on_spark.py runs it


def test_each_line_of_a_log_is_written_as_the_page_says(
    edge: Edge, receiver: ScriptedReceiver, written: Written
) -> None:
    for number in (1, 2):
        edge.write(number)
    refusal = Outcome(path=edge.path(2), result=Result.CONFLICT, device="root.a")
    receiver.judge = lambda path: refusal if path == refusal.path else None
    lines = written("sync --jsonl", code=3)
    assert {each["event"] for each in lines} == EVENT_SHAPES.keys()


def test_rounds_and_their_standing_are_written_as_the_page_says(
    edge: Edge, receiver: ScriptedReceiver, written: Written
) -> None:
    for number in range(1, 6):
        edge.write(number)
    judged = {
        edge.path(1): Outcome(path=edge.path(1), result=Result.CONFLICT, device="root.a"),
        edge.path(2): Outcome(path=edge.path(2), result=Result.QUARANTINED, reason="no TsFile"),
        edge.path(3): Outcome(path=edge.path(3), result=Result.REFUSED, reason="no name"),
    }
    receiver.judge = judged.get
    assert written("check")["ok"]
    ahead = written("sync", "--dry-run", when="with `--dry-run`")
    assert [len(each["additions"]) for each in ahead["tasks"]] == [5]
    done = written("sync", code=3)
    assert (done["sent"], len(done["conflicts"]), len(done["quarantined"])) == (2, 1, 1)
    assert done["complete_until"] is None or isinstance(done["complete_until"], str)
    found = written("status", code=3)["receivers"]["dc1"]
    assert len(found["troubles"]) == 3
    assert all(each["since_iso"].endswith("Z") for each in found["troubles"])
    assert found["last_round"]["ended_iso"].endswith("Z")
    assert len(written("quarantine list")) == 3
    assert len(written("quarantine retry", edge.path(2))) == 1
    assert len(written("quarantine drop", edge.path(2))) == 1
    written("recover")
    written("resync", code=3)


def test_what_is_safe_and_freed_is_written_as_the_page_says(edge: Edge, written: Written) -> None:
    edge.write(1)
    written("sync")
    assert written("status", "--safe-to-delete", when="with `--safe-to-delete`") == []
    assert written("free")["files"] == 0


def test_a_receiver_out_of_reach_has_the_same_members(
    edge: Edge, receiver: ScriptedReceiver, written: Written
) -> None:
    edge.write(1)
    written("sync")
    receiver.__exit__()
    assert written("check", code=4)["ok"] is False
    assert written("sync", code=4)["error"]["type"]
    assert written("free", code=4)["error"]["type"]


def test_what_a_receiver_told_of_losses_is_written_as_the_page_says(
    edge: Edge, receiver: ScriptedReceiver, written: Written
) -> None:
    edge.write(1)
    receiver.lost = LostFiles(
        files=1, since=5, named=[LostFile(path=edge.path(9), size=1, md5="0" * 32, reason="gone")]
    )
    receiver.held_records = [HeldRecords(group="root.sg", files=1, reason="many")]
    written("sync", code=3)
    found = written("status", code=3)["receivers"]["dc1"]
    assert found["lost"]["since"] == "5"


def test_a_last_round_of_a_program_of_before_gets_the_members_of_now(
    edge: Edge, written: Written
) -> None:
    from sender.kept.receiver_file import ReceiverFile

    edge.write(1)
    written("sync")
    remote = edge.remote()
    with remote.sync_tree() as sync:
        memory = ReceiverFile.open(sync, remote.directory)
        memory.update(last_round={"sent": 7, "ended": 5.0})
    remote.close()
    last = written("status")["receivers"]["dc1"]["last_round"]
    assert (last["sent"], last["ended"], last["conflicts"]) == (7, 5.0, [])


def test_several_receivers_stand_by_name(
    edge: Edge, receiver: ScriptedReceiver, capsys: pytest.CaptureFixture[str]
) -> None:
    config = edge.write_config()
    second = '[[receiver]]\nname = "dc2"\nurl = "http://127.0.0.1:1"\n'
    config.write_text(f"{config.read_text()}{second}")
    code = run(cli, "tsferry-sender", ["--config", str(config), "check", "--json"])
    out = capsys.readouterr().out
    found = check_output(_S + "check", out, by_name=True)
    assert (found["exit_code"], set(found["receivers"])) == (code, {"dc1", "dc2"})


def test_what_is_set_up_is_written_as_the_page_says(
    edge: Edge, written: Written, tmp_path: Path
) -> None:
    assert written("init")["uuid"]
    assert written("config show")["receiver"]
    found = written("config show", "--origin", when="with `--origin`")
    assert found["schema_dir"]["origin"]["kind"] == "file"
    config = tmp_path / "edge" / "sender.toml"
    config.write_text(config.read_text() + '[hooks]\ncommand = ["/bin/false"]\n')
    assert written("hooks test", code=4)["hooks"]["command"]["ok"] is False
    written("hooks list")


def test_what_is_taken_over_of_the_old_tool_is_written_as_the_page_says(
    edge: Edge, written: Written, tmp_path: Path
) -> None:
    edge.write(1)
    old = OldSenderTree(edge.data, tmp_path / "system")
    old.identity(edge.uuid)
    old.listed([edge.path(2)])
    found = written("adopt", "--system", str(old.system), code=3)
    assert (found["away"], len(found["to_send"])) == ([edge.path(2)], 1)


@pytest.mark.slow
def test_the_daemon_is_written_as_the_page_says(edge: Edge, written: Written) -> None:
    edge.write(1)
    started = written("start")
    try:
        assert written("status")["daemon"]["pid"] == started["pid"]
    finally:
        assert written("stop") == {"stopped": True}
