"""Sizes, rates and durations as people write them.

The suffixes of sizes follow rsync: ``K`` and ``KiB`` are 1024 bytes, ``KB`` is 1000.
"""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = [
    "format_duration",
    "format_rate",
    "format_size",
    "parse_duration",
    "parse_rate",
    "parse_size",
]

_LARGEST = 2**63 - 1
"""Nothing that is counted in bytes here may leave a signed 64-bit number."""
_LONGEST_S = 100 * 366 * 86400
"""A hundred years: longer is a slip of the keyboard, and would overflow timers."""

_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE_UNITS = (
    {"": 1, "b": 1}
    | {name.lower(): factor for name, factor in _BINARY.items()}
    | {name[0].lower(): factor for name, factor in _BINARY.items()}
    | {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
)
_BIT_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_DURATION_UNITS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
    "w": Decimal(7 * 86400),
}

# Bounded digits: a length from a stranger never decides how much is worked out.
_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,9})?"
_AMOUNT = re.compile(rf"({_NUMBER})\s*([a-z]*)")
_DURATION = re.compile(rf"(?:{_NUMBER}\s*[a-z]+\s*)+")
_DURATION_PART = re.compile(rf"({_NUMBER})\s*([a-z]+)")


def parse_size(value: object) -> int:
    """Bytes from ``4096``, ``"4096"``, ``"4 MiB"``, ``"1.5GiB"``, ``"10MB"``.

    Raises:
        ValueError: not a size, not a whole number of bytes, or beyond 2^63 - 1.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole(Decimal(value) if abs(value) <= _LARGEST else Decimal(-1))
    if not isinstance(value, str):
        raise ValueError("not a size")
    number, unit = _amount(value.strip().lower())
    if unit not in _SIZE_UNITS:
        raise ValueError(f"{unit!r} is no unit of size")
    return _whole(number * _SIZE_UNITS[unit])


def format_size(size: int) -> str | int:
    """The shortest exact form, which `parse_size` reads back: ``"4MiB"``, ``1000``."""
    for name, factor in reversed(_BINARY.items()):
        if size and size % factor == 0:
            return f"{size // factor}{name}"
    return size


def parse_rate(value: object) -> int:
    """Bytes a second from ``"10MiB/s"``, ``"8Mbit/s"``, ``"10MiB"`` or a number.

    Zero is refused: to some tools it means no limit, to others a stop.

    Raises:
        ValueError: not a rate, or less than a byte a second.
    """
    rate = _rate(value)
    if rate < 1:
        raise ValueError("a rate is at least one byte a second")
    return rate


def _rate(value: object) -> int:
    if not isinstance(value, str):
        return parse_size(value)
    text = value.strip().lower().removesuffix("/s").rstrip()
    number, unit = _amount(text)
    if unit in _BIT_UNITS:
        return _whole(number * _BIT_UNITS[unit] / 8)
    return parse_size(text)


def format_rate(rate: int) -> str | int:
    """The shortest exact form, which `parse_rate` reads back: ``"10MiB/s"``."""
    size = format_size(rate)
    return f"{size}/s" if isinstance(size, str) else size


def parse_duration(value: object) -> float:
    """Seconds from ``"30s"``, ``"1h30m"``, ``"500ms"``, ``"7d"``, ``1.5`` or ``"1.5"``.

    Units are ms, s, m (or min), h, d, w, in lower case only: ``5M`` may mean a month.

    Raises:
        ValueError: not a duration, negative, or longer than a hundred years.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("not a duration")
    if isinstance(value, str):
        seconds = _spoken_duration(value.strip())
    elif 0 <= value <= _LONGEST_S:  # false for nan too
        seconds = Decimal(str(value))
    else:
        raise ValueError("a duration lies between 0 and a hundred years")
    if seconds > _LONGEST_S:
        raise ValueError("a duration lies between 0 and a hundred years")
    return float(seconds)


def _spoken_duration(text: str) -> Decimal:
    if re.fullmatch(_NUMBER, text):
        return Decimal(text)
    if not _DURATION.fullmatch(text):
        raise ValueError("not a duration")
    total = Decimal(0)
    for number, unit in _DURATION_PART.findall(text):
        if unit not in _DURATION_UNITS:
            raise ValueError(f"{unit!r} is no unit of time")
        total += Decimal(number) * _DURATION_UNITS[unit]
    return total


def format_duration(seconds: float) -> str | float:
    """The shortest exact form, which `parse_duration` reads back: ``"7d"``, ``"500ms"``."""
    milliseconds = Decimal(str(seconds)) * 1000
    if milliseconds != int(milliseconds):
        return seconds
    for unit in ("d", "h", "m", "s"):
        step = int(_DURATION_UNITS[unit] * 1000)
        if milliseconds and milliseconds % step == 0:
            return f"{int(milliseconds) // step}{unit}"
    return f"{int(milliseconds)}ms" if milliseconds else "0s"


def _amount(text: str) -> tuple[Decimal, str]:
    found = _AMOUNT.fullmatch(text)
    if not found:
        raise ValueError("not a number with a unit")
    return Decimal(found[1]), found[2]


def _whole(number: Decimal) -> int:
    if number != int(number):
        raise ValueError("not a whole number of bytes")
    if not 0 <= number <= _LARGEST:
        raise ValueError("a size lies between 0 and 2^63 - 1 bytes")
    return int(number)
