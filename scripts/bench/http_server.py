"""Measure WSGI servers as a receiver would be hurt: blocks of 4 MiB, small calls, slow peers.

Each server runs the same Flask application in a process of its own with 16 threads, on a free
loopback port. Two loads, each alone and again while 500 connections idle and 100 send one byte a
second: PATCH of 4 MiB from 4 clients, and small JSON calls from 8.

    python scripts/bench/http_server.py                 # all that are installed
    python scripts/bench/http_server.py tsferry cheroot # some
    pip install cheroot gunicorn                        # the others (not needed by tsferry)

Not a benchmark of networks: both ends share this machine's cores.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib.util
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BLOCK = 4 * 2**20
THREADS = 16
IDLE = 500
SLOW = 100
TIMEOUT = 5.0
ALONE, BESIEGED = "alone", "slow peers"


# -- the servers, each in its own process --------------------------------------------------------


def application() -> Callable[..., object]:
    from flask import Flask, request

    app = Flask("bench")

    @app.post("/sync/v1/heartbeat")
    def heartbeat() -> object:
        request.get_json()
        return {"engine": "0" * 32, "wanted": False}

    @app.patch("/sync/v1/files/<name>")
    def patch(name: str) -> object:
        taken = 0
        while block := request.stream.read(1 << 20):
            taken += len(block)
        return "", 204, {"Upload-Offset": str(taken)}

    return app


def serve_tsferry(port: int) -> None:
    from receiver.web.server import Server, ServerOptions, bind_to

    options = ServerOptions(threads=THREADS, connection_limit=2000)
    Server(application(), bind_to("127.0.0.1", port), gate=lambda _: BLOCK, options=options).run()


def serve_waitress(port: int) -> None:
    import waitress

    waitress.serve(
        application(),
        host="127.0.0.1",
        port=port,
        threads=THREADS,
        connection_limit=2000,
        recv_bytes=1 << 18,
        inbuf_overflow=1 << 24,
        asyncore_use_poll=True,
    )


def serve_cheroot(port: int) -> None:
    from cheroot import wsgi

    wsgi.Server(("127.0.0.1", port), application(), numthreads=THREADS).start()


def serve_gunicorn(port: int) -> None:
    from gunicorn.app.base import BaseApplication

    class Bench(BaseApplication):
        def load_config(self) -> None:
            settings = {
                "bind": f"127.0.0.1:{port}",
                "workers": 1,  # the engine lives in one process
                "threads": THREADS,
                "worker_class": "gthread",
                "worker_connections": 2000,
                "keepalive": 30,
                "loglevel": "error",
            }
            for key, value in settings.items():
                self.cfg.set(key, value)

        def load(self) -> Callable[..., object]:
            return application()

    Bench().run()


SERVERS = {
    "tsferry": ("waitress", serve_tsferry),
    "waitress": ("waitress", serve_waitress),
    "cheroot": ("cheroot", serve_cheroot),
    "gunicorn": ("gunicorn", serve_gunicorn),
}


# -- the load --------------------------------------------------------------------------------------


def patch_once(connection: http.client.HTTPConnection) -> None:
    headers = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    connection.request("PATCH", "/sync/v1/files/a", b"\0" * BLOCK, headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 204, answer.status


def call_once(connection: http.client.HTTPConnection) -> None:
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/sync/v1/heartbeat", b'{"version": "1"}', headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status


def drive(
    port: int, once: Callable[[http.client.HTTPConnection], None], clients: int, seconds: float
) -> tuple[float, float, int]:
    """Requests a second, their 99th percentile in ms, and how many failed."""
    done: list[float] = []
    failed: list[str] = []
    until = time.monotonic() + seconds

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        while time.monotonic() < until:
            begin = time.monotonic()
            try:
                once(connection)
            except (OSError, http.client.HTTPException, AssertionError) as error:
                failed.append(repr(error))
                connection.close()
            else:
                done.append(time.monotonic() - begin)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.monotonic() - begin
    worst = statistics.quantiles(done, n=100)[98] * 1000 if len(done) > 1 else float("nan")
    return len(done) / spent, worst, len(failed)


@contextlib.contextmanager
def besieged(port: int) -> Iterator[None]:
    """500 connections that say nothing, 100 that send a byte of a request each second."""
    held = []
    for _ in range(IDLE + SLOW):
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT))
    slow, over = held[:SLOW], threading.Event()
    head = b"POST /sync/v1/heartbeat HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\n"

    def trickle() -> None:
        for each in slow:
            with contextlib.suppress(OSError):
                each.sendall(head)
        while not over.wait(1.0):
            for each in slow:
                with contextlib.suppress(OSError):
                    each.sendall(b" ")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        time.sleep(1.5)
        yield
    finally:
        over.set()
        thread.join()
        for each in held:
            each.close()


def measure(name: str, seconds: float) -> dict[str, float]:
    """Rates of both loads, their 99 of 100 in ms and how many failed; alone and besieged."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--serve", name, "--port", str(port)]
    process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    found: dict[str, float] = {}
    try:
        _wait_for(port)
        for state, siege in ((ALONE, contextlib.nullcontext()), (BESIEGED, besieged(port))):
            with siege:
                rate, worst, failed = drive(port, patch_once, 4, seconds)
                found |= _three(f"{state}, blocks", rate * BLOCK / 2**20, worst, failed)
                rate, worst, failed = drive(port, call_once, 8, seconds)
                found |= _three(f"{state}, calls", rate, worst, failed)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return found


def _three(what: str, rate: float, worst: float, failed: int) -> dict[str, float]:
    return {f"{what}, a second": rate, f"{what}, p99 ms": worst, f"{what}, failed": failed}


def _wait_for(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers", nargs="*", help=f"of {', '.join(SERVERS)}")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, str(REPOSITORY))
    if arguments.serve:
        SERVERS[arguments.serve][1](arguments.port)
        return
    found = {}
    for name in arguments.servers or SERVERS:
        if importlib.util.find_spec(SERVERS[name][0]) is None:
            print(f"{name}: not installed, skipped", file=sys.stderr)
            continue
        found[name] = measure(name, arguments.seconds)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        print(f"{name}, blocks of 4 MiB in MiB, small calls; {IDLE} idle and {SLOW} slow peers:")
        for what, value in figures.items():
            print(f"  {what:28} {value:10,.0f}")


if __name__ == "__main__":
    main()
