"""Which loaded files lie in the data directories, what they take, and which go first: in memory.

Who goes first is decided as in a segmented LRU: what was asked for by name once it was here is
*protected*, all else is on *probation*, and files on probation go first, the longest here first. So
a walk over everything throws out what came by the walk, and not what questions use. Nothing of this
is kept over a start; the order is that of the loads then.

Pins hold in this process: what is pinned is not evicted. Room for what is to be fetched is taken
before it comes, so that the sum never exceeds the capacity by it.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["DiskCache"]

_PROTECTED = 0.8
"""Of the capacity that what is protected may have; the longest unused goes on probation again."""


class DiskCache:
    """The books of the data directories; any thread may call."""

    def __init__(
        self, capacity: int | None, *, evict_above: float = 0.9, evict_to: float = 0.8
    ) -> None:
        """Begin with nothing.

        Args:
            capacity: allocated bytes of loaded files, at most; None for no limit.
            evict_above: part of the capacity above which files go.
            evict_to: part of the capacity down to which they go.
        """
        self.capacity = capacity
        self._above = evict_above
        self._to = evict_to
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._probation: OrderedDict[str, int] = OrderedDict()
        self._protected: OrderedDict[str, int] = OrderedDict()
        self._protected_bytes = 0
        self._usage = 0
        self._reserved = 0
        self._demand = 0
        self._coming: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self._pins: dict[str, int] = {}
        self._evicting: set[str] = set()

    # -- what is here ------------------------------------------------------------------------

    @property
    def usage(self) -> int:
        """Allocated bytes of all that lies here, and of what is about to come."""
        with self._lock:
            return self._usage + self._reserved

    @property
    def files(self) -> int:
        """How many files are here."""
        with self._lock:
            return len(self._probation) + len(self._protected)

    def names(self) -> list[str]:
        """What is here."""
        with self._lock:
            return [*self._probation, *self._protected]

    def room(self) -> int | None:
        """Bytes that may come; None for any number."""
        if self.capacity is None:
            return None
        with self._lock:
            return max(0, self.capacity - self._usage - self._reserved)

    def came(self, physical: str, size: int) -> None:
        """A file lies here with so many bytes, or has others than before."""
        with self._lock:
            for part in (self._protected, self._probation):
                if physical in part:
                    self._usage += size - part[physical]
                    if part is self._protected:
                        self._protected_bytes += size - part[physical]
                    part[physical] = size
                    return
            self._probation[physical] = size
            self._usage += size

    def went(self, physical: str) -> None:
        """A file is not here any more."""
        with self._lock:
            size = self._protected.pop(physical, None)
            if size is not None:
                self._protected_bytes -= size
            else:
                size = self._probation.pop(physical, 0)
            self._usage -= size
            self._evicting.discard(physical)
            self._changed.notify_all()

    def used(self, physical: str) -> None:
        """A file was asked for by name; a walk over many says nothing."""
        with self._lock:
            if physical in self._protected:
                self._protected.move_to_end(physical)
                return
            size = self._probation.pop(physical, None)
            if size is None:
                return
            self._protected[physical] = size
            self._protected_bytes += size
            most = None if self.capacity is None else self.capacity * _PROTECTED
            while most is not None and self._protected_bytes > most and len(self._protected) > 1:
                old, its = self._protected.popitem(last=False)
                self._protected_bytes -= its
                self._probation[old] = its

    # -- pins and room -----------------------------------------------------------------------

    def pin(self, physicals: Sequence[str]) -> None:
        """Have files stay, if they are here; what is just being evicted is waited for."""
        pins = self._pins
        with self._lock:
            if self._evicting:
                self._changed.wait_for(lambda: self._evicting.isdisjoint(physicals))
            for each in physicals:
                pins[each] = pins.get(each, 0) + 1

    def unpin(self, physicals: Sequence[str]) -> None:
        """The opposite of `pin`, with the same names."""
        pins = self._pins
        with self._lock:
            for each in physicals:
                left = pins[each] - 1
                if left:
                    pins[each] = left
                else:
                    del pins[each]
            if self._waiting:
                self._changed.notify_all()

    def reserve(self, coming: Mapping[str, int], *, wanted: bool = True) -> bool:
        """Take room for files that are to come; False if there is none, which is noted if `wanted`.

        What comes for somebody else already takes none once more.
        """
        with self._lock:
            size = sum(its for each, its in coming.items() if each not in self._coming)
            total = self._usage + self._reserved + size
            if size and self.capacity is not None and total > self.capacity:
                if wanted:
                    self._demand = max(self._demand, size)
                return False
            for each, its in coming.items():
                if not self._coming[each]:
                    self._sizes[each] = its
                self._coming[each] += 1
            self._reserved += size
            return True

    def release(self, coming: Iterable[str]) -> None:
        """What was to come has come, and counts as such, or does not come."""
        with self._lock:
            for each in coming:
                self._coming[each] -= 1
                if not self._coming[each]:
                    del self._coming[each]
                    self._reserved -= self._sizes.pop(each)
            self._changed.notify_all()

    def want(self, size: int) -> None:
        """So many bytes were turned away: room is to be made for them."""
        with self._lock:
            if self.capacity is not None:
                self._demand = max(self._demand, min(size, self.capacity))

    def wait(self, timeout: float) -> None:
        """Wait until something has gone or was let go."""
        with self._lock:
            self._waiting += 1
            try:
                self._changed.wait(timeout)
            finally:
                self._waiting -= 1

    # -- eviction ----------------------------------------------------------------------------

    def excess(self) -> int:
        """Bytes that have to go now; a demand is asked for once."""
        with self._lock:
            if self.capacity is None:
                return 0
            usage, demand = self._usage + self._reserved, self._demand
            self._demand = 0
            over = usage - int(self.capacity * self._to)
            over = over if usage > self.capacity * self._above else 0
            return max(over, usage + demand - self.capacity if demand else 0, 0)

    def victims(self, size: int, may_go: Callable[[str], bool]) -> list[str]:
        """The files that are to go, for so many bytes, in their order.

        Args:
            size: bytes.
            may_go: whether a file may go at all.
        """
        found: list[str] = []
        for physical, its in self._in_order():
            if size <= 0:
                break
            if may_go(physical):
                found.append(physical)
                size -= its
        return found

    def _in_order(self) -> Iterator[tuple[str, int]]:
        with self._lock:
            every = [*self._probation.items(), *self._protected.items()]
        for physical, size in every:
            if physical not in self._pins:
                yield physical, size

    def begin_evicting(self, physical: str) -> bool:
        """Whether a file may be taken away now; `went` or `kept` has to follow."""
        with self._lock:
            if physical in self._pins:
                return False
            self._evicting.add(physical)
            return True

    def kept(self, physical: str) -> None:
        """It was not evicted after all."""
        with self._lock:
            self._evicting.discard(physical)
            self._changed.notify_all()
