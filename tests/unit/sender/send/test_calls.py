from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress

import pytest

from common import wire
from common.config import Secret
from common.errors import (
    BusyError,
    ConfigError,
    ForbiddenError,
    NoSpaceError,
    ProtocolError,
    TooLargeError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
)
from sender.send.calls import Client
from sender.send.connection import transport
from tests.support.scripted_receiver import (
    Alter,
    Answer,
    Drop,
    Reply,
    ScriptedReceiver,
    Stall,
    html,
    problem,
    redirect,
)
from tests.unit.sender.conftest import make_client

TASK = "1" * 32


def ask(client: Client) -> wire.CheckAnswer:
    return client.check(
        wire.CheckRequest(protocol=1, version="1", sender="a" * 32, partition_interval_ms=1)
    )


def test_a_check_says_who_the_receiver_is(receiver, client):
    assert ask(client).engine == "e" * 32
    assert receiver.requests[0].headers["tsferry-sender"] == "a" * 32


def test_a_redirect_is_not_followed_and_the_token_does_not_travel_along(receiver):
    with ScriptedReceiver() as elsewhere:
        receiver.fault("POST /check", Answer(redirect(f"{elsewhere.url}/sync/v1/check")))
        client = make_client(receiver.url, token=Secret("hush"))
        with pytest.raises(ProtocolError, match=f"redirects to '{elsewhere.url}"):
            ask(client)
        assert elsewhere.requests == []


def test_netrc_and_proxies_of_the_environment_are_ignored(receiver, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password stolen\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    ask(make_client(receiver.url))
    assert "authorization" not in receiver.requests[0].headers


def test_proxies_of_the_environment_are_used_when_asked_for(monkeypatch):
    with ScriptedReceiver() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        client = make_client("http://receiver.invalid:1", use_env_proxies=True, insecure=True)
        with pytest.raises(TsferryError):
            ask(client)
        assert proxy.requests[0].path.startswith("http://receiver.invalid:1/")


def test_plain_http_to_another_machine_is_refused_before_anything_is_sent():
    with pytest.raises(ConfigError, match="insecure"):
        make_client("http://192.0.2.7:8080", token=Secret("hush"))


def test_a_problem_document_becomes_its_error(receiver, client):
    receiver.fault("POST /check", Answer(problem(BusyError, "loading", status=503)))
    with pytest.raises(BusyError, match="loading"):
        ask(client)
    receiver.fault("POST /check", Answer(problem(NoSpaceError, "disk full")))
    with pytest.raises(NoSpaceError) as caught:
        ask(client)
    assert caught.value.extra["status"] == 507


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("Mon, 01 Jan 2001 00:00:00 GMT", 0.0), ("soon", None)]
)
def test_retry_after_is_heard(receiver, client, header, seconds):
    reply = problem(BusyError)
    reply.headers["Retry-After"] = header
    receiver.fault("POST /check", Answer(reply))
    with pytest.raises(BusyError) as caught:
        ask(client)
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, ProtocolError),
        (400, ProtocolError),
        (401, UnauthorizedError),
        (403, ForbiddenError),
        (413, TooLargeError),
        (429, UnreachableError),
        (500, UnreachableError),
        (502, UnreachableError),
        (503, UnreachableError),
    ],
)
def test_an_answer_of_something_else_is_shown_as_it_came(receiver, client, status, kind):
    receiver.fault("POST /check", Answer(html(status)))
    with pytest.raises(kind, match="It works!"):
        ask(client)


def test_json_of_another_program_is_no_answer(receiver, client):
    other = Reply(200, {"Content-Type": "application/json"}, b'{"status": "ok"}')
    receiver.fault("POST /check", Answer(other))
    with pytest.raises(ProtocolError):
        ask(client)


def test_another_protocol_version_is_named(receiver, client):
    def change(reply: Reply) -> Reply:
        reply.body = reply.body.replace(b'"protocol":1', b'"protocol":9')
        return reply

    receiver.fault("POST /check", Alter(change))
    with pytest.raises(ProtocolError, match="protocol 9"):
        ask(client)


