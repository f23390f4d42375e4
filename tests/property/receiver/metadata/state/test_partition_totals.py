"""Totals of partitions against files that are gone through one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from receiver.metadata.state.table_rows import FileRow
from receiver.metadata.state.tables.file_tables.partition_totals import PartitionTotals

_times = st.integers(-30, 30)
_step = st.tuples(st.integers(-3, 6), st.sampled_from("ab"), _times, _times, st.booleans())


def _row(number: int, partition: int, group: str, first: int, last: int) -> FileRow:
    kind = ("sequence", "unsequence")[number % 2]
    path = f"{kind}/root.{group}/{number % 3}/{partition}/{number}-1-0-0.tsfile"
    times = (None, None) if first == last == 0 else (min(first, last), max(first, last))
    row = SimpleNamespace(
        physical=path, size=number + 1, first=times[0], last=times[1], points=number * 7
    )
    return cast("FileRow", row)


@given(st.lists(_step, max_size=40), st.lists(st.tuples(_times, _times), max_size=6))
def test_whatever_comes_and_goes(
    steps: list[tuple[int, str, int, int, bool]], asked: list[tuple[int, int]]
) -> None:
    totals = PartitionTotals()
    there: dict[tuple[str, int], list[FileRow]] = {}
    reached: dict[tuple[str, int], list[FileRow]] = {}
    for number, (partition, group, first, last, goes) in enumerate(steps):
        key = f"root.{group}", partition
        if goes and there.get(key):
            totals.add(there[key].pop(0), -1)
            if not there[key]:
                del there[key], reached[key]
        else:
            row = _row(number, partition, group, first, last)
            totals.add(row, 1)
            there.setdefault(key, []).append(row)
            reached.setdefault(key, []).append(row)
        for begin, end in asked:
            for name in ("root.a", "root.b"):
                low, high = min(begin, end), max(begin, end)
                firsts = {
                    each: [row.first for row in rows if row.first is not None]
                    for (of, each), rows in reached.items()
                    if of == name
                }
                lasts = {
                    each: [row.last for row in rows if row.last is not None]
                    for (of, each), rows in reached.items()
                    if of == name
                }
                wanted = [
                    each
                    for each in sorted(firsts)
                    if firsts[each] and min(firsts[each]) <= high and low <= max(lasts[each])
                ]
                assert list(totals.meeting(name, low, high)) == wanted
    for name in ("root.a", "root.b"):
        numbers = sorted(each for of, each in there if of == name)
        assert totals.partitions(name) == numbers
        for begin in range(-4, 8):
            for end in range(begin + 1, 9):
                rows = [row for each in numbers if begin <= each < end for row in there[name, each]]
                total = totals.of(name, begin, end)
                assert (total.files, total.size) == (len(rows), sum(row.size for row in rows))
                assert total.points == sum(row.points for row in rows)
    assert sorted(totals.groups()) == sorted({of for of, _ in there})
