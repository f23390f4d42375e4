"""A body too long for memory: a stock tus client sends a whole file in one PATCH."""

import pytest
from flask import Flask, request

from common.errors import UnauthorizedError
from receiver.web.server import ServerOptions
from tests.support.web import connect, running, status_of, talk, until

OPTIONS = ServerOptions(piece_bytes=1000)
BODY = bytes(n % 251 for n in range(10_500))


class Store:
    """An application that keeps what it is given, and answers as a tus server."""

    def __init__(self) -> None:
        self.content = bytearray(b"already here")
        self.calls = []
        self.full_at = 1 << 30
        self.app = Flask("store")

        @self.app.route("/sync/v1/files/<name>", methods=["PATCH", "POST"])
        def patch(name):
            offset = int(request.headers["Upload-Offset"])
            block = request.get_data()
            self.calls.append((offset, len(block), request.headers.get("Repr-Digest")))
            if offset != len(self.content):
                return "wrong offset", 409
            if offset + len(block) > self.full_at:
                return "full", 507
            self.content += block
            return "", 204, {"Upload-Offset": str(len(self.content))}


@pytest.fixture
def store():
    return Store()


def patch(offset: int, body: bytes, *more: bytes) -> bytes:
    lines = [
        b"PATCH /sync/v1/files/abc HTTP/1.1",
        b"Host: a",
        b"Upload-Offset: %d" % offset,
        b"Content-Length: %d" % len(body),
        *more,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_a_long_patch_arrives_whole_and_is_answered_once(store):
    with running(store.app, gate=lambda head: 1000, options=OPTIONS) as server:
        answer = talk(server, patch(12, BODY, b"Connection: close"))
        assert status_of(answer) == 204
        assert answer.count(b"HTTP/1.1") == 1
        assert b"Upload-Offset: 10512" in answer
        assert store.content[12:] == BODY
        assert [size for _, size, _ in store.calls] == [1000] * 10 + [500]
        until(lambda: server.memory.used == 0)


def test_the_connection_stays_usable_after_a_long_patch(store):
    with running(store.app, gate=lambda head: 1000, options=OPTIONS) as server:
        with connect(server) as sock:
            sock.sendall(patch(12, BODY) + patch(10512, b"more"))
            answer = b""
            while answer.count(b"\r\n\r\n") < 2:
                answer += sock.recv(1000)
        assert b"Upload-Offset: 10516" in answer


def test_the_digest_of_the_file_comes_with_the_last_piece_only(store):
    with running(store.app, gate=lambda head: 1000, options=OPTIONS) as server:
        talk(server, patch(12, BODY, b"Repr-Digest: md5=:abc=:", b"Connection: close"))
    assert [digest for _, _, digest in store.calls] == [None] * 10 + ["md5=:abc=:"]


def test_a_piece_that_fails_ends_the_request_with_its_answer(store):
    store.full_at = 5012
    with running(store.app, gate=lambda head: 1000, options=OPTIONS) as server:
        answer = talk(server, patch(12, BODY))
        assert status_of(answer) == 507
        assert answer.count(b"HTTP/1.1") == 1
        assert len(store.content) == 5012
        until(lambda: server.memory.used == 0)


def test_what_came_before_a_break_is_kept(store):
    whole = patch(12, BODY)
    with running(store.app, gate=lambda head: 1000, options=OPTIONS) as server:
        with connect(server) as sock:
            sock.sendall(whole[: -len(BODY) + 4700])
            until(lambda: len(store.content) == 4012)
        until(lambda: not server.channels)
        assert bytes(store.content[12:]) == BODY[:4000]
        until(lambda: server.memory.used == 0)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"Upload-Checksum: sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=", 413),
        (b"Upload-Offset: x", 400),
    ],
)
def test_a_long_patch_that_cannot_be_cut_is_refused(store, header, expected):
    with running(store.app, gate=lambda head: 1000, options=OPTIONS) as server:
        answer = talk(server, patch(12, BODY, header))
        assert status_of(answer) == expected
        assert not store.calls
        assert expected == 400 or b"whole or not at all" in answer


def test_a_long_body_of_another_call_is_refused(store):
    with running(store.app, gate=lambda head: 1000, options=OPTIONS) as server:
        sent = patch(12, BODY).replace(b"/sync/v1/files/abc", b"/other")
        assert status_of(talk(server, sent)) == 413


def test_a_long_patch_of_a_stranger_is_refused_before_its_first_piece(store):
    def gate(head):
        raise UnauthorizedError("who are you")

    with running(store.app, gate=gate, options=OPTIONS) as server:
        assert status_of(talk(server, patch(12, BODY))) == 401
        assert not store.calls


def test_a_long_patch_that_a_proxy_made_a_post_of_has_the_same_limits(store):
    sent = patch(12, BODY, b"Connection: close", b"X-HTTP-Method-Override: PATCH")
    with running(store.app, gate=lambda head: 1000, options=OPTIONS) as server:
        assert status_of(talk(server, sent.replace(b"PATCH ", b"POST ", 1))) == 204
        assert store.content[12:] == BODY
        until(lambda: server.memory.used == 0)
    with running(store.app, gate=lambda head: 1000, options=OPTIONS) as server:
        sent = sent.replace(b"Override: PATCH", b"Override: HEAD")
        assert status_of(talk(server, sent)) == 413
