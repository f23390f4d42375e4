"""How files are called that a merge at the centre made: before they are final, and after."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_merged"]

_NAME: Final = re.compile(r"merged-[0-9]+-[0-9]+\.tsfile\Z")
"""No file that was loaded is called so: each has a tag."""


def is_merged(physical: str) -> bool:
    """Whether a file is called as merges call what they make."""
    return _NAME.match(physical.rpartition("/")[2]) is not None
