"""Makes the schema directory of an engine again from its copies in a store.

It is built beside its place, flushed, and moved there whole, so a restore that is cut off leaves
nothing that an engine would open. Each piece is compared with the MD5 of the manifest. As of an
earlier moment, the log is cut behind the last commit by then, in the middle of a frame if need be.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from common import crash
from common.console.step_progress import StepCounter, untold
from common.digests import md5
from common.durable import Tree
from common.errors import ConflictError, DamagedError, NotFoundError
from receiver.metadata.log.checkpoints import checkpoint_name
from receiver.metadata.log.frames import LogReader, encode_frame, encode_payload
from receiver.metadata.log.segments import segment_name
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.metadata.model import records
from receiver.metadata.model.records import encode_ops
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.store_manifests import StoreManifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from common.console.step_progress import ToldProgress
    from receiver.metadata.model.records import Commit
    from receiver.storage.stores.object_store import ObjectStore
    from receiver.storage.stores.store_manifests import FilePiece

__all__ = ["DeletionsBehind", "RestoredMetadata", "restore_metadata"]

_BLOCK = 8 << 20


class RestoredMetadata(NamedTuple):
    """What a directory was made of.

    Attributes:
        manifest: the one that was followed.
        lsn: of the last commit that is in it.
        ts: its timestamp; 0 if it is only known that it is that of the checkpoint.
        deleted: physical paths of files that an operator deleted behind that commit, as far as
            the store has heard: they are not deleted any more.
    """

    manifest: StoreManifest
    lsn: int
    ts: int
    deleted: Sequence[str] = ()


def restore_metadata(
    store: ObjectStore,
    engine: str,
    directory: Path,
    *,
    at: int | None = None,
    take_over: bool = False,
    told: ToldProgress = untold,
) -> RestoredMetadata:
    """Make a schema directory.

    Args:
        store: where the copies are.
        engine: uuid of the metadata engine.
        directory: which must not be there, or be empty.
        at: timestamp of the last commit that may be in it; None for all there is.
        take_over: as the owner of what is in the store, before anybody can serve it.
        told: called with each piece that is read.

    Raises:
        NotFoundError: there is no manifest, or none that reaches back so far.
        ConflictError: something is in the directory.
        FencedError: somebody else took over at the same moment.
        DamagedError, ContentChangedError: a copy is not what its manifest says.
    """
    if directory.exists() and any(directory.iterdir()):
        raise ConflictError(f"{directory} is not empty; a restore never replaces anything")
    beside = f"{directory.name}.restoring"
    with Tree(directory.parent, create=True) as parent:
        manifest = _newest(store, engine)
        while True:
            for left, _ in list(parent.files(beside)) if parent.exists(beside) else ():
                parent.unlink(left, sync=False)
            with Tree(directory.with_name(beside), create=True) as tree:
                found = _Restore(store, manifest, tree, told).run(at)
                if take_over:
                    next_incarnation(store, tree, engine)
                    crash.point("storage.restore.taken")
                tree.sync_dir()
            # What the old owner put until it was fenced off is its word, too.
            newest = _newest(store, engine)
            if not take_over or newest.key == manifest.key:
                break
            manifest = newest
        parent.remove_empty(directory.name)
        parent.rename(beside, directory.name, replace=False)
        crash.point("storage.restore.placed")
    return found


def _newest(store: ObjectStore, engine: str) -> StoreManifest:
    manifest = StoreManifest.newest(store, engine)
    if manifest is None:
        raise NotFoundError(
            f"{store.url}: no copy of the log of engine {engine} is there: its machine was lost "
            "before the first one had come. Nothing can be made of that; begin a new receiver with "
            "a prefix of its own, and its senders send it what they have"
        )
    return manifest


class DeletionsBehind:
    """What an operator deleted, by commits that are no part of what is made."""

    def __init__(self) -> None:
        """Begin with none."""
        self._loaded: set[str] = set()
        self._deleted: dict[str, None] = {}
        self._rests: dict[str, Sequence[str]] = {}

    def take(self, commits: Iterable[Commit]) -> None:
        """Take commits in, in their order."""
        for op in (op for commit in commits for op in commit.ops):
            match op:
                case records.FileLoaded():
                    self._loaded.add(op.physical)
                case records.FileDeleted(reason="operator" | "everywhere"):
                    self._deleted[op.physical] = None
                case records.FileUndeleted():
                    self._deleted.pop(op.physical, None)
                case records.FileSuperseded():
                    self._rests[op.physical] = op.rests
                case records.FileRevived():
                    self._rests.pop(op.physical, None)

    def found(self) -> list[str]:
        """Those of which nothing was loaded behind the moment; and what was within them."""
        gone = dict(self._deleted)
        for physical, rests in reversed(self._rests.items()):
            if all(each in gone for each in rests):
                gone[physical] = None
        return sorted(gone.keys() - self._loaded)


class _Restore:
    def __init__(
        self, store: ObjectStore, manifest: StoreManifest, tree: Tree, told: ToldProgress
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._tree = tree
        pieces = list(manifest.pieces)
        size = sum(each.size for each in pieces)
        self._deleted = DeletionsBehind()
        self._counter = StepCounter("pieces of the log", len(pieces), size, told)

    def run(self, at: int | None) -> RestoredMetadata:
        lsn, ts = self._log(at)
        by_then = [each for each in self._manifest.checkpoints if each.lsn <= lsn]
        first = self._manifest.segments[0].first_lsn
        # What the first checkpoint holds may be later than the moment, if no commit behind it is.
        if first > 1 and (not by_then or (at is not None and lsn < first)):
            raise NotFoundError(
                f"{self._store.url}: the copies begin behind commit {first - 1}; there is no "
                "checkpoint from before the moment that was asked for"
            )
        for each in by_then:
            self._write(checkpoint_name(each.lsn), [each.piece])
        if self._manifest.tags and by_then:
            self._write(TLOG_NAME, self._manifest.tags)
        return RestoredMetadata(self._manifest, lsn, ts, self._deleted.found())

    def _log(self, at: int | None) -> tuple[int, int]:
        """Write the segments up to a moment; LSN and timestamp of the last commit."""
        lsn, ts = self._manifest.lsn, self._manifest.ts
        cut: tuple[int, int] | None = None
        for each in self._manifest.segments:
            name = segment_name(each.first_lsn)
            self._write(name, each.pieces)
            if at is None:
                lsn = each.next_lsn - 1
            elif cut is None:
                cut = self._cut(name, at)
            else:  # it is no part of what is made, and tells what an operator deleted meanwhile
                self._hear(name)
                self._tree.unlink(name)
        return cut or (lsn, ts)

    def _hear(self, name: str) -> None:
        """Take in what a segment says that is all behind the moment."""
        fd = self._tree.open_read(name)
        try:
            for _, frame in LogReader(fd, name).frames():
                self._deleted.take(frame)
        finally:
            os.close(fd)

    def _cut(self, name: str, at: int) -> tuple[int, int] | None:
        """End a segment behind the last commit by a moment; None if all of it is by then."""
        fd = self._tree.open_read(name)
        try:
            reader = LogReader(fd, name)
            last, found = 0, None
            for offset, frame in reader.frames():
                kept = [commit for commit in frame if commit.ts <= at]
                if found is not None or len(kept) < len(frame):
                    self._deleted.take(frame[len(kept) :])
                if found is not None:
                    continue
                if len(kept) == len(frame):
                    last = frame[-1].ts
                    continue
                content = os.pread(fd, offset, 0)
                if kept:
                    content += _frame_of(reader, kept)
                    last = kept[-1].ts
                found = reader.next_lsn + len(kept) - 1, last
                self._tree.write_atomic(name, content, mode=0o640)
        finally:
            os.close(fd)
        return found

    def _write(self, name: str, pieces: Sequence[FilePiece]) -> None:
        end = 0
        with self._tree.create(name, mode=0o640) as file:
            for piece in pieces:
                if piece.offset != end:
                    raise DamagedError(f"{self._manifest.key}: {name} lacks what begins at {end}")
                for block in self._blocks(piece):
                    file.write(block)
                end = piece.end
                self._counter.done(piece.size)
            file.sync()

    def _blocks(self, piece: FilePiece) -> Iterator[bytes]:
        digest, at = md5(), 0
        while at < piece.size:
            block = self._store.read(piece.key, at, min(_BLOCK, piece.size - at))
            if not block:
                break
            digest.update(block)
            at += len(block)
            yield block
        if digest.hexdigest() != piece.md5:
            raise ContentChangedError(f"{self._store.url}/{piece.key}: other bytes than were put")


def _frame_of(reader: LogReader, commits: Sequence[Commit]) -> bytes:
    payload = encode_payload(
        [(commit.ts, encode_ops(commit.ops), commit.tags_at) for commit in commits]
    )
    return encode_frame(reader.salt, reader.next_lsn, payload)
