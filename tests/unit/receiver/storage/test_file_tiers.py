"""Which of the store and the receiver a file is read from, and for how long the other is left."""

from __future__ import annotations

from typing import Any, cast

import pytest

from common.errors import TsferryError
from receiver.storage.reading.file_tiers import FileTiers, NoTierError, ShutStores
from receiver.storage.reading.receiver_reads import ReceiverReads
from receiver.storage.reading.stored_place import StoreAddress, StoredPlace
from receiver.storage.stores.object_store import (
    ObjectArchivedError,
    ObjectMissingError,
    ObjectStore,
    StoreAwayError,
    StoreForbiddenError,
)

ADDRESS = StoreAddress("file:///bucket")


class Store:
    """Gives every object, but for those that it refuses."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refused: dict[str, TsferryError] = {}

    def read(self, key: str, offset: int, length: int) -> bytes:
        self.asked.append(key)
        if key in self.refused:
            raise self.refused[key]
        return b"store"


class Receiver:
    """Gives every file."""

    url = "http://centre"

    def read(self, physical: str, offset: int, length: int) -> bytes:
        return b"receiver"

    def digests(self, physical: str) -> bytes:
        return b"digests"


class Tiers:
    def __init__(self) -> None:
        self.now = 0.0
        self.store = Store()
        self.shut = ShutStores(lambda: self.now)

    def of(self, name: str, *, receiver: bool = True) -> FileTiers:
        place = StoredPlace(ADDRESS, name, 5, "", "", physical=name)
        asked = cast(ReceiverReads, Receiver()) if receiver else None
        return FileTiers(place, lambda _: cast(ObjectStore, self.store), asked, self.shut)

    def read(self, name: str, **more: Any) -> bytes:
        return self.of(name, **more).read(name, 0, 5)


@pytest.fixture
def tiers() -> Tiers:
    return Tiers()


def test_of_an_archived_object_the_store_is_asked_once_a_minute_and_of_others_always(
    tiers: Tiers,
) -> None:
    tiers.store.refused["one"] = ObjectArchivedError("archived")
    assert [tiers.read(name) for name in ("one", "two", "one", "two")] == [
        b"receiver",
        b"store",
        b"receiver",
        b"store",
    ]
    assert tiers.of("one").told_digests() == b"digests"
    assert tiers.of("two").told_digests() is None
    assert tiers.store.asked == ["one", "two", "two", "two"]
    del tiers.store.refused["one"]
    tiers.now = 61
    assert tiers.read("one") == b"store"


@pytest.mark.parametrize("error", [StoreAwayError("away"), StoreForbiddenError("no")])
def test_a_store_that_gives_nothing_is_left_alone_for_a_minute(
    tiers: Tiers, error: TsferryError
) -> None:
    tiers.store.refused["one"] = error
    assert [tiers.read(name) for name in ("one", "two")] == [b"receiver", b"receiver"]
    assert tiers.store.asked == ["one"]
    tiers.now = 61
    assert tiers.read("two") == b"store"


def test_without_a_receiver_the_error_is_the_stores_and_nothing_is_left_alone(tiers: Tiers) -> None:
    tiers.store.refused["one"] = ObjectArchivedError("archived")
    for _ in range(2):
        with pytest.raises(ObjectArchivedError):
            tiers.read("one", receiver=False)
    assert tiers.store.asked == ["one", "one"]


def test_what_neither_has_is_told_of_both(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    def has_none(*_: object) -> bytes:
        raise ObjectMissingError("it has none")

    monkeypatch.setattr(Receiver, "read", has_none)
    tiers.store.refused["one"] = ObjectArchivedError("archived")
    with pytest.raises(NoTierError, match=r"archived; and not from the receiver: it has none"):
        tiers.read("one")
