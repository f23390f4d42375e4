from __future__ import annotations

from pathlib import Path

import pytest

from common.console.cli import run
from common.errors import UnreachableError
from common.wire import VerifiedFiles
from sender.cli.commands import cli
from sender.config import SenderMetrics
from sender.daemon.receiver_loop import ReceiverLoop
from sender.metrics.metrics_out import MetricsOut, write_textfile
from sender.metrics.round_tallies import RoundTallies
from sender.metrics.rounds_seen import RoundsSeen
from sender.metrics.sender_measures import IN_THE_WAY, SENDER_MEASURES
from sender.metrics.sender_readings import sender_text
from sender.round.round import Round
from sender.round.round_words.round_report import FileDevice, FileOffset, FileReason, RoundReport
from tests.support.edge import Edge
from tests.support.scraped import Scraped, badly_named
from tests.support.scripted_receiver import ScriptedReceiver
from tests.support.web import until


@pytest.fixture
def receiver():
    with ScriptedReceiver() as running:
        yield running


@pytest.fixture
def edge(receiver, tmp_path) -> Edge:
    return Edge(tmp_path / "edge", receiver.url)


def test_names_keep_to_the_customs() -> None:
    assert badly_named(SENDER_MEASURES) == []
    names = [each.name for each in SENDER_MEASURES]
    assert len(set(names)) == len(names)


def test_each_trouble_is_a_list_of_the_report() -> None:
    report = RoundReport("dc1")
    assert all(getattr(report, each) == [] for each in IN_THE_WAY)


def test_rounds_are_counted_and_the_last_one_is_shown(edge: Edge) -> None:
    tallies = RoundTallies()
    looked = RoundReport(
        "dc1",
        sent=3,
        bytes=1000,
        seconds=2.0,
        pending_files=4,
        complete_until=1_700_000_000_500,
        looked=True,
        verified=VerifiedFiles(files=7, verified=5),
        conflicts=[FileDevice("a", "root.d")],
        held=[FileReason("b", "")],
        held_records=[FileReason("c", "")],
        resumed=[FileOffset("d", 9)],
        token_until=17.0,
    )
    failed = RoundReport(
        "dc1", seconds=400.0, error=UnreachableError("no answer"), address="https://b:1"
    )
    for at, report in ((100.0, looked), (200.0, failed)):
        tallies.count(report, at)
    seen = RoundsSeen("dc1", failed, looked, 200.0, busy=True, tallies=tallies)
    text = sender_text(edge.config, edge.uuid, "plant 7", [seen], started=50.0)
    found = Scraped(text)
    assert found["tsferry_sender_info", "plant 7", edge.uuid, _version()] == 1
    assert found.of("tsferry_sender_rounds_total") == {("dc1", "done"): 1, ("dc1", "failed"): 1}
    assert found["tsferry_sender_receiver_address_info", "https://b:1", "dc1"] == 1
    assert found["tsferry_sender_sent_files_total", "dc1"] == 3
    assert found["tsferry_sender_sent_bytes_total", "dc1"] == 1000
    assert found["tsferry_sender_resumed_files_total", "dc1"] == 1
    assert found["tsferry_sender_round_duration_seconds_count", "dc1"] == 2
    assert found["tsferry_sender_last_success_timestamp_seconds", "dc1"] == 100
    assert found["tsferry_sender_last_round_timestamp_seconds", "dc1"] == 200
    assert found["tsferry_sender_last_round_exit_code", "dc1"] == 4
    assert found["tsferry_sender_pending_files", "dc1"] == 4, "as of the last look"
    assert found["tsferry_sender_trouble_files", "dc1", "conflicts"] == 1
    assert found["tsferry_sender_trouble_files", "dc1", "held"] == 2
    complete = found["tsferry_sender_complete_until_timestamp_seconds", "dc1"]
    assert complete == 1_700_000_000.5
    assert found["tsferry_sender_directory_free_bytes", str(edge.data)] > 0


def _version() -> str:
    import common

    return common.__version__


