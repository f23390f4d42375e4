"""Removes the objects of files that the engine has forgotten, when no restore can need them.

A file's objects go when the commit that forgot it is older than the history and `storage.grace`,
and its log has been in the store for as long: whatever moment of the history a receiver is restored
to, from the newest manifest or from one of the grace, the file is forgotten there too. What goes is
what the file's row names, and nothing for being in a list of the bucket. The objects go first, then
a commit says so; who is cut off between removes them once more, and none is as good.

What the store refuses to remove (an object under a lock) is shown, and tried again after hours.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from common import crash
from common.errors import StoppedError
from receiver.metadata.model import records
from receiver.storage.objects.object_places import file_of
from receiver.storage.reading.block_digests import WHOLE_BYTES, blocks_key
from receiver.storage.stores.incarnation import check_owner
from receiver.storage.stores.object_keys import data_key, resource_key
from receiver.storage.stores.object_store import StoreAwayError, StoreRefusedError
from receiver.storage.stores.store_manifests import StoreManifest
from receiver.storage.stores.store_removal import StoreRemover

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.uploaded_rows import UploadedRow

__all__ = ["ObjectRemover", "objects_of", "shipped_until"]

_BATCH = 200
"""Files whose objects one commit tells of, at most."""
_REFUSED = 6 * 3600.0
"""Seconds until an object is tried again that the store refused to remove."""
_REFUSALS = 10
"""Of one pass, until it ends: the store will refuse the others too."""
_OTHERS = ("checkpoints", "log", "tags", "tree/tables")
"""Folders of what is no file, with the incarnation below each: put in seconds, or not at all."""
_ATTEMPT_AGE = 86_400.0
"""Seconds that what came of a large object in part is kept, when its file needs it no more."""


def objects_of(engine: str, row: UploadedRow) -> list[str]:
    """Keys of all objects that a file has in the store, or may have; those beside it first."""
    said = [
        (data_key(engine, incarnation, row.physical, again), resource)
        for incarnation, again, resource in (
            *row.former,
            (row.incarnation, row.again, row.resource),
        )
    ]
    resources = [resource_key(key, digest) for key, digest in said if digest]
    digests = [blocks_key(key) for key, _ in said if row.size > WHOLE_BYTES]
    return list(dict.fromkeys([*resources, *digests, *(key for key, _ in said)]))


def shipped_until(engine: Engine, newest: StoreManifest | None) -> float:
    """The time that the log in the store reaches to, seconds since the epoch, at the earliest."""
    if newest is None:
        return 0.0
    now = engine.clock.cautious()
    if newest.lsn >= engine.published().lsn:
        return now
    return min(now, engine.times.seconds(newest.ts))


class _Due(NamedTuple):
    physical: str
    keys: list[str]


class ObjectRemover(StoreRemover[StoreManifest]):
    """Removes what is due, when it is called; one thread at a time.

    Attributes:
        problem: why something that is due is still there, None if nothing is.
    """

    def __init__(
        self, *given: Any, clock: Callable[[], float] = time.monotonic, **more: Any
    ) -> None:
        """Prepare; nothing is done before `run_once`.

        Args:
            given: see `StoreRemover`.
            clock: seconds, for what is tried again.
            more: see `StoreRemover`.
        """
        super().__init__(*given, **more)
        self._clock = clock
        self._refused: dict[str, float] = {}
        self.problem: str | None = None

    def run_once(self) -> int:
        """Remove the objects of all files that are due; returns of how many.

        Raises:
            FencedError: another receiver has taken over.
            StoreAwayError: the store does not answer; what was removed is told of.
            StoppedError: by `go_on`.
        """
        due, count, refusals = self._due(), 0, list[str]()
        for low in range(0, len(due), _BATCH):
            check_owner(self._store, self._owner)
            count += self._remove_all(due[low : low + _BATCH], refusals)
            if len(refusals) >= _REFUSALS:
                break
        if refusals or not self._refused:
            self.problem = refusals[0] if refusals else None
        return count

    def _remove_all(self, due: list[_Due], refusals: list[str]) -> int:
        gone = list[str]()
        try:
            for each in due:
                if self._remove(each, refusals):
                    gone.append(each.physical)
                if len(refusals) >= _REFUSALS:
                    break
        except (StoreAwayError, StoppedError):
            self._tell(gone)
            raise
        crash.point("storage.remove.removed")
        self._tell(gone)
        crash.point("storage.remove.committed")
        return len(gone)

    def _tell(self, gone: list[str]) -> None:
        if gone:
            self._engine.commit([records.ObjectRemoved(each) for each in gone])

    def abandon_attempts(self) -> int:
        """Drop what came in part, a day ago, of our own objects that are not to come."""
        engine, number = self._owner.engine, self._owner.number
        data = data_key(engine, number, "")
        own = (data, *(f"{engine}/{each}/{number:08}/" for each in _OTHERS))
        oldest = self._engine.clock.cautious() - _ATTEMPT_AGE
        count = 0
        for each in list(self._store.unfinished(f"{engine}/")):
            if each.begun > oldest or not each.key.startswith(own):
                continue
            if each.key.startswith(data) and self._is_to_come(each.key):
                continue
            if not count:
                check_owner(self._store, self._owner)
            self._store.abandon(each)
            count += 1
        return count

    def _is_to_come(self, key: str) -> bool:
        with self._engine.reading() as state:
            return state.uploaded_table.lacks(state.files.get(file_of(key) or ""))

    def _due(self) -> list[_Due]:
        until = shipped_until(self._engine, self._newest()) - self._grace
        begin = until - self._engine.options.history
        oldest, now = self._engine.oldest_answerable, self._clock()
        self._refused = {each: at for each, at in self._refused.items() if at > now}
        due = []
        with self._engine.reading() as state:
            seconds = state.clock.times.seconds
            for physical in state.uploaded_table.ended:
                row = state.uploaded_table.rows[physical]
                if row.ended > oldest or seconds(row.ended) > begin:
                    continue  # after a start they are in no order
                if physical not in self._refused and physical not in state.files:
                    due.append(_Due(physical, objects_of(self._engine.uuid, row)))
        return due

    def _remove(self, due: _Due, refusals: list[str]) -> bool:
        try:
            for key in due.keys:
                self._go_on()
                self._store.remove(key)
        except StoreRefusedError as error:
            refusals.append(str(error))
            self._refused[due.physical] = self._clock() + _REFUSED
            return False
        return True
