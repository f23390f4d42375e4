"""Whose a prefix of a store is: one engine's, from its first start with it on.

    centre          {"engine": "<uuid>"}

A second centre that is configured with the same prefix finds it and refuses. It also tells
`restore` which engine there is to be restored.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.errors import DamagedError, NotFoundError
from receiver.metadata.model.errors import FencedError
from receiver.storage.stores.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    OtherStoreError,
)

if TYPE_CHECKING:
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["ForeignPrefixError", "check_prefix", "engine_in", "own_prefix"]

_KEY = "centre"


class ForeignPrefixError(FencedError):
    """The prefix is another engine's."""

    slug = "foreign-prefix"


class _Centre(msgspec.Struct, frozen=True):
    engine: str


def own_prefix(store: ObjectStore, engine: str) -> None:
    """Make the prefix this engine's, or see that it is.

    Raises:
        ForeignPrefixError: it is another's.
    """
    with suppress(ObjectExistsError):
        store.put(_KEY, msgspec.json.encode(_Centre(engine)))
    check_prefix(store, engine)


def check_prefix(store: ObjectStore, engine: str) -> None:
    """See that the prefix is this engine's, as it has been.

    Raises:
        ForeignPrefixError: it is another's.
        OtherStoreError: it is nobody's.
        StoreMissingError: there is no such bucket.
    """
    try:
        found = engine_in(store)
    except NotFoundError as error:
        # A store says of an object alone that it is not there, whatever of its way there is not.
        next(iter(store.objects("")), None)
        raise OtherStoreError(
            f"{error.message}, and this receiver has: it is another store, or not mounted; nothing "
            "is put there"
        ) from error
    if found != engine:
        raise ForeignPrefixError(
            f"{store.url} is the prefix of the engine {found}, this one is {engine}; each "
            "centre needs a prefix of its own"
        )


def engine_in(store: ObjectStore) -> str:
    """The engine whose prefix this is.

    Raises:
        NotFoundError: nobody's.
    """
    try:
        return from_json(store.read(_KEY, 0, 4096), _Centre).engine
    except ObjectMissingError:
        raise NotFoundError(f"{store.url}: no centre has copied anything there") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedError(f"{store.url}/{_KEY}: {error}") from None
