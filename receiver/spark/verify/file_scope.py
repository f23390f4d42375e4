"""Which committed files and compactions a verification is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.config.units import format_duration

if TYPE_CHECKING:
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["FileScope"]


@dataclass(frozen=True, slots=True)
class FileScope:
    """Which files are asked for; all, if nothing is set.

    Attributes:
        task: only those that this task loaded.
        new: only those without a verdict, or changed since it.
        older_than: only those whose last verdict is more than so many seconds old, or missing.
    """

    task: str | None = None
    new: bool = False
    older_than: float | None = None

    def __str__(self) -> str:
        if self.task is not None:
            return f"task {self.task}"
        if self.new:
            return "new files"
        if self.older_than is not None:
            return f"not verified for {format_duration(self.older_than)}"
        return "all files"

    def wants_merge(self, verified: int, now: float, times: TrueTimes) -> bool:
        """Whether a compaction is among them, whatever of its inputs is; see `wants`."""
        if self.task is not None or (self.new and verified):
            return False
        return self.older_than is None or times.seconds(verified) <= now - self.older_than

    def wants(self, row: FileRow, now: float, times: TrueTimes) -> bool:
        """Whether a file is among them; `now` is in seconds since the epoch."""
        if self.task is not None and row.task != self.task:
            return False
        if self.new and row.verified >= row.changed:
            return False
        return self.older_than is None or times.seconds(row.verified) <= now - self.older_than
