"""What the web counts of requests, and what the node as a whole says, for its measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from common.tallies import Durations, LabelledSums

__all__ = ["NodeStanding", "RequestTallies"]


@dataclass(frozen=True)
class RequestTallies:
    """What is counted of requests.

    Attributes:
        answered: by call and class of the status.
        seconds: how long they took.
        body_bytes: of their bodies.
    """

    answered: LabelledSums = field(default_factory=LabelledSums)
    seconds: Durations = field(default_factory=Durations)
    body_bytes: LabelledSums = field(default_factory=LabelledSums)


class NodeStanding(NamedTuple):
    """What only the node as a whole can say.

    Attributes:
        problem: why it takes no files; None if it does.
        concerns: how many things do not come through.
        version: of the program.
        behind: of a node that reads, seconds; None of a receiver, and where it is not known.
    """

    problem: str | None
    concerns: int
    version: str
    behind: float | None = None
