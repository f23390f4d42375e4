"""How much a sender deletes of a storage group within a window of time, which commits begin."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records

if TYPE_CHECKING:
    from receiver.config import DeletesConfig
    from receiver.metadata.state.state import State

__all__ = ["DeleteWindow"]


class DeleteWindow:
    """What was counted before, and in the commit at hand."""

    def __init__(self, state: State, sender: str, limits: DeletesConfig) -> None:
        """Begin with what is committed.

        Args:
            state: committed.
            sender: whose deletes.
            limits: of the configuration.
        """
        self._state = state
        self._sender = sender
        self._limits = limits
        self._counted: Counter[str] = Counter()

    def add(self, group: str, count: int) -> None:
        """So many files of a group are deleted that nothing explains."""
        self._counted[group] += count

    def too_much(
        self,
        group: str,
        puzzling: int,
        more: int,
        *,
        going: int,
        arriving: bool = False,
        visible: int | None = None,
    ) -> str | None:
        """Why files may not be deleted now, None if they may.

        Args:
            group: storage group of them.
            puzzling: how many of them nothing explains.
            more: that are deleted besides.
            going: how many of what is there go.
            arriving: whether others come.
            visible: how many are there; None: as many as are listed.
        """
        if not puzzling:
            return None
        fraction = self._limits.max_fraction
        if fraction >= 1:
            return None
        listed, before = self._since_begin(group)
        if visible is not None:  # records hide points of files that are listed no more, too
            listed = max(listed, visible)
        count = before + self._counted[group] + more + puzzling
        if listed >= self._limits.from_files and count > fraction * listed:
            return (
                f"{count} of {listed} files within {_hours(self._limits.window)}, and nothing "
                f"explains it: more than deletes.max_fraction = {fraction:g} allows"
            )
        there = self.there(group) if visible is None else visible
        if not arriving and going >= there:
            return "nothing of the storage group would be left"
        return None

    def _since_begin(self, group: str) -> tuple[int, int]:
        """(files listed when the window began, how many of them were deleted since)."""
        row = self._state.delete_windows.rows.get((self._sender, group))
        if row is None or self._is_over(row.begun):
            return self.there(group), 0
        return row.listed, row.count

    def _is_over(self, begun: int) -> bool:
        # Each task begins with a commit: the newest one is as late as this will be, and no clock
        # that was set meanwhile ends a window early.
        seconds = self._state.clock.times.seconds
        return seconds(self._state.newest) - seconds(begun) >= self._limits.window

    def there(self, group: str, *, held: bool = True) -> int:
        """How many visible files of a group the sender has; without `held` unlisted ones, too."""
        return self._state.file_table.count_in(group, self._sender, held=held)

    def counted(self) -> tuple[list[records.Op], list[Guard]]:
        """What is to be committed of it, and the guards on what that was decided by."""
        ops: list[records.Op] = []
        guards: list[Guard] = []
        for group, count in self._counted.items():
            if not count:
                continue
            row = self._state.delete_windows.rows.get((self._sender, group))
            begins = row is None or self._is_over(row.begun)
            listed = self.there(group) if begins else None
            ops.append(records.DeletesCounted(self._sender, group, count, listed))
            seen = 0 if row is None else row.changed
            guards.append(Guard("delete_window", (self._sender, group), seen))
        return ops, guards


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:g} h"
