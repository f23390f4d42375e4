"""A machine whose clocks go wrong, and what the time truly is."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from receiver.metadata.clock.machine_clock import MachineClock

__all__ = ["WrongMachine"]


@dataclass
class WrongMachine:
    """The time as nobody in the machine knows it, and what its clocks make of it.

    Attributes:
        true: what the time is, seconds since the epoch.
        error: by which the wall clock is wrong.
        booted: the time of the last boot.
        boot_id: of that boot.
        synchronised: whether the kernel says so.
    """

    true: float = 1_900_000_000.0
    error: float = 0.0
    booted: float = 1_899_999_900.0
    boot_id: str = field(default_factory=lambda: secrets.token_hex(4))
    synchronised: bool = False

    @property
    def clock(self) -> MachineClock:
        """What a process that is started now gets."""
        booted, boot_id = self.booted, self.boot_id
        return MachineClock(
            lambda: self.true + self.error,
            lambda: self.true - booted,
            boot_id,
            lambda: self.synchronised,
        )

    def passes(self, seconds: float) -> None:
        """Time goes by."""
        self.true += seconds

    def is_set(self, error: float) -> None:
        """Somebody sets the wall clock; the kernel then no longer calls it synchronised."""
        self.error = error
        self.synchronised = False

    def synchronises(self) -> None:
        """NTP comes through."""
        self.error = 0.0
        self.synchronised = True

    def reboots(self, *, off: float, error: float) -> None:
        """It is off for a time; what its clock shows then is what its battery made of it."""
        self.true += off
        self.booted = self.true
        self.boot_id = secrets.token_hex(4)
        self.is_set(error)
