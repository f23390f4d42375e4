"""`tsferry-receiver hooks`, and what a receiver says of its hooks."""

from __future__ import annotations

import json

import pytest

from common.console.cli import run
from common.hooks.hooks_config import HooksConfig
from receiver.cli.commands import cli
from receiver.metrics.receiver_readings import ReceiverReadings
from receiver.metrics.request_tallies import NodeStanding, RequestTallies
from receiver.operator.status import short_status
from tests.support.hooked import WHO
from tests.support.node_world import World


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
def command(tmp_path, hook, capsys):
    config = tmp_path / "receiver.toml"
    config.write_text(
        f'schema_dir = "{tmp_path}/dc/schema"\ndata_dirs = ["{tmp_path}/dc/data"]\n'
        f'[hooks]\ncommand = ["{hook}"]\nevents = ["disk"]\n'
    )

    def command(*arguments):
        code = run(cli, "tsferry-receiver", ["--config", str(config), *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    return command


def test_what_was_told_and_what_went_wrong_is_listed(tmp_path, hook, command):
    assert "nothing yet" in command("hooks", "list")[1]
    world = World(tmp_path / "dc", hooks=HooksConfig(command=(str(hook),), events=("disk",)))
    node = world.still_node()
    node.hooks.stands("disk", "disk", "short", WHO)
    node.hooks.drain(20)
    hook.write_text("#!/bin/sh\nexit 1\n")
    node.hooks.stands("disk", "disk", "", WHO)
    node.hooks.drain(20)
    view = json.loads(command("hooks", "list", "--json")[1])  # beside the one that tells
    assert (view["events"], view["problems"]) == (["disk"], [])
    (way,) = view["hooks"]
    assert (way["delivered"], way["waiting"], way["failed"]) == (1, 1, 1)
    said = command("hooks", "list")[1]
    assert "exit code 1" in said
    assert "  waiting    1, and what was committed since " in said
    readings = ReceiverReadings(
        node.operator, RequestTallies(), lambda: NodeStanding(None, 0, "1"), most_edges=10
    )
    text = readings.text().decode()
    assert 'tsferry_receiver_hooks_delivered_total{way="command"} 1.0' in text
    assert 'tsferry_receiver_hooks_waiting_events{way="command"} 1.0' in text
    assert 'tsferry_receiver_hooks_failing_since_timestamp_seconds{way="command"}' in text
    assert node.concerns() == []
    world.clock.now += 601
    assert "Hooks: the command has taken nothing since" in node.concerns()[0]
    assert node.concerns()[0] in short_status(node.operator, None).concerns
    node.close()


def test_a_test_is_sent_whether_the_receiver_runs_or_not(command, hook, out):
    code, said = command("hooks", "test")
    assert (code, said) == (0, f"command: taken: {hook}: exit code 0\n")
    (told,) = map(json.loads, out.read_text().splitlines())
    assert (told["kind"], told["who"]["program"]) == ("test", "receiver")
    hook.write_text("#!/bin/sh\nexit 3\n")
    assert command("hooks", "test")[0] == 4


def test_fsck_finds_nothing_amiss_about_the_queues(tmp_path, hook, command):
    world = World(tmp_path / "dc", hooks=HooksConfig(command=(str(hook),)))
    node = world.still_node()
    node.hooks.happened("disk", WHO)
    node.close()
    assert command("fsck")[0] == 0
