"""What holds up the copies, in two ways of saying it.

Operators read the error: address, key, what to do. `/readyz` is open to everybody and names the
kind alone, in words that are the same each time and tell nothing of where the store is.
"""

from __future__ import annotations

from typing import NamedTuple

from common.errors import ConfigError, ConflictError, DamagedError, Integrity, TsferryError
from receiver.metadata.model.errors import FencedError
from receiver.storage.stores.object_store import (
    ClockSkewError,
    ObjectArchivedError,
    OtherStoreError,
    StoreAwayError,
    StoreFailingError,
    StoreForbiddenError,
    StoreFullError,
    StoreMissingError,
    StoreReadOnlyError,
    StoreRefusedError,
)
from receiver.storage.stores.owned_prefix import ForeignPrefixError

__all__ = ["StoreTrouble", "trouble_of"]

_KINDS: dict[type[BaseException], str] = {
    ForeignPrefixError: "the place in the store is another centre's",
    FencedError: "another receiver has taken over, or this machine was turned back",
    StoreMissingError: "the bucket or directory is not there",
    OtherStoreError: "it is not the store that copies were put in",
    StoreReadOnlyError: "the store is read-only for this receiver",
    StoreForbiddenError: "the store knows no such credentials, or they may not do this",
    ClockSkewError: "the clock here and that of the store are too far apart",
    ObjectArchivedError: "an object is in an archive",
    StoreFullError: "the store is full, or its quota is used up",
    StoreFailingError: "the store answers and fails to take anything; it may be full",
    StoreRefusedError: "the store refuses",
    StoreAwayError: "the store is away",
    ConflictError: "the copies are ahead of what is here",
    DamagedError: "something in the store, or in the log here, is damaged",
    Integrity: "something in the store has other bytes than were put",
    ConfigError: "the configuration of the store is not usable",
    OSError: "a disk of this machine fails",
}
"""The first that an error is of; a class stands before those that it is a kind of."""


class StoreTrouble(NamedTuple):
    """Something that is in the way of copies.

    Attributes:
        text: for operators.
        kind: for everybody.
        slug: the same for programs.
    """

    text: str
    kind: str
    slug: str


def trouble_of(error: Exception) -> StoreTrouble:
    """What an error means to the copies."""
    kind = next((_KINDS[each] for each in _KINDS if isinstance(error, each)), None)
    if isinstance(error, TsferryError):
        return StoreTrouble(str(error), kind or "the log of the server says more", error.slug)
    if kind is not None:
        return StoreTrouble(str(error), kind, "disk")
    return StoreTrouble(repr(error), "a fault of this program", "internal")
