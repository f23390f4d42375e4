"""The copy of a log in an object store, as a source to follow.

The newest manifest is found by listing behind the one that was seen last. One that is damaged is
passed over for the one before it. The owners are looked at as well: one that has taken over and put
nothing yet may have begun at an earlier moment.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from common.digests import md5
from common.errors import DamagedError, NotFoundError
from receiver.follower.log_source import (
    FetchedBlock,
    LogSource,
    SourceCheckpoint,
    SourceLog,
    SourceSegment,
)
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.storage.stores.incarnation import incarnations
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.owned_prefix import engine_in
from receiver.storage.stores.store_manifests import StoreManifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.storage.stores.object_store import ObjectStore
    from receiver.storage.stores.store_manifests import FilePiece

__all__ = ["FollowedStore"]

_log = logging.getLogger(__name__)
_BLOCK = 8 << 20
_LOOKED_AT = 8
"""Damaged manifests that are passed over, at most."""


class FollowedStore(LogSource):
    """See `LogSource`."""

    waits = False

    def __init__(self, store: ObjectStore) -> None:
        """Take a store, which is closed with this."""
        self.url = store.url
        self.store = store
        self._engine: str | None = None
        self._newest: StoreManifest | None = None

    def look(self, *, lsn: int = 0, ts: int = 0, wait: float = 0.0) -> SourceLog:
        """See `LogSource`; it does not wait."""
        if self._engine is None:
            self._engine = engine_in(self.store)
        made = self._newest = self._find(self._engine)
        owners = incarnations(self.store, self._engine)
        return SourceLog(
            engine=self._engine,
            incarnation=made.incarnation,
            lsn=made.lsn,
            ts=made.ts,
            checkpoints=tuple(
                SourceCheckpoint(each.lsn, each.piece.size) for each in made.checkpoints
            ),
            segments=tuple(
                SourceSegment(each.first_lsn, each.next_lsn, _end(each.pieces))
                for each in made.segments
            ),
            tags_end=_end(made.tags),
            goes_on=None,
            taken_by=max(owners, default=0),
        )

    def _find(self, engine: str) -> StoreManifest:
        before = self._newest
        after = "" if before is None else before.key
        keys = [each.key for each in StoreManifest.listed(self.store, engine, after=after)]
        for key in reversed(keys[-_LOOKED_AT:]):
            try:
                return StoreManifest.read(self.store, key)
            except DamagedError as error:
                _log.warning("a manifest is passed over", extra={"reason": error.message})
        if before is not None:
            return before
        if keys:
            raise DamagedError(f"{self.url}: none of the newest manifests can be read")
        raise NotFoundError(f"{self.url}: there is no manifest of engine {engine}")

    def read(self, found: SourceLog, name: str, begin: int, end: int) -> Iterator[FetchedBlock]:
        """See `LogSource`; of a piece that is read in part its MD5 cannot be told."""
        assert self._newest is not None
        for piece in _files(self._newest)[name]:
            if piece.end <= begin or piece.offset >= end:
                continue
            yield from self._piece(piece, max(begin, piece.offset), min(end, piece.end))

    def _piece(self, piece: FilePiece, begin: int, end: int) -> Iterator[FetchedBlock]:
        digest, at = md5(), begin
        while at < end:
            block = self.store.read(piece.key, at - piece.offset, min(_BLOCK, end - at))
            if not block:
                raise ContentChangedError(f"{self.url}/{piece.key}: it ends too early")
            digest.update(block)
            at += len(block)
            if at == end and end - begin == piece.size and digest.hexdigest() != piece.md5:
                raise ContentChangedError(f"{self.url}/{piece.key}: other bytes than were put")
            yield FetchedBlock(block, at if at == end else begin)

    def close(self) -> None:
        """See `LogSource`."""
        self.store.close()


def _files(made: StoreManifest) -> dict[str, list[FilePiece]]:
    files = {SourceCheckpoint(each.lsn, 0).name: [each.piece] for each in made.checkpoints}
    files |= {
        SourceSegment(each.first_lsn, each.next_lsn, 0).name: each.pieces for each in made.segments
    }
    return files | {TLOG_NAME: made.tags}


def _end(pieces: list[FilePiece]) -> int:
    return pieces[-1].end if pieces else 0
