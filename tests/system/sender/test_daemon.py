"""The daemon as a process, with a real receiver."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from common.durable import Tree
from common.errors import LockedError
from sender.daemon.control import ask
from sender.daemon.processes import running, stop_running, take_daemon_lock
from tests.support.edge import Edge
from tests.support.procs import children, wait_until
from tests.system.sender.test_rounds import COMMAND, call, in_sync


@pytest.fixture
def processes(tmp_path):
    with children(tmp_path) as made:
        yield made


def daemon(processes, edge: Edge, *settings: str, **config):
    file = edge.write_config(**config)
    arguments = [COMMAND, "--config", str(file)]
    for each in settings:
        arguments += ["--set", each]
    child = processes.start([*arguments, "run"], forked=True)
    child.until(lambda: answers(edge), "the daemon's answer")
    return child, file


def answers(edge: Edge) -> bool:
    try:
        return bool(ask(edge.schema, {"do": "ping"}, patience=2))
    except (LockedError, OSError):
        return False


def has_ended(pid: int) -> bool:
    """Gone, or only waiting to be reaped by whoever took it over."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def last(edge: Edge, name: str = "dc1") -> dict:
    return ask(edge.schema, {"do": "status"})["lanes"][name]


def test_a_new_file_is_loaded_without_being_asked_for(shared, make_edge, processes):
    edge = make_edge(shared.url)
    child, _ = daemon(processes, edge, "daemon.period=1h", "daemon.watch_settle=100ms")
    wait_until(lambda: last(edge)["last"] is not None, "the first round")
    edge.write(1)
    wait_until(lambda: edge.listed == [edge.path(1)], "the load")
    assert child.terminate() == 0
    assert "Traceback" not in child.text()
    in_sync(edge, shared)


def test_sync_asks_the_daemon_for_a_round(shared, make_edge, processes):
    edge = make_edge(shared.url)
    _, config = daemon(processes, edge, "daemon.period=1h", "daemon.watch=false")
    wait_until(lambda: last(edge)["state"] == "idle" and last(edge)["last"], "the first round")
    edge.write(1)
    done = call(config, "sync", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sent"] == 1
    in_sync(edge, shared)


def test_a_receiver_that_comes_back_is_found_without_a_restart(centre, make_edge, processes):
    edge = make_edge(centre.start())
    centre.stop()
    edge.write(1)
    daemon(processes, edge, "daemon.period=2s", "transfer.max_retries=0")
    wait_until(lambda: (last(edge)["last"] or {}).get("error"), "a failed round")
    centre.start()
    wait_until(lambda: edge.listed == [edge.path(1)], "the load")


def test_a_dead_receiver_does_not_hold_up_the_other(shared, make_edge, processes):
    edge = make_edge(shared.url)
    file = edge.write_config()
    dead = '[[receiver]]\nname = "dead"\nurl = "http://127.0.0.1:9"\n'
    file.write_text(file.read_text().replace("[transfer]", f"{dead}[transfer]"))
    arguments = [COMMAND, "--config", str(file)]
    for each in ("transfer.retry_first=1h", "transfer.retry_max=1h", "daemon.watch_settle=50ms"):
        arguments += ["--set", each]
    child = processes.start([*arguments, "run"], forked=True)
    child.until(lambda: answers(edge), "the daemon's answer")
    edge.write(1)
    wait_until(lambda: edge.path(1) in edge.listed, "the load")
    wait_until(lambda: last(edge, "dead")["state"] == "in a round", "its tries")
    assert child.terminate() == 0


def test_start_and_stop_know_the_daemon_by_its_lock(shared, make_edge):
    edge = make_edge(shared.url)
    config = edge.write_config()
    started = json.loads(call(config, "start", "--json").stdout)
    try:
        assert started["started"]
        again = json.loads(call(config, "start", "--json").stdout)
        assert (again["started"], again["pid"]) == (False, started["pid"])
    finally:
        assert json.loads(call(config, "stop", "--json").stdout) == {"stopped": True}
    assert json.loads(call(config, "stop", "--json").stdout) == {"stopped": False}
    assert has_ended(started["pid"])


def test_a_second_daemon_does_not_start(shared, make_edge, processes):
    edge = make_edge(shared.url)
    _, config = daemon(processes, edge)
    done = call(config, "run")
    assert done.returncode == 5
    assert "daemon.lock" in done.stderr


def test_a_pid_in_the_lock_file_of_nobody_is_never_signalled(tmp_path, processes):
    bystander = processes.start([sys.executable, "-c", "import time; time.sleep(60)"])
    (tmp_path / "daemon.lock").write_text(f"{bystander.pid}\n")
    with Tree(tmp_path) as sync:
        assert running(sync) is None
        assert stop_running(sync, 1.0) is False
    assert bystander.running


def test_a_lock_whose_holder_is_another_than_it_says_is_not_trusted(tmp_path, processes):
    bystander = processes.start([sys.executable, "-c", "import time; time.sleep(60)"])
    with Tree(tmp_path) as sync:
        lock = take_daemon_lock(sync)
        (tmp_path / "daemon.lock").write_text(f"{bystander.pid}\n")
        with pytest.raises(LockedError, match="cannot be identified"):
            stop_running(sync, 1.0)
        lock.release()
    assert bystander.running


def test_a_killed_daemon_leaves_nothing_that_hinders_the_next(shared, make_edge, processes):
    edge = make_edge(shared.url)
    edge.write(1)
    child, config = daemon(processes, edge)
    child.kill()
    edge.write(2)
    assert call(config, "sync").returncode == 0
    in_sync(edge, shared)


def test_sigterm_in_the_middle_of_a_round_ends_cleanly_and_the_next_resumes(
    shared, make_edge, processes
):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536, "batch_bytes": 1000})
    edge.write(1, size=4_000_000)
    child, config = daemon(processes, edge, "transfer.bandwidth_limit=200KiB/s")
    wait_until(lambda: last(edge)["bytes_done"] > 0, "the first block")
    assert child.terminate() == 0
    assert "Traceback" not in child.text()
    done = json.loads(call(config, "sync", "--json").stdout)
    assert done["resumed"][0]["offset"] > 0
    in_sync(edge, shared)


