"""Which storage groups are sent: patterns of path levels.

`*` stands for one level or part of it, `**` for any number of levels, none among them: `root.**` is
every storage group below root, `root.site1.**` is root.site1 and all below it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["group_filter", "matches"]


def group_filter(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool]:
    """A test for storage groups: inside one of `include` and none of `exclude`."""

    @lru_cache(maxsize=4096)
    def wanted(sg: str) -> bool:
        return any(matches(each, sg) for each in include) and not any(
            matches(each, sg) for each in exclude
        )

    return wanted


def matches(pattern: str, path: str) -> bool:
    """Whether a dotted path fits a pattern. Takes time in proportion to the product of lengths."""
    levels = path.split(".")
    # Numbers of levels that the pattern so far can have used up: no backtracking.
    used = {0}
    for part in pattern.split("."):
        if part == "**":
            used = set(range(min(used), len(levels) + 1))
        else:
            used = {n + 1 for n in used if n < len(levels) and _fits(part, levels[n])}
        if not used:
            return False
    return len(levels) in used


def _fits(part: str, level: str) -> bool:
    """One level against a pattern with `*` in it."""
    first, *rest = part.split("*")
    if not rest:
        return part == level
    *middle, last = rest
    if not level.startswith(first) or not level[len(first) :].endswith(last):
        return False
    at, end = len(first), len(level) - len(last)
    for piece in middle:
        found = level.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at <= end
