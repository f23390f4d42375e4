"""What each command of a receiver writes with --json is what it says it writes, to the member.

Those that show what a server answers are given an answer with everything in it; those that do the
work themselves do it, on a small receiver.
"""

from __future__ import annotations

import json
import types
import typing
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from common.console.cli import run
from common.console.json_form import json_form
from receiver.cli.command_answers import LoggedCommit
from receiver.cli.commands import cli
from receiver.metadata.model import records
from receiver.operator.client import OperatorClient
from scripts import json_page
from tests.support.json_schema import check_output, filled
from tests.support.machine import Machine

_R = "tsferry-receiver "
ASKED: dict[str, str] = {
    "adopt": "adopt {tmp} --commit",
    "clock confirm": "clock confirm",
    "compact": "compact root.sg 0",
    "copies back": "copies back",
    "copies offered": "copies offered",
    "copies status": "copies status",
    "copies rebalance": "copies rebalance",
    "deletes allow": "deletes allow x",
    "deletes drop": "deletes drop x",
    "deletes list": "deletes list",
    "files": "files",
    "files delete": "files delete x",
    "files undelete": "files undelete x",
    "load": "load {tmp}",
    "lost acknowledge": "lost acknowledge --sender x --all",
    "lost list": "lost list",
    "nodes accept": "nodes accept x",
    "nodes confirm-master": "--set node.master=http://127.0.0.1:1 nodes confirm-master",
    "nodes drain": "nodes drain x",
    "nodes forget": "nodes forget x",
    "nodes found": "nodes found x",
    "nodes list": "nodes list",
    "nodes lost": "nodes lost x",
    "nodes replace": "nodes replace x {tmp}",
    "nodes show": "nodes show x",
    "nodes undrain": "nodes undrain x",
    "owners list": "owners list",
    "owners release": "owners release root.sg.d",
    "owners transfer": "owners transfer root.sg.d x",
    "quarantine drop": "quarantine drop --all",
    "quarantine list": "quarantine list",
    "quarantine retry": "quarantine retry --all",
    "retired drop": "retired drop x",
    "retired list": "retired list",
    "retired show": "retired show x",
    "senders": "senders",
    "senders accept": "senders accept x",
    "senders adopt": "senders adopt x x",
    "senders list": "senders list",
    "senders remove": "senders remove x",
    "senders schema": "senders schema x",
    "senders set": "senders set x --late-after 2d",
    "status": "status",
    "storage fetch": "storage fetch x",
    "storage status": "storage status",
    "tables": "tables",
    "tables alter": "tables alter x --replicas 2",
    "tables create": "tables create root.sg",
    "tables show": "tables show x",
    "tablets": "tablets x",
    "tasks add": "tasks add prove root.sg",
    "tasks cancel": "tasks cancel x",
    "tasks list": "tasks list",
    "tasks retry": "tasks retry x",
    "token create": "token create --role reader",
    "token list": "token list",
    "token revoke": "token revoke x",
    "tree": "tree",
    "ttl resume": "ttl resume",
}
"""Commands that show an answer, and how they are called."""

DONE = (
    "backup", "config show", "export", "fsck", "hooks list", "hooks test", "init", "mlog dump",
    "mlog import", "mtree dump", "mtree import", "restore", "sql", "storage check",
    "storage takeover", "tasks run", "token enrol",
)  # fmt: skip
"""Commands that do what they do themselves: the tests below have each of them."""


def test_each_command_with_json_is_run_by_a_test_here() -> None:
    of_it = {each.removeprefix(_R) for each in json_page.json_options() if each.startswith(_R)}
    assert of_it == ASKED.keys() | set(DONE)
    here = Path(__file__).read_text()
    assert [each for each in DONE if f'written(machine, "{each}"' not in here] == []


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    (tmp_path / "bucket").mkdir()
    return Machine(tmp_path / "one", tmp_path / "bucket", capsys)