def test_control_characters_of_an_answer_reach_no_terminal(receiver, client):
    receiver.fault("POST /check", Answer(Reply(400, {"Content-Type": "x"}, b"\x1b[2J\x00")))
    with pytest.raises(ProtocolError) as caught:
        ask(client)
    assert "\x1b" not in caught.value.message


def test_a_receiver_that_is_down_is_named(client, receiver):
    url = receiver.url
    receiver.__exit__()
    with pytest.raises(UnreachableError, match="Connection refused"):
        ask(make_client(url))


def test_a_connection_closed_without_an_answer_is_a_transient_error(receiver, client):
    receiver.fault("POST /check", Drop(late=True))
    with pytest.raises(UnreachableError, match="without an answer"):
        ask(client)


def test_a_receiver_that_does_not_answer_is_not_waited_for_longer_than_told(receiver):
    release = threading.Event()
    receiver.fault("POST /check", Stall(release))
    try:
        with pytest.raises(UnreachableError, match=r"no answer within 0.2 s"):
            ask(make_client(receiver.url, read_timeout=0.2))
    finally:
        release.set()


def raw_server(answer: bytes):
    """A peer that says `answer` to whoever connects, whatever it is asked."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        # The other end may have had enough at any moment, and the test be over.
        with suppress(OSError), listener.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            # What is unread at a close takes the answer along.
            connection.settimeout(30)
            while connection.recv(65536):
                pass

    threading.Thread(target=serve, daemon=True).start()
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_peer_that_does_not_speak_http_is_told_apart_from_a_broken_line():
    listener, url = raw_server(b"SSH-2.0-OpenSSH_9.2\r\n")
    with listener, pytest.raises(ProtocolError, match="does not speak HTTP"):
        ask(make_client(url))


def test_plain_http_to_a_tls_port_is_explained():
    listener, url = raw_server(b"\x15\x03\x01\x00\x02\x02\x46")
    with listener, pytest.raises(ProtocolError, match="https://"):
        ask(make_client(url))


@pytest.mark.parametrize("linger", [True, False])
def test_a_tls_port_that_hangs_up_without_a_word_is_explained(linger):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        if not linger:  # a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    with listener, pytest.raises(UnreachableError, match="is it https://"):
        ask(make_client(f"http://127.0.0.1:{listener.getsockname()[1]}"))


def test_tls_to_a_plain_port_is_explained():
    listener, url = raw_server(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with listener, pytest.raises(ProtocolError, match=r"does not speak TLS .*is it http://"):
        ask(make_client(url.replace("http:", "https:")))


def test_a_port_that_does_not_answer_a_handshake_is_no_late_answer():
    listener = socket.create_server(("127.0.0.1", 0))  # the kernel takes the connection
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    with listener, pytest.raises(UnreachableError, match=r"no TLS handshake within 0\.2 s"):
        ask(make_client(url, connect_timeout=0.2))


def test_an_answer_cut_short_is_a_transient_error():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
    listener, url = raw_server(head)
    with listener, pytest.raises(UnreachableError):
        ask(make_client(url))


def test_an_endless_answer_is_not_taken_in(monkeypatch):
    monkeypatch.setattr(transport, "MAX_ANSWER", 1000)
    listener, url = raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200000)
    with listener, pytest.raises(ProtocolError, match="longer than"):
        ask(make_client(url))


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path):
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            try:
                with context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(65536)
                    secure.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
                    while secure.recv(65536):  # closed with a body unread, it would be reset
                        pass
            except OSError:
                continue

    threading.Thread(target=serve, daemon=True).start()
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    with listener:
        with pytest.raises(ForbiddenError, match="certificate is not accepted"):
            ask(make_client(url))
        # ... and with its own CA it is spoken to.
        with pytest.raises(UnauthorizedError):
            ask(make_client(url, ca_file=certificate))


def self_signed(directory):
    import subprocess

    target = directory / "both.pem"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(directory / "k.pem"), "-out", str(directory / "c.pem")]
    subprocess.run(
        ["openssl", *request.split(), *names, *files],
        check=True,
        capture_output=True,
    )
    target.write_bytes((directory / "k.pem").read_bytes() + (directory / "c.pem").read_bytes())
    return target


def test_a_missing_ca_file_is_named(tmp_path):
    client = make_client("https://127.0.0.1:9", ca_file=tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=r"none\.pem"):
        ask(client)


def test_answers_about_other_paths_than_were_asked_are_refused(receiver, client):
    client.start_task(TASK, wire.StartRequest(engine="e" * 32))
    receiver.decide = lambda entry: wire.PlanDecision(path="other", action=wire.Action.SEND)
    entry = wire.PlanEntry(path="sequence/root.a/0/0/1-1-0-0.tsfile", size=1, tail="")
    with pytest.raises(ProtocolError, match="other paths"):
        client.plan(TASK, None, wire.PlanPage(entries=[entry]))


def test_pages_that_do_not_end_do_not_hang_the_sender(receiver, client):
    def change(reply: Reply) -> Reply:
        reply.body = reply.body[:-1] + b',"next":"x"}'
        return reply

    receiver.fault("GET /inventory", *(Alter(change) for _ in range(10)))
    with pytest.raises(ProtocolError, match="do not end"):
        list(client.inventory())


def test_what_another_engine_calls_settled_is_not_believed(receiver, client):
    content = wire.encode(wire.SettledAnswer(engine="f" * 32, commit=9))
    reply = Reply(200, {"Content-Type": "application/json"}, content)
    receiver.fault("GET /settled", *[Answer(reply)] * 2)
    assert [page.commit for page in client.settled(1, of="f" * 32)] == [9]
    with pytest.raises(UnreachableError, match="did before"):
        list(client.settled(1, of="e" * 32))


def test_a_receiver_that_does_not_look_at_its_disk_makes_nothing_safe(receiver, client):
    def forget(reply: Reply) -> Reply:  # as 0.1.0 answers
        reply.body = reply.body.replace(b',"looked":true', b"")
        return reply

    assert [page.entries for page in client.inventory_looked_at()] == [[]]
    receiver.fault("GET /inventory", Alter(forget))
    with pytest.raises(ProtocolError, match="older version"):
        list(client.inventory_looked_at())


@pytest.mark.parametrize("value", ["-1", "9" * 5000, "1e3", "", "0x10", "१"])
def test_an_offset_that_is_no_number_is_refused(receiver, client, value):
    receiver.fault(
        "HEAD /files",
        Answer(Reply(200, {"Upload-Offset": value.encode().decode("latin-1")})),
    )
    with pytest.raises(ProtocolError, match="expected a number"):
        client.head_upload("x", 10)


@pytest.mark.parametrize(
    "place", ["", "/sync/v1/files/", "/files/../../x y", "https://e/é", "//[/files/x"]
)
def test_a_location_that_names_no_upload_is_refused(receiver, client, place):
    receiver.fault("POST /files", Answer(Reply(201, {"Location": place})))
    with pytest.raises(ProtocolError, match="Location"):
        client.create_upload(TASK, None, "sequence/root.a/0/0/1-1-0-0.tsfile", 1)


# -- answers that do not end -----------------------------------------------------------------------


def _serving(talk):
    """A server that does as it likes with each connection; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                talk(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def _dripping(first, drop):
    def talk(connection):
        connection.sendall(first)
        for _ in range(400):
            connection.sendall(drop)
            time.sleep(0.05)

    return talk


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 100 Continue\r\n", b"A: b\r\n"),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"b"),
        (b"HTTP/1.1 2", b"0"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 60000\r\n\r\n", b"x"),
    ],
)
def test_an_answer_ends_at_a_total_time(first, drop):
    listener, url = _serving(_dripping(first, drop))
    with listener:
        client = make_client(url, read_timeout=0.4)
        begin = time.monotonic()
        with pytest.raises((UnreachableError, ProtocolError)):
            ask(client)
        assert time.monotonic() - begin < 15  # it is said for 20
        client.close()
