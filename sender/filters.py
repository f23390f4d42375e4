"""Which storage groups are sent: patterns of path levels.

`*` stands for one level or part of it, `**` for any number of levels, none among them: `root.**` is
every storage group below root, `root.site1.**` is root.site1 and all below it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["group_filter", "matches"]


def group_filter(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool]:
    """A test for storage groups: inside one of `include` and none of `exclude`."""

    @lru_cache(maxsize=65536)
    def wanted(sg: str) -> bool:
        return any(matches(each, sg) for each in include) and not any(
            matches(each, sg) for each in exclude
        )

    return wanted


def matches(pattern: str, path: str) -> bool:
    """Whether a dotted path fits a pattern."""
    return _compiled(pattern).fullmatch(path) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    out = ""
    for number, level in enumerate(pattern.split(".")):
        dot = r"\." if number else ""
        if level == "**":
            # Levels behind it bring their own dots.
            out += rf"(?:{dot}[^.]+)*" if number else r"(?:[^.]+(?:\.[^.]+)*)?"
        else:
            out += dot + "[^.]*".join(map(re.escape, level.split("*")))
    return re.compile(out)
