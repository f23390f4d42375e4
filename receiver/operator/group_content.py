"""What a storage group holds beside its files: series, and points by time partition.

Nothing keeps these sums, so they are counted when somebody asks, as long as that is little work.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from common.names import Kind
from receiver.metadata.model.paths import Pattern, device_nodes
from receiver.metadata.query.answers import Answer
from receiver.metadata.query.questions import CountTimeseries
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.files import GroupKey
from receiver.operator.paging import every_row

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine

__all__ = ["GroupContent", "content_of_group"]

_FILES: Final = 20_000
_SERIES: Final = 500_000


@dataclass(frozen=True)
class GroupContent:
    """What is in a storage group now.

    Attributes:
        series: that live in it; None where there are too many of all groups to be counted.
        points: of its files that readers see, by time partition, those twice that two files have;
            None where there are too many files.
    """

    series: int | None = None
    points: dict[int, int] | None = field(default_factory=dict)


def content_of_group(engine: Engine, name: str, files: int) -> GroupContent:
    """What is in a storage group.

    Args:
        engine: that knows it.
        name: of it.
        files: how many readers see in it.
    """
    with engine.reading() as state:
        known = state.schema.columns.series_count
    return GroupContent(
        series=_series(engine, name) if known <= _SERIES else None,
        points=_points(engine, name) if files <= _FILES else None,
    )


def _series(engine: Engine, name: str) -> int:
    asked = CountTimeseries(pattern=Pattern.of(device_nodes(name)).below())
    (row,) = Answer(engine, asked).fetch(1)
    return int(row[-1])


def _points(engine: Engine, name: str) -> dict[int, int]:
    found: Counter[int] = Counter()
    for kind in Kind:
        directory = f"{kind}/{name}/"
        rows = every_row(
            engine,
            lambda state, behind, count: state.file_table.among(FileState.LIVE, behind, count),
            lambda row: row.physical,
            directory,  # no file has this path, and all that begin so sort behind it
        )
        for row in rows:
            if not row.physical.startswith(directory):
                break
            found[int(GroupKey.of(row.physical).partition)] += row.points
    return dict(found)
