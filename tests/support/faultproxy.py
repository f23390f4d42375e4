"""A bad network between two programs of this machine: a TCP proxy whose faults are scripted.

    with FaultProxy(("127.0.0.1", port)) as proxy:
        proxy.then(Fault(cut_up=100_000), Fault(delay=0.2), CLEAN)
        ... connect to proxy.port ...

The n-th connection gets the n-th fault that was lined up, later ones the standing fault
(`always`, clean to begin with). Bytes are counted per connection and direction; *up* is from who
connects to who listens. Threads are bounded, nothing waits for luck, and `close` ends everything.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_BLOCK = 1 << 14
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close() sends RST


@dataclass(frozen=True)
class Fault:
    """What goes wrong on one connection; nothing by default.

    Attributes:
        cut_up: bytes that get through upwards before the connection breaks.
        cut_down: the same downwards; 0 loses the answer to a request that was carried out.
        hole_up: bytes after which nothing is carried upwards any more, without any sign of it.
        hole_down: the same downwards.
        delay: seconds before each block that is carried.
        rate: bytes a second in each direction.
        refuse: close at once.
        reset: break with a RST; otherwise with an orderly end.
    """

    cut_up: int | None = None
    cut_down: int | None = None
    hole_up: int | None = None
    hole_down: int | None = None
    delay: float = 0.0
    rate: float | None = None
    refuse: bool = False
    reset: bool = True


CLEAN = Fault()


class FaultProxy:
    """A proxy on a free loopback port; a context manager."""

    def __init__(self, target: tuple[str, int], *, most: int = 64) -> None:
        self.target = target
        """Where connections are carried to; may be changed when the other side moved."""
        self.connections = 0
        self.refused = 0
        self.up = 0
        self.down = 0
        self._standing = CLEAN
        self._lined_up: deque[Fault] = deque()
        self._places = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._pairs: set[_Pair] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.settimeout(0.2)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="faultproxy", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """For a client of HTTP."""
        return f"http://127.0.0.1:{self.port}"

    def then(self, *faults: Fault) -> None:
        """Line up faults for the next connections, one each."""
        with self._lock:
            self._lined_up.extend(faults)

    def always(self, fault: Fault) -> None:
        """What every connection gets for which nothing is lined up."""
        with self._lock:
            self._standing = fault

    def heal(self) -> None:
        """No faults any more, for new connections."""
        with self._lock:
            self._lined_up.clear()
            self._standing = CLEAN

    def cut_all(self) -> int:
        """Break what is connected now; returns how many connections that were."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.end(reset=True)
        return len(pairs)

    def close(self) -> None:
        """End everything; returns when no thread of ours is left."""
        self._closing.set()
        self._listener.close()
        self._thread.join()
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.end(reset=True)
        for pair in pairs:
            pair.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with self._lock:
                self.connections += 1
                fault = self._lined_up.popleft() if self._lined_up else self._standing
            if fault.refuse or not self._places.acquire(blocking=False):
                self.refused += 1
                _close(client, reset=fault.reset)
                continue
            try:
                server = socket.create_connection(self.target, timeout=5)
            except OSError:
                self._places.release()
                _close(client, reset=True)
                continue
            pair = _Pair(self, client, server, fault)
            with self._lock:
                self._pairs.add(pair)
            pair.start()

    def _gone(self, pair: _Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)
        self._places.release()

    def _count(self, up: bool, size: int) -> None:
        with self._lock:
            if up:
                self.up += size
            else:
                self.down += size


class _Pair:
    """One carried connection: two threads, one a direction."""

    def __init__(
        self, proxy: FaultProxy, client: socket.socket, server: socket.socket, fault: Fault
    ) -> None:
        self._proxy = proxy
        self._fault = fault
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._left = 2
        self._sockets = (client, server)
        for each in self._sockets:
            each.settimeout(0.2)
        self._threads = [
            threading.Thread(
                target=self._carry,
                args=(client, server, True, fault.cut_up, fault.hole_up),
                daemon=True,
            ),
            threading.Thread(
                target=self._carry,
                args=(server, client, False, fault.cut_down, fault.hole_down),
                daemon=True,
            ),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def end(self, *, reset: bool) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._over.set()
            for each in self._sockets:
                _close(each, reset=reset)

    def _carry(
        self,
        source: socket.socket,
        target: socket.socket,
        up: bool,
        cut: int | None,
        hole: int | None,
    ) -> None:
        carried = 0
        try:
            while not self._over.is_set():
                if cut is not None and carried >= cut:
                    self.end(reset=self._fault.reset)
                    return
                if hole is not None and carried >= hole:
                    self._over.wait()
                    return
                ends = [each - carried for each in (cut, hole) if each is not None]
                data = self._receive(source, min([_BLOCK, *ends]))
                if data is None:
                    continue
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                self._pause(len(data))
                carried += len(data)
                self._proxy._count(up, len(data))  # before the peer can have it
                self._send(target, data)
        except OSError:
            self.end(reset=True)
        finally:
            self._done()

    def _receive(self, source: socket.socket, size: int) -> bytes | None:
        try:
            return source.recv(size)
        except TimeoutError:
            return None

    def _send(self, target: socket.socket, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._over.is_set():
            try:
                view = view[target.send(view) :]
            except TimeoutError:
                continue

    def _pause(self, size: int) -> None:
        pause = self._fault.delay + (size / self._fault.rate if self._fault.rate else 0.0)
        if pause:
            self._over.wait(pause)

    def _done(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self.end(reset=False)
            self._proxy._gone(self)


def _close(each: socket.socket, *, reset: bool) -> None:
    try:
        if reset:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        else:
            each.shutdown(socket.SHUT_RDWR)
    except OSError:
        time.sleep(0)  # it is gone already
    each.close()
