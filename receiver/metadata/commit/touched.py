"""What a commit looks at and changes, so that commits of one batch do not contradict each other.

All commits of a batch are checked against the same committed state. One that depends on what an
earlier one of the batch does is therefore put off to the next batch.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

__all__ = ["Touched", "TouchedKey"]

TouchedKey = tuple[Hashable, ...]
"""(table, key...) of a row; (path of the device, name or alias) of a series, and of a device (path,
whether its series share one time column)."""


@dataclass(slots=True)
class Touched:
    """Keys of one commit, or of all commits of a batch.

    Attributes:
        read: rows it depends on.
        written: rows it changes.
        shared: what it makes and others may make as well: inner nodes of the tree, of which none
            may make a series, and devices with or without a common time column.
        exclusive: it may change anything, so it is a batch of its own.
        sweeping: and what it does hangs on more than its keys tell. A new storage group only needs
            that there is none, and these are made and deleted alone.
        cost: bytes by which it lets the schema grow, counted only where there is a limit.
        any: of a batch, whether there is a commit in it.
    """

    read: set[TouchedKey] = field(default_factory=set)
    written: set[TouchedKey] = field(default_factory=set)
    shared: set[TouchedKey] = field(default_factory=set)
    exclusive: bool = False
    cost: int = 0
    any: bool = False
    sweeping: bool = False

    def sweep(self) -> None:
        """Something is changed that keys do not tell."""
        self.exclusive = self.sweeping = True

    def leaves_alone(self, judged: Touched) -> bool:
        """Whether what was judged before these holds behind them as well."""
        return not self.exclusive and not judged.sweeping and self._is_apart(judged)

    def allows(self, later: Touched) -> bool:
        """Whether a later commit may be in a batch with these; the first always may."""
        if self.exclusive or (later.exclusive and self.any):
            return False
        return self._is_apart(later)

    def _is_apart(self, later: Touched) -> bool:
        written, shared = self.written, self.shared
        return (
            written.isdisjoint(later.written)
            and (not later.read or written.isdisjoint(later.read))
            and (not later.shared or written.isdisjoint(later.shared))
            and (not shared or (shared.isdisjoint(later.written) and shared.isdisjoint(later.read)))
        )

    def add(self, later: Touched) -> None:
        """Take a commit into the batch."""
        self.written |= later.written
        self.shared |= later.shared
        self.exclusive |= later.exclusive
        self.cost += later.cost
        self.any = True
