"""The tools of the tests do what the tests believe of them."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support import ports, powercut
from tests.support.architecture import ROOT
from tests.support.faultproxy import Fault, FaultProxy
from tests.support.mutate import mutants
from tests.support.ports import free_port
from tests.support.procs import children, wait_until


@pytest.fixture
def echo():
    """A server that gives back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve(connection):
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return

    def accept():
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()
    ended.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture
def proxy(echo):
    threads = threading.active_count()
    with FaultProxy(echo) as proxy:
        yield proxy
    assert threading.active_count() <= threads + 1  # the echo's own may be a moment later


def talk(proxy, data):
    """Send, and read until the end or `len(data)` bytes; returns what came and how it ended."""
    try:
        connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
    except ConnectionResetError:
        return b"", "reset"
    with connection:
        got = b""
        try:
            sender = threading.Thread(target=_send, args=(connection, data))
            sender.start()
            while len(got) < len(data):
                piece = connection.recv(65536)
                if not piece:
                    return got, "end"
                got += piece
        except ConnectionResetError:
            return got, "reset"
        finally:
            sender.join()
        return got, "whole"


def _send(connection, data):
    try:
        connection.sendall(data)
    except OSError:
        return


DATA = os.urandom(300_000)


def test_a_clean_connection_carries_everything(proxy):
    assert talk(proxy, DATA) == (DATA, "whole")
    assert (proxy.up, proxy.down, proxy.connections) == (len(DATA), len(DATA), 1)


def test_a_connection_is_cut_after_the_bytes_told_in_either_direction(proxy):
    proxy.then(Fault(cut_up=100), Fault(cut_down=1000), Fault(cut_down=0))
    got, how = talk(proxy, DATA)
    assert len(got) <= 100
    assert how in ("reset", "end")
    assert proxy.up == 100
    got, how = talk(proxy, DATA)
    assert got == DATA[: len(got)]
    assert len(got) <= 1000
    assert talk(proxy, DATA)[0] == b""
    assert talk(proxy, DATA) == (DATA, "whole")


def test_an_orderly_end_and_a_reset_differ(proxy):
    proxy.then(Fault(cut_down=10, reset=False))
    got, how = talk(proxy, b"x" * 11)
    assert (got, how) == (b"x" * 10, "end")


def test_a_black_hole_says_nothing(proxy):
    proxy.then(Fault(hole_down=5))
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection:
        connection.sendall(b"x" * 10)
        got = b""
        while len(got) < 5:
            got += connection.recv(10)
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(10)
    assert got == b"x" * 5


def test_a_delay_and_a_rate_take_their_time(proxy):
    proxy.then(Fault(delay=0.05), Fault(rate=100_000))
    for least, size in ((0.1, 10), (0.2, 10_000)):
        begin = time.monotonic()
        assert talk(proxy, DATA[:size])[1] == "whole"
        assert time.monotonic() - begin >= least


def test_a_standing_fault_stands_until_it_is_healed(proxy):
    proxy.always(Fault(refuse=True))
    for _ in range(3):
        assert talk(proxy, b"x")[0] == b""
    proxy.heal()
    assert talk(proxy, b"x") == (b"x", "whole")
    assert proxy.refused == 3


