"""Blocks of objects on a disk of a cache node: of a fixed size, and nothing that cannot go.

    <MD5 of the file>-<number of the block>      <MD5 of the file>-d: the digests of its blocks

Each begins with the digest of the rest and its name, so nothing is flushed: what a power cut has
left half written, or what has rotted, is found when it is read, and goes. The longest unused goes
first when there is no room; after a start that is the order in which they came.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from common.digests import xxh3_128
from common.durable import Closing, Tree, free_bytes, temporary_name, write_scratch
from common.errors import TsferryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["DiskBlocks"]

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[0-9a-f]{32}-(?:[0-9]{1,12}|d)\Z")
_LOCK: Final = "cache.lock"
_MAGIC: Final = b"TSFCB\x01"
_HEAD: Final = len(_MAGIC) + 16
_MOST: Final = 1 << 30
_REST: Final = 30.0
"""Seconds in which nothing more is kept after the disk took nothing."""


class DiskBlocks(Closing):
    """Any thread may call.

    Attributes:
        capacity: bytes that all of them may have.
        used: bytes that they have.
        rotten: blocks that were not what was kept.
        problem: why nothing more is kept now; empty if it is.
    """

    def __init__(
        self,
        path: Path,
        capacity: int,
        *,
        keep_free: int = 0,
        free: Callable[[Path], int] = free_bytes,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open what is there.

        Args:
            path: a directory, which is made if it is missing; files that are none of ours stay.
            capacity: see the class.
            keep_free: bytes that stay free on the disk.
            free: bytes that are free where a path is.
            monotonic: seconds that nobody sets.

        Raises:
            LockedError: another process has it.
        """
        self.capacity = capacity
        self.used = self.rotten = 0
        self.problem = ""
        self._keep_free, self._free, self._monotonic = keep_free, free, monotonic
        self._rests_until = 0.0
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._coming: set[str] = set()
        self._lock = threading.Lock()
        self._tree = Tree(path, create=True)
        try:
            self._held = self._tree.lock(_LOCK)
        except BaseException:
            self._tree.close()
            raise
        self._tree.sweep_temporaries(deep=False)
        there = sorted(
            (found.st_mtime_ns, name, found.st_size)
            for name, found in self._tree.listing()
            if _NAME.match(name)
        )
        for _, name, size in there:
            self._sizes[name] = size
            self.used += size
        with self._lock:
            gone = self._make_room(0)
        self._remove(gone)

    def __len__(self) -> int:
        return len(self._sizes)

    def get(self, name: str) -> bytes | None:
        """A block as it was kept; None where it is not here, or not that any more."""
        with self._lock:
            if name not in self._sizes:
                return None
            self._sizes.move_to_end(name)
        try:
            found = self._tree.read(name, limit=_MOST)
        except FileNotFoundError:  # it has just gone
            self.drop(name)
            return None
        except (TsferryError, OSError):
            found = b""
        data = found[_HEAD:]
        if found[:_HEAD] == _head(name, data):
            return data
        self.rotten += 1
        log.warning("a kept block is not what was kept", extra={"block": name})
        self.drop(name)
        return None

    def put(self, name: str, data: bytes) -> None:
        """Keep a block, if there is room for it; what fails is not kept."""
        size = len(data) + _HEAD
        with self._lock:
            if name in self._sizes or name in self._coming or self._rests():
                return
            gone = self._make_room(size)
            if self.used + size > self.capacity:
                return
            self._coming.add(name)
            self.used += size
        self._remove(gone)
        try:
            self._write(name, _head(name, data), data)
        except (TsferryError, OSError) as error:
            log.warning("a block is not kept", extra={"reason": str(error)})
            with self._lock:
                self.problem = str(error)
                self._rests_until = self._monotonic() + _REST
                self.used -= size
        else:
            with self._lock:
                self.problem = ""
                self._sizes[name] = size
        finally:
            with self._lock:
                self._coming.discard(name)

    def _rests(self) -> bool:
        return self._monotonic() < self._rests_until

    def drop(self, name: str) -> None:
        """Have a block no more."""
        with self._lock:
            self.used -= self._sizes.pop(name, 0)
        self._remove([name])

    def close(self) -> None:
        """Let another process have it; closing twice is harmless."""
        self._held.release()
        self._tree.close()

    def _write(self, name: str, *pieces: bytes) -> None:
        size = sum(map(len, pieces))
        if self._free(self._tree.path) - size < self._keep_free:
            raise OSError(f"{self._tree.path}: the disk is full but for {self._keep_free} bytes")
        temporary = temporary_name()
        write_scratch(self._tree.path / temporary, pieces)
        try:
            self._tree.rename(temporary, name, sync=False)
        except BaseException:
            self._tree.unlink(temporary, sync=False)
            raise

    def _make_room(self, size: int) -> list[str]:
        """Names that have to go, the longest unused first; they are counted as gone."""
        gone = []
        while self._sizes and self.used + size > self.capacity:
            name, its = self._sizes.popitem(last=False)
            self.used -= its
            gone.append(name)
        return gone

    def _remove(self, names: list[str]) -> None:
        for each in names:
            with suppress(TsferryError, OSError):  # it is found by the next start
                self._tree.unlink(each, sync=False)


def _head(name: str, data: bytes) -> bytes:
    return _MAGIC + xxh3_128(name.encode() + data)
