"""The end of the server: who has connected gets an answer, and nobody is waited for in vain."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from receiver.web.server import Server, ServerOptions, bind_to
from tests.support.web import BOUND, all_from, connect, status_of, until

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LONG = 30.0


def application(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


class Ending:
    """A server in a thread, and its end."""

    def __init__(self, arrival_grace: float) -> None:
        self.server = Server(
            application,
            bind_to("127.0.0.1", 0),
            gate=lambda head: 1 << 20,
            options=ServerOptions(arrival_grace=arrival_grace),
        )
        listening = threading.Event()
        self.thread = threading.Thread(target=self.server.run, args=(listening.set,))
        self.thread.start()
        assert listening.wait(BOUND)

    def connect(self):
        before = len(self.server.channels)
        sock = connect(self.server)
        until(lambda: len(self.server.channels) > before, "it is accepted")
        return sock

    def stop(self, grace: float = LONG) -> None:
        """Stop it, and wait until it accepts nobody any more."""
        self.server.stop(grace)
        until(lambda: not self.server._listeners, "it listens no more")

    def ends(self) -> bool:
        self.thread.join(BOUND)
        return not self.thread.is_alive()


@contextlib.contextmanager
def ending(arrival_grace: float = LONG):
    made = Ending(arrival_grace)
    try:
        yield made
    finally:
        made.server.stop(0)
        assert made.ends()


def test_who_has_only_just_connected_is_answered_and_told_to_connect_anew():
    with ending() as it, it.connect() as sock:
        it.stop()
        sock.sendall(ASK)
        answer = all_from(sock)
        assert status_of(answer) == 200
        assert b"Connection: close" in answer
        assert it.ends()


def test_a_request_of_which_a_part_has_come_is_answered():
    with ending() as it, it.connect() as sock:
        sock.sendall(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        (channel,) = it.server.channels.values()
        until(lambda: channel.request is not None and channel.request.headers_finished)
        it.stop()
        sock.sendall(b"cd")
        assert all_from(sock).endswith(b"abcd")
        assert it.ends()


def test_one_that_has_had_its_answer_holds_up_nothing():
    with ending() as it, it.connect() as sock:
        sock.sendall(ASK)
        assert status_of(sock.recv(4096)) == 200
        it.stop()
        assert it.ends()
        assert all_from(sock) == b""


@pytest.mark.parametrize("said", [b"", ASK[:-2]], ids=["nothing", "half a request"])
def test_one_that_does_not_go_on_is_waited_for_a_little(said):
    with ending(arrival_grace=0.2) as it, it.connect() as sock:
        sock.sendall(said)
        it.stop()
        assert it.ends()
        assert all_from(sock) == b""


def test_one_that_was_silent_for_longer_than_that_is_not_waited_for():
    with ending() as it, it.connect():
        (channel,) = it.server.channels.values()
        channel._born -= LONG
        it.stop()
        assert it.ends()


def test_a_request_that_has_come_and_was_not_read_keeps_its_connection_open():
    with ending() as it, it.connect() as sock:
        sock.sendall(ASK)
        sock.recv(4096)
        (channel,) = it.server.channels.values()
        until(lambda: channel.is_idle)
        now = time.monotonic()
        assert channel.may_end(now, now)
        channel._has_come = lambda: True
        assert not channel.may_end(now, now)
        del channel._has_come
        assert not channel._has_come()
        channel.interest = lambda: 0
        it.server.touch(channel)
        until(lambda: channel._fileno not in it.server._watched, "the loop does not see it")
        sock.sendall(ASK)
        until(channel._has_come)
        assert not channel.may_end(now, now)
        del channel.interest
        it.server.touch(channel)
        assert status_of(sock.recv(4096)) == 200


def test_pipelined_requests_are_all_answered_though_it_ends():
    release = threading.Event()
    with ending() as it, it.connect() as sock:
        it.server.application = lambda environ, start: (
            release.wait(BOUND),
            application(environ, start),
        )[1]
        sock.sendall(ASK * 3)
        (channel,) = it.server.channels.values()
        until(lambda: len(channel.requests) == 3)
        it.stop()
        release.set()
        answers = all_from(sock)
        assert answers.count(b"HTTP/1.1 200") == 3
        assert answers.count(b"Connection: close") == 1
