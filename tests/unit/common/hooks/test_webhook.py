import base64
import hashlib
import hmac
import json
import logging
import socket
import threading
from contextlib import suppress

import pytest

from common.hooks.hooks_config import HooksConfig
from common.hooks.webhook import Webhook
from common.hooks.webhook_signing import signature_headers, signing_key
from tests.support.hook_server import close, hook_server, status
from tests.support.hooked import event
from tests.support.web import make_certificate

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def server():
    with hook_server() as found:
        yield found


def webhook(url, secret, **more):
    return Webhook(HooksConfig(webhook=url, secret_file=secret, **more), clock=lambda: 1614265330.9)


def test_the_published_example_of_standard_webhooks_is_signed_as_published():
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signature_headers(
        key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_what_is_posted_can_be_verified_by_who_has_the_secret(server, secret):
    told = event("full")
    assert webhook(f"{server.url}/hooks/x?sig=a%2Fb", secret).post(told).ok
    ((path, headers, body),) = server.asked
    assert path == "/hooks/x?sig=a%2Fb"
    assert headers["content-type"] == "application/json"
    assert json.loads(body)["id"] == headers["webhook-id"] == told.id
    assert headers["webhook-timestamp"] == "1614265330"
    # By the specification, and not by our code.
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"].split(" ") == [f"v1,{expected}"]


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "24 to 64 bytes"), ("whsec_QUJD", "24 to 64 bytes"), ("whsec_?!", "base64")],
)
def test_a_secret_that_is_none_is_refused_and_not_shown(tmp_path, text, word):
    path = tmp_path / "secret"
    path.write_text(text)
    config = HooksConfig(webhook="https://h.example", secret_file=path)
    (problem, *_) = config.problems()
    assert word in problem
    assert not text or text not in problem
    outcome = Webhook(config).post(event())
    assert not outcome.ok
    assert word in outcome.text


@pytest.mark.parametrize("code", [400, 401, 404, 500, 503])
def test_whatever_is_no_success_is_a_failure(server, secret, code):
    server.answers.append(status(code))
    outcome = webhook(server.url, secret).post(event())
    assert (outcome.ok, outcome.gone) == (False, False)
    assert f"HTTP {code}" in outcome.text


def test_410_says_that_nothing_is_wanted(server, secret):
    server.answers.append(status(410))
    assert webhook(server.url, secret).post(event()).gone


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("Thu, 25 Feb 2021 15:04:10 GMT", 1614265450 - 1614265330.9),
        ("soon", None),
        ("-5", None),
        ("9" * 40, None),
        ("Mon, 01 Jan 2001 00:00:00 +" + "9" * 30, None),
        ("Mon, 01 Jan " + "9" * 30 + " 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_read_as_number_and_as_date(server, secret, value, seconds):
    server.answers.append(status(429, Retry_After=value))
    found = webhook(server.url, secret).post(event()).retry_after
    assert found == pytest.approx(seconds)


def test_a_redirect_is_not_followed(server, secret):
    server.answers.append(status(307, Location=f"{server.url}/elsewhere"))
    outcome = webhook(server.url, secret).post(event())
    assert not outcome.ok
    assert "redirects" in outcome.text
    assert [path for path, _, _ in server.asked] == ["/"]


def test_one_that_closes_the_connection_is_a_failure(server, secret):
    server.answers.append(close)
    outcome = webhook(server.url, secret).post(event())
    assert not outcome.ok
    assert outcome.text.endswith(": it closed the connection before its answer")


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 20", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nX: y" * 4000]
)
def test_an_answer_that_is_none_is_told_in_words(server, secret, said):
    def cut(request):
        request.wfile.write(said)
        close(request)

    server.answers.append(cut)
    outcome = webhook(server.url, secret).post(event())
    assert not outcome.ok
    assert outcome.text.endswith(": what it answers is no HTTP, or was cut off")


@pytest.mark.parametrize("content", [b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 3, b"SSH-2.0-x\r\n"])
def test_one_that_hangs_or_speaks_something_else_is_a_failure_in_time(secret, content):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held = []

        def take():
            connection, _ = listening.accept()
            held.append(connection)
            with suppress(OSError):  # who asked may have had enough
                connection.sendall(content)

        taking = threading.Thread(target=take, daemon=True)
        taking.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        outcome = webhook(url, secret, timeout=0.2).post(event())
        taking.join()
        held[0].close()
    assert not outcome.ok


def test_nobody_at_the_address_is_a_failure(secret):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    outcome = webhook(f"http://127.0.0.1:{port}", secret).post(event())
    assert "refused" in outcome.text.lower()


def test_only_a_certificate_that_ca_cert_knows_is_talked_to(secret, tmp_path):
    certificate, key = make_certificate(tmp_path, "127.0.0.1", "localhost")
    with hook_server((certificate, key)) as server:
        assert webhook(server.url, secret, ca_cert=certificate).post(event()).ok
        outcome = webhook(server.url, secret).post(event())
        assert not outcome.ok
        assert "self-signed certificate" in outcome.text
        missing = webhook(server.url, secret, ca_cert=tmp_path / "none").post(event())
        assert f"ca_cert {tmp_path}/none: there is no such file" in missing.text
        assert len(server.asked) == 1


def test_neither_the_secret_nor_what_stands_behind_the_host_is_shown(secret, caplog):
    caplog.set_level(logging.DEBUG)
    outcome = webhook("http://127.0.0.1:9/services/T0/hidden", secret).post(event())
    assert outcome.text.startswith("http://127.0.0.1:9/...: ")
    ours = [each.getMessage() for each in caplog.records if not each.name.startswith("urllib3")]
    for text in (outcome.text, *ours):
        assert "hidden" not in text
        assert SECRET not in text
