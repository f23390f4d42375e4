"""What partitions come to is told right while another one is just summing it up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from receiver.metadata.state.table_rows import FileRow
from receiver.metadata.state.tables.file_tables.partition_totals import PartitionTotals


def _row(partition: int) -> FileRow:
    return cast(
        "FileRow",
        SimpleNamespace(
            physical=f"sequence/root.t/0/{partition}/1-1-0-0.tsfile",
            size=1,
            first=partition * 10,
            last=partition * 10 + 9,
            points=1,
        ),
    )


def test_a_range_is_looked_for_while_who_leads_the_commits_sums_up() -> None:
    totals = PartitionTotals()
    for partition in (5, 1, 9, 3, 7):
        totals.add(_row(partition), 1)
    assert list(totals.meeting("root.t", 30, 79)) == [3, 5, 7]
    group: Any = totals._groups["root.t"]
    seen: list[list[int]] = []

    class Watched(dict[int, Any]):
        def __getitem__(self, number: int) -> Any:
            if not seen:
                seen.append([])
                seen[0] = list(group.meeting(30, 79))
            return super().__getitem__(number)

    group.totals = Watched(group.totals)
    group._settle()  # it began when nothing was summed up, and the other was quicker
    assert seen == [[3, 5, 7]]
    assert list(totals.meeting("root.t", 30, 79)) == [3, 5, 7]
