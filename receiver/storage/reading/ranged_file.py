"""A file that is on no disk here as a source of bytes: what is read of it is fetched by blocks.

Nothing is given that was not checked: a small file is read whole and has the catalogue's MD5;
blocks of a large one have their digests, which the row of the file vouches for. Where those are not
there (an earlier version uploaded the file), or are damaged, a receiver that gives the file gives
them, too; without one the object is read once from end to end, and the digests are made of what has
the MD5. Other bytes than were uploaded are an error that
names the object, and say nothing of the file.
"""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING

from common.digests import md5, xxh3_128
from common.durable import Closing
from common.errors import DamagedError
from common.tsfile import Corrupt
from receiver.storage.reading.block_cache import BlockName, BlockWanted
from receiver.storage.reading.block_digests import (
    BLOCK_BYTES,
    WHOLE_BYTES,
    BlockDigests,
    blocks_key,
    packed_size,
)
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import ObjectMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor, Future

    from receiver.storage.reading.block_cache import BlockCache
    from receiver.storage.reading.file_tiers import BlockOrigin
    from receiver.storage.reading.stored_place import StoredPlace

__all__ = ["RangedFile"]

log = logging.getLogger(__name__)

_RUN = 8 << 20
"""Bytes of one request, and of what one reader has pinned, at most."""
_AHEAD = 16 << 20
"""Bytes that are under way while others of the same file are read."""
_MOST_BLOCKS = 64
_DIGESTS = -1
"""Number that the digests of an object's blocks have among its blocks."""
_readers = itertools.count(1)


