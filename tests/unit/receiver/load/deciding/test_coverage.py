import pytest

from receiver.load.deciding.coverage import Coverage, judge_gone
from receiver.metadata.model import records
from receiver.metadata.state.state import State
from tests.support.metadata import B, load, path, physical, seen


@pytest.fixture
def state():
    state = State()
    state.apply(records.Commit(1, [seen(), seen(B)]))
    return state


def put(state, *ops):
    state.apply(records.Commit(state.newest + 1, ops))
    return [state.files[op.physical] for op in ops]


def covered(state, gone, *others, loading=()):
    rows = put(state, gone, *others)
    return Coverage(rows[1:], loading).covers(rows[0])


OLD = load(path("1-1-0"), 1, devices={"d1": (10, 20), "d2": (0, 5)})


def test_a_compacted_file_with_all_devices_and_times_covers(state):
    assert covered(state, OLD, load(path("1-1-1"), 2, devices={"d1": (10, 25), "d2": (0, 5)}))


def test_the_files_that_load_in_the_same_commit_count(state):
    new = load(path("1-1-1"), 2, devices={"d1": (10, 25), "d2": (0, 5)})
    assert covered(state, OLD, loading=[new])


def test_several_files_cover_together(state):
    first = load(path("1-1-1"), 2, devices={"d1": (0, 12), "d2": (0, 5)})
    second = load(path("2-2-1"), 3, devices={"d1": (13, 20)})
    assert covered(state, OLD, first, second)
    assert not Coverage([state.files[first.physical]]).covers(state.files[OLD.physical])


def test_the_late_space_covers_too(state):
    new = load(path("1-1-1", kind="unsequence"), 2, devices={"d1": (10, 25), "d2": (0, 5)})
    assert covered(state, OLD, new)


def test_a_cross_compaction_counts_more_than_any_inner_one(state):
    old = load(path("1-1-7"), 1)
    assert covered(state, old, load(path("1-1-0-1"), 2))


@pytest.mark.parametrize(
    "other",
    [
        load(path("1-1-1"), 2, devices={"d1": (10, 20)}),
        load(path("1-1-1"), 2, devices={"d1": (11, 20), "d2": (0, 5)}),
        load(path("1-1-1"), 2, devices={"d1": (10, 19), "d2": (0, 5)}),
        load(path("1-1-1"), 2, devices={"d1": (10, 20), "d2": None}),
        load(path("2-2-0"), 2, devices={"d1": (10, 20), "d2": (0, 5)}),
        load(path("1-1-1", part=1), 2, devices={"d1": (10, 20), "d2": (0, 5)}),
        load(path("1-1-1", sg="root.u"), 2, devices={"d1": (10, 20), "d2": (0, 5)}),
        load(path("1-1-1"), 2, sender=B, devices={"d1": (10, 20), "d2": (0, 5)}),
        load(path("merged"), 2, devices={"d1": (10, 20), "d2": (0, 5)}),
    ],
    ids=[
        "a device is missing",
        "begins later",
        "ends earlier",
        "has the device without points",
        "is no more compacted",
        "is of another partition",
        "is of another storage group",
        "is of another sender",
        "has no count in its name",
    ],
)
def test_a_file_is_not_covered_by_one_that(state, other):
    assert not covered(state, OLD, other)


def test_a_file_in_quarantine_covers_nothing_and_a_retired_one_does(state):
    [new] = put(state, load(path("1-1-1"), 2, devices={"d1": (10, 25), "d2": (0, 5)}))
    [old] = put(state, OLD)
    state.apply(records.Commit(state.newest + 1, [records.FileRetired(new.physical)]))
    assert Coverage([state.files[new.physical]]).covers(old)
    state.apply(records.Commit(state.newest + 1, [records.FileQuarantined(new.physical, "bad")]))
    assert not Coverage([state.files[new.physical]]).covers(old)


def test_a_name_without_numbers_is_never_covered(state):
    odd = load(path("export"), 1)
    assert not covered(state, odd, load(path("1-1-9"), 2))


def test_a_file_without_points_still_needs_a_compacted_one(state):
    empty = load(path("1-1-0"), 1, devices={})
    [row] = put(state, empty)
    assert not Coverage().covers(row)
    assert Coverage(loading=[load(path("1-1-1"), 2)]).covers(row)


def test_a_file_that_goes_itself_does_not_cover(state):
    zero, one = put(state, load(path("1-1-0"), 1), load(path("1-1-1"), 2))
    verdict = judge_gone([zero, one], [])
    assert verdict.needed == [one]
    assert verdict.covered == [zero], "the one that stays covers it"
    two = load(path("1-1-2"), 3, devices={"other": (1, 9)})
    assert judge_gone([zero, one], [], [two]).needed == [one]
    two = load(path("1-1-2"), 3)
    assert judge_gone([zero, one], [], [two]).covered == [one, zero]


def test_twenty_out_and_one_in(state):
    old = put(
        state,
        *(load(path(f"{n}-{n}-0"), n, devices={"d1": (n * 10, n * 10 + 9)}) for n in range(20)),
    )
    whole = load(path("0-0-1"), 99, devices={"d1": (0, 199)})
    assert judge_gone(old, [], [whole]).needed == []
    short = load(path("0-0-1"), 99, devices={"d1": (0, 198)})
    assert [row.physical for row in judge_gone(old, [], [short]).needed] == [
        physical(path("19-19-0"), 19)
    ]
