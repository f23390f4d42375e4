"""Client certificates at the door: who gets through the handshake, and what is known of them."""

import contextlib
import http.client
import socket
import ssl

import pytest
from flask import Flask, request

from common.errors import ConfigError
from receiver.web.server import RequestHead, ServerTls, TlsFiles, tls_contexts
from tests.support.authority import Authority
from tests.support.web import all_from, connect, make_certificate, running, until

EDGE = "edge7.plant.example"
ASK = b"GET /names HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def server_pair(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("server"), "127.0.0.1")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("clients") / "plant")


@pytest.fixture(scope="module")
def edge(authority):
    return authority.issue("edge", f"DNS:{EDGE.upper()}", "URI:spiffe://plant/Edge7", "IP:10.0.0.7")


@pytest.fixture
def files(server_pair, authority):
    return TlsFiles(*server_pair, authority.ca)


@pytest.fixture
def app():
    app = Flask("test")

    @app.route("/names")
    def names():
        shown = RequestHead.from_environ(request.environ).certificate
        return "none" if shown is None else ",".join(shown.names)

    return app


@pytest.fixture
def elsewhere(monkeypatch):
    """Connections come from other machines."""
    monkeypatch.setattr(tls_contexts, "is_of_this_machine", lambda peer, local: False)


def shaken(server, server_pair, pair=None, session=None):
    context = ssl.create_default_context(cafile=server_pair[0])
    if pair is not None:
        context.load_cert_chain(*pair)
    return context.wrap_socket(connect(server), server_hostname="127.0.0.1", session=session)


def asked(sock, sent=ASK):
    sock.sendall(sent)
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    return answer.read().decode()


def test_the_names_of_a_certificate_are_known_with_each_request(app, files, server_pair, edge):
    with running(app, tls=ServerTls(files)) as server:
        with shaken(server, server_pair, edge) as sock:
            for _ in range(2):
                assert asked(sock) == f"{EDGE},spiffe://plant/Edge7"
        with shaken(server, server_pair) as sock:
            assert asked(sock) == "none"
            forged = b"GET /names HTTP/1.1\r\nHost: a\r\ntsferry.certificate: %s\r\n"
            forged += b"Tsferry.Certificate: %s\r\nX-SSL-Client-S-DN: CN=%s\r\n\r\n"
            assert asked(sock, forged % ((EDGE.encode(),) * 3)) == "none"


def refusal(server, server_pair, pair, refused, others=0):
    with shaken(server, server_pair, pair) as sock:
        sock.sendall(ASK * 100)  # as a client does that has sent its request already
        with pytest.raises(ssl.SSLError) as caught:
            sock.recv(100)
    until(lambda: refused, "the refusal is told")
    until(lambda: len(server.channels) == others, "the connection ends")
    return caught.value.reason, refused.pop()[1]


def test_a_certificate_that_does_not_pass_ends_the_handshake_and_both_hear_why(
    app, files, server_pair, authority, tmp_path
):
    refused = []
    ended = authority.issue("ended", f"DNS:{EDGE}", ends="20200101000000Z")
    stranger = Authority(tmp_path / "other").issue("stranger", f"DNS:{EDGE}")
    server_only = authority.issue("web", f"DNS:{EDGE}", usage="serverAuth")

    def hear(peer, why):
        refused.append((peer, why))

    with running(app, tls=ServerTls(files), refused=hear) as server:
        for pair, alert, why in (
            (ended, "SSLV3_ALERT_CERTIFICATE_EXPIRED", "certificate has expired"),
            (stranger, "TLSV1_ALERT_UNKNOWN_CA", "unable to get local issuer certificate"),
            (server_only, "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE", "unsuitable certificate purpose"),
        ):
            told = refusal(server, server_pair, pair, refused)
            assert told[0] == alert
            assert why in told[1]


def test_without_a_certificate_nobody_of_another_machine_gets_through_where_it_is_required(
    app, server_pair, authority, edge, monkeypatch
):
    refused = []
    tls = ServerTls(TlsFiles(*server_pair, authority.ca, client_required=True))
    with running(app, tls=tls, refused=lambda *told: refused.append(told)) as server:
        with shaken(server, server_pair) as sock:
            assert asked(sock) == "none"  # of this machine; the application judges
        monkeypatch.setattr(tls_contexts, "is_of_this_machine", lambda peer, local: False)
        told = refusal(server, server_pair, None, refused)
        assert told == ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "there is none")
        with shaken(server, server_pair, edge) as sock:
            assert EDGE in asked(sock)


