"""What tsferry needs of an object store: immutable objects, each written once and confirmed.

An object is put under a key that only its writer can have, and never replaced. So who finds a key
taken has either been there before, whose answer was lost, or is not alone: the object tells which.

That a store took an object is believed when it says so of the bytes that it keeps: their size, and
a digest that was computed here before they went (`Fingerprint`). A store that knows neither of the
digests is read back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from common.errors import ConflictError, NotFoundError, Permanent, UnreachableError
from receiver.storage.stores.object_content import ObjectContent

__all__ = [
    "ClockSkewError",
    "Fingerprint",
    "ObjectArchivedError",
    "ObjectExistsError",
    "ObjectMissingError",
    "ObjectStore",
    "OtherStoreError",
    "StoreAwayError",
    "StoreFailingError",
    "StoreForbiddenError",
    "StoreFullError",
    "StoreMissingError",
    "StoreReadOnlyError",
    "StoreRefusedError",
    "StoredObject",
    "Unfinished",
]


class ObjectMissingError(NotFoundError):
    """There is no object of this key."""

    slug = "object-missing"


class ObjectExistsError(ConflictError):
    """The key is taken."""

    slug = "object-exists"


class StoreRefusedError(Permanent):
    """The store does not let us, and will not until somebody changes something."""

    slug = "store-refused"


class StoreMissingError(StoreRefusedError):
    """There is no such bucket, or no such directory."""

    slug = "store-missing"


class StoreForbiddenError(StoreRefusedError):
    """The store does not know who asks, or does not let it do this."""

    slug = "store-forbidden"


class StoreReadOnlyError(StoreForbiddenError):
    """The store does not let us put or remove anything."""

    slug = "store-read-only"


class OtherStoreError(StoreRefusedError):
    """What this receiver has put is not there: it is another store, or nothing is mounted."""

    slug = "other-store"


class ClockSkewError(StoreRefusedError):
    """The clocks here and there are too far apart for the store to believe a signature."""

    slug = "store-clock"


class ObjectArchivedError(StoreRefusedError):
    """The object is there, in a class that is not read from: it has to be restored first.

    No word against the object: nobody may conclude from it that bytes are lost or bad.
    """

    slug = "object-archived"


class StoreAwayError(UnreachableError):
    """The store did not answer, or asks to be left alone for a while."""

    slug = "store-away"


class StoreFailingError(StoreAwayError):
    """The store answers, and fails to take what is put; some are full then, and say no more."""

    slug = "store-failing"


class StoreFullError(StoreAwayError):
    """The store, or the quota of the bucket, has no room."""

    slug = "store-full"


@dataclass(frozen=True)
class Fingerprint:
    """What was computed of an object's bytes before they went.

    Attributes:
        size: bytes.
        digests: by the store's own word for them, such as ``etag`` and ``sha256``; what it says
            under one of these words has to be the same.
    """

    size: int
    digests: Mapping[str, str]


@dataclass(frozen=True)
class StoredObject:
    """What a store says of an object.

    Attributes:
        key: below the store's prefix.
        size: bytes.
        modified: when it came, seconds since the epoch by the store's clock.
        digests: of what the store keeps, by its own words; those of a listing lack some.
        about: what its writer said of it; empty in a listing.
        encryption: by which the store keeps it, in its own word; empty in a listing, or for none.
    """

    key: str
    size: int
    modified: float
    digests: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    about: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    encryption: str = ""

    def agrees(self, expected: Fingerprint) -> bool | None:
        """Whether it is what was put; None: the store knows no digest that we know."""
        if self.size != expected.size:
            return False
        known = [word for word in expected.digests if word in self.digests]
        if not known:
            return None
        return all(self.digests[word] == expected.digests[word] for word in known)


@dataclass(frozen=True)
class Unfinished:
    """An object that has come in part.

    Attributes:
        key: what it is to be.
        ident: the store's name for the attempt.
        begun: seconds since the epoch, by the store's clock.
    """

    key: str
    ident: str
    begun: float


class ObjectStore(Protocol):
    """Objects by key, all below one prefix of one bucket.

    Every call may raise `StoreAwayError` and `StoreRefusedError`.
    """

    url: str
    """As it was configured; holds no secret."""
    requests: Mapping[str, int]
    """Sent since it was opened, repeated ones too, by the kinds that have prices: ``put`` (parts
    too), ``list``, ``get``, ``head``, ``delete``. Empty where nobody asks a price."""

    encryption: str | None
    """That the store is asked for with each object, in its own word."""
    knows_digests: bool
    """Whether it says digests of what it keeps."""
    tells_many: bool
    """Whether `agreeing` tells of many objects by few requests."""

    def put(self, key: str, data: bytes) -> Fingerprint:
        """Put a small object, if the key is free.

        Raises:
            ObjectExistsError: it is not.
            ContentChangedError: the bytes were damaged on their way.
        """
        ...

    def upload(
        self,
        key: str,
        content: ObjectContent,
        about: Mapping[str, str],
        *,
        resume: str | None = None,
        began: Callable[[str], None] = lambda _: None,
        paced: Callable[[int], None] = lambda _: None,
    ) -> Fingerprint:
        """Put an object of any size, if the key is free, in parts where it is large.

        Args:
            key: of the object.
            content: its bytes.
            about: what is said of it.
            resume: an attempt of an earlier call; parts that are there already, and are the bytes
                that they should be, are not sent again. Forgotten if the store does not know it.
            began: called with the attempt's name before its first byte goes; what it keeps is
                given as `resume` after a crash.
            paced: called with a number of bytes before they go; may wait, and may raise to stop.

        Raises:
            ObjectExistsError: the key is taken.
            ContentChangedError: the content's MD5 is not the one it should be. Nothing was put.
        """
        ...

    def head(self, key: str) -> StoredObject:
        """What the store says of an object.

        Raises:
            ObjectMissingError: there is none.
        """
        ...

    def agrees(self, key: str, expected: Fingerprint) -> bool | None:
        """Whether an object is what was put, as the store says now; see `StoredObject.agrees`.

        Raises:
            ObjectMissingError: there is none.
        """
        ...

    def agreeing(self, expected: Mapping[str, Fingerprint]) -> set[str]:
        """Those of many objects of which it says in few requests that they are what was put.

        Others may be so, too: `agrees` asks of one.
        """
        ...

    def read(self, key: str, offset: int, length: int) -> bytes:
        """So many bytes at an offset, fewer at the object's end.

        Raises:
            ObjectMissingError: there is none.
        """
        ...

    def objects(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """The objects whose keys begin so, behind a key.

        Those of one folder are in the order of their keys' bytes. SeaweedFS gives ``a/1`` before
        ``a-b``, so nothing may rest on more.
        """
        ...

    def remove(self, key: str) -> None:
        """Remove an object; none is as good."""
        ...

    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        """Attempts to put objects whose keys begin so."""
        ...

    def abandon(self, attempt: Unfinished) -> None:
        """Have the store drop what came of an attempt; none is as good."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
