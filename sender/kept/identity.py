"""Who this sender is: 32 hex digits in `<schema dir>/sync/uuid.txt`, made once.

A receiver tells senders apart by it, and devices belong to it: a new one made in silence would
turn every device of this site into a conflict. So a damaged file is an error, never a new identity.
"""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from common.durable import Lock, Tree
from common.errors import DamagedError, LockedError, ReadOnlyError, TooLargeError, UsageError
from common.names import is_sender_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "UUID_FILE",
    "create",
    "open_sync_dir",
    "patient_lock",
    "read",
    "renew",
    "take",
    "take_lock",
]

UUID_FILE = "uuid.txt"
_LIMIT = 4096
_PATIENCE_S = 10.0
_STEP_S = 0.02


def read(schema_dir: Path) -> str:
    """This sender's uuid.

    Raises:
        UsageError: there is none yet.
        DamagedError: the file is there and is no uuid; the message says what to do.
    """
    where = schema_dir / "sync" / UUID_FILE
    found = _found(schema_dir)
    if found is None:
        raise UsageError(
            f"{where} is not there: this sender has no identity yet; run tsferry-sender init"
        )
    return found


def create(schema_dir: Path) -> str:
    """The uuid, made now if there is none. A damaged one raises, as `read` does."""
    found = _found(schema_dir)
    return _write(schema_dir) if found is None else found


def take(schema_dir: Path, uuid: str) -> None:
    """Go by an identity that this machine had before, under another program.

    Args:
        schema_dir: of the database.
        uuid: 32 lower-case hex digits.
    """
    with open_sync_dir(schema_dir) as tree:
        tree.write_atomic(UUID_FILE, f"{uuid}\n".encode())


def renew(schema_dir: Path) -> str:
    """A new identity in place of the old one (for a cloned machine); returns the new uuid.

    The receivers then know this sender as another: the devices of the old uuid stay with it until
    their operators transfer them.
    """
    return _write(schema_dir)


def open_sync_dir(schema_dir: Path) -> Tree:
    """`<schema dir>/sync`, made if it is not there."""
    return Tree(schema_dir / "sync", create=True)


def take_lock(schema_dir: Path, endpoint: str) -> Lock:
    """Take `<schema dir>/sync/<host>_<port>/sync.lock`: one sender per receiver.

    The lock lasts until it is released or the process ends, whatever becomes of the object.

    Raises:
        LockedError: another process sends to this receiver; `extra["pid"]` is its id.
    """
    with open_sync_dir(schema_dir) as tree:
        tree.make_dirs(endpoint)
        return tree.lock(f"{endpoint}/sync.lock")


@contextmanager
def patient_lock(sync: Tree, rel: str) -> Iterator[None]:
    """Hold a lock that others hold only for the length of a change.

    Raises:
        LockedError: another process keeps it for longer.
    """
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            lock = sync.lock(rel)
            break
        except LockedError:
            if time.monotonic() > end:
                raise
            time.sleep(_STEP_S)
    try:
        yield
    finally:
        lock.release()


def _found(schema_dir: Path) -> str | None:
    where = schema_dir / "sync" / UUID_FILE
    try:
        with Tree(schema_dir / "sync") as tree:
            content = tree.read(UUID_FILE, limit=_LIMIT)
            with suppress(ReadOnlyError):  # then nothing is sent either
                tree.sync_dir()  # one that a killed process left unsynced must not be lost later
    except FileNotFoundError:
        return None
    except TooLargeError:
        content = b""
    text = content.decode("ascii", "replace").strip()
    if not is_sender_uuid(text):
        raise DamagedError(
            f"{where} is damaged: it must be 32 lower-case hex digits. Restore it from a backup, "
            "or write the uuid there that the receiver lists (tsferry-receiver senders). A new "
            "one (tsferry-sender init --new-identity) makes this machine another sender"
        )
    return text


def _write(schema_dir: Path) -> str:
    uuid = secrets.token_hex(16)
    take(schema_dir, uuid)
    return uuid