def test_the_receiver_hears_that_the_sender_lives(shared, make_edge, processes):
    edge = make_edge(shared.url)
    edge.write(1)
    daemon(processes, edge, "daemon.heartbeat=1s")

    def heard():
        senders = shared.call("senders", "list")["senders"]
        mine = [each for each in senders if each["uuid"] == edge.uuid]
        return mine and mine[0].get("heartbeat")

    assert wait_until(heard, "a heartbeat")["version"]


def test_quarantine_commands_work_beside_a_running_daemon(shared, make_edge, processes):
    owner, edge = make_edge(shared.url), make_edge(shared.url)
    owner.write(1, device=f"{owner.sg}.d1")
    owner.round()
    stolen = edge.write(1, device=f"{owner.sg}.d1")
    _, config = daemon(processes, edge, "daemon.period=1s")
    wait_until(lambda: (last(edge)["last"] or {}).get("conflicts"), "the conflict")
    listed = json.loads(call(config, "quarantine", "list", "--json").stdout)
    assert [(each["file"], each["kind"]) for each in listed] == [(stolen, "conflict")]
    assert call(config, "quarantine", "drop", stolen).returncode == 0
    wait_until(lambda: not last(edge)["last"]["conflicts"], "a round without it")
    assert json.loads(call(config, "quarantine", "list", "--json").stdout) == []
    assert call(config, "quarantine", "retry", stolen).returncode == 0
    wait_until(lambda: last(edge)["last"]["conflicts"], "the conflict again")


def test_the_pid_file_is_there_while_the_daemon_runs(shared, make_edge, processes, tmp_path):
    edge = make_edge(shared.url)
    pid_file = tmp_path / "run" / "sender.pid"
    child, _ = daemon(processes, edge, f"daemon.pid_file={pid_file}")
    assert pid_file.read_text() == f"{child.pid}\n"
    child.signal(signal.SIGINT)
    assert child.wait() == 0
    assert not pid_file.exists()


def test_an_idle_daemon_is_small(shared, make_edge, processes):
    # scripts/bench/idle_memory.py measures it with 10,000 files; here that nothing heavy is loaded.
    edge = make_edge(shared.url)
    child, _ = daemon(processes, edge)
    wait_until(lambda: last(edge)["last"] is not None, "the first round")
    maps = Path(f"/proc/{child.pid}/maps").read_text()
    assert not any(name in maps for name in ("numpy", "pyarrow", "flask"))


def test_sighup_reads_the_configuration_again_and_ends_nothing(shared, make_edge, processes):
    edge = make_edge(shared.url)
    elsewhere = "http://127.0.0.1:9"
    child, config = daemon(processes, edge, "daemon.period=1h", "daemon.watch=false")
    wait_until(lambda: last(edge)["state"] == "idle" and last(edge)["last"], "the first round")
    edge.write(1)
    good = config.read_text()
    assert shared.url in good
    for wrong in ("no toml [", good.replace("[[receiver]]", "[receivr]")):
        config.write_text(wrong)
        told = child.text().count("the configuration stays as it was")
        child.signal(signal.SIGHUP)
        wait_until(
            lambda told=told: child.text().count("the configuration stays as it was") > told,
            "the word of it",
        )
        assert last(edge)["state"] == "idle"
    config.write_text(good.replace(shared.url, elsewhere))
    child.signal(signal.SIGHUP)
    wait_until(lambda: (last(edge)["last"] or {}).get("error"), "a round to nobody")
    config.write_text(good)
    child.signal(signal.SIGHUP)
    # A signal is taken when the process comes to it.
    wait_until(lambda: child.text().count("configuration was read again") == 2, "it was read")
    # A round that is asked for now is one with what stands there now.
    told = ask(edge.schema, {"do": "round", "receiver": "dc1"}, patience=30.0)
    assert told["report"]["exit_code"] == 0
    assert edge.listed == [edge.path(1)]
    assert child.running
    assert child.terminate() == 0
    in_sync(edge, shared)


def test_status_and_start_agree_whether_a_daemon_runs(shared, make_edge, processes):
    edge = make_edge(shared.url)
    config = edge.write_config()
    assert json.loads(call(config, "status", "--json").stdout)["daemon"] is None
    with Tree(edge.schema / "sync") as sync:
        lock = take_daemon_lock(sync)  # one that has not come so far as to answer, or hangs
        try:
            started = json.loads(call(config, "start", "--json").stdout)
            status = json.loads(call(config, "status", "--json").stdout)["daemon"]
            assert started == {"pid": status["pid"], "started": False}
            assert "runs as process" in call(config, "status").stdout
        finally:
            lock.release()
    assert "no daemon runs" in call(config, "status").stdout
