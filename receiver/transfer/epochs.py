"""Epochs: one for each task of a sender, so that two machines under one uuid are noticed.

An epoch is `<n>.<random>`. The receiver keeps the current one and the one before it; what each
start may come with is in docs/protocol.md, and decided here without any disk or clock. A number is
never given twice, not even after an operator's `accept`, so a clone that was left behind stays
behind.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from common.errors import CloneError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.state.table_rows import SenderRow

__all__ = [
    "EpochStanding",
    "Step",
    "accept",
    "is_accepting",
    "is_removed",
    "is_used_up",
    "must_be_current",
    "number_of",
    "remove",
    "standing",
    "start",
]

_EPOCH = re.compile(r"([1-9][0-9]{0,17})\.([0-9a-z]{1,32})\Z")
_FARTHEST = 10**15
"""No sender gets here by itself (a task a second for 30 million years)."""
_ACCEPT = "accept"
_REMOVED = "removed"


class EpochStanding(Enum):
    """What an epoch says of the one who brings it."""

    GOOD = "good"
    AHEAD = "ahead"
    """It has seen an epoch that this receiver never gave, or has lost."""
    CLONE = "clone"


@dataclass(frozen=True)
class Step:
    """What a start makes of a sender's epochs; `fresh` is False where nothing changes."""

    current: str
    previous: str | None
    fresh: bool


def number_of(epoch: str | None) -> int:
    """The number in an epoch, 0 for none.

    Raises:
        ProtocolError: it is no epoch.
    """
    if epoch is None:
        return 0
    found = _EPOCH.match(epoch)
    if found is None or int(found[1]) > _FARTHEST:
        raise ProtocolError(f"{epoch[:60]!a} is no epoch")
    return int(found[1])


def standing(row: SenderRow | None, given: str | None) -> EpochStanding:
    """How an epoch looks before anybody starts a task with it."""
    number = number_of(given)
    if row is not None and is_removed(row):
        return EpochStanding.CLONE
    if row is None or row.epoch is None:
        return EpochStanding.AHEAD if number else EpochStanding.GOOD
    if number > number_of(row.epoch):
        return EpochStanding.AHEAD
    if given in (row.epoch, row.previous) or is_accepting(row):
        return EpochStanding.GOOD
    return EpochStanding.CLONE


def is_used_up(row: SenderRow | None, given: str | None) -> bool:
    """Whether whoever brings it is a copy: the one behind it was used by who was given that."""
    if row is None or row.epoch is None or is_accepting(row):
        return False
    return row.confirmed and given == row.previous


def start(
    row: SenderRow | None,
    given: str | None,
    task: str,
    *,
    random: Callable[[], str] = lambda: secrets.token_hex(8),
) -> Step:
    """The epochs after a start of `task` with the epoch `given`.

    Raises:
        CloneError: the epoch was used by another machine.
    """
    found = standing(row, given)
    if found is EpochStanding.CLONE:
        raise clone(row)
    if row is None or row.epoch is None or found is EpochStanding.AHEAD or is_accepting(row):
        known = 0 if row is None else number_of(row.epoch)
        number = max(known, number_of(given)) + 1
        return Step(f"{number}.{random()}", given, fresh=True)
    if row.epoch_task == task:
        return Step(row.epoch, row.previous, fresh=False)
    if given == row.previous and row.confirmed:
        raise clone(row)
    number = number_of(row.epoch) + 1
    return Step(f"{number}.{random()}", given, fresh=True)


def accept(row: SenderRow) -> str:
    """The epoch that lets whoever comes next continue, whatever it brings."""
    return f"{number_of(row.epoch) + 1}.{_ACCEPT}"


def remove(row: SenderRow) -> str:
    """The epoch that lets nobody continue, until an operator accepts the sender again."""
    return f"{number_of(row.epoch) + 1}.{_REMOVED}"


def is_removed(row: SenderRow) -> bool:
    """Whether an operator removed a sender."""
    return row.epoch is not None and row.epoch.endswith(f".{_REMOVED}")


def is_accepting(row: SenderRow) -> bool:
    """Whether an operator lets in whoever comes next."""
    return row.epoch is not None and row.epoch.endswith(f".{_ACCEPT}")


def must_be_current(row: SenderRow | None, given: str | None) -> None:
    """Check the epoch of a call that belongs to a running task.

    Raises:
        CloneError: another start has happened since.
        ProtocolError: there is none.
    """
    if given is None:
        raise ProtocolError("the header Tsferry-Epoch is missing")
    number_of(given)
    if row is None or row.epoch != given:
        raise clone(row)


def clone(row: SenderRow | None) -> CloneError:
    """The error, with the way out."""
    uuid = "this uuid" if row is None else f"uuid {row.uuid}"
    if row is not None and is_removed(row):
        return CloneError(
            f"the sender with {uuid} was removed by an operator; to let it in again: "
            "tsferry-receiver senders accept"
        )
    return CloneError(
        f"two machines speak under {uuid}: the epoch that came was used up by another start. If "
        "this machine is a copy of another, run `tsferry-sender init --new-identity` on it. If it "
        "is the only one (its state was lost or restored), or the copy has its own identity by "
        "now, run `tsferry-receiver senders accept` with that uuid."
    )
