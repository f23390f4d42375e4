"""Taking checkpoints of a running engine, and letting go of what they replace.

    new segment -> freeze -> flush the tlog -> write, rename, read back -> older checkpoints
    -> segments that neither a kept checkpoint nor the history needs
    -> what was packed for it stands for the rows of files in memory

Commits wait for the first two, and for each some of the rows, some milliseconds; all else goes on
beside them. A crash anywhere
leaves a directory that opens: nothing is removed before what replaces it is proven.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from common import crash
from common.allocated import give_back
from common.errors import NoSpaceError, ReadOnlyError, StoppedError
from receiver.metadata.log.checkpoints import (
    KEPT,
    checkpoint_name,
    remove_older,
    write_checkpoint,
)
from receiver.metadata.log.freeze import freeze
from receiver.metadata.log.segments import remove_before, segments
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.metadata.schema import room

if TYPE_CHECKING:
    from collections.abc import Iterator

    from common.durable import Tree
    from receiver.metadata.commit.committer import Committer
    from receiver.metadata.log.appending import Appender
    from receiver.metadata.log.checkpoints import Checkpoint
    from receiver.metadata.log.freeze import FrozenState
    from receiver.metadata.model.remote_log import RemoteLog
    from receiver.metadata.state.history_window import HistoryWindow
    from receiver.metadata.state.lock import Reading
    from receiver.metadata.state.table_rows import FileRow

__all__ = [
    "Snapshots",
]


_AT_ONCE = 500
"""Rows that are packed while commits wait: some milliseconds."""


class Snapshots:
    """Takes checkpoints, one at a time.

    Attributes:
        newest: LSN of the newest one, 0 for none.
        newest_bytes: its size.
        tags_end: where the published entries of the tlog end; kept up to date by the engine.
    """

    def __init__(
        self,
        tree: Tree,
        reading: Reading,
        window: HistoryWindow,
        committer: Committer,
        appender: Appender,
        *,
        newest: int,
        tags_end: int,
        remote: RemoteLog | None = None,
    ) -> None:
        self.newest = newest
        self.newest_bytes = _size_of(tree, newest)
        self.tags_end = tags_end
        self._tree = tree
        self._reading = reading
        self._window = window
        self._committer = committer
        self._appender = appender
        self._remote = remote
        self._one = threading.RLock()

    @property
    def entries(self) -> int:
        """Commits since the newest checkpoint."""
        return self._window.lsn - self.newest

    @property
    def log_bytes(self) -> int:
        """Bytes of the segment that is being written; each checkpoint begins one."""
        return self._appender.log.size

    @property
    def log_place(self) -> tuple[int, int]:
        """(first LSN of the segment that is being written, its bytes)."""
        return self._appender.log.first_lsn, self._appender.log.size

    def take(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Take a checkpoint, unless nothing is new; returns its LSN.

        Args:
            stopped: asked now and then whether to give up.

        Raises:
            StoppedError: it was given up.
            ReadOnlyError: the engine takes no commits any more, and no checkpoints either.
            NoSpaceError: the disk is full; what was there stays.
            FailedSyncError: see `common.durable`.
        """
        with self._one:
            if self._committer.failed is not None:
                raise ReadOnlyError(f"no checkpoint is taken: {self._committer.failed}")
            if self.entries:
                self._take(stopped)
                give_back()  # what was copied for it, and the rows that are packed now
            return self.newest

    def _take(self, stopped: Callable[[], bool]) -> None:
        self._committer.between_batches(self._appender.rotate)
        with self._reading as state:
            size = state.schema.frozen_bytes()
        # Writers wait for the copy alone: memory for it is there before.
        frozen = self._freeze(room(size))
        crash.point("checkpoint.frozen")
        # Its entries are in the file, or their commits would not be published. The file may grow
        # meanwhile: a flush takes what it finds.
        self._flush_tags(frozen.lsn)
        crash.point("checkpoint.tlog_flushed")
        made = write_checkpoint(self._tree, frozen.lsn, _until(stopped, frozen))
        self.newest, self.newest_bytes = made.lsn, _size_of(self._tree, made.lsn)
        if self._remote is not None:
            self._put(made)
        self.let_go()
        with suppress(ReadOnlyError):  # rows stay as they are; the checkpoint is a good one
            self._adopt(frozen, stopped)

    def _flush_tags(self, lsn: int) -> None:
        self._committer.between_batches(self._appender.mend_tags)
        try:
            self._appender.tlog.sync()
        except NoSpaceError:
            # What is in memory alone may be gone from there too: readers need it.
            with suppress(NoSpaceError):
                self._committer.between_batches(self._appender.mend_tags)
            raise
        self._appender.flushed = lsn

    def _freeze(self, memory: mmap.mmap) -> FrozenState:
        with self._reading as state:
            return freeze(
                state,
                memory,
                lsn=self._window.lsn,
                commits=self._window.commits,
                tags_end=self.tags_end,
                segment=self._appender.log.first_lsn,
                oldest=self._window.oldest,
            )

    def _adopt(self, frozen: FrozenState, stopped: Callable[[], bool]) -> None:
        """Let what was packed for the checkpoint stand for the rows in memory, some at a time."""
        packed = frozen.packed
        assert packed is not None

        def adopt() -> None:
            with self._reading.writing() as state:
                state.file_table.adopt(frozen.files, packed)

        self._committer.between_batches(adopt)
        numbered = zip(packed.numbers, packed.rows, strict=True)
        while (some := list(islice(numbered, _AT_ONCE))) and not stopped():
            self._committer.between_batches(partial(self._be_packed, some))
        self._committer.between_batches(self._shrink)

    def _be_packed(self, rows: list[tuple[int, FileRow]]) -> None:
        with self._reading.writing() as state:
            state.file_table.be_packed(rows)

    def _shrink(self) -> None:
        with self._reading.writing() as state:
            state.file_table.shrink()

    def _put(self, made: Checkpoint) -> None:
        assert self._remote is not None
        names = (made.name, TLOG_NAME)
        self._remote.put_checkpoint(made.lsn, {name: self._tree.path / name for name in names})
        # The last commit stays: by it a directory is compared with the remote log.
        self._remote.trim(made.lsn - 1)

    def let_go(self) -> None:
        """Remove what nobody needs any more; as long as there is one checkpoint, no log goes."""
        with self._one:
            kept = remove_older(self._tree)
            if len(kept) < KEPT:
                return
            needed = min(kept[-1].lsn, self._window.lsn_after(self._window.oldest) - 1)
            remove_before(self._tree, segments(self._tree), needed)


def _size_of(tree: Tree, lsn: int) -> int:
    found = tree.stat(checkpoint_name(lsn)) if lsn else None
    return found.st_size if found is not None else 0


def _until(
    stopped: Callable[[], bool], frozen: FrozenState
) -> Iterator[tuple[str, bytes | memoryview]]:
    for each in frozen.sections():
        if stopped():
            raise StoppedError("the checkpoint was given up; it is taken after the next start")
        yield each