class RangedFile(Closing):
    """One reader of one object; for one thread after the other, not for several at once.

    Attributes:
        size: bytes, as the catalogue has them.
        name: of the store and the object, for messages.
        requests: that were made for it so far.
        fetched: bytes that came by them.
    """

    def __init__(
        self,
        store: BlockOrigin,
        place: StoredPlace,
        cache: BlockCache,
        pool: Executor | None = None,
        *,
        together: int = 1,
        told: Callable[[], bytes | None] | None = None,
        distrust: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare; nothing is fetched before it is read.

        Args:
            store: has the object.
            place: where, and what it must be.
            cache: has the blocks of all readers of this process.
            pool: whose threads fetch what is expected; without one each fetch is waited for.
            together: how many files are read at once: what is fetched beyond what is asked for must
                not throw out what others have fetched.
            told: asks who gives the file for the packed digests of its blocks; None: it has none.
            distrust: called when other bytes came; whether they may be had from somebody else.
        """
        self.size = place.size
        self.name = f"{store.url}: {place.key}"
        self.requests = self.fetched = 0
        self._store, self._place, self._cache, self._pool = store, place, cache, pool
        self._told = told
        self._distrust = distrust
        self._run = min(_RUN, cache.capacity // 2 // together)
        self._ahead = min(_AHEAD, cache.capacity // 4 // together)
        self._reader = next(_readers)
        self._digests: BlockDigests | None = None
        self._expected: list[int] = []
        self._begun = 0
        self._coming: deque[tuple[int, Future[bool]]] = deque()

    def close(self) -> None:
        """Fetch nothing more; what is under way comes to its end unseen."""
        for _, future in self._coming:
            future.cancel()
        self._coming.clear()
        self._expected = []

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`.

        Raises:
            ContentChangedError: the store has other bytes than were uploaded.
            ObjectMissingError: the store has it no more.
            StoreAwayError, StoreRefusedError: of the store.
            CacheFullError: other readers of this process need all of the memory.
        """
        end = offset + length
        if end > self.size or offset < 0:
            at = max(offset, self.size)
            raise Corrupt(f"the file ends at offset {at}, within what is to be read")
        pieces = list(self._pieces(offset, end)) if length else []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Say what is going to be read, as offsets from and to.

        Neighbours among it are fetched by one request, and what follows while the first is read.
        """
        digests = self._known_digests()
        wanted: set[int] = set()
        for begin, end in ranges:
            last = _block_at(digests, min(end, self.size) - 1)
            wanted.update(range(_block_at(digests, begin), last + 1))
        self._expected, self._begun = sorted(wanted), 0

    def digests(self) -> bytes:
        """Those of all of its blocks, packed (`BlockDigests`); raises as `read`."""
        return self._known_digests().pack()

    def bring(self, most: int) -> None:
        """Fetch the first of what is expected, about so many bytes, as far as there is room."""
        digests, size = self._known_digests(), 0
        numbers = itertools.takewhile(lambda _: size < most, self._expected)
        run: list[int] = []
        for number in numbers:
            begin, end = digests.bounds(number)
            size += end - begin
            run.append(number)
        for part in self._runs(run):
            if not self._cache.bring(self._wanted(part), self._load):
                return
        self._begun = len(run)

    # -- blocks ------------------------------------------------------------------------------

    def _pieces(self, offset: int, end: int) -> Iterator[bytes]:
        digests = self._known_digests()
        first, last = _block_at(digests, offset), _block_at(digests, end - 1)
        for run in self._runs(range(first, last + 1)):
            numbers = [*run, *self._neighbours(run)]
            with self._cache.pinned(self._wanted(numbers), self._load, self._reader) as blocks:
                self._read_ahead(numbers[-1])
                for number, data in zip(run, blocks, strict=False):
                    begin, _ = digests.bounds(number)
                    yield data[max(0, offset - begin) : end - begin]

    def _runs(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """The same in pieces of neighbours, none of more than a request has."""
        run: list[int] = []
        for number in numbers:
            if run and not self._goes_on(run, number):
                yield run
                run = []
            run.append(number)
        if run:
            yield run

    def _goes_on(self, run: Sequence[int], number: int) -> bool:
        """Whether a block lies behind a run, and both fit into a request."""
        digests = self._known_digests()
        size = digests.bounds(number)[1] - digests.bounds(run[0])[0]
        return number == run[-1] + 1 and size <= self._run

    def _neighbours(self, run: Sequence[int]) -> list[int]:
        """What is expected right behind a run that is to be fetched, and fits into the request."""
        if not self._expected or self._cache.has(self._name(run[-1])):
            return []
        at, found = bisect_left(self._expected, run[-1] + 1), list(run)
        for number in itertools.islice(self._expected, at, None):
            if not self._goes_on(found, number) or self._cache.has(self._name(number)):
                break
            found.append(number)
        return found[len(run) :]

    def _read_ahead(self, last: int) -> None:
        """Have what is expected behind a block under way; what fails is fetched again when read."""
        if self._pool is None:
            return
        while self._coming and self._coming[0][1].done():
            self._coming.popleft()
        self._begun = max(self._begun, bisect_right(self._expected, last))
        size = sum(size for size, _ in self._coming)
        while self._begun < len(self._expected) and size + BLOCK_BYTES <= self._ahead:
            run = next(self._runs(self._expected[self._begun : self._begun + _MOST_BLOCKS]))
            wanted = [each for each in self._wanted(run) if not self._cache.has(each.name)]
            self._begun += len(run)
            if wanted:
                size += (its := sum(each.size for each in wanted))
                self._coming.append((its, self._pool.submit(self._cache.bring, wanted, self._load)))

    def _name(self, number: int) -> BlockName:
        return BlockName(self.name, number)

    def _wanted(self, numbers: Sequence[int]) -> list[BlockWanted]:
        bounds = map(self._known_digests().bounds, numbers)
        return [
            BlockWanted(self._name(number), end - begin)
            for number, (begin, end) in zip(numbers, bounds, strict=True)
        ]

    def _load(self, names: Sequence[BlockName]) -> list[bytes]:
        """Fetch blocks, each run of neighbours by one request, and check each."""
        runs = self._runs([each.number for each in names])
        return [block for run in runs for block in self._load_run(run)]

    def _load_run(self, run: Sequence[int]) -> list[bytes]:
        digests = self._known_digests()
        begin, end = digests.bounds(run[0])[0], digests.bounds(run[-1])[1]
        while True:
            data = memoryview(self._fetch(self._place.key, begin, end - begin))
            found: list[bytes] = []
            for number in run:
                low, high = digests.bounds(number)
                block = bytes(data[low - begin : high - begin])
                if not digests.is_block(number, block):
                    break
                found.append(block)
            else:
                return found
            if not self._distrust():
                raise ContentChangedError(
                    f"{self.name}: other bytes than were uploaded, from {low} to {high}"
                )

    def _fetch(self, key: str, begin: int, length: int) -> bytes:
        data = self._store.read(key, begin, length)
        self.requests += 1
        self.fetched += len(data)
        return data

    # -- digests -----------------------------------------------------------------------------

    def _known_digests(self) -> BlockDigests:
        if self._digests is None:
            self._digests = self._find_digests()
        return self._digests

    def _find_digests(self) -> BlockDigests:
        if self.size <= WHOLE_BYTES:
            return BlockDigests(self.size, self._place.md5)
        wanted = BlockWanted(self._name(_DIGESTS), packed_size(self.size))
        with self._cache.pinned([wanted], lambda _: [self._fetch_digests()], self._reader) as got:
            return BlockDigests.unpack(got[0])

    def _fetch_digests(self) -> bytes:
        key = blocks_key(self._place.key)
        if self._place.blocks:
            try:
                packed = self._fetch(key, 0, packed_size(self.size))
                if md5(packed).hexdigest() == self._place.blocks:
                    return self._fitting(packed)
                problem = "other bytes than were uploaded"
            except (ObjectMissingError, DamagedError) as error:
                problem = error.message
            log.warning(
                "the digests of an object's blocks are not there: all of it is read",
                extra={"object": f"{self._store.url}: {key}", "problem": problem},
            )
        elif self._told is not None and (told := self._told()) is not None:
            # Its word is as good as that for the MD5, which is of the same catalogue.
            self.requests += 1
            self.fetched += len(told)
            return self._fitting(told)
        return self._made_digests().pack()

    def _fitting(self, packed: bytes) -> bytes:
        found = BlockDigests.unpack(packed)
        if (found.size, found.md5) != (self.size, self._place.md5):
            raise DamagedError(f"they are of a file of {found.size} bytes with MD5 {found.md5}")
        return packed

    def _made_digests(self) -> BlockDigests:
        """Read all of the object, once."""
        whole, found = md5(), []
        for begin in range(0, self.size, _RUN):
            length = min(_RUN, self.size - begin)
            data = self._fetch(self._place.key, begin, length)
            whole.update(data)
            view = memoryview(data)
            found += [xxh3_128(view[at : at + BLOCK_BYTES]) for at in range(0, length, BLOCK_BYTES)]
        if whole.hexdigest() != self._place.md5:
            if self._distrust():
                return self._made_digests()
            raise ContentChangedError(
                f"{self.name}: other bytes than were uploaded: MD5 {whole.hexdigest()}"
            )
        return BlockDigests(self.size, self._place.md5, BLOCK_BYTES, b"".join(found))


def _block_at(digests: BlockDigests, offset: int) -> int:
    """Number of the block that a byte is in."""
    return offset // digests.block if digests.digests else 0
