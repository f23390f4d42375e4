"""MD5 of files that this process has read whole: one receiver's transfer spares the next one's.

What is known of a file counts while size, mtime and inode are the same, as everywhere. It is for
the life of the process, and bounded: a file that is forgotten is digested as it is sent.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sender.select.found import LocalFile

__all__ = ["KnownDigests"]

_MOST = 10_000


class KnownDigests:
    """Digests by place and identity. All calls are safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Path, str], tuple[tuple[int, int, int], str]] = OrderedDict()

    def of(self, file: LocalFile) -> str | None:
        """MD5 of a file as it is, in hex; None if it is not known."""
        if not self._known:  # as in a `sync`, whose process has read nothing before
            return None
        with self._lock:
            identity, md5 = self._known.get((file.data_dir, file.rel), (None, None))
        return md5 if identity == file.identity else None

    def note(self, data_dir: Path, rel: str, identity: tuple[int, int, int], md5: str) -> None:
        """A file was read whole, and was the same before and afterwards."""
        with self._lock:
            self._known[data_dir, rel] = (identity, md5)
            self._known.move_to_end((data_dir, rel))
            if len(self._known) > _MOST:
                self._known.popitem(last=False)

    def settle(self, is_loaded: Callable[[str], bool]) -> None:
        """Let go what spares no transfer any more.

        Args:
            is_loaded: whether the file at a place beneath its data directory is, everywhere.
        """
        with self._lock:
            self._known = OrderedDict(
                (at, known) for at, known in self._known.items() if not is_loaded(at[1])
            )

    def forget(self, file: LocalFile) -> None:
        """What is known of a file was found to be wrong."""
        with self._lock:
            self._known.pop((file.data_dir, file.rel), None)
