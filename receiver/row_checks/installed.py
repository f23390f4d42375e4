"""Which constraints there are: ours, and those of a site, by entry point. None is imported here."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Final

from common.errors import UsageError

__all__ = ["GROUP", "must_be_installed"]

GROUP: Final = "tsferry.constraints"
_OURS: Final = ("finite", "tagged")


def must_be_installed(names: Iterable[str], what: str) -> None:
    """See that there are such constraints; none of a site is loaded by that.

    Args:
        names: of them.
        what: named them.

    Raises:
        UsageError: one is not installed here.
    """
    there = {*_OURS, *entry_points(group=GROUP).names}
    for name in names:
        if name not in there:
            raise UsageError(
                f"{what}: {name!r} is not installed here (entry points of {GROUP}: "
                f"{', '.join(sorted(there))})"
            )
