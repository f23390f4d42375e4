"""Which boot of which machine this is, and for how long: a clock that nobody sets."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["boot_id", "boot_seconds"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's, also in a container; one of our own where it tells none: nothing fits it."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return f"unknown-{os.urandom(8).hex()}"


def boot_seconds() -> float:
    """Since the boot, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
