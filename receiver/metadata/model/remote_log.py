"""Where the engine keeps its commits besides its own directory, and what it asks of that place.

A remote log has the frames of the local one, in the same order: what is in the schema directory
can be made anew from it. One engine at a time may append; another that takes over fences it off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from common.errors import TsferryError

__all__ = ["RemoteCheckpoint", "RemoteLog", "RemoteNotes"]


class RemoteCheckpoint(Protocol):
    """A checkpoint that is whole in the remote place."""

    @property
    def lsn(self) -> int:
        """The last commit that is in it."""

    @property
    def files(self) -> Mapping[str, int]:
        """Names of its files, as they were put, with their sizes in bytes."""

    def read(self, name: str) -> Iterator[bytes]:
        """The content of a file, in pieces of at most 1 MiB, each checked.

        Raises:
            DamagedError: a piece is gone, or not what was put.
            UnreachableError: the remote place does not answer.
        """


class RemoteNotes(Protocol):
    """Small things that have to outlive the machine and are no commits; for several threads.

    Both may raise `UnreachableError`: it may be written then, or not. It may be written again.
    """

    def note(self, name: str) -> bytes | None:
        """What was noted under a name, None for nothing."""

    def put_note(self, name: str, content: bytes) -> None:
        """Note something in the place of what was noted under this name.

        Raises:
            FencedError: another receiver has taken over; nothing was written.
        """


class RemoteLog(RemoteNotes, Protocol):
    """The log in a remote place. LSNs count from 1; a frame covers one or more of them.

    Not for several threads at once, but for `put_checkpoint` and `trim`, which may run beside
    `append`. Every method but `close` may raise `UnreachableError`: nothing was changed then, and
    nothing will be; the call may be made again. All that change something may raise `FencedError`:
    another receiver has taken over, and nothing that this one writes counts any more. Whether a
    frame without an answer came before that, only the other one can tell.
    """

    def acquire(self, *, wait: float | None = None) -> None:
        """Become the one that appends; called once, before all else.

        Args:
            wait: seconds to wait for the end of another receiver; None for as long as one that has
                died could seem to be alive.

        Raises:
            LockedError: another receiver holds it, and did so until the wait was over.
        """

    @property
    def trouble(self) -> str | None:
        """Why nothing can be appended, as was seen a moment ago; None while all is well.

        Asks nobody, and may be read by any thread.
        """

    def displaced(self) -> TsferryError | None:
        """Why another receiver may append by now, and this one not know of it; None: none can.

        A `FencedError` where one has. Asks nobody, and may be called by any thread.
        """

    @property
    def uuid(self) -> str | None:
        """Identity of the engine whose log this is; None in a place where none has been."""

    def begin(self, uuid: str, after: int = 0) -> None:
        """Make this the log of an engine, in a place without commits (`newest() == 0`).

        Until a frame is appended it is such a place still, for whoever opens it next.

        Args:
            uuid: of the engine.
            after: LSN that it goes on behind; a checkpoint of that or later was put before.

        Raises:
            ConflictError: there are commits already.
        """

    def newest(self) -> int:
        """LSN of the last commit, 0 without any."""

    def oldest(self) -> int:
        """First LSN that `frames` can begin with; `newest() + 1` where none is kept."""

    def frames(self, first_lsn: int) -> Iterator[tuple[int, bytes]]:
        """(first LSN, payload) of the frame that holds `first_lsn`, and of all behind it.

        Raises:
            DamagedError: a frame is gone (trimmed, for one), or not what was put.
        """

    def append(self, first_lsn: int, commits: int, payload: bytes) -> None:
        """Add a frame; returns when it is kept, whole.

        Args:
            first_lsn: of the frame: `newest() + 1`.
            commits: how many are in it.
            payload: as in the local log.

        Raises:
            ConflictError: `first_lsn` is not the next one.
            UnreachableError: it is not kept, and will not be.
            UnknownOutcomeError: it may be kept or not. `settle` has to say which before anything
                else is appended.
        """

    def settle(self) -> bool | None:
        """Whether the frame whose `append` raised `UnknownOutcomeError` is kept.

        Returns:
            True: it is; False: it is not and never will be; None: there is no such frame. The
            answer is given once.

        Raises:
            UnreachableError: it still cannot be told.
        """

    def put_checkpoint(self, lsn: int, files: Mapping[str, Path]) -> None:
        """Keep a checkpoint in place of the one before, which stays until this one is whole.

        Args:
            lsn: the last commit that is in it.
            files: its files by name. Pieces of them that are kept already are not sent again, so
                a file that only grew costs what it grew by.
        """

    def checkpoint(self) -> RemoteCheckpoint | None:
        """The newest whole checkpoint."""

    def trim(self, lsn: int) -> None:
        """Drop the frames whose commits are all at or below `lsn`.

        Raises:
            ConflictError: no checkpoint stands in for them.
        """

    def close(self) -> None:
        """Let another receiver take over at once; closing twice is harmless."""
