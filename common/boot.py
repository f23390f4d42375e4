"""Which boot of which machine this is."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["boot_id"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's, also in a container; one of our own where it tells none: nothing fits it."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return f"unknown-{os.urandom(8).hex()}"
