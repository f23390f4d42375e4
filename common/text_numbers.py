"""Numbers that come as text from elsewhere: a header, a query, a word of a command, a file's name.

`int` alone takes more than is meant (signs, underscores, spaces, digits of other scripts), and
raises of a text of thousands of digits.
"""

from __future__ import annotations

import email.utils

__all__ = ["retry_after_seconds", "signed_number", "whole_number"]

_INT64 = range(-(1 << 63), 1 << 63)


def whole_number(text: str, digits: int = 19) -> int | None:
    """A number in ASCII digits, without a sign; None for any other text.

    Args:
        text: the number.
        digits: at most, zeros in front included.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def signed_number(text: str) -> int | None:
    """A number of 64 bits in ASCII digits, perhaps behind a minus; None for any other text."""
    number = whole_number(text.removeprefix("-"))
    if number is None:
        return None
    number = -number if text.startswith("-") else number
    return number if number in _INT64 else None


def retry_after_seconds(text: str | None, now: float) -> float | None:
    """Seconds of a `Retry-After`, which is a number or a date; None for any other text.

    Args:
        text: of the header, None where there is none.
        now: seconds since the epoch.
    """
    if not text:
        return None
    seconds = whole_number(text.strip())
    if seconds is not None:
        return float(seconds)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):  # numbers without end are in some
        return None
