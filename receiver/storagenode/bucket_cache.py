"""What a cache node gives of the object store: from its disk, who had the slot, else from there.

Nothing is given that was not compared with what the master's ticket says of the file
(`RangedFile`): what this disk or another node has wrong goes, and is read in the store.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from common.digests import md5
from common.durable import Closing
from common.errors import TsferryError
from receiver.storage.reading.block_cache import BlockCache
from receiver.storage.reading.block_digests import BLOCK_BYTES, blocks_key, packed_size
from receiver.storage.reading.ranged_file import RangedFile
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.storage.reading.stored_place import StoredPlace
from receiver.tablet_copies.cached_files import CACHED_AT_NODE
from receiver.tablet_copies.read_tickets import READ_TICKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.storage.stores.object_store import ObjectStore
    from receiver.storagenode.disk_blocks import DiskBlocks
    from receiver.tablet_copies.cached_files import CachedFile

__all__ = ["BucketCache"]

_MEMORY: Final = 128 << 20
"""Bytes that all calls share which are answered at once; 8 MiB are held for one."""
_DIGESTS: Final = "d"
_LEFT_ALONE: Final = 60.0
"""Seconds for which another node is not asked that gave nothing."""
_OF_A_NODE: Final = (2.0, 10.0)


class BucketCache(Closing):
    """Any thread may call.

    Attributes:
        blocks: what is kept.
        from_disk: bytes that came from there.
        from_nodes: bytes that came from the nodes which had the slots.
        from_store: bytes that came from the store.
        requests: to the store.
    """

    def __init__(
        self,
        blocks: DiskBlocks,
        open_store: Callable[[], ObjectStore],
        *,
        ca_cert: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            blocks: what is kept; closed with this.
            open_store: opens the store, when it is needed first.
            ca_cert: PEM file that other nodes are checked against.
            monotonic: seconds that nobody sets.
        """
        self.blocks = blocks
        self.from_disk = self.from_nodes = self.from_store = self.requests = 0
        self._open_store = open_store
        self._store: ObjectStore | None = None
        self._ca_cert = ca_cert
        self._memory = BlockCache(_MEMORY)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._nodes: dict[str, ReaderCalls] = {}
        self._left_alone: dict[str, float] = {}

    def read(self, file: CachedFile, begin: int, length: int) -> bytes:
        """Bytes of a file, up to its end.

        Raises:
            TsferryError: of the store, or the memory.
        """
        with self._opened(file) as found:
            return found.read(begin, max(0, min(length, file.size - begin)))

    def digests(self, file: CachedFile) -> bytes:
        """Those of the blocks of a file, packed; raises as `read`."""
        with self._opened(file) as found:
            return found.digests()

    def kept(self, file: CachedFile, begin: int, length: int) -> bytes | None:
        """The same bytes, or digests with length 0, if all of them are on the disk here."""
        if not length:
            return self.blocks.get(_name(file, _DIGESTS))
        end, first = min(begin + length, file.size), begin // BLOCK_BYTES
        found = []
        for number in range(first, -(-end // BLOCK_BYTES)):
            block = self.blocks.get(_name(file, number))
            if block is None:
                return None
            found.append(block)
        low = begin - first * BLOCK_BYTES
        return b"".join(found)[low : low + end - begin]

    def close(self) -> None:
        """Let go of all of it; closing twice is harmless."""
        with self._lock:
            for each in self._nodes.values():
                each.close()
            self._nodes.clear()
            if self._store is not None:
                self._store.close()
                self._store = None
        self.blocks.close()

    # -- where it comes from -----------------------------------------------------------------

    def _opened(self, file: CachedFile) -> RangedFile:
        kept = _KeptObject(self, file)
        place = StoredPlace(None, file.key, file.size, file.md5, file.blocks)
        return RangedFile(kept, place, self._memory, distrust=kept.distrust)

    def fetch(self, file: CachedFile, key: str, begin: int, length: int, *, near: bool) -> bytes:
        """Bytes that are not here, from the node that had the slot or from the store.

        Args:
            file: that they are of.
            key: of the object.
            begin: offset in it.
            length: how many.
            near: whether the node is asked.

        Raises:
            TsferryError: of the store.
        """
        if near and (found := self._near(file, key, begin, length)) is not None:
            self.from_nodes += len(found)
            return found
        found = self._opened_store().read(key, begin, length)
        self.requests += 1
        self.from_store += len(found)
        return found

    def _opened_store(self) -> ObjectStore:
        with self._lock:
            if self._store is None:
                self._store = self._open_store()
            return self._store

    def _near(self, file: CachedFile, key: str, begin: int, length: int) -> bytes | None:
        url, now = file.before, self._monotonic()
        if not url or now < self._left_alone.get(url, 0.0):
            return None
        of_file = key == file.key
        query = {"begin": begin, "length": length if of_file else 0, "kept": 1}
        try:
            found = self._of(url).get(CACHED_AT_NODE, query, {READ_TICKET: file.before_ticket})
        except TsferryError as error:
            if error.http_status not in (403, 404):  # it answers, and has it not
                self._left_alone[url] = now + _LEFT_ALONE
            return None
        return found if len(found) == length else None

    def _of(self, url: str) -> ReaderCalls:
        with self._lock:
            if url not in self._nodes:
                self._nodes[url] = ReaderCalls(
                    url,
                    token=None,
                    ca_cert=self._ca_cert,
                    what="the node's URL",
                    timeout=_OF_A_NODE,
                )
            return self._nodes[url]


class _KeptObject:
    """An object as `RangedFile` reads it; see `BlockOrigin`."""

    def __init__(self, cache: BucketCache, file: CachedFile) -> None:
        self.url = "the object store"
        self._cache, self._file = cache, file
        self._unsure: set[str] = set()
        self._alone = False

    def read(self, key: str, offset: int, length: int) -> bytes:
        if key == blocks_key(self._file.key):
            return self._digests()[offset : offset + length]
        first, behind = offset // BLOCK_BYTES, -(-(offset + length) // BLOCK_BYTES)
        found = {number: self._kept(number) for number in range(first, behind)}
        run: list[int] = []
        for number in range(first, behind + 1):
            if found.get(number, b"") is None:
                run.append(number)
            elif run:
                found.update(self._fetched(run))
                run = []
        low = offset - first * BLOCK_BYTES
        return b"".join(each or b"" for each in found.values())[low : low + length]

    def distrust(self) -> bool:
        """What was read is not what the file has: it goes from here, and the store is asked."""
        for each in self._unsure:
            self._cache.blocks.drop(each)
        self._unsure.clear()
        was_alone, self._alone = self._alone, True
        return not was_alone

    def _fetched(self, run: list[int]) -> dict[int, bytes]:
        begin = run[0] * BLOCK_BYTES
        end = min(self._file.size, (run[-1] + 1) * BLOCK_BYTES)
        data = self._cache.fetch(
            self._file, self._file.key, begin, end - begin, near=not self._alone
        )
        found = {}
        for at, number in enumerate(run):
            found[number] = data[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES]
            self._unsure.add(_name(self._file, number))
            self._cache.blocks.put(_name(self._file, number), found[number])
        return found

    def _digests(self) -> bytes:
        """Those of the blocks, which are only kept if they are the right ones."""
        key, length = blocks_key(self._file.key), packed_size(self._file.size)
        found = self._kept(_DIGESTS)
        if found is None:
            found = self._cache.fetch(self._file, key, 0, length, near=not self._alone)
        if md5(found).hexdigest() != self._file.blocks:
            found = self._cache.fetch(self._file, key, 0, length, near=False)
        if md5(found).hexdigest() == self._file.blocks:
            self._cache.blocks.put(_name(self._file, _DIGESTS), found)
        return found

    def _kept(self, number: int | str) -> bytes | None:
        if self._alone:
            return None
        found = self._cache.blocks.get(_name(self._file, number))
        if found is not None:
            self._unsure.add(_name(self._file, number))
            self._cache.from_disk += len(found)
        return found


def _name(file: CachedFile, number: int | str) -> str:
    return f"{file.md5}-{number}"
