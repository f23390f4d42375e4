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
from receiver.storage.object_store import ObjectExistsError, ObjectMissingError

if TYPE_CHECKING:
    from receiver.storage.object_store import ObjectStore

__all__ = ["check_prefix", "engine_in", "own_prefix"]

_KEY = "centre"


class _Centre(msgspec.Struct, frozen=True):
    engine: str


def own_prefix(store: ObjectStore, engine: str) -> None:
    """Make the prefix this engine's, or see that it is.

    Raises:
        FencedError: it is another's.
    """
    with suppress(ObjectExistsError):
        store.put(_KEY, msgspec.json.encode(_Centre(engine)))
    check_prefix(store, engine)


def check_prefix(store: ObjectStore, engine: str) -> None:
    """See that the prefix is this engine's, as it has been.

    Raises:
        FencedError: it is another's.
        NotFoundError: it is nobody's.
    """
    found = engine_in(store)
    if found != engine:
        raise FencedError(
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
