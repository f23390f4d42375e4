"""What the server asks the process that checks rows, and what it is answered."""

from __future__ import annotations

import msgspec

__all__ = ["BrokenRow", "RowsAnswer", "RowsAsked"]


class RowsAsked(msgspec.Struct, frozen=True, array_like=True):
    """A file whose rows are to be checked.

    Attributes:
        path: of its bytes.
        name: that it is called by.
        group: its storage group, or database.
        constraints: names of the rules.
    """

    path: str
    name: str
    group: str
    constraints: list[str]


class BrokenRow(msgspec.Struct, frozen=True, array_like=True):
    """The first row that does not pass.

    Attributes:
        constraint: name of the rule.
        device: as the catalogue has it.
        first: time of the row; of several that do not pass together, of the first.
        last: time of the last of these.
        reason: as the rule says it.
    """

    constraint: str
    device: str
    first: int
    last: int
    reason: str

    @property
    def text(self) -> str:
        """For people."""
        when = f"time {self.first}"
        if self.last != self.first:
            when = f"times {self.first} to {self.last}"
        return f"constraint {self.constraint}: device {self.device}, {when}: {self.reason}"


class RowsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What was found.

    Attributes:
        broken: None where all rows pass.
        unread: why rows could not be checked; empty if they could.
    """

    broken: BrokenRow | None
    unread: str = ""
