"""Whether a store lets us do what we need, and keeps what it promises.

Every permission is tried, on objects of a name of this check's own, which are removed again. The
two that data rests on are more than permissions: of many that put an object under one key at once
exactly one may win, in one piece and in parts, and what the store says of an object has to be true
of its bytes. A store that fails there is not written to.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from common.errors import TsferryError
from receiver.storage.stores.object_content import BytesContent, ContentChangedError
from receiver.storage.stores.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    StoredObject,
)

__all__ = ["StoreFinding", "check_store"]

_RACERS = 32
_LARGE = (16 << 20) + 4096
"""Bytes of an object that every store puts in parts."""


@dataclass(frozen=True)
class StoreFinding:
    """What one trial came to.

    Attributes:
        need: what was tried, in the words of a store's permissions.
        problem: what was wrong; None if it held.
    """

    need: str
    problem: str | None = None


class _BrokenPromise(Exception):
    """The store answered, and what it did is not what it must do."""


def check_store(store: ObjectStore) -> Iterator[StoreFinding]:
    """Try everything; a trial that needs an earlier one fails with it."""
    trials = _Trials(store, f"check/{uuid.uuid4().hex}/")
    steps: dict[str, Callable[[], None]] = {
        "put an object": trials.put,
        "say its size and digest": trials.head,
        "read a part of it": trials.read,
        "list by prefix": trials.enumerate,
        "never replace an object": trials.replace,
        f"one winner of {_RACERS} that put one key at once": trials.race,
        "put an object in parts, and go on with an attempt": trials.parts,
        "never replace an object by parts": trials.replace_by_parts,
        "drop an attempt": trials.abandon,
        "remove an object": trials.remove,
    }
    for need, step in steps.items():
        try:
            step()
        except (TsferryError, _BrokenPromise) as error:
            yield StoreFinding(need, str(error))
        else:
            yield StoreFinding(need)


class _Stopped(Exception):
    """Raised in the middle of an upload, to leave an attempt behind."""


class _Trials:
    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._small, self._large = f"{prefix}small", f"{prefix}large"
        self._data = os.urandom(1000)
        self._content = BytesContent.of(os.urandom(_LARGE))

    def put(self) -> None:
        self._print = self._store.put(self._small, self._data)

    def head(self) -> None:
        found = self._store.head(self._small)
        if found.size != len(self._data) or found.agrees(self._print) is False:
            raise _BrokenPromise(f"it says {found} of {self._print}")
        self._is_encrypted(found)

    def read(self) -> None:
        if self._store.read(self._small, 100, 50) != self._data[100:150]:
            raise _BrokenPromise("other bytes came back")

    def _is_encrypted(self, found: StoredObject) -> None:
        wanted = self._store.encryption
        if wanted is not None and found.encryption != wanted:
            kept = f"by {found.encryption}" if found.encryption else "as it is"
            raise _BrokenPromise(f"it keeps an object {kept}, where {wanted} was asked for")

    def enumerate(self) -> None:
        keys = [each.key for each in self._store.objects(self._prefix)]
        if keys != [self._small]:
            raise _BrokenPromise(f"it lists {keys}, where {self._small} was put")

    def replace(self) -> None:
        try:
            self._store.put(self._small, b"another")
        except ObjectExistsError:
            return
        raise _BrokenPromise("it replaced an object; conditional writes do not hold")

    def race(self) -> None:
        key = f"{self._prefix}race"

        def put(number: int) -> bool:
            try:
                self._store.put(key, str(number).encode())
            except ObjectExistsError:
                return False
            return True

        with ThreadPoolExecutor(_RACERS) as pool:
            won = [number for number, winner in enumerate(pool.map(put, range(_RACERS))) if winner]
        kept = self._store.read(key, 0, 100)
        self._store.remove(key)
        if [str(number).encode() for number in won] != [kept]:
            raise _BrokenPromise(f"{won} were told that they won, and {kept!r} is kept")

    def parts(self) -> None:
        attempts: list[str] = []
        self._leave(self._large, attempts)
        found = self._store.upload(
            self._large, self._content, {"check": "1"}, resume=attempts[0] if attempts else None
        )
        said = self._store.head(self._large)
        if said.size != found.size or said.agrees(found) is False:
            raise _BrokenPromise(f"it says {said} of {found}")
        if said.about.get("check") != "1":
            raise _BrokenPromise("it forgets what is said of an object")
        self._is_encrypted(said)
        tail = self._store.read(self._large, _LARGE - 100, 100)
        if tail != self._content.data[-100:]:
            raise _BrokenPromise("other bytes came back")

    def replace_by_parts(self) -> None:
        try:
            self._store.upload(self._large, self._content, {})
        except ObjectExistsError:
            return
        raise _BrokenPromise("it replaced an object; conditional writes of parts do not hold")

    def abandon(self) -> None:
        self._leave(f"{self._prefix}dropped", [])
        for attempt in list(self._store.unfinished(self._prefix)):
            self._store.abandon(attempt)
        left = list(self._store.unfinished(self._prefix))
        if left:
            raise _BrokenPromise(f"{left} are still there")

    def remove(self) -> None:
        for key in (self._small, self._large):
            self._store.remove(key)
            try:
                self._store.head(key)
            except ObjectMissingError:
                continue
            raise _BrokenPromise(f"{key} is still there")

    def _leave(self, key: str, attempts: list[str]) -> None:
        """Begin to upload and stop before the second part."""
        sent: list[int] = []

        def pace(size: int) -> None:
            if sent:
                raise _Stopped
            sent.append(size)

        try:
            self._store.upload(
                key, self._content, {"check": "1"}, began=attempts.append, paced=pace
            )
        except (_Stopped, ContentChangedError):
            return