def test_what_is_revoked_is_refused_from_the_reload_on_also_on_connections_that_are_open(
    app, server_pair, tmp_path
):
    authority, refused = Authority(tmp_path / "plant"), []
    gone, stays = (authority.issue(name, f"DNS:{name}") for name in ("gone", "stays"))
    tls = ServerTls(TlsFiles(*server_pair, authority.ca, authority.crl()))
    with (
        running(app, tls=tls, refused=lambda *told: refused.append(told)) as server,
        shaken(server, server_pair, gone) as idle,
        shaken(server, server_pair) as plain,
    ):
        assert (asked(idle), asked(plain)) == ("gone", "none")
        authority.revoke(gone[0])
        authority.crl()
        tls.load()
        assert all_from(idle) == b""
        assert asked(plain) == "none"
        assert refusal(server, server_pair, gone, refused, others=1) == (
            "SSLV3_ALERT_CERTIFICATE_REVOKED",
            "certificate revoked",
        )
        with shaken(server, server_pair, stays) as sock:
            assert asked(sock) == "stays"


def test_a_session_that_was_agreed_on_before_the_reload_does_not_go_on(app, server_pair, tmp_path):
    authority, refused = Authority(tmp_path / "plant"), []
    gone = authority.issue("gone", "DNS:gone")
    tls = ServerTls(TlsFiles(*server_pair, authority.ca, authority.crl()))
    context = ssl.create_default_context(cafile=server_pair[0])
    context.load_cert_chain(*gone)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # its session is there after the handshake

    def resumed(server, session=None):
        sock = connect(server)
        return context.wrap_socket(sock, server_hostname="127.0.0.1", session=session)

    with running(app, tls=tls, refused=lambda *told: refused.append(told)) as server:
        with resumed(server) as sock:
            assert asked(sock) == "gone"
            session = sock.session
        with resumed(server, session) as sock:
            assert sock.session_reused
            assert asked(sock) == "gone"
        authority.revoke(gone[0])
        authority.crl()
        tls.load()
        with pytest.raises(ssl.SSLError, match="REVOKED"):
            resumed(server, session)
        until(lambda: refused, "the refusal is told")


def test_a_request_on_a_connection_of_an_older_reading_is_asked_to_come_again(
    app, files, server_pair, edge
):
    tls = ServerTls(files)
    with running(app, tls=tls) as server, shaken(server, server_pair, edge) as sock:
        sock.sendall(ASK[:-2])
        until(lambda: any(each.request for each in server.channels.values()), "it has begun")
        tls.load()
        sock.sendall(ASK[-2:])
        answer = all_from(sock)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"connect again" in answer


def test_files_that_cannot_be_used_are_named_and_leave_all_as_it_was(
    app, files, server_pair, authority, edge, tmp_path
):
    tls = ServerTls(files)
    empty = tmp_path / "empty.pem"
    empty.write_text("no PEM")
    both = tmp_path / "both.pem"
    both.write_bytes(authority.crl().read_bytes() + authority.ca.read_bytes())
    other = []
    for label in ("TRUSTED CERTIFICATE", "X509 CERTIFICATE"):  # OpenSSL takes these as well
        other.append(tmp_path / f"{label}.pem")
        named = authority.ca.read_bytes().replace(b" CERTIFICATE-", f" {label}-".encode())
        other[-1].write_bytes(authority.crl().read_bytes() + named)
    for ca, crl, key in (
        *((authority.ca, each, "client_crl") for each in other),
        (empty, None, "client_ca"),
        (tmp_path / "none", None, "client_ca"),
        (authority.crl(), None, "client_ca"),
        (both, None, "client_ca"),
        (authority.ca, authority.ca, "client_crl"),
        (authority.ca, both, "client_crl"),  # it would be one more authority
        (authority.ca, empty, "client_crl"),
    ):
        with pytest.raises(ConfigError, match=rf"listen\.{key} = "):
            tls.load(TlsFiles(*server_pair, ca, crl))
    assert tls.generation == 0
    with running(app, tls=tls) as server, shaken(server, server_pair, edge) as sock:
        assert EDGE in asked(sock)


def test_the_peer_may_break_off_in_the_middle_of_its_certificate(app, files, server_pair, edge):
    with running(app, tls=ServerTls(files)) as server:
        for _ in range(5):
            sock = shaken(server, server_pair, edge)
            raw = sock.detach()
            with contextlib.suppress(OSError):
                socket.close(raw)
        until(lambda: not server.channels, "every connection is closed")
