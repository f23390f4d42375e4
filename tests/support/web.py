"""Servers in a thread and clients on bare sockets, for tests of the receiver's web layer."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from receiver.web.server import Server, ServerOptions, ServerTls, bind_to
from tests.support.ports import free_port

BOUND = 120.0
"""Seconds after which a condition that should have come true has not."""


@contextlib.contextmanager
def running(
    application,
    *,
    gate: Callable[..., int] = lambda head: 1 << 20,
    options: ServerOptions | None = None,
    tls: ServerTls | None = None,
    refused: Callable[[str, str], None] = lambda peer, why: None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> Iterator[Server]:
    """A server in a thread of its own, which may come back at the port that it was given."""
    options = options or ServerOptions(arrival_grace=0.1)
    server = Server(
        application,
        bind_to(host, port or free_port()),
        gate=gate,
        options=options,
        tls=tls,
        refused=refused,
    )
    listening = threading.Event()
    thread = threading.Thread(target=server.run, args=(listening.set,), name="server")
    thread.start()
    assert listening.wait(BOUND)
    try:
        yield server
    finally:
        server.stop(grace=2)
        thread.join(BOUND)
        assert not thread.is_alive()


def connect(server: Server) -> socket.socket:
    host, port = server.addresses[0]
    return socket.create_connection((host, port), timeout=BOUND)


def all_from(sock: socket.socket) -> bytes:
    """Everything until the other side closes; a reset counts as a close."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(65536):
            got += data
    return got


def talk(server: Server, sent: bytes) -> bytes:
    """Send this, and read until the server closes."""
    with connect(server) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(sent)
        return all_from(sock)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0


def until(condition: Callable[[], object], what: str = "it") -> None:
    """Wait for a condition, not for long."""
    end = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true"
        time.sleep(0.01)


def descriptors() -> int:
    gc.collect()  # servers of other tests
    return len(os.listdir("/proc/self/fd"))


def make_certificate(directory: Path, *names: str) -> tuple[Path, Path]:
    """A self-signed certificate for names or addresses, and its key."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    kinds = ("IP" if name[0].isdigit() or ":" in name else "DNS" for name in names)
    alternatives = ",".join(f"{kind}:{name}" for kind, name in zip(kinds, names, strict=True))
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=tsferry test", "-keyout", key, "-out", cert),
            *("-addext", f"subjectAltName={alternatives}"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key
