"""The clocks of this machine, and whether its kernel calls them right."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from common.boot import boot_id

__all__ = ["MachineClock"]

_TIME_ERROR = 5
_STA_UNSYNC = 0x40
_TIMESYNC = Path("/run/systemd/timesync/synchronized")
_LONGEST_POLL = 3600.0
"""systemd-timesyncd asks at least every 34 minutes, and touches its file each time."""


@dataclass(frozen=True, slots=True)
class MachineClock:
    """What a machine has of clocks; called it gives the time of the wall clock.

    Attributes:
        wall: seconds since the epoch; anybody may set it.
        boot: seconds that nobody sets and that stand still in no sleep; begins anew at each boot.
        boot_id: of this boot, whose `boot` it is.
        synchronised: whether the kernel calls the wall clock synchronised now.
    """

    wall: Callable[[], float]
    boot: Callable[[], float]
    boot_id: str = ""
    synchronised: Callable[[], bool] = lambda: False

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self.wall()

    @classmethod
    def of(cls, wall: Callable[[], float], boot: Callable[[], float] | None = None) -> Self:
        """That of a wall clock: this machine's, or one that is handed in.

        Args:
            wall: `time.time`, a clock of this kind (which is given back), or another one.
            boot: goes with it; without, this machine's, or the wall clock that is handed in.
        """
        if isinstance(wall, cls):
            return wall
        if wall is not time.time:
            return cls(wall, boot or wall)
        return cls(wall, boot or _boot_time, boot_id(), kernel_is_synchronised)


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _Timex(ctypes.Structure):
    """`struct timex`, as far as it is read here, with room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    )


def kernel_is_synchronised() -> bool:
    """Whether something keeps this machine's clock right, NTP or PTP, as the kernel has it.

    `adjtimex` only asks here, which needs no right and works in containers. The kernel ends the
    state by itself, when the clock is set by hand and when no correction has come for hours. Where
    the call is forbidden, systemd-timesyncd's file tells the same.
    """
    answer = _ask_kernel()
    if answer is not None:
        return answer
    try:
        age = time.time() - _TIMESYNC.stat().st_mtime
    except OSError:
        return False
    return 0 <= age <= _LONGEST_POLL


def _ask_kernel() -> bool | None:
    call = _adjtimex()
    if call is None:
        return None
    timex = _Timex()
    state = int(call(ctypes.byref(timex)))
    if state < 0:
        return None
    return state != _TIME_ERROR and not timex.status & _STA_UNSYNC


@functools.cache
def _adjtimex() -> Callable[..., int] | None:
    try:
        return ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return None
