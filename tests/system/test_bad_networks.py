"""Bad lines and bad receivers: a clear word, tries that end, and nothing sent or loaded twice."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec
import pytest

from tests.support import scripted_receiver as scripted
from tests.support.centre import COMMAND as RECEIVER
from tests.support.edge import Edge
from tests.support.faultproxy import Fault, FaultProxy
from tests.support.looking import in_sync, largest, loaded, once, rows
from tests.support.procs import children, wait_until
from tests.support.scripted_receiver import ScriptedReceiver
from tests.system.sender.test_rounds import COMMAND, call

SMALL = {"chunk_bytes": 65536, "batch_bytes": 4096, "parallel": 1}


@pytest.fixture
def line(shared):
    with FaultProxy(("127.0.0.1", shared.port)) as proxy:
        yield proxy


@pytest.fixture
def edge_on(line, make_edge):
    """An edge behind the line, with a first round done and work of every kind to do.

    It is told how impatient it is to be behind that round, which a busy machine may take its time
    for.
    """

    def make(**transfer) -> Edge:
        edge = make_edge(line.url, propagate_deletes="all", transfer=SMALL)
        edge.write(1)
        edge.write(2)
        assert edge.round().exit_code == 0
        changed(edge, **transfer)
        edge.remove(edge.path(1))
        edge.write(2, points=44)
        edge.write(3)
        edge.write(4, size=150_000)
        return edge

    return make


def changed(edge: Edge, **transfer) -> None:
    edge.with_settings(transfer=msgspec.structs.replace(edge.config.transfer, **transfer))


# -- lines that break ------------------------------------------------------------------------------

PLACES = [each / 8 for each in range(9)]
"""Of the bytes of a whole round: check, start, plan, deletions, batch, blocks, end, poll."""


@pytest.fixture(scope="module")
def bytes_of_a_round():
    return {}


def measured(memory: dict, line: FaultProxy, edge_on) -> dict:
    """How many bytes a round takes up and down, on a good line."""
    if not memory:
        edge = edge_on()
        up, down = line.up, line.down
        edge.round()
        memory |= {"up": line.up - up, "down": line.down - down}
    return memory


@pytest.mark.few(2)
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("kind", ["cut", "hole"])
def test_a_line_that_breaks_anywhere_costs_tries_and_nothing_else(
    shared, line, edge_on, bytes_of_a_round, direction, kind
):
    whole = measured(bytes_of_a_round, line, edge_on)[direction]
    places = PLACES if kind == "cut" else PLACES[1::3]
    for place in places:
        # A cut is seen at once, and only a hole is waited for.
        edge = edge_on() if kind == "cut" else edge_on(read_timeout=0.7, load_poll=0.3)
        before = edge.content(edge.path(4))
        line.then(Fault(**{f"{kind}_{direction}": int(place * whole)}))
        report = edge.round()
        assert report.error is None, (place, report.error)
        assert report.exit_code == 0, (place, report.as_json())
        in_sync(edge, shared.root)
        once(shared.root, edge.uuid)
        assert edge.content(edge.path(4)) == before


def test_every_answer_lost_once_is_asked_for_again(shared, line, edge_on):
    """Connection after connection breaks with its first answer: the work of each is done once."""
    edge = edge_on()
    line.then(*(Fault(cut_down=0, reset=bool(each % 2)) for each in range(4)))
    assert edge.round().exit_code == 0
    in_sync(edge, shared.root)
    once(shared.root, edge.uuid)


def test_bytes_that_were_acknowledged_do_not_travel_again(shared, line, edge_on):
    edge = edge_on()
    edge.write(5, size=1_000_000)
    line.then(*(Fault(cut_up=300_000 + 1000 * each) for each in range(4)))
    before = line.up
    report = edge.round()
    assert report.exit_code == 0, report.as_json()
    blocks = 4 * 4 * 65536  # under way when the line broke: three, and one that came too early
    assert line.up - before < 1_200_000 + blocks + 60_000
    in_sync(edge, shared.root)


def test_blocks_that_travel_by_several_connections_arrive_once_whatever_breaks(
    shared, line, edge_on, monkeypatch
):
    monkeypatch.setattr("sender.send.sent_bytes.ahead._SLOW_S", 0.0)
    edge = edge_on()
    slow = Fault(rate=500_000, delay=0.005)
    connections = 0
    for seed, breaks in enumerate((0, 3, 8)):
        chance = random.Random(seed)
        edge.write(10 + seed, size=2_000_000)
        cuts = [replace(slow, cut_up=chance.randrange(400_000)) for _ in range(breaks)]
        line.then(slow, *cuts)
        line.always(slow)
        before = line.connections
        report = edge.round()
        assert report.exit_code == 0, report.as_json()
        connections = max(connections, line.connections - before)
        in_sync(edge, shared.root)
        once(shared.root, edge.uuid)
    assert connections >= 8


def test_a_black_hole_ends_the_round_within_its_patience(shared, line, edge_on):
    edge = edge_on(read_timeout=0.4, load_poll=0.1, max_retries=2)
    line.always(Fault(hole_up=0))
    started = time.monotonic()
    report = edge.round()
    assert report.exit_code == 4
    assert "127.0.0.1" in report.error.message
    assert time.monotonic() - started < 30
    line.heal()
    changed(edge, read_timeout=20.0)
    assert edge.round().exit_code == 0
    in_sync(edge, shared.root)


def test_a_slow_line_is_slow_and_no_fault(shared, line, edge_on):
    edge = edge_on(read_timeout=3.0, chunk_bytes=1 << 17)
    line.always(Fault(rate=40_000, delay=0.02))  # of each connection: a block takes longer
    report = edge.round()
    assert report.exit_code == 0, report.as_json()
    assert report.seconds > 3.0
    assert report.resumed == []
    in_sync(edge, shared.root)


def test_a_receiver_that_dies_while_it_loads_ends_the_round_and_the_next_learns_the_rest(
    centre, make_edge
):
    edge = make_edge(centre.start(env={"TSFERRY_CRASH_AT": "load.decided"}), transfer=SMALL)
    edge.write(1)
    changed(edge, load_timeout=3600.0, max_retries=3)
    report = edge.round()
    assert report.exit_code == 4
    assert report.seconds < 60, "the patience of a load is not for a receiver that is gone"
    centre.start()
    report = edge.round()
    assert (report.sent, report.bytes, report.exit_code) == (1, 0, 0), report.as_json()
    in_sync(edge, centre.root)


def test_one_bad_line_does_not_hold_up_another_sender(shared, line, edge_on, make_edge):
    edge, other = edge_on(), make_edge(shared.url)
    line.always(Fault(rate=20_000))
    other.write(1, size=300_000)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(edge.round)
        wait_until(lambda: line.connections > 1, "the slow round")
        report = other.round()
        assert report.exit_code == 0
        assert not slow.done()
        line.heal()
        assert slow.result(60).error is None
    in_sync(other, shared.root)


# -- receivers that misbehave, on the command line ----------------------------------------------


def alter(change) -> scripted.Alter:
    return scripted.Alter(change)


def speaks(protocol: int):
    def change(reply):
        answer = json.loads(reply.body)
        answer["protocol"] = protocol
        reply.body = json.dumps(answer).encode()
        return reply

    return change


BAD = {
    "redirects": ("POST /check", lambda: scripted.Answer(scripted.redirect("http://evil.test/"))),
    "a web page": ("POST /check", lambda: scripted.Answer(scripted.html())),
    "protocol 2": ("POST /check", lambda: alter(speaks(2))),
    "offset beyond": ("PATCH /files", lambda: alter(scripted.lie_about_offset(10**9))),
}
WORDS = {
    "redirects": "redirects",
    "a web page": "no tsferry receiver",
    "protocol 2": "protocol 2",
    "offset beyond": "the receiver answers",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("bad", BAD)
def test_a_receiver_that_misbehaves_gets_a_clear_word_and_an_end(make_edge, bad):
    where, fault = BAD[bad]
    with ScriptedReceiver() as receiver:
        edge = make_edge(receiver.url, transfer=SMALL)
        path = edge.write(1, size=200_000)
        receiver.fault(where, *(fault() for _ in range(200)))
        config = edge.write_config()
        done = call(config, "--set", "transfer.max_retries=2", "sync")
        assert "Traceback" not in done.stdout + done.stderr
        assert done.returncode == (3 if where.startswith("PATCH") else 4), done.stdout
        assert WORDS[bad] in done.stdout, done.stdout
        assert len(receiver.requests) < 100, "tries that end"
        assert path not in edge.listed
        assert len(done.stdout) < 2000
        # And when it behaves again, all goes.
        receiver.faults.clear()
        assert call(config, "sync").returncode == 0
        assert edge.listed == [path]


def test_something_that_is_no_web_server_gets_a_clear_word(make_edge):
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def babble() -> None:
            while True:
                try:
                    there, _ = listener.accept()
                except OSError:
                    return
                with there:
                    there.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        pool.submit(babble)
        edge = make_edge(f"http://127.0.0.1:{listener.getsockname()[1]}")
        edge.write(1)
        done = call(edge.write_config(), "--set", "transfer.max_retries=1", "sync")
        listener.shutdown(socket.SHUT_RDWR)
    assert done.returncode == 4
    assert "Traceback" not in done.stdout + done.stderr
    assert "127.0.0.1" in done.stdout


# -- a real link, in namespaces of its own ---------------------------------------------------------


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def namespaces():
    """Two network namespaces with a link between them: 10.99.0.1 (centre), 10.99.0.2 (edge)."""
    if os.geteuid() != 0:
        pytest.skip("needs root for namespaces")
    tag = f"tsf{os.getpid()}"
    centre, edge = f"{tag}c", f"{tag}e"
    try:
        ip("netns", "add", centre)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no network namespaces here")
    try:
        ip("netns", "add", edge)
        ip("-n", centre, "link", "add", "veth0", "type", "veth", "peer", "veth1", "netns", edge)
        for name, device, address in ((centre, "veth0", "10.99.0.1"), (edge, "veth1", "10.99.0.2")):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield centre, edge
    finally:
        for name in (centre, edge):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_a_link_that_goes_down_in_mid_file_and_comes_up_again(namespaces, tmp_path):
    there, here = namespaces
    config = tmp_path / "receiver.toml"
    config.write_text(
        f'schema_dir = "{tmp_path}/c/schema"\ndata_dirs = ["{tmp_path}/c/data"]\n'
        '[listen]\nhost = "10.99.0.1"\nport = 8765\ninsecure = true\nallow = ["10.99.0.0/24"]\n'
        "[limits]\nmin_free_bytes = 0\n"
    )
    (tmp_path / "c" / "data").mkdir(parents=True)
    edge = Edge(tmp_path / "edge", "http://10.99.0.1:8765", transfer={"chunk_bytes": 65536})
    edge.write(1, size=3_000_000)
    ready = tmp_path / "ready"
    made = subprocess.run(
        [RECEIVER, "--config", str(config), "token", "create", "--sender", edge.uuid, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    token = json.loads(made.stdout)["token"]
    entry = msgspec.structs.replace(edge.config.receivers[0], insecure=True)
    edge.with_settings(receivers=(entry,))
    sender = edge.write_config()
    text = sender.read_text().replace(
        'name = "dc1"', f'name = "dc1"\ninsecure = true\ntoken = "{token}"'
    )
    sender.write_text(text)
    settings = ["transfer.connect_timeout=1s", "transfer.read_timeout=2s", "transfer.retry_max=1s"]
    settings += ["transfer.bandwidth_limit=1MiB/s", "transfer.max_retries=20"]
    flags = [each for setting in settings for each in ("--set", setting)]
    inside = ["ip", "netns", "exec"]
    with children(tmp_path) as processes:
        serving = processes.start(
            [*inside, there, RECEIVER, "--config", str(config), "serve", "--ready-file", str(ready)]
        )
        serving.until(ready.exists, "listening")
        sending = processes.start(
            [*inside, here, COMMAND, "--config", str(sender), *flags, "sync", "--json"]
        )
        parts = tmp_path / "c" / "data" / "sync-receiver"
        sending.until(
            lambda: largest(parts, "*/**/*.part") > 200_000,
            "the first blocks",
        )
        ip("-n", there, "link", "set", "veth0", "down")
        sending.until(lambda: "another try" in sending.text(), "that the sender noticed")
        ip("-n", there, "link", "set", "veth0", "up")
        assert sending.wait() == 0, sending.text()
        assert serving.terminate() == 0
    found = rows(tmp_path / "c", edge.uuid)
    assert {row.path: row.md5 for row in found} == edge.files
    assert loaded(tmp_path / "c", edge.uuid) == edge.files
