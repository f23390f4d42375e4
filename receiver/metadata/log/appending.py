"""Where a batch goes before anybody is told of it: remote log, tlog, log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from common.errors import ReadOnlyError, TsferryError
from receiver.metadata.log.frames import encode_payload
from receiver.metadata.log.segments import behind, open_segments, segment_name, segments
from receiver.metadata.model.errors import UnknownOutcomeError
from receiver.metadata.model.tag_layout import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.durable import Tree
    from receiver.metadata.log.frames import LogReader, LogWriter
    from receiver.metadata.log.tlog import Tlog
    from receiver.metadata.model.remote_log import RemoteLog

__all__ = ["Appender"]


class _Batch(NamedTuple):
    payload: bytes
    commits: int
    tags: bytes


class Appender:
    """The logs of an engine that is open for writing; used by one thread at a time.

    Attributes:
        flushed: LSN of a commit; the tlog has been flushed with its entries and all before.
    """

    def __init__(
        self,
        tree: Tree,
        log: LogWriter,
        tlog: Tlog,
        remote: RemoteLog | None = None,
        *,
        flushed: int = 0,
    ) -> None:
        """Take over logs that were read to their ends.

        Args:
            tree: the schema directory.
            log: the last segment.
            tlog: the tlog.
            remote: where batches go first.
            flushed: see the class.
        """
        self.flushed = flushed
        self.log = log
        self.tlog = tlog
        self._tree = tree
        self._remote = remote
        self._unknown: _Batch | None = None
        self._mending = False

    @property
    def tags_end(self) -> int:
        """Where the next entries of the tlog go."""
        return self.tlog.end

    def append(self, commits: Sequence[tuple[int, bytes, int]], tags: bytes) -> None:
        """Make a batch last.

        Args:
            commits: see `encode_payload`.
            tags: their entries of the tlog.

        Raises:
            NoSpaceError: it is nowhere; so with the other errors of `AppendFile.append`.
            UnreachableError: the remote log does not answer, the batch is nowhere.
            UnknownOutcomeError: `settle` comes before anything else.
        """
        batch = _Batch(encode_payload(commits), len(commits), tags)
        if tags:
            self.mend_tags()
            self.tlog.write(tags)
        if self._remote is None:
            self._append(batch)
            return
        try:
            self._remote.append(self.log.next_lsn, batch.commits, batch.payload)
        except UnknownOutcomeError:
            self._unknown = batch
            raise
        self._follow(batch)

    def settle(self) -> bool:
        """Whether the batch of the `UnknownOutcomeError` is kept; then it is in all logs.

        Raises:
            UnreachableError: it still cannot be told.
        """
        assert self._remote is not None
        kept = self._remote.settle()
        batch, self._unknown = self._unknown, None
        if batch is None or not kept:
            return False
        if batch.tags:
            self.mend_tags()
            self.tlog.write(batch.tags)
        self._follow(batch)
        return True

    def mend_tags(self) -> None:
        """Where a flush of the tlog found no room, write from the log what may be gone with it.

        Raises:
            NoSpaceError: there still is none; it is tried again.
            DamagedError: the log is damaged.
        """
        if not self.tlog.lost and not self._mending:
            return
        self._mending = True
        self.tlog.begin_again()
        with open_segments(self._tree, behind(segments(self._tree), self.flushed)) as readers:
            for reader in readers:
                self._write_again(reader)
        self._mending = False

    def _write_again(self, reader: LogReader) -> None:
        for _, frame in reader.frames():
            for lsn, commit in enumerate(frame, reader.next_lsn):
                laid = layout(commit.ops, commit.tags_at) if commit.tags_at >= 0 else None
                if laid is not None and lsn > self.flushed:
                    self.tlog.write_again(commit.tags_at, laid.content)

    def rotate(self) -> bool:
        """Go on in a new segment; see `LogWriter.rotate`."""
        return self.log.rotate(self._tree, segment_name(self.log.next_lsn))

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        self.tlog.close()

    def _append(self, batch: _Batch) -> None:
        self.log.append(batch.payload, batch.commits)
        self.tlog.advance(len(batch.tags))

    def _follow(self, batch: _Batch) -> None:
        """The batch is kept in the remote log: the local one has it too, or takes no more."""
        try:
            self._append(batch)
        except TsferryError as error:
            raise ReadOnlyError(
                f"a commit is in the remote log and could not be written here: {error}; it counts, "
                "and is there after the next start"
            ) from error
