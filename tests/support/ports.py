"""Ports of the loopback interface for what is told its own, or comes back at the same one.

What the system gives to who asks for any is anybody's once it is let go: each connection of another
worker that goes out may be given it, before a program listens there or listens there again. These
are below the numbers that the system gives from, each worker of a run has its own, and none is
given twice before all were.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

__all__ = ["free_port"]

_LOWEST, _HIGHEST = 10_240, 20_480
"""SeaweedFS listens 10,000 above each of its ports as well; Linux gives from 32,768 on."""
_WORKERS = 8


def _of_this_worker() -> list[int]:
    part = (_HIGHEST - _LOWEST) // _WORKERS
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _LOWEST + worker % _WORKERS * part
    ports = list(range(first, first + part))
    random.Random(os.getpid()).shuffle(ports)  # another run has its workers too
    return ports


_ports = itertools.cycle(_of_this_worker())


def free_port(*, also: int = 0) -> int:
    """One at which nobody listens; nor so many numbers above it."""
    for port in _ports:
        if _is_free(port) and (not also or _is_free(port + also)):
            return port
    raise AssertionError("no end")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
