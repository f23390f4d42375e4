"""Peers that are slow, rude or gone: the server answers or closes, lives on, and keeps nothing."""

import contextlib
import http.client
import socket
import threading

import pytest
from flask import Flask, request

from common.errors import ForbiddenError, TooLargeError, UnauthorizedError
from receiver.web.server import ServerOptions
from tests.support.web import all_from, connect, descriptors, running, status_of, talk, until

QUICK = ServerOptions(header_timeout=0.5, channel_timeout=60, body_grace=0.5, min_body_rate=1000)
POST = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"


@pytest.fixture
def app():
    app = Flask("test")

    @app.route("/echo", methods=["GET", "POST"])
    def echo():
        return request.get_data() or b"hello"

    return app


def works(server) -> bool:
    host, port = server.addresses[0]
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request("POST", "/echo", b"0123456789")
        return connection.getresponse().read() == b"0123456789"
    finally:
        connection.close()


HEADERS = b"Host: a\r\n"
BAD = {
    "both length and chunked": (
        b"POST /echo HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "two lengths": (b"POST /echo HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n", 400),
    "two equal lengths": (
        b"POST /echo HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
        400,
    ),
    "a list of lengths": (b"POST /echo HTTP/1.1\r\nContent-Length: 4, 4\r\n\r\nabcd", 400),
    "a negative length": (b"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
    "a signed length": (b"POST /echo HTTP/1.1\r\nContent-Length: +4\r\n\r\nabcd", 400),
    "a length of 5,000 digits": (
        b"POST /echo HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        400,
    ),
    "a length of 2^63": (
        b"POST /echo HTTP/1.1\r\nContent-Length: 9223372036854775808\r\n\r\n",
        413,
    ),
    "chunks from HTTP/1.0": (
        b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "an unknown coding": (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    "chunked twice": (
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "chunked twice, in two headers": (
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\ntransfer-encoding: Chunked\r\n\r\n"
        b"0\r\n\r\n",
        400,
    ),
    "chunked and nothing": (
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
        400,
    ),
    "an empty coding": (
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: ,\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a chunk size that is none": (
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        400,
    ),
    "a chunk line without end": (
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        400,
    ),
    "more than the limit, in chunks": (
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 20,
        413,
    ),
    "10,000 headers": (
        b"GET /echo HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(10_000)) + b"\r\n",
        431,
    ),
    "300 small headers": (b"GET /echo HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n", 400),
    "a URL of 1 MB": (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n", 431),
    "a header that never ends": (b"GET /echo HTTP/1.1\r\na: " + b"b" * 100_000, 431),
    "a header without a colon": (b"GET /echo HTTP/1.1\r\nnonsense\r\n\r\n", 400),
    "a space before the colon": (b"GET /echo HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    "two hosts": (b"GET /echo HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400),
    "two tokens": (b"GET /echo HTTP/1.1\r\nAuthorization: a\r\nAuthorization: a\r\n\r\n", 400),
    "a bare CR in a header": (b"GET /echo HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400),
    "a folded first header": (b"GET /echo HTTP/1.1\r\n folded: a\r\n\r\n", 400),
    "a lower-case method": (b"get /echo HTTP/1.1\r\n\r\n", 400),
    "no request line": (b"\x00\x01\x02\x03\r\n\r\n", 400),
    "TLS to a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "a broken IPv6 URL": (b"GET http://[::1/echo HTTP/1.1\r\n\r\n", 400),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_request_is_answered_with_a_reason_and_the_process_lives(app, name):
    sent, expected = BAD[name]
    with running(app) as server:
        answer = talk(server, sent)
        assert status_of(answer) == expected, answer[:300]
        assert b"Content-Type: application/problem+json" in answer
        assert b"Connection: close" in answer
        assert works(server)
        until(lambda: server.memory.used == 0, "no body is kept")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ForbiddenError("not from there"), 403),
        (UnauthorizedError("no token"), 401),
        (TooLargeError("too much"), 413),
    ],
)
def test_what_the_gate_refuses_is_answered_before_its_body_is_read(app, error, expected):
    def gate(head):
        if head.header("X-Good"):
            return 1 << 20
        raise error

    with running(app, gate=gate) as server:
        with connect(server) as sock:
            sock.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n")
            answer = all_from(sock)  # not a byte of the body was sent
        assert status_of(answer) == expected
        assert (b"www-authenticate: bearer" in answer.lower()) == (expected == 401)
        assert server.memory.used == 0


def test_a_client_that_sends_its_whole_body_first_still_reads_the_refusal(app):
    def gate(head):
        raise UnauthorizedError("no token")

    body = b"x" * 8_000_000
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    with running(app, gate=gate) as server:
        for _ in range(5):
            with connect(server) as sock:
                sock.sendall(head + body)  # a reset would raise here
                assert status_of(all_from(sock)) == 401
        assert server.memory.used == 0


def test_no_100_continue_for_a_refused_body(app):
    def gate(head):
        raise UnauthorizedError("no token")

    with running(app, gate=gate) as server, connect(server) as sock:
        sock.sendall(POST.replace(b"Host: a", b"Host: a\r\nExpect: 100-continue"))
        assert all_from(sock).startswith(b"HTTP/1.1 401")


def test_100_continue_for_a_body_that_is_welcome(app):
    with running(app) as server, connect(server) as sock:
        sock.sendall(POST.replace(b"Host: a", b"Host: a\r\nExpect: 100-continue"))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"0123456789")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")


def test_expect_without_a_body_does_not_hang(app):
    with running(app) as server, connect(server) as sock:
        sock.sendall(b"GET /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")


def test_slow_headers_are_cut_off(app):
    with running(app, options=QUICK) as server, connect(server) as sock:
        sock.sendall(b"GET /echo HTTP/1.1\r\nHo")
        assert all_from(sock) == b""
        assert works(server)


def test_a_body_of_a_byte_at_a_time_is_cut_off(app):
    with running(app, options=QUICK) as server, connect(server) as sock:
        sock.sendall(POST + b"0")
        sock.settimeout(0.2)
        for _ in range(100):
            try:
                if not sock.recv(10):
                    break
            except TimeoutError:
                with contextlib.suppress(ConnectionError):
                    sock.sendall(b"1")
            except ConnectionError:
                break
        else:
            pytest.fail("it was never cut off")
        until(lambda: server.memory.used == 0)


def test_a_body_that_keeps_its_rate_ends_at_a_total_time(app):
    """At a rate that is just allowed, the largest body would take days."""
    options = ServerOptions(body_grace=60, body_time=1.5)
    plain = POST.replace(b"10\r\n", b"1000\r\n")
    for head in (plain, plain.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")):
        with running(app, options=options) as server, connect(server) as sock:
            sock.sendall(head)
            sock.settimeout(0.2)
            for _ in range(100):
                try:
                    if not sock.recv(100):
                        break
                except TimeoutError:
                    with contextlib.suppress(ConnectionError):
                        sock.sendall(b"1")
                except ConnectionError:
                    break
            else:
                pytest.fail("it was never cut off")
            until(lambda: server.memory.used == 0)


def test_idle_connections_are_closed_in_the_end(app):
    with running(app, options=ServerOptions(channel_timeout=1)) as server, connect(server) as sock:
        assert all_from(sock) == b""


def test_500_idle_connections_do_not_keep_a_good_client_out(app):
    options = ServerOptions(connection_limit=100)
    with running(app, options=options) as server, contextlib.ExitStack() as held:
        for _ in range(500):
            held.enter_context(connect(server))
        for _ in range(20):
            assert works(server)
        assert len(server.channels) <= 100


def test_100_slow_bodies_and_500_idle_connections_cost_no_thread(app):
    options = ServerOptions(connection_limit=1000, threads=2)
    with running(app, options=options) as server, contextlib.ExitStack() as held:
        for number in range(600):
            sock = held.enter_context(connect(server))
            if number < 100:
                sock.sendall(POST + b"0")
        for _ in range(20):
            assert works(server)
        assert len(server.channels) >= 600


def test_when_all_connections_are_at_work_a_new_one_waits_for_its_turn(app):
    options = ServerOptions(connection_limit=20)
    with running(app, options=options) as server, contextlib.ExitStack() as held:
        busy = [held.enter_context(connect(server)) for _ in range(20)]
        for number, sock in enumerate(busy):
            sock.sendall(_of(f"t{number}", POST) + b"01234")
        until(lambda: sum(c.request is not None for c in server.channels.values()) == 20)
        with connect(server) as late:
            late.sendall(POST + b"0123456789")
            busy[0].close()
            assert late.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("slow", ["body", "reader", "piece"])
def test_who_lets_connections_trickle_keeps_half_of_them_for_the_others(app, slow):
    @app.get("/large")
    def large():
        return b"x" * 20_000_000

    @app.patch("/sync/v1/files/<name>")
    def block(name):
        return "", 204

    sent = {
        "body": _of("one", POST) + b"0",
        "reader": _of("one", b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"),
        "piece": _of("one", PATCH) + b"0" * 12,
    }[slow]
    options = ServerOptions(connection_limit=20, piece_bytes=10)
    with running(app, gate=lambda head: 15, options=options) as server:
        with contextlib.ExitStack() as held:
            for _ in range(60):
                sock = held.enter_context(connect(server))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.sendall(sent)
            with connect(server) as other:
                other.sendall(_of("two", POST) + b"0123456789")
                assert other.recv(1000).startswith(b"HTTP/1.1 200")
            assert status_of(talk(server, _of("one", POST) + b"0123456789")) == 503
        until(lambda: not server.channels)
        with connect(server) as again:
            again.sendall(_of("one", POST) + b"0123456789")
            assert again.recv(1000).startswith(b"HTTP/1.1 200")


def _of(token, head):
    return head[:-2] + b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"


PATCH = (
    b"PATCH /sync/v1/files/x HTTP/1.1\r\nHost: a\r\nUpload-Offset: 0\r\nContent-Length: 100\r\n\r\n"
)


def _drop_after(sent: bytes):
    def drop(server):
        with connect(server) as sock:
            sock.sendall(sent)

    return drop


def _reset_after(sent: bytes):
    def drop(server):
        sock = connect(server)
        sock.sendall(sent)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()

    return drop


STATES = [b"", b"GE", POST[:40], POST, POST + b"0123", POST + b"0123456789", POST + b"x" * 5000]


@pytest.mark.parametrize("drop", [_drop_after, _reset_after])
def test_peers_that_drop_in_any_state_leave_no_descriptor_behind(app, drop):
    with running(app) as server:
        assert works(server)
        until(lambda: not server.channels)
        before = descriptors()
        for _ in range(20):
            for state in STATES:
                drop(state)(server)
        assert works(server)
        until(lambda: not server.channels, "every connection is closed")
        until(lambda: descriptors() <= before, "no descriptor is left")
        until(lambda: server.memory.used == 0, "no body is kept")
        assert not server._watched.keys() - set(server._listeners)


def test_a_peer_that_does_not_read_its_answer_is_cut_off_and_keeps_no_thread(app):
    @app.get("/large")
    def large():
        return b"x" * 50_000_000

    options = ServerOptions(channel_timeout=1, threads=1)
    with running(app, options=options) as server, connect(server) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: not server.channels, "it is closed")
        assert works(server)


def test_bodies_of_all_requests_together_have_a_limit(app):
    options = ServerOptions(max_buffered_bytes=3_000_000, connection_limit=100)
    with running(app, options=options) as server, contextlib.ExitStack() as held:
        for number in range(3):
            held.enter_context(connect(server)).sendall(_large(f"t{number}") + b"x" * 890_000)
        until(lambda: server.memory.used == 3 * 890_000)
        answer = talk(server, _large("another"))
        assert status_of(answer) == 503
        assert b"Retry-After: 2" in answer
        held.close()
        until(lambda: server.memory.used == 0)
        assert works(server)


@pytest.mark.parametrize("spelled", ["Bearer one", "bearer   one"])
def test_who_lets_bodies_trickle_keeps_half_of_that_limit_for_the_others(app, spelled):
    options = ServerOptions(max_buffered_bytes=2_000_000, connection_limit=100)
    with running(app, options=options) as server, contextlib.ExitStack() as held:
        held.enter_context(connect(server)).sendall(_large("one") + b"x" * 890_000)
        until(lambda: server.memory.used == 890_000)
        assert (
            status_of(talk(server, _large("one").replace(b"Bearer one", spelled.encode()))) == 503
        )
        assert status_of(talk(server, _large("two") + b"x" * 900_000)) == 200
        held.close()
        until(lambda: server.memory.used == 0)
        assert status_of(talk(server, _large("one") + b"x" * 900_000)) == 200


def _large(token):
    return (
        b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 900000\r\n"
        b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"
    )


def test_memory_stays_when_bodies_are_refused_in_the_middle(app):
    sent = (
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 17
    )
    with running(app) as server:
        for _ in range(10):
            assert status_of(talk(server, sent)) == 413
        until(lambda: server.memory.used == 0)


def test_pipelined_requests_are_answered_in_order(app):
    with running(app) as server, connect(server) as sock:
        bodies = [b"%010d" % n for n in range(50)]
        sock.sendall(b"".join(POST + body for body in bodies))
        sock.shutdown(socket.SHUT_WR)
        answers = all_from(sock)
        assert [part[-10:] for part in answers.split(b"HTTP/1.1 200 OK")[1:]] == bodies


def test_a_request_smuggled_behind_a_refused_one_is_not_served(app):
    seen = []

    def gate(head):
        seen.append(head.path)
        return 100

    inner = b"GET /echo?secret HTTP/1.1\r\nHost: a\r\n\r\n"
    sent = b"POST /echo HTTP/1.1\r\nContent-Length: 999999\r\n\r\n" + inner
    with running(app, gate=gate) as server:
        answer = talk(server, sent)
        assert answer.count(b"HTTP/1.1") == 1
        assert status_of(answer) == 413


def test_head_has_no_body_even_when_refused(app):
    def gate(head):
        raise ForbiddenError("no")

    with running(app, gate=gate) as server:
        answer = talk(server, b"HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403")
        assert answer.endswith(b"\r\n\r\n")


def test_the_server_does_not_tell_what_it_is(app):
    @app.get("/boom")
    def boom():
        raise RuntimeError("secret detail")

    with running(app) as server, connect(server) as sock:
        sock.sendall(b"GET /boom HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = all_from(sock)
        assert status_of(answer) == 500
        assert b"secret" not in answer
        assert b"waitress" not in answer.lower()
        assert b"Server:" not in answer


def test_many_good_clients_at_once_all_get_their_own_answer(app):
    wrong = []

    def client(server, number):
        host, port = server.addresses[0]
        connection = http.client.HTTPConnection(host, port, timeout=60)
        for turn in range(30):
            body = b"%d-%d" % (number, turn)
            connection.request("POST", "/echo", body)
            if connection.getresponse().read() != body:
                wrong.append(body)
        connection.close()

    with running(app) as server:
        threads = [threading.Thread(target=client, args=(server, n)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
