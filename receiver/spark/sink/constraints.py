"""Constraints of a site's own, by entry point: what rows have to pass before they are written.

    [project.entry-points."tsferry.constraints"]
    plausible = "my_site.rules:plausible"

    def plausible(rows: pyarrow.RecordBatch) -> None:
        if pyarrow.compute.max(rows["temperature"]).as_py() > 200:
            raise ValueError("a temperature above 200")

Each is called in the task with each batch, as Spark has its columns; what it raises fails the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, TypeAlias

from common.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BrokenConstraintError", "Constraint", "constraints_of"]

GROUP: Final = "tsferry.constraints"

Constraint: TypeAlias = "Callable[[pa.RecordBatch], object]"
"""Raises where a batch of rows does not pass."""


class BrokenConstraintError(UsageError):
    """Rows do not pass."""

    slug = "constraint"


def constraints_of(names: Iterable[str]) -> Constraint:
    """All of these as one.

    Raises:
        UsageError: one is not installed here.
    """
    found: dict[str, Constraint] = {}
    for name in names:
        entry = next(iter(entry_points(group=GROUP, name=name)), None)
        if entry is None:
            there = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
            raise UsageError(
                f"option constraints: {name!r} is not installed here (entry points of {GROUP}: "
                f"{there})"
            )
        found[name] = entry.load()

    def check(rows: pa.RecordBatch) -> None:
        for name, constraint in found.items():
            try:
                constraint(rows)
            except Exception as error:
                raise BrokenConstraintError(
                    f"constraint {name}: {error}; nothing is written"
                ) from error

    return check
