from __future__ import annotations

import numpy as np

from receiver.metadata.schema import Schema

SG = ("root", "sg")
D1 = ("root", "sg", "d1")
NAMES = [f"s{i}" for i in range(10)]
CODES = bytes(10)


def schema() -> Schema:
    made = Schema()
    made.changes.set_storage_group(SG, 1)
    made.changes.create_series(D1, NAMES, CODES, CODES, CODES, 2)
    return made


def load(made: Schema, lasts: list[int | None], ts: int, names: list[str] = NAMES) -> None:
    codes = bytes(len(names))
    made.changes.load_series(D1, names, codes, codes, codes, lasts, ts)


def heat(made: Schema, name: str, at: int | None = None) -> int | None:
    return made.series.heat(made.series.find((*D1, name), at), at)


def test_heat_is_the_newest_time_loaded_and_never_falls() -> None:
    made = schema()
    assert heat(made, "s0") is None
    load(made, [100] * 10, 10)
    load(made, [50] * 10, 11)
    load(made, [None] * 10, 12)
    assert heat(made, "s0") == 100
    load(made, [-(1 << 62)] * 3, 13, ["a", "b", "c"])
    assert heat(made, "a") == -(1 << 62)


def test_heat_is_as_it_was_at_any_time() -> None:
    made = schema()
    load(made, [100] * 10, 10)
    load(made, [200] * 10, 20)
    load(made, [300, None, 250], 30, ["s0", "s1", "s2"])
    assert [heat(made, "s0", at) for at in (9, 10, 19, 20, 29, 30, 99)] == [
        None, 100, 100, 200, 200, 300, 300,
    ]  # fmt: skip
    assert [heat(made, "s1", at) for at in (9, 19, 29, 30)] == [None, 100, 200, 200]
    assert [heat(made, "s2", at) for at in (9, 19, 29, 30)] == [None, 100, 200, 250]


def test_a_step_of_a_whole_device_is_one_entry_of_history() -> None:
    made = schema()
    for step in range(100):
        load(made, [step] * 10, 10 + step)
    assert len(made.columns.heats.ts) == 100


def test_what_a_device_does_after_the_end_of_a_series_does_not_concern_it() -> None:
    made = schema()
    load(made, [100] * 10, 10)
    others = [name for name in NAMES if name != "s3"]
    load(made, [200] * 9, 11, others)
    made.changes.delete_series(_pattern("s3"), 20)
    load(made, [300] * 9, 30, others)
    assert [heat(made, "s3", at) for at in (9, 10, 15, 19)] == [None, 100, 100, 100]
    assert [heat(made, "s4", at) for at in (9, 10, 15, 30)] == [None, 100, 200, 300]
    rows = [made.series.find((*D1, name), 15) for name in ("s3", "s4")]
    assert made.columns.heats.get_many(np.array(rows), 15).tolist() == [100, 200]


def test_two_loads_in_one_commit_have_one_before() -> None:
    made = schema()
    load(made, [100] * 10, 10)
    load(made, [200] * 10, 20)
    load(made, [300], 20, ["s0"])
    assert heat(made, "s0", 19) == 100
    assert heat(made, "s0", 20) == 300


def test_history_lets_go_of_heat_that_no_question_reaches() -> None:
    made = schema()
    for step in range(1000):
        load(made, [step] * 10, 10 + step)
    while made.collector.collect(1005):
        pass
    assert len(made.columns.heats.ts) < 10
    assert heat(made, "s0", 1005) == 995
    assert heat(made, "s0", 1008) == 998
    assert heat(made, "s0") == 999


def _pattern(name: str):
    from receiver.metadata.model.paths import Pattern

    return Pattern.of((*D1, name))


def test_a_load_and_a_deletion_in_one_commit_leave_the_past_as_it_was() -> None:
    for load_first in (True, False):
        made = schema()
        load(made, [100] * 5, 10, NAMES[:5])
        others = [name for name in NAMES if name != "s9"]
        if load_first:
            load(made, [300] * 10, 20)
        made.changes.delete_series(_pattern("s9"), 20)
        if not load_first:
            load(made, [300] * 9, 20, others)
        assert heat(made, "s9", 19) is None
        assert heat(made, "s0", 19) == 100
