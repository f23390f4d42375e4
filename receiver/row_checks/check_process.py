"""Rows of files are checked by a process beside the server: what a rule does, it does there.

A rule that takes too long is ended with the process, and its file is refused.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from receiver.background.side_process import ProcessDied, SideProcess, missing_decoders
from receiver.row_checks.installed import must_be_installed
from receiver.row_checks.rows_asked import RowsAnswer, RowsAsked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["CheckedRows", "RowChecks"]


class CheckedRows(NamedTuple):
    """A file whose rows are to be checked.

    Attributes:
        path: of its bytes.
        name: that it is called by.
        group: its storage group, or database.
    """

    path: str
    name: str
    group: str


class RowChecks:
    """The constraints of a receiver; any thread may ask, and one at a time is answered."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        memory: int,
        seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            names: of the constraints; none: every row passes.
            memory: bytes that the process may take.
            seconds: that the constraints may take for one file.
            monotonic: seconds.

        Raises:
            UsageError: one is not installed here.
        """
        must_be_installed(names, "load.constraints")
        self._names = list(names)
        self._memory = memory
        self._seconds = seconds
        self._monotonic = monotonic
        self._asking = threading.Lock()

    @property
    def are_any(self) -> bool:
        """Whether there is a constraint."""
        return bool(self._names)

    def first_broken(
        self, files: Iterable[CheckedRows], stopped: Callable[[], bool]
    ) -> tuple[CheckedRows, str, str | None] | None:
        """The first file that has a row which does not pass, why, and the device.

        Args:
            files: taken one by one, as each is checked.
            stopped: asked every half second, whether to stop; then what is left counts as good.
        """
        if not self._names:
            return None
        while not self._asking.acquire(timeout=0.5):
            if stopped():
                return None
        process: SideProcess[RowsAsked, RowsAnswer] = SideProcess(
            "receiver.row_checks.check_worker", RowsAnswer, memory=self._memory
        )
        try:
            for each in files:
                found = self._asked(process, each, stopped)
                if stopped():
                    return None
                if found.broken is not None:
                    return each, found.broken.text, found.broken.device
                if found.unread:
                    return each, f"its rows are not checked: {found.unread}", None
            return None
        finally:
            process.close()
            self._asking.release()

    def _asked(
        self,
        process: SideProcess[RowsAsked, RowsAnswer],
        file: CheckedRows,
        stopped: Callable[[], bool],
    ) -> RowsAnswer:
        missing = missing_decoders("constraints cannot be asked")
        if missing is not None:
            return RowsAnswer(None, missing)
        end = self._monotonic() + self._seconds
        names = ", ".join(self._names)
        try:
            return process.ask(
                RowsAsked(file.path, file.name, file.group, self._names),
                lambda: stopped() or self._monotonic() > end,
            )
        except ProcessDied as error:
            if self._monotonic() > end:
                why = f"{names} took longer than load.constraint_time ({self._seconds:g} s)"
            else:
                why = f"the process that asks {names} died: {error}"
            return RowsAnswer(None, why)
