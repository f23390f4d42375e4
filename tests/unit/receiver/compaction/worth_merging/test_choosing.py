"""What of a partition is merged: whole clusters of one sender, worth it, and not over and over."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Mapping, Sequence

import pytest

from receiver.compaction.worth_merging.choosing import MergeChoice, MergeLimits, choose, cost_of
from receiver.metadata.model.records import DeviceRange
from receiver.metadata.state.ranges import DeviceTable
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedOutput, CompactedRow
from tests.support import tiers

DEVICES = DeviceTable()
LIMITS = MergeLimits(target_bytes=1000, min_files=4, most_files=50, most_bytes=5000)
Ranges = Mapping[str, tuple[int, int]]


def row(
    number: int, ranges: Ranges | int, *, size: int = 10, sender: str = "a", retired: bool = False
) -> FileRow:
    """A file; a number for its ranges is the begin of one of 5 in device d."""
    spans = {"d": (ranges, ranges + 4)} if isinstance(ranges, int) else ranges
    devices = [DeviceRange(name, *span) for name, span in spans.items()]
    first = min((each.first for each in devices), default=None)
    last = max((each.last for each in devices), default=None)
    physical = f"sequence/root.sg/0/0/{number}-{number}-0-0.{'0' * 16}.tsfile"
    return FileRow(
        sender=sender, path=physical, physical=physical, size=size, md5="", tail="", version=4,
        devices=DEVICES.pack(devices, first, last), first=first, last=last, series=1, points=5,
        task="", resource=None, manifest=None, data_dir="",
        state=FileState.RETIRED if retired else FileState.LIVE, retired=retired,
        created=number, changed=number,
    )  # fmt: skip


def compaction(ident: int, rows: Sequence[FileRow], outputs: int = 1) -> CompactedRow:
    made = CompactedOutput("", 0, "", 4, DEVICES.pack([], None, None), None, None, 0, 0, "")
    packed = zlib.compress("\n".join(each.physical for each in rows).encode())
    return CompactedRow(
        created=ident, changed=ident, id=ident, sender="a", authors=("a",), sg="root.sg", vsg="0",
        partition="0", packed=packed, count=len(rows),
        outputs=(made,) * outputs, top=None, newest_look=0, oldest_closed=0,
    )  # fmt: skip


def numbers(choices: Sequence[MergeChoice]) -> list[list[int]]:
    return [sorted(each.created for each in choice.rows) for choice in choices]


def test_small_files_are_merged_when_there_are_enough_of_them() -> None:
    rows = [row(n, n * 10) for n in range(1, 6)]
    assert numbers(choose(rows, [], LIMITS)) == [[1, 2, 3, 4, 5]]
    assert choose(rows[:3], [], LIMITS) == []
    assert numbers(choose(rows[:2], [], LIMITS, forced=True)) == [[1, 2]]


def test_a_file_that_overlaps_counts_twice() -> None:
    rows = [row(n, 10) for n in range(1, 4)]
    assert numbers(choose(rows, [], LIMITS)) == [[1, 2, 3]]
    assert cost_of(rows, []).overlapping == 3


def test_a_large_file_that_overlaps_nothing_is_left_and_nothing_is_merged_around_it() -> None:
    before, after = ([row(n, n * 10) for n in several] for several in (range(1, 6), range(7, 12)))
    large = row(6, 60, size=400)
    assert numbers(choose([*before, large, *after], [], LIMITS)) == [
        [1, 2, 3, 4, 5],
        [7, 8, 9, 10, 11],
    ]
    elsewhere = row(6, {"e": (60, 64)}, size=400)
    assert numbers(choose([*before, elsewhere, *after], [], LIMITS)) == [
        [*range(1, 6), *range(7, 12)]
    ]


def test_a_large_file_is_cut_when_it_is_asked_for_and_once() -> None:
    rows = [row(1, 10, size=4000), row(2, 30, size=3999), row(3, 50, size=5001)]
    assert choose(rows, [], LIMITS) == []
    (choice,) = choose(rows, [], LIMITS, forced=True)
    assert numbers([choice]) == [[1]]
    assert choose(rows, [], LIMITS, forced=True, refused={choice.mark}) == []
    assert choose(rows, [], LIMITS, forced=True, may_merge=lambda each: each.created != 1) == []
    done = compaction(100, rows[:1], outputs=4)
    assert choose(rows, [done], LIMITS, forced=True) == []


def test_a_cluster_goes_whole_or_not_at_all() -> None:
    cluster = [row(1, {"d": (0, 20)}), row(2, {"d": (15, 40), "e": (0, 5)}), row(3, {"e": (5, 9)})]
    others = [row(n, n * 10) for n in range(6, 12)]
    found = numbers(
        choose([*cluster, *others], [], LIMITS, may_merge=lambda each: each.created != 3)
    )
    assert found == [[6, 7, 8, 9, 10, 11]]
    foreign = row(3, {"e": (5, 9)}, sender="b")
    assert numbers(choose([*cluster[:2], foreign, *others], [], LIMITS)) == [[6, 7, 8, 9, 10, 11]]


def test_files_of_two_senders_are_never_merged_together() -> None:
    rows = [row(n, {f"d{n % 2}": (n * 10, n * 10 + 4)}, sender="ab"[n % 2]) for n in range(1, 13)]
    assert numbers(choose(rows, [], LIMITS)) == [[2, 4, 6, 8, 10, 12], [1, 3, 5, 7, 9, 11]] or (
        numbers(choose(rows, [], LIMITS)) == [[1, 3, 5, 7, 9, 11], [2, 4, 6, 8, 10, 12]]
    )


def test_a_merge_takes_so_many_files_and_bytes_and_no_more() -> None:
    rows = [row(n, n * 10, size=100) for n in range(1, 121)]
    sizes = [len(each) for each in numbers(choose(rows, [], LIMITS))]
    assert sizes == [50, 50, 20]
    rows = [row(n, n * 10, size=200) for n in range(1, 51)]
    assert [each.size for each in choose(rows, [], LIMITS)] == [5000, 5000]
    assert choose([row(n, 10, size=200) for n in range(60)], [], LIMITS) == []


def test_what_was_merged_is_taken_in_again_with_all_its_inputs_and_half_as_much_besides() -> None:
    rows = [row(n, n * 10) for n in range(1, 13)]
    done = compaction(100, rows[:8])
    assert numbers(choose(rows[:11], [done], LIMITS)) == [], "three more are not half of eight"
    assert numbers(choose(rows, [done], LIMITS)) == [list(range(1, 13))]
    late = [row(n, 10) for n in range(20, 23)]
    assert numbers(choose([*rows[:8], *late], [done], LIMITS)) == []
    assert numbers(choose([*rows[:8], *late], [done], LIMITS, forced=True)) == [
        [*range(1, 9), 20, 21, 22]
    ]


def test_many_late_files_have_what_they_overlap_merged_again_however_small_they_are() -> None:
    rows = [row(n, n * 10, size=100) for n in range(1, 9)]
    done = compaction(100, rows)
    limits = MergeLimits(1000, 4, 1000, 100_000)
    late = [row(n, 10, size=1) for n in range(20, 60)]
    assert numbers(choose([*rows, *late[:39]], [done], limits)) == []
    assert [len(each) for each in numbers(choose([*rows, *late], [done], limits))] == [48]


def test_halves_of_what_was_refused_are_tried() -> None:
    rows = [row(n, n * 10) for n in range(1, 17)]
    (whole,) = choose(rows, [], LIMITS)
    halves = choose(rows, [], LIMITS, refused={whole.mark})
    assert numbers(halves) == [list(range(1, 9)), list(range(9, 17))]
    assert numbers(choose(rows, [], LIMITS, refused={whole.mark, halves[0].mark})) == [
        [1, 2, 3, 4], [5, 6, 7, 8], list(range(9, 17)),
    ]  # fmt: skip
    rows[3] = row(99, 40)
    assert numbers(choose(rows, [], LIMITS, refused={whole.mark})) == [
        [1, 2, 3, *range(5, 17), 99]
    ], "something has changed"


def test_the_cost_counts_what_readers_open() -> None:
    rows = [row(n, n * 10, retired=n < 3) for n in range(1, 9)]
    late = row(9, 12)
    found = cost_of([*rows, late], [compaction(100, rows[:6])])
    assert (found.files, found.overlapping, found.retired_bytes) == (4, 2, 20)


def meets(one: FileRow, other: FileRow) -> bool:
    theirs = {name: (first, last) for name, first, last in other.devices.ranges()}
    return any(
        name in theirs and first <= theirs[name][1] and theirs[name][0] <= last
        for name, first, last in one.devices.ranges()
    )


@pytest.mark.parametrize("number", range(tiers.examples(60)))
def test_no_file_outside_of_a_choice_overlaps_one_in_it(number: int) -> None:
    chance = random.Random(f"{tiers.seed()}-{number}")
    rows = []
    for each in range(1, chance.randint(5, 60)):
        names = chance.sample("defg", chance.randint(0, 3))
        starts = {name: chance.randint(0, 300) for name in names}
        spans = {name: (at, at + chance.randint(0, 15)) for name, at in starts.items()}
        rows.append(
            row(each, spans, size=chance.choice((5, 20, 400)), sender=chance.choice("aaab"))
        )
    merged = [
        compaction(1000 + at, choice.rows)
        for at, choice in enumerate(choose(rows[: len(rows) // 2], [], LIMITS))
    ]
    apart = [
        each for each in merged
        if not any(meets(one, other) for one in rows for other in rows
                   if one.physical in each.inputs and other.physical not in each.inputs)
    ]  # fmt: skip
    seen: set[str] = set()
    for choice in choose(rows, apart, LIMITS, forced=chance.random() < 0.3):
        inside = {each.physical for each in choice.rows}
        assert seen.isdisjoint(inside)
        seen |= inside
        assert len({each.sender for each in choice.rows}) == 1
        outside = [each for each in rows if each.physical not in inside]
        assert not any(meets(one, other) for one in choice.rows for other in outside)
        for each in apart:
            assert inside.isdisjoint(each.inputs) or inside.issuperset(each.inputs)


def test_a_byte_is_written_a_few_times_however_small_the_files_are_that_come() -> None:
    limits = MergeLimits(1 << 30, 4, 10_000, 1 << 40)
    rows: list[FileRow] = []
    done: list[CompactedRow] = []
    written = 0
    for number in range(1, 151):
        rows.append(row(number, number * 10))
        for choice in choose(rows, done, limits):
            inside = {each.physical for each in choice.rows}
            done = [each for each in done if inside.isdisjoint(each.inputs)]
            done.append(compaction(10_000 + number, choice.rows))
            written += choice.size
    assert written / (10 * len(rows)) < 2 * math.log2(len(rows))
    assert cost_of(rows, done).files < 30
