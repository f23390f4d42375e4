"""Noticing new files early: a hint that a round is worth while, and that nothing has changed.

The look at every file, which comes every `look_period` whatever was told, is the truth.

Inotify tells where it can. Where it cannot (watches used up, a network file system, whose changes
by other machines it never sees) the directories are looked at every `poll` seconds instead, which
costs no watch and almost no memory: a directory's mtime changes with every name in it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from common.console.terminal import printable
from common.names import RESOURCE, SUFFIX
from sender.select.eligibility import CHANGING

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver

__all__ = ["Watch", "fingerprint", "network_file_system"]

_log = logging.getLogger(__name__)

_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"}
    | {"smb3", "smbfs", "virtiofs"}
)
_CLOSED = ("closed", "moved")
_INTERESTING = (SUFFIX, RESOURCE, ".mods2", *(SUFFIX + each for each in CHANGING))


class Watch:
    """Calls `changed` from a thread of its own when something below the directories changes.

    Args:
        directories: to watch.
        changed: called at each change.
        closed: called with each file that was closed by its writer, or moved here; only where
            inotify tells of it.
        poll: seconds between two looks, where it does not.
        recursive: also below them.
        mounts: gives the kernel's table of mounts.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        changed: Callable[[], None],
        *,
        closed: Callable[[Path], None] | None = None,
        poll: float,
        recursive: bool = True,
        mounts: Callable[[], str] | None = None,
    ) -> None:
        self._directories = tuple(directories)
        self._changed = changed
        self._closed = closed
        self._poll = poll
        self._recursive = recursive
        self._mounts = mounts or _read_mounts
        self._observer: BaseObserver | None = None
        self._poller: threading.Thread | None = None
        self._stop = threading.Event()
        self.polls_because: str | None = None
        """Why the directories are polled; None while inotify watches them."""

    def start(self) -> None:
        """Begin to watch; never fails, polling takes over where watching cannot be had."""
        remote = network_file_system(self._directories, self._mounts())
        if remote is not None:
            self._start_polling(remote)
            return
        try:
            self._start_observer()
        except OSError as error:
            self._drop_observer()
            self._start_polling(f"inotify: {error.strerror or error}")

    def check(self) -> None:
        """Go over to polling if the watching thread has died, as it does when watches run out."""
        observer = self._observer
        if observer is None:
            return
        if not observer.is_alive() or not all(each.is_alive() for each in observer.emitters):
            self._drop_observer()
            self._start_polling("inotify gave up")
            self._changed()  # whatever it did not tell any more

    def close(self) -> None:
        """End the threads."""
        self._stop.set()
        self._drop_observer()
        if self._poller is not None:
            self._poller.join()

    # -- inotify ---------------------------------------------------------------------------

    def _start_observer(self) -> None:
        from watchdog import events
        from watchdog.observers.inotify import InotifyObserver

        class Handler(events.FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                told(event)

        told = self._told
        # Not "modified": our own hard links change a file's link count, which counts as that.
        kinds: list[Any] = [
            events.FileCreatedEvent,
            events.FileMovedEvent,
            events.FileDeletedEvent,
            events.FileClosedEvent,
            events.DirCreatedEvent,
            events.DirMovedEvent,
            events.DirDeletedEvent,
        ]
        self._observer = InotifyObserver()
        self._observer.daemon = True
        for directory in self._directories:
            self._observer.schedule(
                Handler(), str(directory), recursive=self._recursive, event_filter=kinds
            )
        self._observer.start()

    def _told(self, event: FileSystemEvent) -> None:
        names = (os.fsdecode(event.src_path), os.fsdecode(event.dest_path or ""))
        if event.is_directory or any(name.endswith(_INTERESTING) for name in names):
            self._changed()
        now = names[1] or names[0]
        if self._closed and event.event_type in _CLOSED and now.endswith(".tsfile"):
            self._closed(Path(now))

    def _drop_observer(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None and observer.is_alive():
            observer.stop()
            observer.join(timeout=5)

    # -- polling ---------------------------------------------------------------------------

    def _start_polling(self, reason: str) -> None:
        self.polls_because = reason
        _log.warning(
            "new files are looked for every %g s instead of being watched for: %s",
            self._poll,
            printable(reason),
        )
        # Taken before this returns: what comes afterwards is a change.
        before = fingerprint(self._directories, recursive=self._recursive)
        self._poller = threading.Thread(
            target=self._keep_polling, args=(before,), name="poll", daemon=True
        )
        self._poller.start()

    def _keep_polling(self, before: int) -> None:
        while not self._stop.wait(self._poll):
            now = fingerprint(self._directories, recursive=self._recursive)
            if now != before:
                before = now
                self._changed()


def fingerprint(directories: Sequence[Path], *, recursive: bool = True) -> int:
    """A number that changes when a name appears, vanishes or is replaced below the directories."""
    digest = xxhash.xxh3_64()
    for directory in directories:
        for path, mtime_ns in _directories_below(directory, recursive):
            digest.update(f"{path}\0{mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.intdigest()


def _directories_below(top: Path, recursive: bool) -> Iterator[tuple[str, int]]:
    pending = [str(top)]
    while pending:
        here = pending.pop()
        try:
            yield here, os.stat(here).st_mtime_ns
            if not recursive:
                return
            with os.scandir(here) as entries:
                pending += sorted(
                    entry.path for entry in entries if entry.is_dir(follow_symlinks=False)
                )
        except OSError:
            continue  # it vanished, or may not be read; the scan says so


def _read_mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def network_file_system(directories: Sequence[Path], mounts: str) -> str | None:
    """Names the first directory that lies on a network file system, None if none does.

    Args:
        directories: absolute paths.
        mounts: the content of `/proc/self/mounts`.
    """
    kinds: dict[str, str] = {}
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) >= 3:
            kinds[_unescaped(fields[1])] = fields[2]
    for directory in directories:
        real = directory.resolve()
        for parent in (real, *real.parents):
            kind = kinds.get(str(parent))
            if kind is not None:
                if kind in _NETWORK or kind.startswith("fuse."):
                    return f"{directory} is on {kind}, whose changes are not always told"
                break
    return None


def _unescaped(mount_point: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        mount_point = mount_point.replace(code, character)
    return mount_point
