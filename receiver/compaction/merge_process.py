"""The process beside the server that merges files, and what it answers with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from common.errors import NoSpaceError, by_slug
from receiver.background.side_process import SideProcess
from receiver.compaction.worth_merging.merge_asked import MergeAnswer
from receiver.metadata.model.records.record_parts import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.compaction.worth_merging.merge_asked import MergeAsked

__all__ = ["MergeProcess", "MergeRefused", "MergeReply", "MergesFiles"]


class MergesFiles(Protocol):
    """What merges: a process, or a test's own."""

    def ask(
        self, asked: MergeAsked, stopped: Callable[[], bool], paused: Callable[[], bool]
    ) -> MergeAnswer:
        """Have files merged; see `MergeProcess.ask`."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class MergeRefused(Exception):
    """These files are not to be merged, as they are now; the message says why."""


class MergeReply(Record, frozen=True):
    """An answer, or why there is none.

    Attributes:
        answer: None where it failed.
        slug: of the error that it failed by.
        why: in words.
        died: whether the process that merged ended over it.
    """

    answer: MergeAnswer | None
    slug: str = ""
    why: str = ""
    died: bool = False


class MergeProcess:
    """Started when it is asked for the first time; ended by `close`, or by itself without us."""

    def __init__(self, *, memory: int) -> None:
        """Prepare.

        Args:
            memory: bytes that it may take.
        """
        self._process: SideProcess[MergeAsked, MergeReply] = SideProcess(
            "receiver.compaction.making.merge_worker", MergeReply, memory=memory
        )

    def ask(
        self, asked: MergeAsked, stopped: Callable[[], bool], paused: Callable[[], bool]
    ) -> MergeAnswer:
        """Have files merged; see `SideProcess.ask`.

        Raises:
            NoSpaceError: the disk is full.
            MergeRefused: the files are not to be merged.
            ProcessDied: there is no answer; or we are to stop.
        """
        reply = self._process.ask(asked, stopped, paused)
        if reply.answer is None:
            if by_slug(reply.slug) is NoSpaceError:
                raise NoSpaceError(reply.why)
            raise MergeRefused(reply.why)
        return reply.answer

    def close(self) -> None:
        """End the process."""
        self._process.close()
