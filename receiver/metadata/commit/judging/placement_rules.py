"""The rules of placements: which follows which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.commit.judging.record_checks import SIGNED_64, refusal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.model import records

__all__ = ["check_placed", "check_released", "check_running"]


def check_placed(op: records.TabletPlaced, generation: int) -> None:
    """Refuse a placement that does not follow the one of `generation`, 0 for none."""
    if op.generation != generation + 1 or op.generation not in SIGNED_64:
        raise refusal_of(op, f"the tablet {op.tablet} is placed by generation {generation}")
    if not op.nodes or len(set(op.nodes)) != len(op.nodes):
        raise refusal_of(op, "there is no node, or one twice")
    if op.leader not in op.nodes:
        raise refusal_of(op, f"{op.leader!a} is to lead, and is none of its nodes")


def check_running(op: records.TabletRunning, generation: int) -> None:
    """Refuse to have a placement run that is not the one of now."""
    if not generation or op.generation != generation:
        raise refusal_of(op, f"the tablet {op.tablet} is placed by generation {generation}")


def check_released(op: records.FileReleased, generation: int, placed: Sequence[str]) -> None:
    """Refuse to have bytes let go for nodes that are not those of the placement of now."""
    if not generation or op.generation != generation:
        raise refusal_of(op, f"the tablet {op.tablet} is placed by generation {generation}")
    if not op.nodes or len(set(op.nodes)) != len(op.nodes):
        raise refusal_of(op, "there is no node, or one twice")
    strange = [each for each in op.nodes if each not in placed]
    if strange:
        raise refusal_of(op, f"the tablet is not placed at {strange[0]!a}")
