"""What rows have to pass before they are written: constraints of ours, and a site's own.

Ours are `finite` (no value is NaN or infinite) and `tagged` (no tag is NULL). Those of a site are
found by entry point, and may have these names, too:

    [project.entry-points."tsferry.constraints"]
    plausible = "my_site.rules:plausible"

    def plausible(rows: pyarrow.RecordBatch) -> None:
        if pyarrow.compute.max(rows["temperature"]).as_py() > 200:
            raise ValueError("a temperature above 200")

Each is called with each batch: by a write from Spark in the task, as Spark has its columns; of
files that are loaded at the centre with the rows of one device at a time. What it raises refuses
them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from importlib.metadata import entry_points
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from common.errors import UsageError
from receiver.row_checks.installed import GROUP, must_be_installed

__all__ = ["BrokenConstraintError", "Constraint", "constraints_of", "must_pass", "named"]


Constraint: TypeAlias = "Callable[[pa.RecordBatch], object]"
"""Raises where a batch of rows does not pass."""
_NOT_RUN: Final = (Awaitable, Generator, AsyncGenerator)
"""What a function gives of which nothing was run."""


class BrokenConstraintError(UsageError):
    """Rows do not pass."""

    slug = "constraint"


def _finite(rows: pa.RecordBatch) -> None:
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if pa.types.is_floating(column.type):
            wrong = pc.sum(pc.invert(pc.is_finite(column))).as_py()
            if wrong:
                raise ValueError(f"column {name}: NaN or infinite in {wrong} rows")


def _tagged(tags: Iterable[str]) -> Constraint:
    def check(rows: pa.RecordBatch) -> None:
        for name in tags:
            wrong = rows.column(name).null_count
            if wrong:
                raise ValueError(f"tag {name}: NULL in {wrong} rows")

    return check


def named(names: Iterable[str], tags: Iterable[str] = ()) -> dict[str, Constraint]:
    """Constraints by their names; those of a site are imported.

    Args:
        names: of them.
        tags: columns of the rows that are tags.

    Raises:
        UsageError: one is not installed here.
    """
    names = list(names)
    must_be_installed(names, "option constraints")
    ours: dict[str, Constraint] = {"finite": _finite, "tagged": _tagged(tuple(tags))}
    found: dict[str, Constraint] = {}
    for name in names:
        entry = next(iter(entry_points(group=GROUP, name=name)), None)
        found[name] = ours[name] if entry is None else entry.load()
    return found


def must_pass(constraint: Constraint, rows: pa.RecordBatch) -> None:
    """Put rows to a constraint.

    Raises:
        TypeError: it says otherwise than by an error that they do not pass, or has not looked.
        Exception: they do not pass.
    """
    found = constraint(rows)
    if found is False or isinstance(found, _NOT_RUN):
        what = "False" if found is False else f"a {type(found).__name__}, which nobody runs"
        raise TypeError(f"it gave {what}: a constraint raises where rows do not pass")


def constraints_of(names: Iterable[str], tags: Iterable[str] = ()) -> Constraint:
    """All of these as one; arguments and errors as of `named`."""
    found = named(names, tags)

    def check(rows: pa.RecordBatch) -> None:
        for name, constraint in found.items():
            try:
                must_pass(constraint, rows)
            except Exception as error:
                raise BrokenConstraintError(
                    f"constraint {name}: {error}; nothing is written"
                ) from error

    return check
