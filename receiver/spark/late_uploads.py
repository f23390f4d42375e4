"""Where a file is of which a snapshot says nothing, or which is not there any more where it said.

Absent on every disk means the object store, under the key that the file would have: its upload may
be newer than the copy of the log that a job was planned by. Absent there means a look at its row in
the newest copy of the log. Only what that says is told as the truth: it is somewhere else, it is
forgotten, it waits to be uploaded, the store has lost it, or it was hidden before it came there and
never will: only what readers see is uploaded. What is found without a commit is compared with the
MD5 of the catalogue like anything else, before it is used.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from common.errors import NotFoundError, Transient
from receiver.metadata.model.errors import HistoryGoneError
from receiver.storage.cache.stored_files import place_of
from receiver.storage.reading.open_stores import of_process, opened_at
from receiver.storage.stores.incarnation import incarnations
from receiver.storage.stores.object_keys import data_key
from receiver.storage.stores.object_store import (
    ObjectMissingError,
    StoreAwayError,
    StoreRefusedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from receiver.metadata.state.state import State
    from receiver.storage.reading.stored_place import StoreAddress, StoredPlace

__all__ = ["FileWaitsError", "place_again", "place_now"]

_FRESH = 10.0
"""Seconds for which one look counts: a job that lacks a thousand files does not look as often."""
_NAMED = 5
"""Files that a message names beside the one that it is about."""


class FileWaitsError(Transient):
    """A file was loaded, is on no disk at hand, and is not in the object store yet."""

    slug = "file-waits"


class _Waiting(NamedTuple):
    """What a look at the newest copy of the log found."""

    until: float
    names: frozenset[str]
    """Files that readers see, and that no commit tells to be in the store."""
    hidden: Mapping[str, str]
    """MD5s of those that readers do not see any more, by their physical names."""


class _Looks:
    """What this process has looked up in stores; any thread may ask."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._numbers: dict[tuple[StoreAddress, str], tuple[float, list[int]]] = {}
        self._waiting: dict[tuple[StoreAddress, str], _Waiting] = {}
        self._lock = threading.Lock()

    def numbers(self, store: StoreAddress, engine: str) -> list[int]:
        """The incarnations of an engine, the newest first."""
        with self._lock:
            until, found = self._numbers.get((store, engine), (0.0, []))
            if until <= self._monotonic():
                found = incarnations(of_process.store(store), engine)
                self._numbers[store, engine] = self._monotonic() + _FRESH, found
        return found

    def again(self, place: StoredPlace, store: StoreAddress) -> StoredPlace:
        """Where its row says that it is now.

        Raises:
            HistoryGoneError: it is forgotten, or never came there.
            FileWaitsError: it is not there yet.
        """
        # Only here: all workers import this module, and hardly one lacks a file.
        from receiver.follower.store_view import StoreView

        with self._lock:  # a second one that lacks a file waits for the look of the first
            known = self._waiting.get((store, place.engine))
            if known and known.until > self._monotonic() and place.physical in known.names:
                raise _waits(place, known.names)
            if known and known.until > self._monotonic():
                _refuse_hidden(place, known.hidden)
            with StoreView(opened_at(store)) as view, view.engine.reading() as state:
                names, hidden = _lacking(state)
                found = _found_in(state, place, store)
            until = self._monotonic() + _FRESH
            self._waiting[store, place.engine] = _Waiting(until, names, hidden)
            if found is None:
                _refuse_hidden(place, hidden)
                raise _waits(place, names)
            return found


_looks = _Looks()


def place_now(place: StoredPlace) -> StoredPlace:
    """The same place, or where the file is of which nobody said so.

    Raises:
        HistoryGoneError: it is forgotten, or was hidden before it came to the store.
        FileWaitsError: it is not in the store yet.
        TsferryError: of the store.
    """
    if place.key or place.store is None:
        return place
    store = of_process.store(place.store)
    for number in _looks.numbers(place.store, place.engine):
        key = data_key(place.engine, number, place.physical)
        try:
            if store.head(key).size == place.size:
                return replace(place, key=key)
        except ObjectMissingError:
            continue
    return _looks.again(place, place.store)


def place_again(place: StoredPlace, missing: NotFoundError) -> StoredPlace:
    """Where a file is that was not there any more.

    Args:
        place: where it was looked for.
        missing: what came of that.

    Raises:
        HistoryGoneError: it is forgotten, or was hidden before it came to the store.
        FileWaitsError: it is not in the store.
        NotFoundError: it should be where it was looked for.
    """
    if place.store is None or not place.engine:
        raise missing
    try:
        found = _looks.again(place, place.store)
    except (NotFoundError, StoreRefusedError, StoreAwayError):  # it has no log, say
        raise missing from None
    if found.key == place.key:
        raise missing
    return replace(found, receiver=place.receiver)


def _found_in(state: State, place: StoredPlace, store: StoreAddress) -> StoredPlace | None:
    """Where it is by its row; None if it is not in the store."""
    row = state.files.get(place.physical)
    if row is None or row.md5 != place.md5:
        raise HistoryGoneError(
            f"{place.physical}: {store.url} does not have it any more: it is forgotten since it "
            "was listed; ask again, about a later time"
        )
    if not state.uploaded_table.parts(row).file:
        return None
    return place_of(store, place.engine, state.uploaded_table.rows[place.physical], row.md5)


def _lacking(state: State) -> tuple[frozenset[str], dict[str, str]]:
    """Of what no commit tells to be in the store: what waits, and what is hidden."""
    parts = state.uploaded_table.parts
    rows = [row for row in state.files.values() if not parts(row).file]
    waiting = frozenset(row.physical for row in rows if row.visible)
    return waiting, {row.physical: row.md5 for row in rows if not row.visible}


def _refuse_hidden(place: StoredPlace, hidden: Mapping[str, str]) -> None:
    """Say of a file that readers do not see any more that it does not come."""
    if hidden.get(place.physical) != place.md5:
        return
    assert place.store is not None
    raise HistoryGoneError(
        f"{place.physical}: readers do not see it any more, and {place.store.url} never had it: it "
        "was deleted, superseded or put in quarantine before it came there. Ask about a later "
        "time; while a receiver has its bytes, this one is answered with dataDirs, or with option "
        "receiver"
    )


def _waits(place: StoredPlace, names: frozenset[str]) -> FileWaitsError:
    others = sorted(names - {place.physical})
    more = ", ".join(others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
    assert place.store is not None
    return FileWaitsError(
        f"{place.physical}: loaded, in no data directory here, and not in {place.store.url} yet"
        + (f"; nor are {len(others)} others: {more}" if others else "")
        + ". Ask again when tsferry-receiver storage status counts none that wait, or let the "
        "receiver give it (option receiver), or say where its data directories are (dataDirs)"
    )
