"""The process beside the server that compares files: started for a load, and ended with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from receiver.background.side_process import ProcessDied, SideProcess, missing_decoders
from receiver.shared_points.compare_asked import CompareAnswer, CompareAsked

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CompareProcess", "ComparesFiles"]


class ComparesFiles(Protocol):
    """What compares: a process, or a test's own."""

    def ask(self, asked: CompareAsked, stopped: Callable[[], bool]) -> CompareAnswer:
        """Have files compared; what cannot be is told, and no error."""
        ...


class CompareProcess:
    """One for each question: there are few, and no process is kept for them."""

    def __init__(self, *, memory: int) -> None:
        """Prepare.

        Args:
            memory: bytes that it may take.
        """
        self._memory = memory

    def ask(self, asked: CompareAsked, stopped: Callable[[], bool]) -> CompareAnswer:
        """Have files compared; what cannot be is told, and no error."""
        missing = missing_decoders("points are not compared")
        if missing is not None:
            return CompareAnswer(None, missing)
        process: SideProcess[CompareAsked, CompareAnswer] = SideProcess(
            "receiver.shared_points.compare_worker", CompareAnswer, memory=self._memory
        )
        try:
            return process.ask(asked, stopped)
        except ProcessDied as error:
            return CompareAnswer(None, f"the process that compared them died: {error}")
        finally:
            process.close()
