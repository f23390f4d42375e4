"""What the configuration and a round say of how to plan."""

from __future__ import annotations

from dataclasses import dataclass

from common.wire import Propagate
from sender.config import SenderConfig

__all__ = ["PlanOptions"]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the configuration and this round say.

    Attributes:
        propagate: what a gone file means at the receiver.
        max_delete_fraction: of the listed files; more unexplained deletions are held back.
        guard_from_files: the shortest list that this guards.
        task_max_files: files of one task.
        task_max_bytes: bytes of one task.
        allow_mass_delete: the operator lets unexplained deletions through, this time.
        hold_deletions: why no deletion may travel in this round; None if they may.
    """

    propagate: Propagate = Propagate.REPLACED
    max_delete_fraction: float = 0.5
    guard_from_files: int = 10
    task_max_files: int = 1000
    task_max_bytes: int = 4 << 30
    allow_mass_delete: bool = False
    hold_deletions: str | None = None

    @classmethod
    def of(
        cls,
        config: SenderConfig,
        *,
        allow_mass_delete: bool = False,
        hold_deletions: str | None = None,
    ) -> PlanOptions:
        """As the configuration has it."""
        return cls(
            Propagate(config.propagate_deletes),
            config.max_delete_fraction,
            config.guard_from_files,
            config.task_max_files,
            config.task_max_bytes,
            allow_mass_delete,
            hold_deletions,
        )
