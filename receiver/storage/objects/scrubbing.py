"""Asks the store for each object now and then, so that a lost one is found before it is needed.

A round over all files takes `scrub_days`, a few at a time, in the order of their names. A store
that knows no digest of what it keeps, as a directory, has the bytes read: nobody else would see
that a disk has changed them. What is missing, or is not what was put, is put there once more where
the copy here is whole, as a repair does it; of others it is told, and nothing is concluded. In the
thread that uploads: two that tell of one file might each take back what the other said.

    <schema dir>/storage/scrub.json    how far the round is: a note, no commit
"""

from __future__ import annotations

import heapq
import logging
import time
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from receiver.storage.objects.object_check import check_objects
from receiver.storage.objects.object_repair import may_be_needed, repair_from_here
from receiver.storage.stores.incarnation import check_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore
    from receiver.storage.uploading.pulled_files import PulledFiles

__all__ = ["Scrubber", "note_bad"]

log = logging.getLogger(__name__)

_NOTE = "storage/scrub.json"
_MOST_NOTE = 1 << 24
_EVERY = 600.0
"""Seconds between two looks for what is due."""
_MOST = 500
"""Files of one look: what was missed by a receiver that stood still is made up for slowly."""
_STEP, _STEP_BYTES = 32, 64 << 20
"""Files that are asked for at once, and bytes of them, unless one alone has more: a store that
knows no digest has them read, and uploads wait for that."""
_BAD = 1000
"""Files that are remembered as bad, and asked for with each look."""
_DAY = 86400.0


class _Note(msgspec.Struct, frozen=True):
    """How far a round is."""

    begun: float = 0.0
    """Seconds since the epoch."""
    cursor: str = ""
    """The last file that was asked for."""
    asked: int = 0
    bad: tuple[str, ...] = ()


class Scrubber:
    """Asks when it is called; one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        owner: Incarnation,
        home: Tree,
        trees: Callable[[], Sequence[Tree]],
        *,
        days: float,
        pulled: PulledFiles | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on where the note says.

        Args:
            engine: the metadata engine.
            store: has the objects.
            owner: as whom they are put once more.
            home: the schema directory.
            trees: gives the data directories that count now.
            days: of a round.
            pulled: gives what storage nodes have.
            clock: seconds since the epoch.
            monotonic: seconds.
        """
        self._engine, self._store, self._owner = engine, store, owner
        self._home, self._trees, self._period = home, trees, days * _DAY
        self._clock, self._monotonic = clock, monotonic
        self._pulled = pulled
        self._note = _read(home)
        self._next = 0.0
        self._due: list[str] = []

    @property
    def problem(self) -> str | None:
        """What is not as it was put there, and could not be put right; None for nothing."""
        bad = self._note.bad
        if not bad:
            return None
        more = "" if len(bad) == 1 else f" and {len(bad) - 1} others are"
        return (
            f"the object of {bad[0]}{more or ' is'} not in the store as it was put there, and not "
            "whole here or at a storage node: tsferry-receiver fsck --storage says more"
        )

    def work(self) -> None:
        """Ask for a few that are due.

        Raises:
            FencedError: another receiver has taken over.
            StoreAwayError, StoreRefusedError: of the store; what was asked is not asked again.
        """
        if not self._due and self._monotonic() >= self._next:
            self._next = self._monotonic() + _EVERY
            self._due = self._look()
        if self._due:
            step = self._step()
            self._ask(step)
            del self._due[: len(step)]

    def _step(self) -> list[str]:
        step: list[str] = []
        left = _STEP_BYTES
        with self._engine.reading() as state:
            for name in self._due[:_STEP]:
                row = state.files.get(name)
                left -= 0 if row is None else row.size
                if step and left < 0:
                    break
                step.append(name)
        return step

    def _look(self) -> list[str]:
        """The files that are due: those that were bad, then the next ones."""
        note, now = self._note, self._clock()
        with self._engine.reading() as state:
            total = len(state.uploaded_table.rows)
            if not total:
                return []
            if not 0 <= now - note.begun <= 4 * self._period or note.asked >= total:
                self._write(_Note(begun=now, bad=note.bad))  # all are asked for, or it is long ago
                return list(note.bad)
            most = min(_MOST, int(total * (now - note.begun) / self._period) - note.asked)
            if most <= 0:
                return list(note.bad)
            names = (
                name
                for name in state.uploaded_table.rows
                if name > note.cursor and may_be_needed(state, name)
            )
            found = heapq.nsmallest(most, names)
        if len(found) < most:  # some are needed no more: the round is at its end
            self._write(msgspec.structs.replace(note, asked=total))
        return [*note.bad, *(each for each in found if each not in note.bad)]

    def _ask(self, names: Sequence[str]) -> None:
        check_owner(self._store, self._owner)
        with self._engine.reading() as state:
            rows = [state.files[each] for each in names if may_be_needed(state, each)]
            places = {row.physical: state.uploaded_table.rows[row.physical] for row in rows}
        found = check_objects(
            self._store, self._owner.engine, rows, places, deep=False, read_unsaid=True
        )
        for each in found:
            log.error(
                "an object is not in the store as it was put there",
                extra={"key": each.key, "kind": each.kind, "detail": each.detail},
            )
        left = {each.physical for each in found}
        left -= repair_from_here(
            self._engine, self._store, self._owner, self._trees(), found, self._pulled
        )
        note, known = self._note, set(self._note.bad)
        fresh = [each for each in names if each not in known]
        bad = [each for each in note.bad if each not in names or each in left]
        bad += sorted(left - known)
        self._write(
            _Note(
                begun=note.begun,
                cursor=max([note.cursor, *(each for each in fresh)]),
                asked=note.asked + len(fresh),
                bad=tuple(bad[:_BAD]),
            )
        )

    def _write(self, note: _Note) -> None:
        self._home.make_dirs("storage")
        self._home.write_atomic(_NOTE, msgspec.json.encode(note))
        self._note = note


def note_bad(home: Tree, names: Iterable[str]) -> None:
    """Have the next start of a receiver ask for the objects of these files at once.

    Args:
        home: its schema directory; it does not run.
        names: physical names.
    """
    note = _read(home)
    bad = [*note.bad, *sorted({*names} - {*note.bad})]
    home.make_dirs("storage")
    home.write_atomic(_NOTE, msgspec.json.encode(msgspec.structs.replace(note, bad=tuple(bad))))


def _read(home: Tree) -> _Note:
    """Where the last step ended; what cannot be read begins a round."""
    try:
        return from_json(home.read(_NOTE, limit=_MOST_NOTE), _Note)
    except FileNotFoundError:
        return _Note()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        log.warning("the note of the scrub is unusable", extra={"error": str(error)})
        return _Note()
