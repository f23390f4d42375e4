"""`sync --jsonl`: a line for each thing that happened, as it happens."""

from __future__ import annotations

import io
import json

import pytest

from common import wire
from common.console.cli import run
from sender.cli.commands import cli
from sender.cli.event_lines import EventLines
from sender.send.sent_bytes.progress import RoundEvent, RoundProgress
from tests.support.edge import Edge


@pytest.fixture
def edge(receiver, tmp_path):
    return Edge(tmp_path / "edge", receiver.url)


def test_a_round_is_a_line_for_each_thing_that_happened(edge, receiver, capsys):
    edge.write(1)
    edge.write(2)
    refusal = wire.Outcome(path=edge.path(2), result=wire.Result.REFUSED, reason="not\nhere")
    receiver.judge = lambda path: refusal if path == refusal.path else None
    code = run(cli, "x", ["--config", str(edge.write_config()), "sync", "--jsonl"])
    out = capsys.readouterr().out
    lines = [json.loads(each) for each in out.splitlines()]
    assert code == 3
    assert [(each["event"], each.get("file")) for each in lines] == [
        ("planned", None),
        ("sent", edge.path(1)),
        ("sent", edge.path(2)),
        ("loaded", edge.path(1)),
        ("refused", edge.path(2)),
        ("ended", None),
    ]
    planned, sent, _, loaded, refused, ended = lines
    assert (planned["files"], planned["tasks"], planned["gone"]) == (2, 1, 0)
    assert (refused["kind"], refused["reason"], refused["device"]) == ("refused", "not\nhere", None)
    assert sent["bytes"] > 0
    assert loaded["already"] is False
    assert (ended["sent"], ended["exit_code"]) == (1, 3)
    assert all(each["at"] and each["at_iso"].endswith("Z") for each in lines)
    assert len({each["receiver"] for each in lines}) == 1


def test_each_line_is_there_as_soon_as_it_happened():
    class Stream(io.StringIO):
        flushed = 0

        def flush(self):
            self.flushed += 1

    stream = Stream()
    lines = EventLines(stream, clock=lambda: 0.5)
    lines.show(RoundProgress("dc1", step="send"))
    lines.show(RoundEvent("dc1", "loaded", {"file": "\x1b[31m", "already": True}))
    assert stream.getvalue() == (
        '{"event": "loaded", "at": 0.5, "at_iso": "1970-01-01T00:00:00.500Z", "receiver": "dc1", '
        '"file": "\\u001b[31m", "already": true}\n'
    )
    assert stream.flushed == 1


def test_two_forms_at_once_are_refused(edge, capsys):
    for other in ("--json", "--dry-run"):
        assert run(cli, "x", ["--config", str(edge.write_config()), "sync", "--jsonl", other]) == 2
        assert "--jsonl: not together" in capsys.readouterr().err
