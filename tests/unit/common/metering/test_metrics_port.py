from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest

from common.config.metrics_rules import listen_of
from common.errors import AddressTakenError
from common.metering import metrics_port
from common.metering.metrics_port import MetricsPort
from tests.support.web import until


def get(port: MetricsPort, path: str = "/metrics") -> bytes:
    host, number = port.address
    host = f"[{host}]" if ":" in host else host
    with urllib.request.urlopen(f"http://{host}:{number}{path}", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_it_serves_measures_and_nothing_else(host: str) -> None:
    with MetricsPort(host, 0, lambda: b"tsferry_x 1\n") as port:
        assert get(port) == get(port, "/metrics?name=x") == b"tsferry_x 1\n"
        for path in ("/", "/metrics/", "/../etc/passwd"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(port, path)
        request = urllib.request.Request(
            f"http://{'[::1]' if ':' in host else host}:{port.address[1]}/metrics", data=b"x"
        )
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(request, timeout=60)
    port.close()


def test_what_cannot_be_made_is_an_error_of_this_scrape_alone(caplog) -> None:
    answers = iter([ValueError("no"), b"tsferry_x 1\n"])

    def text() -> bytes:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    with MetricsPort("127.0.0.1", 0, text) as port:
        with pytest.raises(urllib.error.HTTPError, match="500"):
            get(port)
        assert get(port) == b"tsferry_x 1\n"
    assert "could not be made" in caplog.text


def test_beyond_eight_nobody_waits_and_those_who_leave_make_room(monkeypatch) -> None:
    monkeypatch.setattr(metrics_port, "_SECONDS", 600.0)  # who has no time left is turned away, too
    with MetricsPort("127.0.0.1", 0, lambda: b"tsferry_x 1\n") as port:
        idle = [socket.create_connection(port.address, timeout=30) for _ in range(20)]
        assert [each.recv(1) for each in idle[8:]] == [b""] * 12, "turned away at once"
        for each in idle:
            each.close()

        def served() -> bool:
            try:
                return get(port) == b"tsferry_x 1\n"
            except OSError:
                return False

        until(served, "an answer")


def test_those_who_say_nothing_have_their_time(monkeypatch) -> None:
    monkeypatch.setattr(metrics_port, "_SECONDS", 0.1)
    with (
        MetricsPort("127.0.0.1", 0, lambda: b"tsferry_x 1\n") as port,
        socket.create_connection(port.address, timeout=60) as idle,
    ):
        assert idle.recv(1) == b""


def test_an_address_that_cannot_be_had_is_said_in_a_line() -> None:
    with (
        MetricsPort("127.0.0.1", 0, lambda: b"") as port,
        pytest.raises(
            AddressTakenError, match=r"metrics\.listen = 127\.0\.0\.1:\d+: cannot listen"
        ),
    ):
        MetricsPort("127.0.0.1", port.address[1], lambda: b"")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:9765", ("127.0.0.1", 9765)),
        ("[::1]:0", ("::1", 0)),
        ("edge.example:80", ("edge.example", 80)),
    ],
)
def test_an_address_is_read(text: str, found: tuple[str, int]) -> None:
    assert listen_of(text) == found


@pytest.mark.parametrize(
    "text",
    ["", "9765", ":9765", "host", "host:", "host:-1", "host:65536", "::1:9765", "[h]:1", "h:²"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        listen_of(text)
