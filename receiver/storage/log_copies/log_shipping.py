"""Copies the engine's files into the store, behind its commits: checkpoints, log, tags.

    <engine>/checkpoints/<incarnation>/<file>.<offset>.<MD5>
    <engine>/log/<incarnation>/<file>.<offset>.<MD5>                a closed segment
    <engine>/log/<incarnation>/<file>.pieces/<file>.<offset>.<MD5>  a piece of the one that grows
    <engine>/tags/<incarnation>/<file>.<offset>.<MD5>               a piece of the tlog

The files are append-only or never changed, so bytes are copied as they are, and only those of
commits that all can see: the store has no frame that the log may still lose. A manifest names what
is there; with it the directory can be made again as of its newest commit, or of any commit behind
its first checkpoint. Of the tlog a copy needs what a checkpoint rests on; the rest the log has.

A new incarnation copies all of its directory anew and names nothing of an earlier one: it may have
begun at a moment behind which that one had gone on. What a manifest has left behind none names
again, whatever still lies in the directory, so who removes what is old needs two of them in a row.

Nothing is kept here but the newest manifest. What was put and is named by none, because the process
died between, lies under a key that the next try finds taken, with the same bytes.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from common import crash
from common.digests import md5, read_blocks
from common.errors import ConflictError, DamagedError
from receiver.metadata.log.checkpoints import checkpoints
from receiver.metadata.log.segments import open_segments, segment_name, segments
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.metadata.model.errors import FencedError
from receiver.storage.stores.confirming import put_confirmed
from receiver.storage.stores.incarnation import check_owner
from receiver.storage.stores.object_content import FileContent
from receiver.storage.stores.store_manifests import (
    CheckpointCopy,
    FilePiece,
    SegmentCopy,
    StoreManifest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.durable import Tree
    from receiver.metadata.engine import Published
    from receiver.metadata.log.checkpoints import Checkpoint
    from receiver.metadata.log.frames import LogReader
    from receiver.metadata.log.segments import Segment
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["ForkedLogError", "LogShipper"]


class ForkedLogError(FencedError):
    """This incarnation has put what is not in the files here."""


class LogShipper:
    """Ships what is new, when it is called; one thread at a time.

    Attributes:
        newest: the newest manifest of this owner, or the one that it goes on from; None before the
            first.
    """

    def __init__(
        self,
        published: Callable[[], Published],
        home: Tree,
        store: ObjectStore,
        owner: Incarnation,
        *,
        shared: int = 0,
    ) -> None:
        """Find out what is in the store.

        Args:
            published: how far the files reach now.
            home: the schema directory.
            store: where the copies go.
            owner: as whom they are put.
            shared: LSN of the last commit that is the one of the incarnation before; 0: not known.

        Raises:
            ForkedLogError: this incarnation has put what is not in the files here.
        """
        self._published = published
        self._home = home
        self._store = store
        self._owner = owner
        self._shared = shared
        self._tried: dict[str, StoreManifest] = {}
        self.newest = StoreManifest.newest(store, owner.engine)
        if self.newest is not None and self._is_forked(self.newest):
            raise ForkedLogError(
                f"{store.url}: the log in the store is not the one here: this machine was turned "
                "back to an earlier state, or is there twice. If it is to go on: "
                "`tsferry-receiver storage takeover`, and start it again"
            )

    def ship(self) -> bool:
        """Copy what was committed since the last time; False if nothing was.

        Raises:
            FencedError: another receiver has taken over.
            ConflictError: the copies are ahead of this directory.
            StoreAwayError, StoreRefusedError: of the store.
        """
        now = self._published()
        before = self._continued(now)
        if before is not None and before.lsn == now.lsn and not self._is_behind(before):
            return False
        check_owner(self._store, self._owner)
        there = segments(self._home)
        kept = self._checkpoints(before, now)
        made = StoreManifest(
            engine=self._owner.engine,
            incarnation=self._owner.number,
            number=1 if before is None else before.number + 1,
            ident=uuid.uuid4().hex,
            parent="" if self.newest is None else self.newest.key,
            parent_lsn=self._shared if before is None else before.lsn,
            lsn=now.lsn,
            ts=now.ts,
            checkpoints=kept,
            segments=self._segments(before, there, now, kept),
            tags=self._tags(before, now, kept),
        )
        crash.point("storage.manifest.before")
        named = self._put(made)
        crash.point("storage.manifest.put")
        check_owner(self._store, self._owner)  # who has taken over since may not have seen it
        self.newest = named
        self._tried.clear()
        return True

    def _put(self, made: StoreManifest) -> StoreManifest:
        """Have a manifest of a number there: this one, or one of a try whose answer was lost.

        Raises:
            ConflictError: it is neither; this owner is not alone.
        """
        self._tried[made.ident] = made
        try:
            made.put(self._store)
        except ConflictError:
            there = self._tried.get(StoreManifest.read(self._store, made.key).ident)
            if there is None:
                raise
            return there  # what came since goes with the next
        return made

    def _is_forked(self, newest: StoreManifest) -> bool:
        """Whether this incarnation has put other commits than those here, as far as can be seen."""
        last = next((each for each in reversed(newest.segments) if each.pieces), None)
        is_own = newest.incarnation == self._owner.number
        if last is None or not is_own or newest.lsn > self._published().lsn:
            return False
        copied = {each.first_lsn for each in newest.segments}
        if any(
            min(copied) < each.first_lsn <= newest.lsn and each.first_lsn not in copied
            for each in segments(self._home)
        ):
            return True  # cut elsewhere: made anew from etcd
        piece = last.pieces[-1]
        try:
            fd = self._home.open_read(segment_name(last.first_lsn))
        except FileNotFoundError:
            return False  # nobody needs it here any more
        try:
            digest = md5()
            for block in read_blocks(fd, start=piece.offset, end=piece.end):
                digest.update(block)
        finally:
            os.close(fd)
        return digest.hexdigest() != piece.md5

    def _continued(self, now: Published) -> StoreManifest | None:
        """The manifest whose copies still count; None for none, as at the begin of an incarnation.

        Raises:
            ConflictError: this log lacks commits that this incarnation has copied.
        """
        before = self.newest
        if before is None or before.incarnation != self._owner.number:
            return None
        if before.lsn > now.lsn:
            raise ConflictError(
                f"{self._store.url} has the log up to LSN {before.lsn}, and here it ends with "
                f"{now.lsn}: this directory is older than the copies, which `restore` makes one of"
            )
        return before

    def _is_behind(self, before: StoreManifest) -> bool:
        """Whether there is a checkpoint that the store lacks."""
        newest = max((each.lsn for each in before.checkpoints), default=0)
        return any(each.lsn > newest for each in checkpoints(self._home))

    # -- checkpoints -------------------------------------------------------------------------

    def _checkpoints(self, before: StoreManifest | None, now: Published) -> list[CheckpointCopy]:
        """Those of the history: from the last one before its begin, where there is one."""
        known = {} if before is None else {each.lsn: each for each in before.checkpoints}
        first = min(known, default=0)
        for each in checkpoints(self._home):
            if each.lsn not in known and first < each.lsn <= now.lsn:
                known[each.lsn] = self._checkpoint(each)
        begin = _base(list(known), now)
        return [known[lsn] for lsn in sorted(known) if lsn >= begin]

    def _checkpoint(self, found: Checkpoint) -> CheckpointCopy:
        return CheckpointCopy(lsn=found.lsn, piece=self._whole("checkpoints", found.name))

    # -- the log -----------------------------------------------------------------------------

    def _segments(
        self,
        before: StoreManifest | None,
        there: list[Segment],
        now: Published,
        kept: list[CheckpointCopy],
    ) -> list[SegmentCopy]:
        known = {} if before is None else {each.first_lsn: each for each in before.segments}
        there = [each for each in there if each.first_lsn >= min(known, default=0)]
        # One that was begun since is of commits that do not count yet.
        there = [each for each in there if each.first_lsn <= now.lsn + 1] or there[:1]
        with open_segments(self._home, there) as readers:
            for reader, found, following in zip(readers, there, [*there[1:], None], strict=True):
                first = found.first_lsn
                if following is None:
                    known[first] = self._grown(reader, found, known.get(first), now)
                elif not _is_whole(known.get(first), following.first_lsn):
                    known[first] = SegmentCopy(
                        first_lsn=first,
                        next_lsn=following.first_lsn,
                        pieces=[self._whole("log", found.name)],
                    )
        begin, newest = _base([each.lsn for each in kept], now), max(known)
        return [
            known[first]
            for first in sorted(known)
            if first == newest or known[first].next_lsn > begin + 1
        ]

    def _grown(
        self, reader: LogReader, found: Segment, copied: SegmentCopy | None, now: Published
    ) -> SegmentCopy:
        """What of a segment that still grows is here, and what came since."""
        pieces = [] if copied is None else list(copied.pieces)
        begin = pieces[-1].end if pieces else 0
        if copied is not None and not reader.go_to(copied.next_lsn, begin):
            if copied.next_lsn <= now.lsn:
                raise DamagedError(
                    f"{found.name}: LSN {copied.next_lsn} does not begin at {begin}, where the "
                    "copy in the store ends"
                )
            return copied
        for lsn, commits, _ in reader.payloads():
            if lsn + commits - 1 > now.lsn:
                break
        if reader.good > begin:
            folder = f"log/{self._owner.number:08}/{found.name}.pieces"
            pieces.append(self._piece(folder, found.name, begin, reader.good))
        return SegmentCopy(first_lsn=found.first_lsn, next_lsn=reader.next_lsn, pieces=pieces)

    # -- tags --------------------------------------------------------------------------------

    def _tags(
        self, before: StoreManifest | None, now: Published, kept: list[CheckpointCopy]
    ) -> list[FilePiece]:
        """The tlog as far as commits go, if there is a checkpoint more that may rest on it."""
        pieces = [] if before is None else list(before.tags)
        known = set() if before is None else {each.lsn for each in before.checkpoints}
        begin = pieces[-1].end if pieces else 0
        if now.tags_end > begin and any(each.lsn not in known for each in kept):
            folder = f"tags/{self._owner.number:08}"
            pieces.append(self._piece(folder, TLOG_NAME, begin, now.tags_end))
        return pieces

    # -- objects -----------------------------------------------------------------------------

    def _whole(self, folder: str, name: str) -> FilePiece:
        """A file that does not change any more."""
        found = self._home.stat(name)
        if found is None:
            raise FileNotFoundError(name)
        return self._piece(f"{folder}/{self._owner.number:08}", name, 0, found.st_size)

    def _piece(self, folder: str, name: str, begin: int, end: int) -> FilePiece:
        """Put a part of a file; its key tells place and content, so one there is the same."""
        fd = self._home.open_read(name)
        try:
            digest = md5()
            for block in read_blocks(fd, start=begin, end=end):
                digest.update(block)
            content = FileContent(fd, end - begin, digest.hexdigest(), begin)
            key = f"{self._owner.engine}/{folder}/{name}.{begin:016}.{content.md5}"
            put_confirmed(self._store, key, content, {})
        finally:
            os.close(fd)
        return FilePiece(key=key, offset=begin, size=content.size, md5=content.md5)


def _base(checkpoints: list[int], now: Published) -> int:
    """LSN of the checkpoint that the begin of the history is reached from; 0: from nothing."""
    return max((lsn for lsn in checkpoints if lsn < now.oldest_lsn), default=0)


def _is_whole(copied: SegmentCopy | None, following: int) -> bool:
    return copied is not None and len(copied.pieces) == 1 and copied.next_lsn == following
