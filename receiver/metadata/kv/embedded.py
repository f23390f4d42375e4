"""The key-value store in the log of the engine.

Every version stands in memory with its timestamp (`receiver.metadata.state.key_versions`), so a
look into the past is one bisection over the versions of its key; there are no revisions to be found
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from receiver.metadata.model.errors import KeyMissingError
from receiver.metadata.model.records import KeysWritten
from receiver.metadata.model.snapshot_kv import (
    KeyAddition,
    SnapshotKV,
    check_keys,
    check_prefixes,
    check_something,
)

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine

__all__ = ["EmbeddedKV"]


class EmbeddedKV(SnapshotKV):
    """See `SnapshotKV`; the keys are in every checkpoint, like all that the engine commits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.reading()
        self._window = engine.window

    def load(self, key: str, ts: int | None = None) -> str:
        """See `SnapshotKV.load`."""
        with self._reading as state:
            if ts is not None and ts < self._window.oldest:
                self._window.check(ts, state.clock.times)  # refuses it
            value = state.keys.load(key, ts)
        if value is None:
            when = "" if ts is None else f" at {ts}"
            raise KeyMissingError(f"there is no key {key!r}{when}")
        return value

    def load_with_prefix(self, prefix: str, ts: int | None = None) -> tuple[list[str], list[str]]:
        """See `SnapshotKV.load_with_prefix`."""
        with self._reading as state:
            if ts is not None:
                self._engine.check_answerable(ts)
            return state.keys.load_with_prefix(prefix, ts)

    def multi_save_and_remove_with_prefix(
        self, saves: Mapping[str, str], removals: Sequence[str], *additions: KeyAddition
    ) -> int:
        """See `SnapshotKV.multi_save_and_remove_with_prefix`."""
        check_something(saves, removals, additions)
        check_keys(saves)
        check_prefixes(removals)
        if not additions:
            return self._engine.commit([KeysWritten(tuple(removals), dict(saves))])

        def build(ts: int) -> list[KeysWritten]:
            merged = dict(saves)
            merged.update(addition(ts) for addition in additions)
            check_keys(merged)
            return [KeysWritten(tuple(removals), merged)]

        return self._engine.commit_with(build)

    def close(self) -> None:
        """Nothing to let go of: the engine is its owner's."""
