"""Blocks of objects in memory: bounded in bytes, shared by the readers of a process.

A block is fetched once, however many wait for it. While it is read it is pinned; what is pinned
and what comes never exceeds the capacity: who does not find room waits, and is refused in the end.
Of the others those go first that one reader alone has had, the longest unused first; then those
that a second reader came for (the index of a file, whose other slices are read here too), which a
scan of one reader cannot push out; last what was fetched ahead and has not been read yet.

Nobody who waits for room holds a pin, and fetching ahead takes only room that nobody needs, so no
two readers wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from common.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["BlockCache", "BlockName", "BlockWanted", "CacheFullError"]

_PATIENCE = 60.0
"""Seconds that a reader waits for room: others hold a few MiB each, while one request lasts."""


class CacheFullError(Transient):
    """What is to be read does not fit beside what others are reading."""

    slug = "cache-full"


class BlockName(NamedTuple):
    """Which block."""

    object: str
    number: int


class BlockWanted(NamedTuple):
    """A block, and how many bytes it has."""

    name: BlockName
    size: int


class _Block:
    __slots__ = ("data", "has_failed", "is_shared", "name", "pins", "queue", "reader", "size")

    def __init__(self, wanted: BlockWanted, reader: int) -> None:
        self.name, self.size = wanted
        self.reader = reader
        """Who came for it first; 0: nobody yet."""
        self.is_shared = self.has_failed = False
        self.data: bytes | None = None
        self.pins = 1
        self.queue: _Queue | None = None
        """The one that it waits in to go, while nobody has pinned it."""


class _Queue:
    """Blocks that may go, the next one first."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[BlockName, _Block] = OrderedDict()
        self.size = 0

    def add(self, block: _Block) -> None:
        self._blocks[block.name] = block
        self.size += block.size
        block.queue = self

    def take(self, block: _Block) -> None:
        del self._blocks[block.name]
        self.size -= block.size
        block.queue = None

    def next(self) -> _Block | None:
        return next(iter(self._blocks.values()), None)


class BlockCache:
    """Any thread may call.

    Attributes:
        capacity: bytes.
        used: bytes of blocks that are there or come.
        hits: blocks that were there, or came, when a reader asked for them.
        misses: blocks that did not.
    """

    def __init__(self, capacity: int, *, patience: float = _PATIENCE) -> None:
        """Make an empty one.

        Args:
            capacity: bytes.
            patience: seconds that a reader waits for room.
        """
        self.capacity = capacity
        self.used = self.hits = self.misses = 0
        self._patience = patience
        self._changed = threading.Condition()
        self._blocks: dict[BlockName, _Block] = {}
        self._once, self._shared, self._ahead = _Queue(), _Queue(), _Queue()

    def has(self, name: BlockName) -> bool:
        """Whether a block is there, or comes."""
        with self._changed:
            return name in self._blocks

    @contextmanager
    def pinned(
        self,
        wanted: Sequence[BlockWanted],
        load: Callable[[Sequence[BlockName]], Sequence[bytes]],
        reader: int,
    ) -> Iterator[list[bytes]]:
        """Have blocks, while it is entered.

        Args:
            wanted: the blocks, each once.
            load: fetches those of them that are not there.
            reader: number of who reads, from 1 on.

        Raises:
            CacheFullError: there is no room for all of them at once.
        """
        while True:
            blocks, mine = self._claim(wanted, reader)
            try:
                self._fill(mine, load)
                self._await(blocks)
            except BaseException:
                self._unpin(blocks)
                raise
            if not any(each.has_failed for each in blocks):
                break
            self._unpin(blocks)  # the fetch of another reader failed: see what ours does
        try:
            yield [each.data or b"" for each in blocks]
        finally:
            self._unpin(blocks)

    def bring(
        self,
        wanted: Sequence[BlockWanted],
        load: Callable[[Sequence[BlockName]], Sequence[bytes]],
    ) -> bool:
        """Fetch blocks ahead, if there is room that nobody needs; whether there was."""
        with self._changed:
            missing = [each for each in wanted if each.name not in self._blocks]
            need = sum(each.size for each in missing)
            if need > self.capacity - self.used + self._once.size:
                return False
            self._evict(need)
            mine = [self._add(each, 0) for each in missing]
        try:
            self._fill(mine, load)
        finally:
            self._unpin(mine)
        return True

    # -- one step each -----------------------------------------------------------------------

    def _claim(
        self, wanted: Sequence[BlockWanted], reader: int
    ) -> tuple[list[_Block], list[_Block]]:
        """Pin all, and make room for those that are missing, which are the caller's to fill."""
        until = time.monotonic() + self._patience
        with self._changed:
            while True:
                there = [self._blocks[each.name] for each in wanted if each.name in self._blocks]
                missing = [each for each in wanted if each.name not in self._blocks]
                need = sum(each.size for each in missing)
                may_go = self._once.size + self._shared.size + self._ahead.size
                may_go -= sum(each.size for each in there if each.queue is not None)
                if need <= self.capacity - self.used + may_go:
                    break
                left = until - time.monotonic()
                if need > self.capacity or left <= 0:
                    raise CacheFullError(
                        f"{need} bytes are to be read from the object store at once, and all "
                        f"readers of this process have {self.capacity} bytes of memory for that"
                    )
                self._changed.wait(left)
            for each in there:
                each.pins += 1
                each.is_shared = each.is_shared or each.reader not in (0, reader)
                each.reader = each.reader or reader
                if each.queue is not None:
                    each.queue.take(each)
            self._evict(need)
            mine = [self._add(each, reader) for each in missing]
            self.hits += len(there)
            self.misses += len(mine)
            return [self._blocks[each.name] for each in wanted], mine

    def _add(self, wanted: BlockWanted, reader: int) -> _Block:
        made = self._blocks[wanted.name] = _Block(wanted, reader)
        self.used += made.size
        return made

    def _evict(self, need: int) -> None:
        for queue in (self._once, self._shared, self._ahead):
            while self.used + need > self.capacity and (block := queue.next()) is not None:
                queue.take(block)
                self._drop(block)

    def _drop(self, block: _Block) -> None:
        del self._blocks[block.name]
        self.used -= block.size

    def _fill(
        self, mine: Sequence[_Block], load: Callable[[Sequence[BlockName]], Sequence[bytes]]
    ) -> None:
        try:
            found = load([each.name for each in mine]) if mine else ()
        except BaseException:
            with self._changed:
                for each in mine:
                    each.has_failed = True
                    self._drop(each)
                self._changed.notify_all()
            raise
        with self._changed:
            for each, data in zip(mine, found, strict=True):
                each.data = data
            self._changed.notify_all()

    def _await(self, blocks: Sequence[_Block]) -> None:
        """Until those have come that others fetch, who have their room and wait for nobody."""
        with self._changed:
            self._changed.wait_for(
                lambda: all(each.data is not None or each.has_failed for each in blocks)
            )

    def _unpin(self, blocks: Sequence[_Block]) -> None:
        with self._changed:
            for each in blocks:
                each.pins -= 1
                if each.pins or each.has_failed:
                    continue
                if not each.reader:
                    self._ahead.add(each)
                elif each.is_shared:
                    self._shared.add(each)
                else:
                    self._once.add(each)
            while self._shared.size > self.capacity // 2:
                oldest = self._shared.next()
                assert oldest is not None
                self._shared.take(oldest)
                oldest.is_shared = False
                self._once.add(oldest)
            self._changed.notify_all()
