"""Blocks of one upload that come by several connections at once."""

from __future__ import annotations

import threading

import pytest

from receiver.web.server import ServerOptions
from tests.fault.receiver.web.test_pieces import Store, patch
from tests.support.web import BOUND, all_from, connect, running, status_of, talk, until

OPTIONS = ServerOptions(channel_timeout=30)
LAST = (b"Connection: close",)


@pytest.fixture
def store():
    store = Store()
    store.content.clear()
    return store


@pytest.fixture
def server(store):
    with running(store.app, gate=lambda head: 10_000, options=OPTIONS) as server:
        yield server


def begin(server, offset: int, body: bytes, come: int):
    """A connection by which so many bytes of a block have come."""
    sock = connect(server)
    request = patch(offset, body, *LAST)
    cut = len(request) - len(body) + come
    sock.sendall(request[:cut])
    known = len(server.channels)
    until(lambda: len(server.channels) >= known, "the connection")
    return sock, request[cut:]


def arriving(server, count: int) -> None:
    until(
        lambda: (
            sum(
                each.request is not None and each.request.block is not None
                for each in list(server.channels.values())
            )
            == count
        ),
        "the heads",
    )


def test_a_block_waits_while_one_before_it_arrives(server, store):
    first, rest = begin(server, 0, b"a" * 1000, 500)
    arriving(server, 1)
    with first, connect(server) as third, connect(server) as second:
        third.sendall(patch(2000, b"c" * 1000, *LAST))
        second.sendall(patch(1000, b"b" * 1000, *LAST))
        until(lambda: server.memory.used == 2500, "all of both")
        assert store.calls == []
        assert talk(server, b"GET /other HTTP/1.0\r\n\r\n"), "no worker waits"
        first.sendall(rest)
        assert [status_of(all_from(each)) for each in (first, second, third)] == [204, 204, 204]
    assert [offset for offset, _, _ in store.calls] == [0, 1000, 2000]
    assert store.content == b"a" * 1000 + b"b" * 1000 + b"c" * 1000
    until(lambda: server.memory.used == 0)


def test_other_uploads_do_not_wait(server, store):
    first, _ = begin(server, 0, b"a" * 1000, 500)
    arriving(server, 1)
    with first:
        other = patch(0, b"b", *LAST).replace(b"files/abc", b"files/def")
        assert status_of(talk(server, other)) == 204


def test_a_block_whose_forerunner_is_lost_is_answered(server, store):
    first, _ = begin(server, 0, b"a" * 1000, 500)
    arriving(server, 1)
    with connect(server) as second:
        second.sendall(patch(1000, b"b" * 1000, *LAST))
        until(lambda: server.memory.used == 1500, "both")
        first.close()
        assert status_of(all_from(second)) == 409


def test_a_connection_that_was_given_up_is_in_nobodys_way(server, store):
    """Its peer has gone without a word, and sent the block again by another one."""
    lost, _ = begin(server, 500, b"a" * 1000, 500)
    arriving(server, 1)
    with lost:
        assert status_of(talk(server, patch(0, b"b" * 700, *LAST))) == 204
        assert status_of(talk(server, patch(700, b"c" * 700, *LAST))) == 204
        assert status_of(talk(server, patch(1400, b"d" * 700, *LAST))) == 204
    assert len(store.content) == 2100


def test_three_blocks_of_an_upload_have_workers_at_a_time(server, store):
    now, most, go = [], [], threading.Event()
    before = store.app.view_functions["patch"]

    def patched(name):
        now.append(1)
        most.append(len(now))
        assert go.wait(BOUND)
        now.pop()
        return before(name)

    store.app.view_functions["patch"] = patched
    socks = [connect(server) for _ in range(5)]
    for number, sock in enumerate(socks):
        sock.sendall(patch(number * 10, b"x" * 10, *LAST))
    until(lambda: len(now) == 3, "three of them")
    until(lambda: server.memory.used == 50, "all of them")
    assert status_of(talk(server, b"GET /other HTTP/1.0\r\n\r\n")) == 404
    assert max(most) == 3
    go.set()
    for sock in socks:
        all_from(sock)
        sock.close()
    assert max(most) == 3
