"""A store that misbehaves: an HTTP proxy before an S3 server, whose answers a test decides."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

REFUSALS = {
    "slow": (503, "SlowDown", "Reduce your request rate."),
    "archived": (
        403,
        "InvalidObjectState",
        "The operation is not valid for the object's storage class",
    ),
    "skewed": (
        403,
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    ),
    "full": (507, "InsufficientStorage", "There is no room."),
    "quota": (403, "QuotaExceeded", "The quota of the bucket is used up."),
    "failing": (500, "InternalError", "We encountered an internal error, please try again."),
    "denied": (403, "AccessDenied", "Access Denied."),
    "unknown": (403, "InvalidAccessKeyId", "The access key is not known."),
    "no bucket": (404, "NoSuchBucket", "The specified bucket does not exist."),
}
"""What a store answers with without having done anything: status, code and message."""

_LISTED_TAG = re.compile(rb"[0-9a-f]{32}(?=(?:&#34;|&quot;|\")?</ETag>)")


@dataclass(frozen=True)
class Request:
    """What came, with how many bytes."""

    method: str
    path: str
    size: int
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_put(self) -> bool:
        return self.method == "PUT"


class S3Proxy:
    """On a free port of loopback; a context manager.

    Attributes:
        fault: what is done with a request: `slow` (503, and the server never hears of it), `lost`
            (it is carried out, and the connection ends without an answer), `cut` (the answer's body
            ends in the middle), `lie` (another ETag, in a list too), `keyed` (the ETag is no MD5,
            and the checksum is right), `bare` (it says nothing of an encryption), `other` (the body
            has another byte in its middle), one of `REFUSALS` (as a store refuses), or None.
        seen: all requests, in order.
        given: bytes of the bodies that were answered with, by path.
        delay: seconds before each answer.
        rate: bytes a second of all answers together; 0 for as fast as it goes.
        clock: of the store, by which it dates its answers, by ours, in seconds.
    """

    def __init__(self, endpoint: str) -> None:
        self.fault: Callable[[Request], str | None] = lambda _: None
        self.seen: list[Request] = []
        self.given: Counter[str] = Counter()
        self.delay = 0.0
        self.clock = 0.0
        self.rate = 0.0
        self._line = threading.Lock()
        target = urlsplit(endpoint).netloc

        class Handler(_Handler):
            proxy = self
            behind = target

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def pace(self, size: int) -> None:
        """Wait as long as so many bytes have the line."""
        if self.rate:
            with self._line:
                time.sleep(size / self.rate)

    def put_bytes(self, part: str) -> int:
        """Bytes that came to be put under keys with this in them, but for digests of blocks."""
        puts = [each for each in self.seen if each.is_put and ".blocks" not in each.path]
        return sum(each.size for each in puts if part in each.path)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: S3Proxy
    behind: str

    def log_message(self, *_: object) -> None:
        return

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, len(body), headers)
        self.proxy.seen.append(request)
        fault = self.proxy.fault(request)
        time.sleep(self.proxy.delay)
        if fault in REFUSALS:
            self._refuse(*REFUSALS[fault])
            return
        status, headers, content = self._ask(body)
        if fault == "lost":
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers:
            if fault == "bare" and "server-side-encryption" in name.lower():
                continue
            if fault == "keyed" and name.lower() == "etag":
                value = '"' + "e" * 32 + '"'
            if fault == "lie" and name.lower() in ("etag", "x-amz-checksum-sha256"):
                value = '"' + "0" * 32 + '"'
            self.send_header(name, value)
        self.end_headers()
        if fault == "lie":
            content = _LISTED_TAG.sub(b"0" * 32, content)
        if fault == "other" and content:
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        if fault == "cut":
            content = content[: len(content) // 2]
            self.close_connection = True
        if self.command != "HEAD":
            if self.command == "GET":
                self.proxy.given[urlsplit(self.path).path] += len(content)
                self.proxy.pace(len(content))
            self.wfile.write(content)

    def _refuse(self, status: int, code: str, message: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate((timestamp or time.time()) + self.proxy.clock, usegmt=True)

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.behind, timeout=60)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "connection"):
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            content = answer.read()
            headers = [
                (name, value)
                for name, value in answer.getheaders()
                if name.lower() not in ("transfer-encoding", "connection", "content-length", "date")
            ]
            size = answer.getheader("Content-Length") if self.command == "HEAD" else None
            headers.append(("Content-Length", size or str(len(content))))
            return answer.status, headers, content
        finally:
            connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on
