"""The small promises of the command line: exit codes, Ctrl-C, status, limits."""

from __future__ import annotations

import datetime
import json
import os
import signal
from pathlib import Path

import pytest

from sender.daemon.control import ask
from tests.support.looking import in_sync, largest, loaded
from tests.support.procs import children
from tests.support.tsfile_bytes import build
from tests.system.sender.test_rounds import COMMAND, call


def status(config) -> dict:
    done = call(config, "status", "--json")
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)["receivers"]["dc1"]


def test_status_shows_what_an_operator_asks_for(shared, make_edge):
    owner, edge = make_edge(shared.url), make_edge(shared.url)
    owner.write(1, device=f"{owner.sg}.d1")
    owner.round()
    edge.write(1, first=1000)
    edge.write(2, first=2000)
    stolen = edge.write(5, first=5000, device=f"{owner.sg}.d1")
    unclosed = edge.write(6, first=6000, resource=None)
    changing = edge.write(7, first=7000)
    (edge.data / f"{changing}.settle").write_bytes(b"m")
    bad = edge.path(8)
    whole = build({f"{edge.sg}.d{n}": {"s1": [(8000, 1), (8001, 2)]} for n in range(20)})
    damaged = bytearray(whole)
    damaged[-200:-140] = b"\xff" * 60
    edge.put(bad, bytes(damaged))
    config = edge.write_config()
    done = call(config, "sync", "--json")
    assert done.returncode == 3, done.stderr
    task = json.loads(done.stdout)["task"]
    assert task
    new = edge.write(9, first=9000)
    found = status(config)
    assert found["last_task"] == task
    assert found["listed"] == 2
    pending = {stolen, new, bad}
    assert found["pending_files"] == len(pending)
    assert found["pending_bytes"] == sum((edge.data / each).stat().st_size for each in pending)
    troubles = {each["file"]: each for each in found["troubles"]}
    assert troubles[stolen]["kind"] == "conflict"
    assert troubles[stolen]["device"] == f"{owner.sg}.d1"
    assert (troubles[bad]["kind"], troubles[bad]["hold"]) == ("quarantined", True)
    waiting = {each["file"]: each["reason"] for each in found["waiting"]}
    assert ".resource" in waiting[unclosed]
    assert ".settle" in waiting[changing]
    assert found["complete_until"] is None, "what an unclosed file holds is not known"
    text = call(config, "status").stdout
    for each in (task, stolen, unclosed, changing, bad, "complete until", "pending"):
        assert each in text, text
    (edge.data / unclosed).unlink()
    (edge.data / f"{changing}.settle").unlink()
    assert status(config)["complete_until"] is None, "nor is what a damaged one holds"
    (edge.data / bad).unlink()
    # Nothing of before the first point that is not loaded is missing at the centre.
    assert 2000 <= int(status(config)["complete_until"]) <= 5000


def test_the_last_task_stays_visible_after_an_empty_round(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    (task,) = edge.round().tasks
    config = edge.write_config()
    for _ in range(2):
        assert edge.round().tasks == []
        found = status(config)
        assert found["last_task"] == task
        assert found["last_round"]["exit_code"] == 0
    assert task in call(config, "status").stdout


def test_what_is_complete_moves_on_as_files_are_loaded(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1, first=1000)
    edge.write(2, first=50_000)
    config = edge.write_config()
    assert int(status(config)["complete_until"]) <= 1000
    edge.round()
    assert int(status(config)["complete_until"]) >= 50_000


@pytest.mark.few(1)
@pytest.mark.parametrize("settings", [[], ["--set", "transfer.batch_bytes=1MiB"]])
def test_ctrl_c_in_a_round_of_many_files_ends_with_130_and_the_next_goes_on(
    shared, make_edge, tmp_path, settings
):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536, "batch_bytes": 20_000})
    for number in range(20):
        edge.write(number, size=200_000)
    config = edge.write_config()
    with children(tmp_path) as processes:
        slow = ["--set", "transfer.bandwidth_limit=1MiB/s", *settings]
        sending = processes.start([COMMAND, "--config", str(config), *slow, "sync"], forked=True)
        parts = shared.data / "sync-receiver"
        sending.until(
            lambda: largest(parts, f"*{edge.uuid}/data/**/*") > 0,
            "the first bytes",
        )
        sending.signal(signal.SIGINT)
        assert sending.wait() == 130
        assert "Traceback" not in sending.text()
    assert loaded(shared.root, edge.uuid) == {}, "received is not loaded"
    report = edge.round()
    assert report.exit_code == 0, report.as_json()
    in_sync(edge, shared.root)


