"""A port of its own on which measures are scraped: `GET /metrics`, without TLS and without a token.

Whoever reaches it may read, and do nothing else. It is there for a monitoring system in the same
network: a few connections at a time, each with a time limit, and no body is read.
"""

from __future__ import annotations

import http.server
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from common.durable import Closing
from common.metering.measures import CONTENT_TYPE
from common.system_errors import cannot_listen

__all__ = ["MetricsPort"]

log = logging.getLogger(__name__)

PATH: Final = "/metrics"
_SECONDS = 10.0
_AT_ONCE = 8
_POLL = 0.2
"""Seconds until it is seen that the port is to be closed."""


class MetricsPort(Closing):
    """Serves the text of measures, in threads of its own, until it is closed.

    Args:
        host: address to listen on.
        port: TCP port; 0 for any that is free.
        text: makes what is scraped.

    Raises:
        TsferryError: the address cannot be had; see `cannot_listen`.
    """

    def __init__(self, host: str, port: int, text: Callable[[], bytes]) -> None:
        try:
            self._server = _PortServer(host, port, text)
        except OSError as error:
            raise cannot_listen(f"metrics.listen = {host}:{port}", port, error) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL,), name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Take no more connections; closing twice is harmless."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _PortServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, host: str, port: int, text: Callable[[], bytes]) -> None:
        self.text = text
        self._free = threading.Semaphore(_AT_ONCE)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without a question for the name of the host, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Turn away who comes while so many are there."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke."""
        log.debug("a connection to the port of metrics broke", extra={"peer": client_address[0]})


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _PortServer
    server_version, sys_version = "tsferry", ""

    def setup(self) -> None:
        """Each wait for the other end has a limit."""
        self.request.settimeout(_SECONDS)
        super().setup()

    def do_GET(self) -> None:
        """Answer with the measures."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(404)
            return
        try:
            text = self.server.text()
        except Exception as error:
            log.exception("measures could not be made")
            self.send_error(500, explain=type(error).__name__)
            return
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Not each scrape is worth a line."""
        log.debug("metrics: %s", args[0] if args else format)
