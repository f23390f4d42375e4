"""What the configuration and a round say of how to plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common.wire import Propagate
from sender.config import SenderConfig
from sender.plan.task_plan import TaskLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from sender.select.found import LocalDeletions

__all__ = ["PlanOptions"]


class PlanOptions(msgspec.Struct, frozen=True):
    """What the configuration and this round say.

    Attributes:
        propagate: what a gone file means at the receiver.
        task_max_files: files of one task.
        task_max_bytes: bytes of one task.
        task_most: what a receiver takes in one task, of files and of ends.
        accept_source: the operator says that this node has all that it should have, this time.
        anew: the list begins anew: the receiver's operator says that this sender was restored.
        resources: whether the receiver takes resources without their files.
        applies: whether readers at the receiver are to leave out what is deleted.
        hold_deletions: why no deletion may travel in this round; None if they may.
    """

    propagate: Propagate = Propagate.REPLACED
    task_max_files: int = 1000
    task_max_bytes: int = 4 << 30
    task_most: int = 200_000
    accept_source: bool = False
    hold_deletions: str | None = None
    anew: bool = False
    applies: bool = True
    resources: bool = False

    @classmethod
    def of(
        cls,
        config: SenderConfig,
        *,
        accept_source: bool = False,
    ) -> PlanOptions:
        """As the configuration has it."""
        return cls(
            Propagate(config.propagate_deletes),
            config.task_max_files,
            config.task_max_bytes,
            accept_source=accept_source,
            applies=config.deletion_files == "apply",
        )

    def limits(self, parts: Callable[[LocalDeletions], int]) -> TaskLimits:
        """What a task may have.

        Args:
            parts: in how many a deletion file is told.
        """
        files = min(self.task_max_files, self.task_most)
        return TaskLimits(files, self.task_max_bytes, self.task_most, parts)