def test_a_second_sync_beside_a_running_one_ends_with_5(shared, make_edge, tmp_path):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536, "batch_bytes": 1000})
    edge.write(1, size=3_000_000)
    config = edge.write_config()
    with children(tmp_path) as processes:
        slow = ["--set", "transfer.bandwidth_limit=100KiB/s"]
        first = processes.start([COMMAND, "--config", str(config), *slow, "sync"], forked=True)
        first.until(lambda: list(edge.data.glob("sync-sender/*/sync.log")), "the task")
        done = call(config, "sync")
        assert done.returncode == 5
        assert "Traceback" not in done.stderr
        assert first.running
        first.terminate()
    assert call(config, "sync").returncode == 0
    in_sync(edge, shared.root)


def test_the_guard_of_the_receiver_speaks_on_the_command_lines(centre, make_edge):
    text = centre.config.read_text()
    centre.config.write_text(text.replace("max_fraction = 1", "max_fraction = 0.5"))
    edge = make_edge(centre.start(), propagate_deletes="all")
    for number in range(12):
        edge.write(number)
    edge.round()
    for number in range(10):
        edge.remove(edge.path(number))
    config = edge.write_config(propagate_deletes="all")
    done = call(config, "sync", "--allow-mass-delete")
    assert done.returncode == 6
    assert "tsferry-receiver deletes allow" in done.stderr
    assert "10 of 12 files" in done.stdout
    assert len(centre.loaded(edge.uuid)) == 12
    (held,) = centre.call("deletes", "list")["lists"]
    assert held["files"] == sorted(edge.path(number) for number in range(10))
    centre.call("deletes", "allow", held["digest"])
    done = call(config, "sync", "--json")
    assert (done.returncode, json.loads(done.stdout)["deleted"]) == (0, 10)
    assert centre.call("deletes", "list")["lists"] == []
    in_sync(edge, centre.root)


def limited(edge, hours: tuple[int, int], limit: str) -> Path:
    """A configuration that limits the line from so many hours after now to so many."""
    now = datetime.datetime.now(datetime.UTC).astimezone()
    begin, end = ((now + datetime.timedelta(hours=each)).strftime("%H:%M") for each in hours)
    config = edge.write_config()
    window = f'{{ from = "{begin}", to = "{end}", limit = "{limit}" }}'
    config.write_text(config.read_text() + f"bandwidth_limit = [{window}]\n")
    return config


def test_a_limit_by_the_hour_holds_in_its_hours_only(shared, make_edge):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536, "batch_bytes": 1000})
    edge.write(1, size=1_000_000)
    done = call(limited(edge, (-2, 2), "400KiB/s"), "sync", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seconds"] > 1.0
    edge.write(2, size=1_000_000)
    done = call(limited(edge, (2, 4), "1KiB/s"), "sync", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seconds"] < 60
    in_sync(edge, shared.root)


def has_socket(pid: int) -> bool:
    """Whether a process has a connection open."""
    try:
        return any(
            os.readlink(each).startswith("socket:") for each in Path(f"/proc/{pid}/fd").iterdir()
        )
    except OSError:  # a descriptor that was closed meanwhile
        return False


def test_ctrl_c_of_a_sync_that_only_watches_the_daemon_leaves_the_daemon_alone(
    shared, make_edge, tmp_path
):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536, "batch_bytes": 1000})
    edge.write(1, size=6_000_000)
    config = edge.write_config()
    with children(tmp_path) as processes:
        flags = ["--set", "transfer.bandwidth_limit=500KiB/s", "--set", "daemon.watch=false"]
        daemon = processes.start([COMMAND, "--config", str(config), *flags, "run"], forked=True)
        daemon.until(lambda: (edge.schema / "sync" / "daemon.lock").exists(), "the daemon")
        daemon.until(lambda: list(edge.data.glob("sync-sender/*/sync.log")), "the task")
        watching = processes.start([COMMAND, "--config", str(config), "sync"], forked=True)
        watching.until(lambda: has_socket(watching.pid), "that it speaks to the daemon")
        watching.signal(signal.SIGINT)
        assert watching.wait() == 130
        assert "Traceback" not in watching.text()
        assert ask(edge.schema, {"do": "status"})["lanes"]["dc1"]["state"] == "in a round"
        assert daemon.terminate() == 0
