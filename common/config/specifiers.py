"""Specifiers: what a text of a configuration file says of the machine that reads it.

They are those of systemd (systemd.unit(5), *Specifiers*), of which a unit's file has them, too:
``%H`` is the name of the host, ``%l`` the same up to its first dot, ``%%`` a percent sign. So one
file serves many machines, and says the same to the daemon, to cron and in a shell, whose
environments differ. Two hexadecimal digits behind a percent sign are what a URL has, and stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Specifiers", "as_written", "expand"]

Specifiers = Mapping[str, Callable[[], str]]
"""The letter behind the percent sign -> what it stands for on this machine."""
_ANY = re.compile(r"%([0-9A-Fa-f]{2}|.?)", re.DOTALL)


def expand(raw: Any, specifiers: Specifiers) -> Any:
    """A value as TOML has it, with the specifiers of all texts in it replaced.

    Raises:
        ValueError: another letter stands behind a percent sign, or nothing does.
    """
    if isinstance(raw, str):
        return _ANY.sub(lambda found: _meant(found[1], specifiers), raw) if "%" in raw else raw
    if isinstance(raw, list):
        return [expand(item, specifiers) for item in raw]
    if isinstance(raw, dict):
        return {key: expand(item, specifiers) for key, item in raw.items()}
    return raw


def _meant(behind: str, specifiers: Specifiers) -> str:
    if behind == "%":
        return "%"
    if len(behind) == 2:  # of a URL
        return f"%{behind}"
    if behind not in specifiers:
        known = ", ".join(f"%{each}" for each in specifiers)
        raise ValueError(f"%{behind} is no specifier: there are {known}; %% is a percent sign")
    return specifiers[behind]()


def as_written(text: str) -> str:
    """The text of a file that stands for this one."""
    return text.replace("%", "%%")
