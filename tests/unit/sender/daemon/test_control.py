from __future__ import annotations

import os
import socket
import stat
import threading

import pytest

from common.errors import LockedError, ProtocolError, UsageError
from sender.daemon.control import SOCKET, ControlServer, ask


@pytest.fixture
def schema(tmp_path):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    (deep / "sync").mkdir(parents=True)
    return deep


@pytest.fixture
def serve(schema):
    servers = []

    def start(handler) -> ControlServer:
        server = ControlServer(schema, handler)
        server.start()
        servers.append(server)
        return server

    yield start
    for each in servers:
        each.close()


def test_a_deep_path_is_no_hindrance_and_the_socket_is_for_its_owner(schema, serve):
    serve(lambda request, tell: {"you": request["do"]})
    assert len(str(schema / "sync" / SOCKET)) > 108
    assert ask(schema, {"do": "ping"})["you"] == "ping"
    mode = (schema / "sync" / SOCKET).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_progress_comes_before_the_answer(schema, serve):
    def handler(request, tell):
        for number in range(3):
            tell({"step": number})
        return {"ok": True}

    serve(handler)
    heard = []
    assert ask(schema, {"do": "x"}, tell=heard.append)["ok"]
    assert [each["step"] for each in heard] == [0, 1, 2]


def test_a_report_that_names_very_many_files_comes_whole(schema, serve):
    held = [{"file": f"{number}-1-0.tsfile", "reason": "waits" * 20} for number in range(150_000)]
    serve(lambda request, tell: {"report": {"held": held}})
    assert ask(schema, {"do": "round"})["report"]["held"] == held


def test_an_error_of_the_daemon_is_the_error_of_the_command(schema, serve):
    def handler(request, tell):
        raise UsageError("no such receiver")

    serve(handler)
    with pytest.raises(UsageError, match="no such receiver"):
        ask(schema, {"do": "x"})


def test_nobody_there_is_said(schema):
    with pytest.raises(LockedError, match="does not answer"):
        ask(schema, {"do": "ping"})


def test_a_dead_daemons_socket_is_in_nobodys_way(schema, serve):
    left = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(schema / "sync")
    left.bind(SOCKET)
    os.chdir(here)
    left.close()
    with pytest.raises(LockedError):
        ask(schema, {"do": "ping"})
    serve(lambda request, tell: {})
    assert ask(schema, {"do": "ping"})


def test_a_daemon_that_does_not_take_the_request_is_not_waited_for(schema, serve):
    release = threading.Event()
    serve(lambda request, tell: {"in time": release.wait(60)})
    with pytest.raises(LockedError):
        ask(schema, {"do": "ping"}, patience=0.1)
    release.set()


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_nonsense_gets_an_error_and_the_daemon_goes_on(schema, serve, line):
    serve(lambda request, tell: {})
    here = os.getcwd()
    os.chdir(schema / "sync")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(SOCKET)
        os.chdir(here)
        client.sendall(line)
        assert b'"protocol"' in client.recv(4096)
    assert ask(schema, {"do": "ping"})


def test_a_command_that_hangs_up_harms_nobody(schema, serve):
    gone = threading.Event()

    def handler(request, tell):
        if request["do"] == "long":
            gone.wait(60)
            for _ in range(1000):
                tell({"x": "y" * 1000})
        return {}

    serve(handler)
    with pytest.raises(LockedError):
        ask(schema, {"do": "long"}, patience=0.1)
    gone.set()
    assert ask(schema, {"do": "ping"})


def test_the_answer_of_something_else_is_no_answer(schema):
    here = os.getcwd()
    os.chdir(schema / "sync")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen()
    os.chdir(here)

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(4096)
        connection.sendall(b"hello\n")
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    with listener, pytest.raises(ProtocolError):
        ask(schema, {"do": "ping"})
