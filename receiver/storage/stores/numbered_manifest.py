"""Manifests in the store: numbered, each put if its number is free, and read back by its key.

    <engine>/<folder>/<incarnation, 8 digits>-<number, 12 digits><ending>

A manifest names objects; what it names was in the store before it. It names the one before it, so
a run of them is a history, across incarnations too. It is JSON, and says in `version` how it is to
be read. Who is told that a number is taken reads it back: a manifest with one's own `ident` there
is a put whose answer was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

from common.decoders import from_json
from common.errors import ConflictError, DamagedError
from receiver.storage.stores.object_store import ObjectExistsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.storage.stores.object_store import ObjectStore, StoredObject

__all__ = ["NumberedManifest"]

_VERSION = 1
_MOST = 64 << 20

_M = TypeVar("_M", bound="NumberedManifest")


class NumberedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What manifests of an engine have in common; those of each kind have a folder.

    Attributes:
        FOLDER: below the engine.
        ENDING: of their keys.
        engine: uuid of the metadata engine.
        incarnation: that put it.
        number: from 1 up, within the incarnation.
        ident: random; tells a put whose answer was lost from another's.
        parent: key of the manifest before it, which has the incarnation that put that; empty for
            the first of all.
        ts: of the newest commit in what it names.
        version: of this form.
    """

    FOLDER: ClassVar[str]
    ENDING: ClassVar[str] = ""

    engine: str
    incarnation: int
    number: int
    ident: str
    parent: str
    ts: int
    version: int = _VERSION

    @property
    def key(self) -> str:
        """Of its object."""
        return f"{self.engine}/{self.FOLDER}/{self.incarnation:08}-{self.number:012}{self.ENDING}"

    def put(self, store: ObjectStore) -> None:
        """Put it.

        Raises:
            ConflictError: its number has another one; this owner is not alone.
        """
        try:
            store.put(self.key, msgspec.json.encode(self))
        except ObjectExistsError:
            if self.read(store, self.key).ident != self.ident:
                raise ConflictError(
                    f"{store.url}/{self.key} is there, and is not of this process"
                ) from None

    @classmethod
    def listed(cls, store: ObjectStore, engine: str, *, after: str = "") -> Iterator[StoredObject]:
        """Those of an engine as the store lists them, the oldest first; those behind a key."""
        return store.objects(f"{engine}/{cls.FOLDER}/", after=after)

    @classmethod
    def newest_key(cls, store: ObjectStore, engine: str) -> str:
        """Of the newest one of the highest incarnation; empty if there is none."""
        newest = ""
        for found in cls.listed(store, engine):
            newest = found.key
        return newest

    @classmethod
    def newest(cls: type[_M], store: ObjectStore, engine: str) -> _M | None:
        """The newest one of the highest incarnation; None if there is none.

        Raises:
            DamagedError: it cannot be read.
        """
        key = cls.newest_key(store, engine)
        return cls.read(store, key) if key else None

    @classmethod
    def read(cls: type[_M], store: ObjectStore, key: str) -> _M:
        """Read one.

        Raises:
            DamagedError: it is none, or that of another key.
            ObjectMissingError: it is not there.
        """
        data = store.read(key, 0, _MOST)
        try:
            found = from_json(data, cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DamagedError(f"{store.url}/{key} is no manifest: {error}") from None
        if found.version != _VERSION or found.key != key:
            raise DamagedError(
                f"{store.url}/{key} is {found.key} of version {found.version}; this program reads "
                f"{_VERSION}"
            )
        return found
