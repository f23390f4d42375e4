r"""The daemon's ear: a Unix socket at `<schema dir>/sync/control.sock`, for its owner alone.

One request a connection, one JSON object a line. The answers are any number of objects with
`event` of `progress`, then one with `event` of `done` or `error`:

    {"do": "ping"}                                    -> {"event": "done", "version": "0.1.0", ...}
    {"do": "status"}                                  -> {"event": "done", "lanes": [...]}
    {"do": "round", "receiver": "dc1",
     "accept_source": false}                      -> {"event": "progress", ...} ...
                                                         {"event": "done", "report": {...}}

The socket is bound through its directory's descriptor, so that a deep path cannot be too long.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from common.console.terminal import printable
from common.durable import Tree
from common.errors import LockedError, ProtocolError, StoppedError, TsferryError, by_slug
from common.threads import join_begun

__all__ = ["SOCKET", "ControlServer", "ask"]

_log = logging.getLogger(__name__)

SOCKET = "control.sock"
_MAX_LINE = 1 << 24
_MAX_ANSWER = 1 << 30
"""Bytes of a line that a daemon answers with: a report names each file that waits or is held."""
_STEP_MS = 200
_MAX_CONNECTIONS = 16
_CREDENTIALS = struct.Struct("3i")

Event = dict[str, Any]
_Handler = Callable[[Event, Callable[[Event], None]], Event]
"""(request, tell) -> what `done` says; `tell` sends a progress event on the way."""


class ControlServer:
    """Answers requests of commands that find the daemon running."""

    def __init__(self, schema_dir: Path, handler: _Handler) -> None:
        self._handler = handler
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._tree = Tree(schema_dir / "sync")
        # The caller holds the daemon's lock, so a socket that is there is a dead daemon's.
        self._tree.unlink(SOCKET)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        directory = os.open(schema_dir / "sync", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fchmod(self._listener.fileno(), 0o600)  # before bind: never open to others
            self._listener.bind(f"/proc/self/fd/{directory}/{SOCKET}")
            self._listener.listen(_MAX_CONNECTIONS)
        finally:
            os.close(directory)
        self._thread = threading.Thread(target=self._accept, name="control", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and remove the socket."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        join_begun(self._thread, timeout=5)
        with suppress(OSError, TsferryError):
            self._tree.unlink(SOCKET)
        self._tree.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if not self._slots.acquire(blocking=False):
                connection.close()
                continue
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="control-answer", daemon=True
            )
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(30)
                if _peer_uid(connection) in (os.geteuid(), 0):
                    self._answer(connection)
        except OSError:
            _log.debug("a command hung up")
        finally:
            self._slots.release()

    def _answer(self, connection: socket.socket) -> None:
        def tell(event: Event) -> None:
            connection.sendall(_line({"event": "progress", **event}))

        try:
            request = next(_lines(connection), None)
            if request is None:
                return
            answer = {"event": "done", **self._handler(request, tell)}
        except TsferryError as error:
            answer = {"event": "error", "slug": error.slug, "message": error.message}
        except OSError:
            raise
        except Exception as error:
            _log.exception("a request to the daemon failed")
            answer = {"event": "error", "slug": "internal", "message": str(error)}
        connection.sendall(_line(answer))


def ask(
    schema_dir: Path,
    request: Event,
    *,
    tell: Callable[[Event], None] = lambda event: None,
    patience: float = 10.0,
    longer: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Event:
    """Ask the running daemon.

    Args:
        schema_dir: the sender's.
        request: an object with `do`.
        tell: hears of progress.
        patience: seconds until it must have taken the request, as its first event shows.
        longer: seconds between two events after that; None for no limit.
        stop: True when nobody wants the answer any more; the daemon goes on with its work.

    Raises:
        LockedError: nobody answers there.
        StoppedError: told to stop.
        TsferryError: what the daemon answered.
    """
    where = schema_dir / "sync" / SOCKET
    try:
        with _connected(schema_dir, patience) as connection:
            connection.sendall(_line(request))
            for event in _lines(connection, stop, _MAX_ANSWER):
                connection.settimeout(longer)
                kind = event.get("event")
                if kind == "done":
                    return event
                if kind == "error":
                    raise by_slug(str(event.get("slug")))(str(event.get("message")))
                tell(event)
    except OSError as error:
        raise LockedError(f"{where}: the daemon does not answer: {error.strerror or error}") from (
            error
        )
    raise LockedError(f"{where}: the daemon hung up without an answer")


def _connected(schema_dir: Path, patience: float) -> socket.socket:
    directory = os.open(schema_dir / "sync", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(patience)
        connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(directory)
    return connection


def _peer_uid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(raw)[1]
    return uid


def _line(event: Event) -> bytes:
    return json.dumps(event, separators=(",", ":"), default=str).encode() + b"\n"


def _lines(
    connection: socket.socket, stop: Callable[[], bool] = lambda: False, most: int = _MAX_LINE
) -> Iterator[Event]:
    pending = bytearray()
    looked = 0
    while True:
        end = pending.find(b"\n", looked)
        if end >= 0:
            yield _event(bytes(pending[:end]))
            del pending[: end + 1]
            looked = 0
            continue
        looked = len(pending)
        _wait_for_bytes(connection, stop)
        piece = connection.recv(1 << 16)
        if not piece:
            return
        pending += piece
        if len(pending) > most:
            raise ProtocolError(f"control socket: a line is longer than {most} bytes")


def _wait_for_bytes(connection: socket.socket, stop: Callable[[], bool]) -> None:
    """Wait as long as the connection's time-out says, in steps, so that a stop is noticed."""
    patience = connection.gettimeout()
    end = None if patience is None else time.monotonic() + patience
    ready = select.poll()
    ready.register(connection, select.POLLIN)
    while not ready.poll(_STEP_MS):
        if stop():
            raise StoppedError("told to stop; the daemon goes on with the round")
        if end is not None and time.monotonic() >= end:
            raise TimeoutError("timed out")


def _event(line: bytes) -> Event:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"control socket: {printable(str(error))}") from error
    if not isinstance(value, dict):
        raise ProtocolError("control socket: a line is no object")
    return value