@pytest.mark.parametrize("words", ASKED)
def test_an_answer_is_written_as_the_page_says(
    words: str, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    answers(monkeypatch)
    (tmp_path / "a.tsfile").write_bytes(b"TsFile")
    typed = ASKED[words].format(tmp=tmp_path).split()
    with suppress(SystemExit):  # what was left out is told by the exit code
        run(cli, "tsferry-receiver", ["--config", str(machine.file), *typed, "--json"])
    check_output(_R + words, capsys.readouterr().out)


def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers each call with all that there can be."""
    client: Any = OperatorClient
    monkeypatch.setattr(client, "__init__", lambda self, config, keep=False: None)
    monkeypatch.setattr(client, "ask", lambda self, method, path, kind, **more: filled(kind))
    monkeypatch.setattr(client, "tell", lambda self, *what, **more: None)
    monkeypatch.setattr(
        client, "exchange", lambda *a, **k: types.SimpleNamespace(body=b"", status=200, headers={})
    )


def test_accepted_senders_are_told_in_one_form(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch)
    for each in ("x", "--all"):
        found = machine.command("senders", "accept", each, "--json")
        assert check_output(_R + "senders accept", found) == {"senders": ["x"]}


def test_a_storage_node_has_a_status_of_its_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch)
    told = "--set", "node.master=http://127.0.0.1:1", "status", "--json"
    check_output(_R + "status", machine.command(*told, code=4), "of a storage node")


def written(machine: Machine, words: str, *more: str, when: str = "", code: int = 0) -> Any:
    """What a command with further words and --json writes, once it is what it says."""
    out = machine.command(*words.split(), *more, "--json", code=code)
    return check_output(_R + words, out, when)


@pytest.mark.slow
def test_what_is_done_on_the_directories_is_written_as_the_page_says(
    machine: Machine, tmp_path: Path
) -> None:
    machine.fill()
    assert len(written(machine, "storage check")["findings"]) == 10
    assert written(machine, "fsck")["files"] == 2
    assert written(machine, "fsck", "--storage", when="with `--storage`")["files"] == 2
    assert written(machine, "backup", str(tmp_path / "backup"))["copied"] == 2
    assert written(machine, "export", str(tmp_path / "out"))["request"]["commit"].isdigit()
    assert len(written(machine, "mlog dump")) > 1
    assert written(machine, "mtree dump")[0]["is"] == "group"
    for kind, form in (("mlog", ["--text"]), ("mtree", [])):
        dump = tmp_path / f"{kind}.txt"
        dump.write_text(machine.command(kind, "dump", *form))
        assert check_import(machine, kind, dump)["failed"] == []
    written(machine, "sql", "show timeseries")
    written(machine, "tasks add", "prove", "root.sg")
    (edges := tmp_path / "edges.csv").write_text("label\nnorth\n")
    made = written(machine, "token enrol", str(edges), "--into", str(tmp_path / "edges"))
    assert [each["state"] for each in made["edges"]] == ["made"]
    written(machine, "storage takeover")


@pytest.mark.parametrize(
    "kind", typing.get_args(records.Op), ids=lambda each: getattr(each, "__name__", "")
)
def test_each_operation_of_the_log_has_its_form(kind: Any) -> None:
    op = filled(kind)
    told = json.dumps(json_form(LoggedCommit(ts=1, ops=[op])))
    (commit,) = check_output(_R + "mlog dump", told)
    (shown,) = commit["ops"]
    assert shown.pop("op") == kind.__name__
    assert {each for each in shown if not each.endswith("_iso")} == set(op.__struct_fields__)
    assert records.decode_ops(records.encode_ops([op])) == [op], "the forms change no log"
    of_another = {"op": "TtlSet", "path": "root.a", "ttl": 1}
    for wrong in ({**shown, "op": "Unknown"}, {**of_another, "more": 1}, {"op": kind.__name__}):
        with pytest.raises(AssertionError, match="mlog dump"):
            check_output(_R + "mlog dump", json.dumps({"ts": "1", "ops": [wrong]}))


def test_times_in_the_log_are_text_whatever_their_size_and_codes_are_numbers() -> None:
    device = records.LoadedDevice("root.a.d", False, ["s"], b"\x02", b"\x04", b"\x01", [5])
    logged = [records.SeriesLoaded("a.tsfile", [device])]
    (shown,) = json_form(LoggedCommit(ts=7, ops=logged))["ops"]
    (told,) = shown["devices"]
    assert (told["lasts"], told["types"]) == (["5"], [2])


def check_import(machine: Machine, kind: str, dump: Path) -> Any:
    if kind == "mlog":
        return written(machine, "mlog import", str(dump))
    return written(machine, "mtree import", str(dump))


def test_a_task_that_is_run_by_hand_is_written_as_the_page_says(machine: Machine) -> None:
    machine.fill()
    written(machine, "tasks run", "--all")


def test_a_statement_that_gives_no_rows_has_a_form_of_its_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from receiver.cli.shell import sqlformat

    lines: list[str] = []
    out = types.SimpleNamespace(write=lines.append)
    sqlformat.output("json", out, machine.world).done("made", 7)  # type: ignore[arg-type]
    check_output(_R + "sql", "".join(lines), "of a statement that gives no rows")


def test_a_restore_is_written_as_the_page_says(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.fill()
    machine = Machine(tmp_path / "two", tmp_path / "bucket", capsys)
    assert written(machine, "restore", "--check", when="with `--check`")["files"] == 2
    assert written(machine, "restore")["fetched"] == 2


def test_what_init_and_the_configuration_are_is_written_as_the_page_says(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    machine.file = tmp_path / "new.toml"
    assert written(machine, "init", "--alerts", str(tmp_path))["config"] is None
    assert written(machine, "init")["config"]
    assert written(machine, "config show")["listen"]["port"]
    found = written(machine, "config show", "--origin", when="with `--origin`")
    assert found["listen.port"]["origin"]["kind"] == "default"


def test_hooks_are_written_as_the_page_says(machine: Machine, tmp_path: Path) -> None:
    machine.file.write_text(machine.file.read_text() + '[hooks]\ncommand = ["/bin/false"]\n')
    assert written(machine, "hooks test", code=4)["hooks"]["command"]["ok"] is False
    with machine.world.node():
        pass
    written(machine, "hooks list")
