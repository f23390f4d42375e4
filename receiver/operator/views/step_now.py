"""How far a work of the server is, as it is told over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.wire import Struct

if TYPE_CHECKING:
    from common.console.step_progress import StepProgress

__all__ = ["StepNow"]


class StepNow(Struct, frozen=True, kw_only=True):
    """How far a work is that is not over.

    Attributes:
        step: what is being done, in words.
        done: things of that step that are done with.
        total: of them all; 0 where nobody knows how much it is.
        bytes: of those that are done with.
        total_bytes: of all.
    """

    step: str
    done: int = 0
    total: int = 0
    bytes: int = 0
    total_bytes: int = 0

    @classmethod
    def of(cls, now: StepProgress | None) -> StepNow | None:
        """What is told of a moment, if there is one."""
        return None if now is None else cls(**now._asdict())
