"""`tsferry-sender hooks`, and what other commands say of hooks."""

from __future__ import annotations

import json
import time

import pytest

from common.console.cli import run
from common.durable import Tree
from common.hooks.queue_lines import StandingLine, written_line
from sender.cli.commands import cli
from sender.hooks.sender_hooks import hooks_directory
from tests.support.edge import Edge
from tests.support.scripted_receiver import ScriptedReceiver


@pytest.fixture
def edge(tmp_path):
    with ScriptedReceiver() as receiver:
        yield Edge(tmp_path / "edge", receiver.url)


@pytest.fixture
def out(tmp_path):
    path = tmp_path / "out"
    path.touch()
    return path


@pytest.fixture
def hook(tmp_path, out):
    path = tmp_path / "hook"
    path.write_text(f"#!/bin/sh\ncat >> {out}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def command(edge, hook, capsys):
    def command(*arguments, **settings):
        config = edge.write_config(**{"hooks.command": [str(hook)], **settings})
        capsys.readouterr()
        code = run(cli, "tsferry-sender", ["--config", str(config), *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    return command


def told(out):
    found = [json.loads(line) for line in out.read_text().splitlines()]
    return [(each["kind"], each["who"]["uuid"], each["what"]) for each in found]


def test_a_round_by_hand_tells_what_it_did(edge, command, out):
    edge.write(1)
    assert command("sync")[0] == 0
    (loaded, who, what), (ended, _, numbers) = told(out)
    assert (loaded, ended, who) == ("loaded", "round", edge.uuid)
    assert (what["files"], what["receiver"]) == (1, "dc1")
    assert (numbers["loaded"], numbers["exit_code"]) == (1, 0)
    assert command("sync")[0] == 0
    assert len(told(out)) == 2, "a round with nothing to do is none to tell of"
    code, said = command("hooks", "list")
    assert (code, "delivered  2, the last 20" in said) == (0, True)
    code, said = command("hooks", "list", "--json")
    (way,) = json.loads(said)["hooks"]
    assert (way["way"], way["delivered"], way["waiting"]) == ("command", 2, 0)


def test_a_hook_that_fails_changes_no_exit_code_and_is_listed(edge, hook, command):
    hook.write_text("#!/bin/sh\necho no pager; exit 7\n")
    edge.write(1)
    assert command("sync")[0] == 0
    code, said = command("hooks", "list")
    assert code == 0
    assert "waiting    2" in said
    assert "exit code 7: no pager" in said
    assert "taken nothing" not in command("status")[1], "not for long yet"


def test_hooks_that_take_nothing_for_long_are_in_status(edge, command):
    standing = StandingLine(failing_since=time.time() - 700, error="HTTP 500", failed=3)
    with Tree(hooks_directory(edge.schema) / "hooks", create=True) as tree:
        tree.write_atomic("command.queue", written_line(standing))
    assert "Hooks: the command has taken nothing since " in command("status")[1]


def test_a_queue_of_a_newer_program_keeps_no_status_from_being_shown(edge, command):
    with Tree(hooks_directory(edge.schema) / "hooks", create=True) as tree:
        tree.write_atomic("command.queue", written_line(StandingLine(version=2)))
    assert "which is not known here: move it away" in command("status")[1]


def test_a_test_says_what_came_of_it(command, hook, out):
    code, said = command("hooks", "test")
    assert (code, said) == (0, f"command: taken: {hook}: exit code 0\n")
    assert [each[0] for each in told(out)] == ["test"]
    hook.chmod(0o644)
    code, said = command("hooks", "test", "--json")
    assert (code, json.loads(said)["hooks"]["command"]["ok"]) == (4, False)
    assert command("hooks", "test", **{"hooks.command": []})[0] == 2
    assert "no hook is configured" in command("hooks", "list", **{"hooks.command": []})[1]


def test_check_warns_of_a_hook_that_cannot_be_run(command, hook):
    hook.chmod(0o644)
    code, said = command("check")
    assert code == 0
    assert f"warning: hooks.command {hook}: is not executable: chmod +x" in said
