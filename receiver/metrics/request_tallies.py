"""What the web counts of requests, and what the node as a whole says, for its measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from common.metering.tallies import Durations, LabelledSums

__all__ = ["NodeStanding", "RequestTallies"]

NO_CALL: Final = "none"
"""In place of the name of a call: the path is that of none."""


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

    def refused(self, call: str | None, status: int) -> None:
        """A request was answered before its body was read; None for no call that there is."""
        self.answered.add(1, call or NO_CALL, f"{status // 100}xx")

    def done(self, call: str | None, status: int, body: int, seconds: float) -> None:
        """A request was answered."""
        self.refused(call, status)
        self.body_bytes.add(body)
        self.seconds.observe(seconds)


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
