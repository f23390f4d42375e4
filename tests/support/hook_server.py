"""A webhook on loopback that answers as it is told, and keeps what it was asked."""

from __future__ import annotations

import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class HookServer:
    """What it was asked, in order: the headers, lower case, and the body."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.heard = threading.Condition()
        self.url = ""

    def until(self, count: int, seconds: float = 30.0) -> bool:
        """Wait until it was asked so often."""
        with self.heard:
            return self.heard.wait_for(lambda: len(self.asked) >= count, seconds)


def status(code: int, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def close(request: BaseHTTPRequestHandler) -> None:
    """No answer at all."""
    request.close_connection = True
    request.connection.close()


@contextmanager
def hook_server(certificate: tuple[Path, Path] | None = None) -> Iterator[HookServer]:
    """Serve on any free port.

    Args:
        certificate: with its key, for https.
    """
    found = HookServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with found.heard:
                answer = found.answers.popleft() if found.answers else status(204)
                found.asked.append((self.path, headers, body))
                found.heard.notify_all()
            answer(self)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    found.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