def test_everything_can_be_cut_at_once(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        assert proxy.cut_all() == 1
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_the_proxy_carries_a_bounded_number(echo):
    with FaultProxy(echo, most=2) as proxy:
        held = [socket.create_connection(("127.0.0.1", proxy.port), timeout=60) for _ in range(2)]
        for each in held:
            each.sendall(b"x")
            assert each.recv(1) == b"x"
        assert talk(proxy, b"x")[0] == b""
        for each in held:
            each.close()
        wait_until(lambda: talk(proxy, b"x")[1] == "whole", "a place is free again")


def test_a_target_that_is_down_is_a_broken_connection():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
    with FaultProxy(address) as proxy:
        assert talk(proxy, b"x")[0] == b""


# -- processes -----------------------------------------------------------------------------------


def test_a_port_that_is_told_is_none_that_a_connection_may_be_given():
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = [free_port(also=10_000) for _ in range(50)]
    assert len({*found}) == 50
    assert max(found) + 10_000 < lowest


def test_a_port_at_which_somebody_listens_is_not_told(monkeypatch):
    first, second, third = (free_port(also=1) for _ in range(3))
    with (
        socket.create_server(("127.0.0.1", first)),
        socket.create_server(("127.0.0.1", second + 1)),
    ):
        monkeypatch.setattr(ports, "_ports", iter([first, second, third]))
        assert free_port(also=1) == third


def test_a_child_is_waited_for_and_reaped(tmp_path):
    with children(tmp_path) as made:
        good = made.start(["sh", "-c", "echo hello; exit 3"])
        assert good.wait() == 3
        assert good.text() == "hello\n"
        assert not good.running
        long = made.start(["sleep", "1000"])
        assert long.running
        stubborn = made.start(["sh", "-c", "trap '' TERM; sleep 1000 & wait; wait"])
    for child in (long, stubborn):
        assert child.returncode == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)


def test_a_child_that_ends_too_early_is_told_with_its_output(tmp_path):
    with children(tmp_path) as made:
        child = made.start(["sh", "-c", "echo broken; exit 1"])
        with pytest.raises(AssertionError, match="broken"):
            child.until(lambda: (tmp_path / "ready").exists(), "it is ready")


def test_a_module_runs_with_the_interpreter_of_the_tests(tmp_path):
    with children(tmp_path) as made:
        assert made.python("common.crash", env={"TSFERRY_CRASH_AT": ""}).wait() == 0


def test_waiting_has_a_bound():
    with pytest.raises(AssertionError, match="never"):
        wait_until(lambda: False, "never", bound=0.05)


# -- mutants -------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_mutants():
    seeds = [b"hello world" * 10, bytes(range(256))]
    one, two = list(mutants(seeds, 300, 1)), list(mutants(seeds, 300, 1))
    assert one == two
    assert one != list(mutants(seeds, 300, 2))
    assert len(set(one)) > 200
    assert max(map(len, one)) < 30_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_cuts_a_run_off_has_it_clean_up_and_ends_a_fork_at_once(number):
    assert signal.getsignal(number) is signal.default_int_handler
    child = os.fork()
    if not child:
        os.kill(os.getpid(), number)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -number


def test_a_program_that_a_test_has_started_ends_with_it_even_if_that_is_killed(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom tests.support.procs import Child\n"
        "pid = Child(['sleep', '1000'], Path(sys.argv[1])).pid\n"
        # A death before it has begun, in its first thousandth of a second, it does not hear of.
        "while Path(f'/proc/{pid}/comm').read_text() != 'sleep\\n': pass\n"
        "print(pid, flush=True)\ntime.sleep(1000)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        ending = os.pidfd_open(pid)
        process.kill()
    try:
        waiting = select.poll()
        waiting.register(ending, select.POLLIN)
        assert waiting.poll(60_000)
    finally:
        os.close(ending)


def test_each_script_that_makes_or_starts_something_is_ended_cleanly_by_signals():
    makers = ("import subprocess", "import tempfile", "tests.support.procs", "tests.support.centre")
    texts = {each.name: each.read_text() for each in (ROOT / "scripts").glob("*.py")}
    to_end = {
        name
        for name, text in texts.items()
        if "__main__" in text and any(each in text for each in makers)
    }
    assert {"chaos.py", "mutations.py", "powercuts.py", "quickstart.py"} <= to_end
    ended = ("    end_on_signals()", "stopped_by_signals()")
    assert {name for name in to_end if not any(each in texts[name] for each in ended)} == set()


def test_what_a_dead_process_had_open_is_let_go_and_its_numbers_are_given_to_nobody(tmp_path):
    (tmp_path / "theirs").write_text("a")
    left = open(tmp_path / "theirs")  # noqa: SIM115
    number = left.fileno()
    powercut.let_go(tmp_path)
    assert os.readlink(f"/proc/self/fd/{number}") == os.devnull
    ours = os.open(tmp_path / "theirs", os.O_RDONLY)
    left.close()
    assert os.read(ours, 1) == b"a"
    os.close(ours)
