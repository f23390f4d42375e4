"""The certificate that a sender shows, and what it says when a handshake comes to nothing."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import ssl
import subprocess
import threading

import pytest

from common import wire
from common.errors import ConfigError, ForbiddenError, UnauthorizedError
from tests.support.authority import Authority
from tests.unit.sender.conftest import make_client


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authorities") / "plant")


@pytest.fixture(scope="module")
def server_pair(authority):
    return authority.issue("centre", "IP:127.0.0.1", usage="serverAuth")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        shown = self.connection.getpeercert()
        name = dict(each for (each,) in shown["subject"])["commonName"] if shown else None
        self.server.seen.append((self.client_address[1], name))
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def centre(pair, ca=None, *, required=False):
    """A server that knows by which connection and certificate each request came."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL

    class Server(http.server.ThreadingHTTPServer):
        def finish_request(self, request, client_address):
            with context.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            ) as secured:
                try:
                    secured.do_handshake()
                    self.RequestHandlerClass(secured, client_address, self)
                except OSError:
                    socket.socket.shutdown(secured, socket.SHUT_WR)
                    while socket.socket.recv(secured, 4096):  # else the alert is lost
                        pass

        def shutdown_request(self, request):
            """It is closed."""

    server = Server(("127.0.0.1", 0), _Handler)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def client_of(server, host="127.0.0.1", **more):
    return make_client(f"https://{host}:{server.server_address[1]}", **more)


def ask(client):
    return client.check(
        wire.CheckRequest(protocol=1, version="0", sender="a" * 32, partition_interval_ms=1)
    )


def take(pair, to):
    for source, name in zip(pair, ("edge.pem", "edge.key"), strict=True):
        os.replace(_copy(source, to / f"{name}.new"), to / name)


def _copy(source, to):
    to.write_bytes(source.read_bytes())
    return to


@pytest.mark.parametrize("trusted", ["a file", "the system's"])
def test_a_new_certificate_is_shown_from_the_next_request_on(
    authority, server_pair, tmp_path, caplog, monkeypatch, trusted
):
    first, second = authority.issue("first"), authority.issue("second")
    take(first, tmp_path)
    shown = {"client_cert": tmp_path / "edge.pem", "client_key": tmp_path / "edge.key"}
    if trusted == "a file":
        shown["ca_file"] = authority.ca
    else:
        monkeypatch.setattr("requests.utils.DEFAULT_CA_BUNDLE_PATH", str(authority.ca))
    with centre(server_pair, authority.ca) as server:
        client = client_of(server, **shown)

        def names():
            server.seen.clear()
            for _ in range(2):
                with pytest.raises(UnauthorizedError):
                    ask(client)
            assert len({port for port, _ in server.seen}) == 1, "one connection"
            return {name for _, name in server.seen}

        assert names() == {"first"}
        os.replace(_copy(second[1], tmp_path / "new"), tmp_path / "edge.key")
        assert names() == {"first"}, "half of a pair"
        assert caplog.text.count("stays as it was") == 1
        caplog.set_level("INFO")
        take(second, tmp_path)
        assert names() == {"second"}
        assert caplog.text.count("the client certificate was read again: ") == 1
        client.close()


def test_a_pair_that_cannot_be_used_is_named(authority, server_pair, tmp_path):
    cert, key = authority.issue("edge")
    other = authority.issue("other")[1]
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:x", "-out", locked], check=True
    )
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no PEM")
    with centre(server_pair, authority.ca) as server:
        for pair, words in (
            ((cert, other), "the key is not that of the certificate"),
            ((cert, locked), "has a passphrase"),
            ((cert, tmp_path / "none"), r"/none cannot be read: No such file"),
            ((wrong, key), "expected PEM"),
        ):
            client = client_of(
                server, ca_file=authority.ca, client_cert=pair[0], client_key=pair[1]
            )
            with pytest.raises(ConfigError, match=words) as caught:
                ask(client)
            assert f"client_key = {pair[1]}" in str(caught.value)
        assert server.seen == []


def test_why_our_certificate_is_not_taken_is_said(authority, server_pair, tmp_path):
    stranger = Authority(tmp_path / "other").issue("stranger")
    ended = authority.issue("ended", ends="20200101000000Z")
    web = authority.issue("web", usage="serverAuth")
    with centre(server_pair, authority.ca, required=True) as server:
        for pair, words in (
            (None, r"wants a client certificate: client_cert and client_key in \[\[receiver\]\]"),
            (stranger, "stranger.pem: it is of none of its authorities"),
            (ended, r"ended.pem: it has ended, or its authority's list there has"),
            (web, "web.pem: it is not made for clients"),
        ):
            given = {} if pair is None else {"client_cert": pair[0], "client_key": pair[1]}
            with pytest.raises(ForbiddenError, match=words):
                ask(client_of(server, ca_file=authority.ca, **given))


def test_a_certificate_that_is_not_accepted_names_the_way_out(authority, server_pair, tmp_path):
    other = Authority(tmp_path / "other")
    with centre(server_pair) as server:
        for host, ca, words in (
            ("127.0.0.1", None, r'ca_file = "..." in \[\[receiver\]\]'),
            ("127.0.0.1", other.ca, r"other/ca\.pem does not have the authority"),
            ("localhost", authority.ca, r"url has localhost: .*subjectAltName"),
        ):
            with pytest.raises(ForbiddenError, match=f"is not accepted: .*{words}"):
                ask(client_of(server, host, ca_file=ca))
    ended = authority.issue("late", "IP:127.0.0.1", usage="serverAuth", ends="20200101000000Z")
    with centre(ended) as server, pytest.raises(ForbiddenError, match=r"here it is 20\d\d-"):
        ask(client_of(server, ca_file=authority.ca))
