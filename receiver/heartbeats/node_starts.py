"""Which of two starts of a node is the newer one, and whether they are of the same node at all.

A directory that was copied, or restored from a copy, has the uuid of the one that it was copied of.
Numbers alone do not tell them apart: a copy that is started twice is as far as the other one. So a
start has a random id too, and a node remembers those of its last starts. A start whose past lacks
the one that the master knows is of a copy that went its own way, whatever its number is.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from common.errors import CloneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.heartbeats.node_wire import NodeStart

__all__ = ["KnownStart", "StartStanding", "node_clone", "start_standing"]


class KnownStart(NamedTuple):
    """The newest start of a node that the master knows.

    Attributes:
        instance: its number.
        boot: its random id; empty where an operator lets any start go on.
    """

    instance: int
    boot: str


class StartStanding(Enum):
    """What a start is to the one that is known."""

    NEW = "new"
    """Nothing is known of the node, or it goes on from any start."""
    SAME = "same"
    RESTARTED = "restarted"
    STALE = "stale"
    """It is older: a process that was given up, a copy, or a directory that was restored."""
    CLONE = "clone"
    """It is of a copy: the number is taken by another one, or its past is another one."""
    BEHIND = "behind"
    """Any start may go on, but the number of this one is too low."""


def start_standing(
    known: KnownStart | None, given: NodeStart, before: Sequence[str]
) -> StartStanding:
    """What a start is to the one that is known.

    Args:
        known: the newest one that was taken, None for none.
        given: the one that speaks.
        before: random ids of the starts before that one.
    """
    if known is None:
        return StartStanding.NEW
    if not known.boot:
        return StartStanding.NEW if given.instance > known.instance else StartStanding.BEHIND
    if given.instance < known.instance:
        return StartStanding.STALE
    if given.instance == known.instance:
        return StartStanding.SAME if given.boot == known.boot else StartStanding.CLONE
    # A start keeps its id where an operator has its number raised: a master that was restored from
    # a copy of before knows the lower one.
    goes_on = known.boot == given.boot or known.boot in before
    return StartStanding.RESTARTED if goes_on else StartStanding.CLONE


def node_clone(standing: StartStanding, known: KnownStart, given: NodeStart) -> CloneError:
    """The error that says so, with the way out."""
    what = "an older start" if standing is StartStanding.STALE else "a copy"
    return CloneError(
        f"start {given.instance} of the node {given.uuid} is of {what}: start {known.instance} is "
        "the one that is known. If another process has this node's directory, or a copy of it, end "
        "the one that is wrong. If this one was restored from a copy and is to go on: "
        f"tsferry-receiver nodes accept {given.uuid}"
    )