def test_before_the_first_round_nothing_is_said_of_one(edge: Edge) -> None:
    seen = RoundsSeen("dc1", None, None, 0.0, tallies=RoundTallies())
    found = Scraped(sender_text(edge.config, edge.uuid, "x", [seen]))
    assert not found.has("tsferry_sender_last_round_timestamp_seconds")
    assert found["tsferry_sender_sent_files_total", "dc1"] == 0


def test_the_loop_of_the_daemon_tells_what_its_rounds_came_to(edge: Edge) -> None:
    loop = ReceiverLoop(edge.remote(), clock=lambda: 0.0)
    loop._finish(RoundReport("dc1", looked=True, sent=2), 0.0)
    loop._finish(RoundReport("dc1", error=UnreachableError("no answer")), 0.0)
    found = Scraped(sender_text(edge.config, edge.uuid, "x", [loop.seen]))
    assert found["tsferry_sender_sent_files_total", "dc1"] == 2
    assert found["tsferry_sender_round_running", "dc1"] == 0
    loop.remote.close()


def test_a_round_of_cron_leaves_the_file_for_node_exporter(edge, receiver, tmp_path, capsys):
    textfile = tmp_path / "tsferry.prom"
    edge.write(1)
    config = edge.write_config()
    with config.open("a") as file:
        file.write(f'[metrics]\ntextfile = "{textfile}"\n')
    assert run(cli, "tsferry-sender", ["--config", str(config), "sync", "--json"]) == 0
    found = Scraped(textfile.read_bytes())
    assert found["tsferry_sender_last_round_sent_files", "dc1"] == 1
    assert found.has("tsferry_sender_last_success_timestamp_seconds")
    assert not found.has("tsferry_sender_rounds_total"), "one process counts nothing over rounds"
    assert textfile.stat().st_mode & 0o777 == 0o644, "node_exporter is another user"
    textfile.unlink()
    assert run(cli, "tsferry-sender", ["--config", str(config), "sync", "--dry-run"]) == 0
    assert not textfile.exists()


def test_rounds_that_fail_are_told_from_the_first_on_whatever_process_did_them(
    edge, receiver, tmp_path, capsys, monkeypatch
):
    textfile = tmp_path / "tsferry.prom"
    config = edge.write_config()
    with config.open("a") as file:
        file.write(f'[metrics]\ntextfile = "{textfile}"\n')

    def since(code: int) -> float | None:
        with monkeypatch.context() as patch:
            if code:
                patch.setattr(Round, "_check", unreachable)
            assert run(cli, "tsferry-sender", ["--config", str(config), "sync", "--json"]) == code
        found = Scraped(textfile.read_bytes())
        name = "tsferry_sender_failing_since_timestamp_seconds"
        return found[name, "dc1"] if found.has(name) else None

    def unreachable(*_: object) -> None:
        raise UnreachableError("no answer")

    first = since(4)
    assert first is not None, "a new edge, of which no round ever came to its end"
    assert since(4) == first
    assert since(0) is None
    assert (since(4) or 0) > first


def test_the_daemon_writes_the_file_and_serves_the_port_until_it_ends(tmp_path: Path) -> None:
    textfile, count = tmp_path / "tsferry.prom", iter(range(1000))
    config = SenderMetrics(listen="127.0.0.1:0", textfile=textfile, textfile_every=0.01)
    with MetricsOut(config, lambda: b"tsferry_x %d\n" % next(count)) as out:
        until(textfile.exists)
        first = textfile.read_bytes()
        until(lambda: textfile.read_bytes() != first, "another time")
        assert out.port is not None
    out.close()
    last = textfile.read_bytes()
    assert textfile.read_bytes() == last


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog) -> None:
    write_textfile(tmp_path / "nowhere" / "tsferry.prom", b"x 1\n")
    assert "cannot be written" in caplog.text
    assert not (tmp_path / "nowhere").exists()


def test_a_port_that_is_taken_does_not_keep_files_from_being_sent(caplog) -> None:
    with MetricsOut(SenderMetrics(listen="127.0.0.1:0"), lambda: b"") as first:
        assert first.port is not None
        taken = SenderMetrics(listen=f"127.0.0.1:{first.port.address[1]}")
        assert MetricsOut.or_nothing(taken, lambda: b"") is None
    assert "cannot listen there" in caplog.text
