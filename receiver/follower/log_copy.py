"""A directory with copies of an engine's files: made of a source, and grown as that grows.

    newest good checkpoint -> tags -> the log behind the checkpoint: from here it can be opened
    -> the older segments, one at a time, the newest first: questions about the past need them

The bytes are those of the source, so what was cut off goes on where the file here ends. Nothing is
flushed: all of it has checks, and what a power cut takes is seen and fetched again. A
checkpoint that is damaged or gone is passed over for the one before it, with more of the log. Where
the log is damaged in the middle the copy ends before that, until a newer checkpoint is there.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from common import crash
from common.durable import Tree, temporary_name
from common.errors import DamagedError, NotFoundError
from receiver.follower.log_source import NotContinuedError
from receiver.metadata.log.checkpoints import Checkpoint, checkpoints, open_checkpoint
from receiver.metadata.log.segments import segments
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.storage.stores.object_content import ContentChangedError

if TYPE_CHECKING:
    from pathlib import Path

    from receiver.follower.log_source import (
        LogSource,
        SourceCheckpoint,
        SourceLog,
        SourceSegment,
    )

__all__ = ["LogCopy"]

_log = logging.getLogger(__name__)
_LONG = 100_000
"""Commits between two checkpoints of a copy: the next start has to read them."""
_COMPARED = 16 << 10
"""Bytes at the end of a copy that a receiver is to have too: some dozens of commits."""
_BAD = (DamagedError, ContentChangedError, NotFoundError)
"""What makes a file of the source one that cannot be had."""


class LogCopy:
    """See the module; for one thread at a time.

    Attributes:
        directory: of the copy.
        cut: why the copy ends before its source does, None where it does not.
    """

    def __init__(self, directory: Path, source: LogSource) -> None:
        self.directory = directory
        self.cut: str | None = None
        self._source = source

    def make(self, found: SourceLog) -> None:
        """Make it, in a directory that is not there yet or is empty.

        Raises:
            DamagedError: no checkpoint is good, and the log does not begin with the first commit;
                or nothing of the log can be had.
            UnreachableError: of the source.
        """
        with Tree(self.directory, create=True) as tree:
            base = self._checkpoint(tree, found)
            if base and not self._tags(tree, found):
                # Those before may rest on less of the tlog, and the log has the rest of it.
                for each in found.checkpoints:
                    if each.lsn < base:
                        self._try_checkpoint(tree, found, each)
                base = 0
            crash.point("follow.checkpoint_fetched")
            self._log_behind(tree, found, base)
            if not segments(tree):
                raise DamagedError(f"{self._source.url}: none of the log can be had: {self.cut}")

    def grow(self, found: SourceLog, lsn: int) -> bool:
        """Fetch what came since; whether anything did.

        Args:
            found: at the source.
            lsn: of the last commit here.

        Raises:
            NotContinuedError: what is there does not go on from that.
        """
        with Tree(self.directory) as tree:
            last = segments(tree)[-1].first_lsn
            there = [each for each in found.segments if each.first_lsn >= last]
            if not there or there[0].first_lsn not in (last, lsn + 1):
                raise NotContinuedError(
                    f"{self._source.url}: the log there does not go on from commit {lsn}, where "
                    "this copy ends"
                )
            self._trim(tree, found)
            return self._fetch_log(tree, found, there)

    def renew(self, found: SourceLog, lsn: int) -> None:
        """Fetch a newer checkpoint where the log behind the one here has become long.

        Args:
            found: at the source.
            lsn: of the last commit here.
        """
        with Tree(self.directory) as tree:
            newest = max((each.lsn for each in checkpoints(tree)), default=0)
            if any(newest + _LONG <= each.lsn <= lsn for each in found.checkpoints):
                self._newer_checkpoint(tree, found)

    def fetch_older(self, found: SourceLog) -> bool:
        """Fetch a segment before those that are here; False if there is none to be had."""
        with Tree(self.directory) as tree:
            first = segments(tree)[0].first_lsn
            before = [each for each in found.segments if each.next_lsn == first]
            if not before or before[0].first_lsn == first:
                return False
            try:
                self._whole(tree, found, before[0].name, before[0].size)
            except _BAD as error:
                _log.warning("older log cannot be had", extra={"reason": str(error)})
                return False
            return True

    # -- checkpoints and tags ----------------------------------------------------------------

    def _checkpoint(self, tree: Tree, found: SourceLog) -> int:
        """Fetch the newest good one; its LSN, 0 where the log is whole without any."""
        bad: list[str] = []
        for each in reversed(found.checkpoints):
            why = self._try_checkpoint(tree, found, each)
            if why is None:
                return each.lsn
            bad.append(why)
        if found.segments and found.segments[0].first_lsn == 1:
            return 0
        reasons = "; ".join(bad) or "there is none"
        raise DamagedError(
            f"{self._source.url}: no checkpoint is good, and the log does not begin with the first "
            f"commit: {reasons}"
        )

    def _try_checkpoint(self, tree: Tree, found: SourceLog, each: SourceCheckpoint) -> str | None:
        """Fetch one; why it is no good, None if it is."""
        try:
            self._whole(tree, found, each.name, each.size)
            with open_checkpoint(tree, Checkpoint(each.lsn, each.name)):
                return None
        except _BAD as error:
            _log.warning("a checkpoint is passed over", extra={"reason": str(error)})
            tree.unlink(each.name, sync=False)
            return str(error)

    def _tags(self, tree: Tree, found: SourceLog) -> bool:
        """Fetch what a checkpoint may rest on; whether all of it came."""
        there = tree.stat(TLOG_NAME)
        begin = 0 if there is None else there.st_size
        if begin >= found.tags_end:
            return True
        return self._append(tree, found, TLOG_NAME, begin, found.tags_end) is None

    # -- the log -----------------------------------------------------------------------------

    def _log_behind(self, tree: Tree, found: SourceLog, base: int) -> None:
        wanted = [each for each in found.segments if each.next_lsn > base + 1]
        self._fetch_log(tree, found, wanted or found.segments[-1:])

    def _fetch_log(
        self, tree: Tree, found: SourceLog, wanted: list[SourceSegment] | tuple[SourceSegment, ...]
    ) -> bool:
        """Fetch segments in order, as far as they are good; whether anything came."""
        self.cut, came = None, False
        for each in wanted:
            there = tree.stat(each.name)
            begin = 0 if there is None else there.st_size
            if begin > each.size:
                raise NotContinuedError(
                    f"{self._source.url} has a shorter {each.name} than this copy"
                )
            # One that is here whole is compared where others follow: of these nothing is here yet.
            if begin < each.size or (begin and each is not wanted[-1]):
                self.cut = self._append(tree, found, each.name, begin, each.size)
                after = tree.stat(each.name)
                came = came or (after is not None and after.st_size > begin)
            if self.cut is not None:
                _log.warning("the log cannot be had", extra={"reason": self.cut})
                break
            crash.point("follow.segment_fetched")
        return came

    def _append(self, tree: Tree, found: SourceLog, name: str, begin: int, end: int) -> str | None:
        """Add to a file what the source has; why it stopped early, None if it did not.

        Raises:
            NotContinuedError: it has something else than this copy ends with.
        """
        sound, known = begin, self._end_of(tree, name, begin)
        with tree.open_write(name) if begin else tree.create(name, mode=0o640) as file:
            try:
                for block in self._source.read(found, name, begin - len(known), end):
                    again, data = block.data[: len(known)], block.data[len(known) :]
                    if not known.startswith(again):
                        raise NotContinuedError(
                            f"{self._source.url} has another {name} than the one that was "
                            f"followed: not what this copy has before offset {begin}"
                        )
                    known = known[len(again) :]
                    file.write(data)
                    sound = max(sound, block.sound_to)
                    crash.point("follow.block_written")
            except _BAD as error:
                file.truncate(sound)
                why: str | None = f"{name}: {error}"
            else:
                why = None
        if not sound:
            tree.unlink(name, sync=False)
        return why

    def _end_of(self, tree: Tree, name: str, end: int) -> bytes:
        """What a file ends with here; the source is to have that as well.

        The number of a commit and its time do not say so: of a machine that was restored from an
        older copy, with a clock that stands back, both count on as those of the one before did.
        What a store has is bound to an incarnation, and compared by who puts it there.
        """
        if not end or not self._source.waits:
            return b""
        fd = tree.open_read(name)
        try:
            length = min(end, _COMPARED)
            return os.pread(fd, length, end - length)
        finally:
            os.close(fd)

    def _trim(self, tree: Tree, found: SourceLog) -> None:
        """Let go of segments that the source has let go of, with a checkpoint in their place."""
        first = found.segments[0].first_lsn
        old = [each for each in segments(tree)[:-1] if each.first_lsn < first]
        if not old:
            return
        newest = max((each.lsn for each in checkpoints(tree)), default=0)
        if newest + 1 < first and not self._newer_checkpoint(tree, found):
            return
        for segment in old:
            tree.unlink(segment.name, sync=False)

    def _newer_checkpoint(self, tree: Tree, found: SourceLog) -> bool:
        """Fetch the newest good checkpoint in place of those here; whether there is one."""
        before = checkpoints(tree)
        if not self._tags(tree, found):
            return False
        for each in reversed(found.checkpoints):
            if self._try_checkpoint(tree, found, each) is None:
                for older in before:
                    if older.lsn < each.lsn:
                        tree.unlink(older.name, sync=False)
                return True
        return False

    def _whole(self, tree: Tree, found: SourceLog, name: str, size: int) -> None:
        """Fetch a file under a name that shows it only when all of it is there."""
        temporary = temporary_name()
        try:
            with tree.create(temporary, mode=0o640) as file:
                for block in self._source.read(found, name, 0, size):
                    file.write(block.data)
                if os.fstat(file.fileno()).st_size != size:
                    raise DamagedError(f"{self._source.url}: {name} is shorter than it should be")
            tree.rename(temporary, name, sync=False)
        except BaseException:
            tree.unlink(temporary, sync=False)
            raise
