"""The background process: known by the lock that it holds, never by its name.

`<schema dir>/sync/daemon.lock` is locked (flock) for the life of a daemon and names its pid. The
pid alone proves nothing, it may be another process by now; the kernel's table of locks says which
process holds it, and a pid descriptor makes sure that the signal goes to that one.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from common.durable import Lock, Tree
from common.errors import LockedError, ReadOnlyError
from common.text_numbers import whole_number

__all__ = ["LOCK", "Running", "running", "stop_running", "take_daemon_lock"]

LOCK = "daemon.lock"


@dataclass(frozen=True)
class Running:
    """A daemon that holds the lock; the pid is None where it cannot be known for certain."""

    pid: int | None


def take_daemon_lock(sync: Tree) -> Lock:
    """Be the daemon of this schema directory.

    Raises:
        LockedError: another one runs.
    """
    return sync.lock(LOCK)


def running(sync: Tree) -> Running | None:
    """The daemon that holds the lock, None if none does."""
    if not sync.exists(LOCK):
        return None
    try:
        sync.lock(LOCK).release()
    except LockedError as error:
        pid = whole_number(str(error.extra.get("pid", "")))
        holders = _holders(sync.path / LOCK)
        if holders is not None and pid not in holders:
            pid = None
        return Running(pid)
    except (ReadOnlyError, PermissionError):  # whoever only looks needs to write nothing
        return Running(None) if _is_held(sync) else None
    return None


def _is_held(sync: Tree) -> bool:
    """Whether a process holds the lock, as far as one sees who may only read."""
    descriptor = sync.open_read(LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def stop_running(sync: Tree, patience: float) -> bool:
    """End the daemon (SIGTERM) and wait for it; False if none runs.

    Raises:
        LockedError: it cannot be identified, or did not end in time.
    """
    found = running(sync)
    if found is None:
        return False
    if found.pid is None:
        raise LockedError(f"{sync.path / LOCK} is held by a process that cannot be identified")
    try:
        descriptor = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return True
    try:
        again = running(sync)
        if again is None or again.pid != found.pid:
            return True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        ready, _, _ = select.select([descriptor], [], [], patience)
    finally:
        os.close(descriptor)
    if not ready:
        raise LockedError(f"process {found.pid} has not ended after {patience:g} s")
    return True


def _holders(path: Path) -> set[int] | None:
    """Processes that hold a lock on a file, by the kernel's table; None if it cannot be read."""
    try:
        stat = path.stat()
        table = Path("/proc/locks").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    wanted = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    holders: set[int] = set()
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted:
            holders.add(int(fields[4]))
    # File systems such as overlay or btrfs show other device numbers here than stat does.
    return holders or None
