"""The source of what a centre loads without an edge: it stands where senders do, and is none."""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["CENTRE", "centre_uuid", "is_centre"]

CENTRE: Final = "centre"
"""What it is called where senders are."""
_HEAD: Final = "0" * 16
"""No sender has such a uuid: theirs are random, with the version of that kind in the 13th digit."""


def centre_uuid(engine: str) -> str:
    """The uuid of the source of a centre's own loads, by that of its engine: always the same."""
    return _HEAD + hashlib.sha256(f"{CENTRE}\n{engine}".encode()).hexdigest()[:16]


def is_centre(uuid: str) -> bool:
    """Whether a uuid is that of a centre's own loads, this one's or another's."""
    return uuid.startswith(_HEAD)
