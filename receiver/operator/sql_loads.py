"""`load` in SQL: the load at the centre, of files below directories that the configuration names.

A statement comes over the network from whoever has an operator's token; what it may have the
receiver read is therefore said on the machine, and by default it is nothing.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from receiver.operator.centre.load_owners import named_owners
from receiver.operator.centre.loaded_paths import allowed_path
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadRequest

if TYPE_CHECKING:
    from receiver.metadata.sql.statements import LoadFiles
    from receiver.operator.directories import RunningReceiver

__all__ = ["LOAD_COLUMNS", "LoadedBySql", "load_by_sql", "loaded_by_sql", "totals_of"]

LOAD_COLUMNS: Final = ("result", "size", "source", "device", "reason")
"""Of the answer of a load, and of no other statement."""
_PATIENCE: Final = 30.0
"""Seconds for which a statement waits: its client waits for a minute."""


class LoadedBySql(NamedTuple):
    """What became of the files of a statement.

    Attributes:
        columns: of a file; none as long as the load goes on.
        rows: a file each.
        message: all of it in a line.
        task: id of the load, as long as it goes on.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    message: str
    task: str | None = None


def load_by_sql(
    operator: RunningReceiver,
    statement: LoadFiles,
    allowed: Sequence[Path],
    patience: float | None = None,
) -> LoadedBySql:
    """Load files, and wait for a while.

    Args:
        operator: the receiver.
        statement: what to load.
        allowed: directories below which files may lie.
        patience: seconds to wait for it, half a minute at most; None for that.

    Raises:
        ForbiddenError: a path is in none of them.
        TsferryError: as `CentreLoads.load`; nothing is loaded.
    """
    task = secrets.token_hex(16)
    owner, others = named_owners(statement.owners)
    request = CentreLoadRequest(
        task=task,
        paths=[allowed_path(each, allowed) for each in statement.paths],
        storage_group=statement.group,
        owner=owner,
        others=others,
        on_duplicate=statement.on_duplicate,
    )
    operator.centre.begin(request)
    limit = _PATIENCE if patience is None else min(_PATIENCE, max(0.0, patience))
    answer = operator.centre.answer(task, limit)
    if not answer.done:
        why = "" if answer.trouble is None else f" ({answer.trouble})"
        said = f"the load goes on{why}: GET /v1/loads/{task} says how it ends"
        return LoadedBySql((), [], said, task)
    return loaded_by_sql(answer)


def loaded_by_sql(answer: CentreLoadAnswer) -> LoadedBySql:
    """What a load that is over has for a statement."""
    rows: list[tuple[Any, ...]] = [
        (each.result, each.size, each.source, each.device, each.reason) for each in answer.files
    ]
    return LoadedBySql(LOAD_COLUMNS, rows, totals_of(answer))


def totals_of(answer: CentreLoadAnswer) -> str:
    """How many files came to what, in a line."""
    counts = Counter(each.result for each in answer.files)
    return ", ".join(f"{number} {result}" for result, number in sorted(counts.items()))
