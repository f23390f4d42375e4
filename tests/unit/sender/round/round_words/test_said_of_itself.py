"""What a sender says of itself between rounds and behind them."""

from __future__ import annotations

import dataclasses
import json
import socket
import time

import msgspec
import pytest

import common
from common import wire
from common.config import load
from common.console.cli import run
from common.errors import UnreachableError
from sender.cli.commands import cli
from sender.config import ENV_PREFIX, SenderConfig
from sender.daemon.receiver_loop import ReceiverLoop
from sender.round.round_words.round_report import FileDevice, FileReason, RoundReport
from sender.round.round_words.said_of_itself import NO_DAEMON, heartbeat_of
from tests.support.edge import Edge
from tests.support.web import make_certificate


@pytest.fixture
def edge(receiver, tmp_path) -> Edge:
    return Edge(tmp_path / "edge", receiver.url)


def beats(receiver) -> list[wire.Heartbeat]:
    return [
        wire.decode(each.body, wire.Heartbeat, "heartbeat")
        for each in receiver.requests
        if each.path == "/heartbeat"
    ]


def test_the_label_is_the_configured_one_or_the_host_name(edge):
    assert edge.remote().label == socket.gethostname()
    edge.with_settings(label="plant 7")
    assert edge.remote().label == "plant 7"


@pytest.mark.parametrize("label", ["", " ", "a\nb", "\x1b[31m", "\u202e", "x" * 201])
def test_a_label_that_would_forge_a_line_is_refused(edge, label):
    file = edge.write_config(label=label)
    with pytest.raises(Exception, match="label"):
        load(SenderConfig, file=file, env_prefix=ENV_PREFIX, environ={}, flags={})


def test_it_says_when_the_certificate_ends_that_it_shows(edge, tmp_path):
    remote = edge.remote()
    assert heartbeat_of(remote, None, None, state="idle", at=0).client_certificate_until is None
    cert, key = make_certificate(tmp_path, "edge7.example")  # of two days
    entry = msgspec.structs.replace(remote.entry, client_cert=cert, client_key=key)
    shows = dataclasses.replace(remote, entry=entry)
    until = heartbeat_of(shows, None, None, state="idle", at=0).client_certificate_until
    assert 0 < until - time.time() <= 2 * 86400
    cert.write_bytes(b"half a certificate")
    assert heartbeat_of(shows, None, None, state="idle", at=0).client_certificate_until is None


def test_it_says_what_the_last_round_found_and_what_ended_it(edge):
    edge.with_settings(label="plant 7")
    remote = edge.remote()
    looked = RoundReport("dc1", pending_files=9, complete_until=3, waiting=2, looked=True)
    looked.conflicts = [FileDevice("a", "root.d")]
    looked.failed, looked.refused = [FileReason("b", "")], [FileReason("c", "")]
    looked.held, looked.lost = [FileReason("d", "")], [FileReason("e", "")]
    last = RoundReport("dc1", pending_files=9, error=UnreachableError("no \x1b answer"))
    beat = heartbeat_of(remote, last, looked, state="idle", at=17.0)
    assert (beat.version, beat.label, beat.state) == (common.__version__, "plant 7", "idle")
    assert (beat.conflicts, beat.failed, beat.waiting, beat.held, beat.lost) == (1, 2, 2, 1, 1)
    assert (beat.pending_files, beat.complete_until, beat.round_at) == (9, None, 17.0)
    assert beat.problem.startswith("no ")
    assert "\x1b" not in beat.problem
    assert beat.free_bytes
    first = heartbeat_of(remote, None, None, state="starting", at=0.0)
    assert (first.pending_files, first.problem) == (0, "")


def test_the_daemon_says_what_was_in_the_way_also_behind_a_round_that_could_not_look(
    edge, receiver
):
    loop = ReceiverLoop(edge.remote(), clock=lambda: 0.0)
    looked = RoundReport("dc1", looked=True, conflicts=[FileDevice("a", "root.d")])
    loop._finish(looked, 0.0)
    loop._finish(RoundReport("dc1", error=UnreachableError("no answer")), 0.0)
    beat = loop._heartbeat()
    assert (beat.conflicts, beat.problem) == (1, "no answer")
    loop.remote.close()


def test_a_round_of_cron_tells_at_its_end_how_things_stand(edge, receiver, capsys):
    edge.write(1)
    config = edge.write_config(label="plant 7")
    assert run(cli, "tsferry-sender", ["--config", str(config), "sync", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 1
    (beat,) = beats(receiver)
    assert (beat.label, beat.state, beat.pending_files) == ("plant 7", NO_DAEMON, 0)
    assert run(cli, "tsferry-sender", ["--config", str(config), "recover", "--json"]) == 0
    assert len(beats(receiver)) == 1, "a recovery has not looked at the files"
    assert run(cli, "tsferry-sender", ["--config", str(config), "status"]) == 0
    assert "(plant 7)" in capsys.readouterr().out


def test_status_says_when_token_and_certificate_end(edge, receiver, capsys, monkeypatch):
    config = edge.write_config()
    receiver.ends = (1_900_000_000.0, 1_900_000_000.0 + 90 * 86400)
    assert run(cli, "tsferry-sender", ["--config", str(config), "sync", "--json"]) == 0
    for now, said in ((1.8e9, []), (1_899_000_000.0, ["ends"]), (1_900_000_001.0, ["has ended"])):
        monkeypatch.setattr("sender.cli.status.time.time", lambda now=now: now)
        capsys.readouterr()
        run(cli, "tsferry-sender", ["--config", str(config), "status"])
        lines = [each for each in capsys.readouterr().out.splitlines() if "  token " in each]
        assert [each.split("token")[1].split(" 20")[0].strip() for each in lines] == said
