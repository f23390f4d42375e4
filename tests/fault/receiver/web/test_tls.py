"""TLS on connections that never block: it works, and peers that break it leave nothing behind."""

import contextlib
import socket
import ssl

import pytest
import requests
from flask import Flask, request

from common.errors import ConfigError
from receiver.web.server import ServerOptions, ServerTls, TlsFiles
from tests.support.web import all_from, connect, descriptors, make_certificate, running, until


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"), "127.0.0.1", "localhost")


@pytest.fixture
def tls(certificate):
    return ServerTls(TlsFiles(*certificate))


@pytest.fixture
def app():
    app = Flask("test")

    @app.route("/echo", methods=["GET", "POST"])
    def echo():
        return request.get_data() or request.scheme

    return app


def big(head):
    return 64 << 20


def secured(server, certificate, **kwargs):
    context = ssl.create_default_context(cafile=certificate[0])
    return context.wrap_socket(connect(server), server_hostname="127.0.0.1", **kwargs)


def url(server, path="/echo"):
    return f"https://127.0.0.1:{server.addresses[0][1]}{path}"


def test_large_bodies_go_both_ways(app, tls, certificate):
    body = bytes(range(256)) * 60_000
    with running(app, gate=big, tls=tls) as server, requests.Session() as session:
        for _ in range(3):
            answer = session.post(url(server), data=body, verify=str(certificate[0]), timeout=60)
            assert answer.content == body
        assert session.get(url(server), verify=str(certificate[0]), timeout=60).text == "https"


def test_a_client_that_does_not_know_the_certificate_gets_nowhere(app, tls):
    with running(app, tls=tls) as server:
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(url(server), timeout=60)
        until(lambda: not server.channels)


def test_plain_http_to_the_tls_port_is_told_so_and_closed(app, tls):
    with running(app, tls=tls) as server, connect(server) as sock:
        sock.sendall(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = all_from(sock)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"https" in answer


def test_tls_to_a_plain_port_is_told_so_at_once(app, certificate):
    with running(app) as server, pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
        secured(server, certificate)
    with running(app) as server, connect(server) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500)
        assert b"use http://" in all_from(sock)


def test_rubbish_to_the_tls_port_is_closed(app, tls):
    with running(app, tls=tls) as server, connect(server) as sock:
        sock.sendall(b"\x00\xff" * 100)
        all_from(sock)


def test_a_handshake_that_does_not_go_on_is_cut_off(app, tls):
    with running(app, tls=tls, options=ServerOptions(header_timeout=0.5)) as server:
        with connect(server) as sock:
            sock.sendall(b"\x16\x03\x01\x02\x00")
            assert all_from(sock) == b""
        with connect(server) as sock:
            assert all_from(sock) == b""


def test_old_versions_are_refused(app, tls, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificate[0])
    with contextlib.suppress(ValueError):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.minimum_version = ssl.TLSVersion.TLSv1_1
    with running(app, tls=tls) as server, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(connect(server), server_hostname="127.0.0.1")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_serve_a_byte_at_a_time(app, tls, certificate, version):
    context = ssl.create_default_context(cafile=certificate[0])
    context.minimum_version = context.maximum_version = version
    with (
        running(app, tls=tls) as server,
        context.wrap_socket(connect(server), server_hostname="127.0.0.1") as sock,
    ):
        for byte in b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc":
            sock.sendall(bytes([byte]))
        answer = sock.recv(1000)
        while not answer.endswith(b"abc"):
            answer += sock.recv(1000)


def test_pipelined_requests_that_come_in_one_record_are_all_answered(app, tls, certificate):
    # They are decrypted at once, and no event of the socket tells of the later ones.
    one = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000
    with running(app, tls=tls) as server, secured(server, certificate) as sock:
        sock.sendall(one * 7)
        answer = b""
        while answer.count(b"x") < 14_000:
            answer += sock.recv(65536)
        assert answer.count(b"HTTP/1.1 200") == 7


def test_peers_that_drop_in_any_state_leave_no_descriptor_behind(app, tls, certificate):
    hello = _client_hello()
    with running(app, tls=tls) as server:
        before = descriptors()
        for _ in range(10):
            for sent in (b"", b"\x16", hello[:50], hello, b"GET /"):
                with connect(server) as sock:
                    sock.sendall(sent)
            for sent in (b"GE", b"POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\n123"):
                sock = secured(server, certificate, suppress_ragged_eofs=True)
                sock.sendall(sent)
                raw = sock.detach()
                socket.close(raw)
        until(lambda: not server.channels, "every connection is closed")
        until(lambda: descriptors() <= before, "no descriptor is left")
        until(lambda: server.memory.used == 0, "no body is kept")


def test_a_refusal_reaches_a_client_that_sends_its_whole_body_first(app, tls, certificate):
    with running(app, tls=tls, gate=lambda head: 10) as server:
        answer = requests.post(
            url(server), data=b"x" * 4_000_000, verify=str(certificate[0]), timeout=20
        )
        assert answer.status_code == 413


def test_a_new_certificate_is_used_from_the_next_connection_on(app, tls, certificate, tmp_path):
    other = make_certificate(tmp_path, "127.0.0.1")
    with running(app, tls=tls) as server:
        tls.load(TlsFiles(*other))
        assert requests.get(url(server), verify=str(other[0]), timeout=60).ok


def test_a_certificate_that_is_none_is_an_error_of_the_configuration(tmp_path, certificate):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("not PEM")
    for pair in ((wrong, certificate[1]), (certificate[0], wrong), (tmp_path / "no", wrong)):
        with pytest.raises(ConfigError, match=r"listen\.tls_cert"):
            ServerTls(TlsFiles(*pair))


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
