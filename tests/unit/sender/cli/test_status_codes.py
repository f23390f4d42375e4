"""What `status` of a sender ends with, and its line for monitoring plugins."""

from __future__ import annotations

import re
import time

import pytest

from common.console.cli import run
from common.wire import HeldRecords, LostFiles, Outcome, Result
from sender.cli.commands import cli
from sender.cli.sender_check import check_line_of
from sender.round.look import ReceiverStanding
from sender.select.data_dirs import MARKER
from tests.support.edge import Edge
from tests.support.scripted_receiver import ScriptedReceiver


@pytest.fixture
def receiver():
    with ScriptedReceiver() as running:
        yield running


@pytest.fixture
def edge(receiver, tmp_path) -> Edge:
    return Edge(tmp_path / "edge", receiver.url)


@pytest.fixture
def command(edge, capsys):
    config = edge.write_config()

    def command(*arguments):
        capsys.readouterr()
        code = run(cli, "tsferry-sender", ["--config", str(config), *arguments])
        return code, capsys.readouterr().out

    return command


def test_all_is_well(edge, receiver, command):
    edge.write(1)
    assert command("status", "--check")[0] == 1, "there was no round yet"
    assert command("status")[0] == 0
    assert command("sync")[0] == 0
    code, said = command("status", "--check")
    assert (code, said.startswith("TSFERRY OK - 1 file loaded, 0 pending | ")) == (0, True)
    assert " conflict=0;0 " in said
    assert re.search(r"'dc1 age'=\d{1,2}\.", said), "seconds since the round"
    assert said.count("\n") == 1


def test_with_a_conflict_status_is_not_zero(edge, receiver, command):
    edge.write(1)
    receiver.judge = lambda path: Outcome(
        path=path,
        result=Result.CONFLICT,
        reason="device root.a belongs to another",
        device="root.a",
    )
    assert command("sync")[0] == 3
    assert command("status")[0] == 3
    assert command("status", "--json")[0] == 3
    code, said = command("status", "--check")
    assert code == 1
    assert "TSFERRY WARNING - 1 file in trouble: conflict" in said


def test_what_is_lost_is_critical_and_what_is_held_a_warning(edge, receiver, command):
    receiver.held_records = [HeldRecords(group="root.a", files=3, reason="too many")]
    assert command("sync")[0] == 6
    assert command("status")[0] == 6
    code, said = command("status", "--check")
    assert (code, "1 deletion is held" in said) == (1, True)
    receiver.lost = LostFiles(files=2)
    command("sync")
    assert command("status")[0] == 3
    code, said = command("status", "--check")
    assert (code, said.startswith("TSFERRY CRITICAL - 2 files are lost; ")) == (2, True)


def test_a_receiver_that_does_not_answer_and_a_token_that_ends_are_warnings(
    edge, receiver, command
):
    receiver.ends = (time.time() + 5 * 86400, None)
    assert command("sync")[0] == 0
    code, said = command("status", "--check")
    assert (code, "the token ends in 5 d" in said) == (1, True)
    receiver.__exit__()
    assert command("--set", "transfer.max_retries=0", "sync")[0] == 4
    code, said = command("--set", "transfer.max_retries=0", "status", "--check")
    assert (code, "the last round ended early" in said) == (1, True)
    assert command("status")[0] == command("status", "--json")[0] == 4


@pytest.mark.parametrize(
    ("left", "said"),
    [(-3e5, "has ended"), (0.0, "has ended"), (7200.0, "ends in 2 h"), (2e5, "ends in 2 d")],
)
def test_when_a_token_or_a_certificate_ends_is_said_in_words(left, said):
    until, last = 9e5 + left, {"ended": 9e5}
    standing = ReceiverStanding(
        "dc1", "http://dc1", client_certificate_until=until, last_round=last
    )
    line = check_line_of([standing], 9e5, wait_alarm=0.0)
    assert f"dc1: the client certificate {said}" in line.text()


def test_a_round_that_somebody_stopped_is_no_warning():
    stopped = {"ended": 100.0, "error": {"type": "stopped", "message": "told to stop"}}
    standing = ReceiverStanding(receiver="dc1", url="http://dc1", last_round=stopped)
    assert check_line_of([standing], 110.0, wait_alarm=3600.0).level == 0
    standing.last_round["error"]["type"] = "unreachable"
    assert check_line_of([standing], 110.0, wait_alarm=3600.0).level == 1


def test_a_directory_that_is_not_there_is_critical(edge, command):
    edge.write(1)
    assert command("sync")[0] == 0
    (edge.data / MARKER).unlink()
    assert command("status")[0] == 3
    assert command("status", "--check")[0] == 2


def test_a_wrong_configuration_is_unknown_on_standard_output(edge, command):
    config = edge.root / "sender.toml"
    config.write_text(config.read_text() + "nonsense = 1\n")
    code, said = command("status", "--check")
    assert (code, said.startswith("TSFERRY UNKNOWN - "), "nonsense" in said) == (3, True, True)
    assert said.count("\n") == 1
    config.unlink()
    code, said = command("status", "--check")
    assert (code, said.startswith("TSFERRY UNKNOWN - ")) == (3, True)
