"""What of an engine's files is in the store: numbered manifests, each put if its number is free.

    <engine>/manifests/<incarnation, 8 digits>-<number, 12 digits>

A manifest names objects; what it names was in the store before it. It names the one before it, so
a run of them is a history, across incarnations too. It is JSON, and says in `version` how it is to
be read. Who is told that a number is taken reads it back: a manifest with one's own `ident` there
is a put whose answer was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.errors import ConflictError, DamagedError
from receiver.storage.object_store import ObjectExistsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.storage.object_store import ObjectStore, StoredObject

__all__ = [
    "CheckpointCopy",
    "FilePiece",
    "SegmentCopy",
    "StoreManifest",
    "manifests",
    "newest_manifest",
    "put_manifest",
    "read_manifest",
]

_VERSION = 1
_MOST = 64 << 20


class FilePiece(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file, as an object.

    Attributes:
        key: of the object.
        offset: in the file.
        size: bytes.
        md5: of them, hex.
    """

    key: str
    offset: int
    size: int
    md5: str

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.size


class SegmentCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of the log: one piece once it is closed, until then one for each time it grew.

    Attributes:
        first_lsn: of its first commit.
        next_lsn: of the commit behind what is here.
        pieces: without a gap, from offset 0.
    """

    first_lsn: int
    next_lsn: int
    pieces: list[FilePiece]


class CheckpointCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint.

    Attributes:
        lsn: of the last commit in it.
        piece: all of its file.
    """

    lsn: int
    piece: FilePiece


class StoreManifest(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's files as of a commit.

    Attributes:
        engine: uuid of the metadata engine.
        incarnation: that put it.
        number: from 1 up, within the incarnation.
        ident: random; tells a put whose answer was lost from another's.
        parent: key of the manifest before it, which has the incarnation that put that; empty for
            the first of all.
        parent_lsn: up to here the commits are the parent's; 0 where that is not known, as when an
            operator has a machine that was turned back go on.
        lsn: of the newest commit that is in the store.
        ts: its timestamp.
        checkpoints: the newest last; the first serves the begin of the history.
        segments: in order, from behind the first checkpoint on.
        tags: pieces of the tlog.
        version: of this form.
    """

    engine: str
    incarnation: int
    number: int
    ident: str
    parent: str
    lsn: int
    ts: int
    checkpoints: list[CheckpointCopy]
    segments: list[SegmentCopy]
    tags: list[FilePiece]
    parent_lsn: int = 0
    version: int = _VERSION

    @property
    def key(self) -> str:
        """Of its object."""
        return f"{_folder(self.engine)}{self.incarnation:08}-{self.number:012}"

    @property
    def pieces(self) -> list[FilePiece]:
        """All that it names."""
        copies = [each.piece for each in self.checkpoints]
        return [*copies, *(piece for each in self.segments for piece in each.pieces), *self.tags]


def put_manifest(store: ObjectStore, made: StoreManifest) -> None:
    """Put a manifest.

    Raises:
        ConflictError: its number has another one; this owner is not alone.
    """
    try:
        store.put(made.key, msgspec.json.encode(made))
    except ObjectExistsError:
        if read_manifest(store, made.key).ident != made.ident:
            raise ConflictError(
                f"{store.url}/{made.key} is there, and is not of this process"
            ) from None


def newest_manifest(
    store: ObjectStore, engine: str, *, incarnation: int | None = None
) -> StoreManifest | None:
    """The newest one of the highest incarnation; None if there is none.

    Args:
        store: where it is.
        engine: uuid of the metadata engine.
        incarnation: of this one in place of the highest.
    """
    newest = ""
    own = "" if incarnation is None else f"{incarnation:08}-"
    for found in store.objects(f"{_folder(engine)}{own}"):
        newest = found.key
    return read_manifest(store, newest) if newest else None


def manifests(store: ObjectStore, engine: str, *, after: str = "") -> Iterator[StoredObject]:
    """The manifests of an engine as the store lists them, the oldest first; those behind a key."""
    return store.objects(_folder(engine), after=after)


def read_manifest(store: ObjectStore, key: str) -> StoreManifest:
    """Read a manifest.

    Raises:
        DamagedError: it is none.
        ObjectMissingError: it is not there.
    """
    data = store.read(key, 0, _MOST)
    try:
        found = from_json(data, StoreManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(f"{store.url}/{key} is no manifest: {error}") from None
    if found.version != _VERSION:
        raise DamagedError(
            f"{store.url}/{key} has version {found.version}; this program reads {_VERSION}"
        )
    return found


def _folder(engine: str) -> str:
    return f"{engine}/manifests/"
