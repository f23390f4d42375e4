"""The keys of the key-value store in memory, with all their versions that can be asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import count, islice
from typing import TYPE_CHECKING, Annotated, Self

import msgspec

from receiver.metadata.state.sorted_keys import SortedKeys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from receiver.metadata.model.records import KeysWritten

__all__ = ["FrozenKeys", "KeyTable"]

Version = tuple[int, str | None]
"""When a value came, and the value; None where the key went."""

Older = tuple[list[int], list[str | None]]
"""Versions that were superseded, oldest first: when each came, and the values beside that. So a
look into the past bisects numbers alone, and a version takes no object of its own."""

_CHUNK = 2048
_NONE: Older = ([], [])
_decoder = msgspec.msgpack.Decoder(
    list[tuple[str, Annotated[list[Version], msgspec.Meta(min_length=1)]]]
)


class FrozenKeys:
    """The table as it was, to be written out while the table goes on."""

    def __init__(self, rows: dict[str, Version], older: dict[str, Older]) -> None:
        self._rows = rows
        self._older = older

    def sections(self) -> Iterator[tuple[str, bytes]]:
        """(name, content) for a checkpoint; `KeyTable.thaw` takes them.

        A few thousand keys at a time, so that the interpreter's lock is never held for long.
        """
        older, rows = self._older, iter(self._rows.items())
        for number in count():
            chunk = [
                (key, [*zip(*older.get(key, _NONE), strict=True), row])
                for key, row in islice(rows, _CHUNK)
            ]
            if not chunk:
                return
            yield str(number), msgspec.msgpack.encode(chunk)


class KeyTable:
    """Versions by key. The newest one is at hand; older ones are bisected.

    Every version that was superseded, and every removal, is noted with its timestamp, so that
    `collect` finds what the history window has left behind without looking at all keys.
    """

    def __init__(self) -> None:
        self._rows: dict[str, Version] = {}
        self._older: dict[str, Older] = {}
        self._order = SortedKeys()
        self._superseded: deque[tuple[int, str]] = deque()
        self._live = 0

    def __len__(self) -> int:
        """Keys that have a value now."""
        return self._live

    @property
    def versions(self) -> int:
        """Versions that are kept, those of keys that are gone included."""
        return len(self._rows) + sum(len(stamps) for stamps, _ in self._older.values())

    # -- looking -----------------------------------------------------------------------------

    def load(self, key: str, ts: int | None = None) -> str | None:
        """The value of a key at `ts`, None if it has none."""
        row = self._rows.get(key)
        if row is None:
            return None
        if ts is None or row[0] <= ts:
            return row[1]
        older = self._older.get(key)
        if older is None:
            return None
        stamps, values = older
        place = bisect_right(stamps, ts)
        return values[place - 1] if place else None

    def load_with_prefix(self, prefix: str, ts: int | None = None) -> tuple[list[str], list[str]]:
        """The keys that begin with `prefix`, in order, and their values at `ts`."""
        keys, values = [], []
        for key in self._order.starting(prefix):
            value = self.load(key, ts)
            if value is not None:
                keys.append(key)
                values.append(value)
        return keys, values

    def changed(self, key: str) -> int:
        """Timestamp of the newest change of a key, its removal included; 0 for none."""
        row = self._rows.get(key)
        return 0 if row is None else row[0]

    def changed_below(self, prefix: str) -> int:
        """The same of the keys that begin with a prefix, together."""
        return max((self._rows[key][0] for key in self._order.starting(prefix)), default=0)

    # -- changing ----------------------------------------------------------------------------

    def apply(self, op: KeysWritten, ts: int) -> None:
        """Make a commit visible; `ts` is greater than that of any before."""
        for prefix in op.removals:
            for key in self._order.starting(prefix):
                if self._rows[key][1] is not None:
                    self._put(key, (ts, None))
        for key, value in op.saves.items():
            self._put(key, (ts, value))

    def _put(self, key: str, version: Version) -> None:
        row = self._rows.get(key)
        self._rows[key] = version
        self._live += (version[1] is not None) - (row is not None and row[1] is not None)
        if row is None:
            self._order.add(key)
        elif row[0] != version[0]:  # otherwise removed and set by one commit: one version
            stamps, values = self._older.setdefault(key, ([], []))
            stamps.append(row[0])
            values.append(row[1])
            self._superseded.append((version[0], key))

    def collect(self, horizon: int, budget: int = 10_000) -> int:
        """Forget versions that no question at or above `horizon` can see.

        Args:
            horizon: the oldest timestamp that can still be asked for.
            budget: superseded versions looked at, at most, so that the caller's lock is short.

        Returns:
            how many were looked at; less than `budget` means that all is done.
        """
        keys: set[str] = set()
        done = 0
        while done < budget and self._superseded and self._superseded[0][0] <= horizon:
            keys.add(self._superseded.popleft()[1])
            done += 1
        for key in keys:
            self._collect_key(key, horizon)
        return done

    def _collect_key(self, key: str, horizon: int) -> None:
        row = self._rows.get(key)
        if row is None:
            return
        if row[0] <= horizon:
            self._older.pop(key, None)
            if row[1] is None:
                del self._rows[key]
                self._order.remove(key)
            return
        stamps, values = self._older.get(key, _NONE)
        # The last version at or below the horizon is the one that is seen there; as a removal it
        # says no more than no version does.
        seen = bisect_right(stamps, horizon) - 1
        if seen >= 0 and values[seen] is None:
            seen += 1
        if seen > 0:
            del stamps[:seen], values[:seen]
        if not stamps:
            self._older.pop(key, None)

    # -- checkpoints -------------------------------------------------------------------------

    def freeze(self) -> FrozenKeys:
        """A copy of what is there now, made under the caller's lock: references, no texts."""
        return FrozenKeys(
            self._rows.copy(),
            {key: (stamps.copy(), values.copy()) for key, (stamps, values) in self._older.items()},
        )

    @classmethod
    def thaw(cls, sections: Mapping[str, bytes | memoryview]) -> Self:
        """The table whose frozen copy gave these sections.

        Raises:
            msgspec.MsgspecError: they are none.
        """
        table = cls()
        superseded: list[tuple[int, str]] = []
        for content in sections.values():
            for key, versions in _decoder.decode(content):
                table._rows[key] = versions[-1]
                table._order.add(key)
                table._live += versions[-1][1] is not None
                if len(versions) > 1:
                    older = versions[:-1]
                    table._older[key] = ([ts for ts, _ in older], [value for _, value in older])
                    superseded += [(ts, key) for ts, _ in versions[1:]]
        superseded.sort()
        table._superseded.extend(superseded)
        return table
