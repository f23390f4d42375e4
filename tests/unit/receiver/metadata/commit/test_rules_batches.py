"""Commits of one batch: those that depend on each other wait, and no others do."""

import threading

import pytest

from receiver.metadata.commit.draft import examine
from receiver.metadata.commit.guards import Guard
from receiver.metadata.commit.touched import Touched
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import (
    MemoryLimitError,
    RefusedCommitError,
    SeriesExistsError,
    SeriesNestedError,
)
from tests.support.committing import create, do, fresh, refuse, seen, series
from tests.support.metadata import A
from tests.support.metadata import seen as sender_seen

gone = records.SeriesDeleted
alias = records.AliasSet
tags = records.TagsSet


@pytest.fixture
def state():
    state = fresh("root.sg")
    do(state, create("root.sg.d1", "s1", "s2", aliases=["t1", None]))
    return state


def together(state, *commits):
    """Whether a batch may hold all these commits."""
    batch = Touched()
    for ops in commits:
        touched = examine(state, ops)
        if not batch.allows(touched):
            return False
        batch.add(touched)
    return True


@pytest.mark.parametrize(
    "ops",
    [
        [create("root.sg.d1.s3"), create("root.sg.d1.s4")],
        [create("root.sg.new.s1"), create("root.sg.new.s2"), create("root.sg.new.x.y")],
        [create("root.sg.a.b.c.s1"), create("root.sg.a.b.d.s1"), create("root.sg.a.x")],
        [create("root.sg.d1", "a", "b", "c"), create("root.sg.d2", "a", "b", "c")],
        [tags("root.sg.d1.s1", {"a": "1"}, {}), tags("root.sg.d1.s2", {"a": "1"}, {})],
        [create("root.sg.d1.s3", aliases="x"), create("root.sg.d1.s4", aliases="y")],
        [create("root.sg.d9.s1", aligned=True), create("root.sg.d9.s2", aligned=True)],
        [records.TtlSet("root.sg", 1), create("root.sg.d1.s3")],
        [records.KeysWritten([], {"a": "1"}), records.KeysWritten([], {"b": "1"})],
    ],
)
def test_commits_that_do_not_touch_each_other_go_together(state, ops):
    assert together(state, *([op] for op in ops))
    assert together(state, *([op] for op in reversed(ops)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (create("root.sg.d1.s3"), create("root.sg.d1.s3")),
        (create("root.sg.d1.s3"), create("root.sg.d1.s4", aliases="s3")),
        (create("root.sg.d1.s3", aliases="x"), create("root.sg.d1.s4", aliases="x")),
        (create("root.sg.a"), create("root.sg.a.s1")),
        (create("root.sg.a.b"), create("root.sg.a.b.c.d")),
        (create("root.sg.d1.s3", aliases="x"), create("root.sg.d1.x.y")),
        (create("root.sg.d9.s1", aligned=True), create("root.sg.d9.s2")),
        (alias("root.sg.d1.s1", "x"), create("root.sg.d1.x")),
        (alias("root.sg.d1.s1", "x"), tags("root.sg.d1.s1", {}, {})),
        (tags("root.sg.d1.s1", {}, {}), tags("root.sg.d1.s1", {}, {})),
        (gone("root.sg.d1.s1"), create("root.sg.d9.s1")),
        (records.StorageGroupSet("root.new"), create("root.sg.d9.s1")),
        (records.StorageGroupDeleted("root.sg"), records.TtlSet("root.sg", 1)),
        (records.TtlSet("root.sg", 1), records.TtlSet("root.sg", 2)),
        (records.KeysWritten([], {"a": "1"}), records.KeysWritten([], {"a": "2"})),
        (records.KeysWritten(["a"], {}), records.KeysWritten([], {"a1": "2"})),
    ],
)
def test_commits_that_depend_on_each_other_do_not(state, one, other):
    assert together(state, [one])
    assert together(state, [other])
    assert not together(state, [one], [other])
    assert not together(state, [other], [one])


def test_a_name_that_an_alias_gives_up_is_touched_too(state):
    touched = examine(state, [alias("root.sg.d1.s1", None)])
    assert ("root.sg.d1", "t1") in touched.written


def test_a_guard_on_a_series_sees_what_an_earlier_commit_of_the_batch_does_to_it(state):
    guard = Guard("series", "root.sg.d1.s1", state.changed("series", "root.sg.d1.s1"))
    batch = Touched()
    batch.add(examine(state, [tags("root.sg.d1.s1", {"a": "1"}, {})]))
    later = examine(state, [records.TtlSet("root.sg", 1)])
    later.read.update(guard.keys(state))
    assert not batch.allows(later)


def test_what_a_guard_compares_grows_with_every_change(state):
    def changed(table, key):
        return state.changed(table, key)

    assert changed("series", "root.sg.d1.s1") == changed("series", "root.sg.d1.s2") > 0
    assert changed("series", "root.sg.d9.s1") == changed("storage_group", "root.x") == 0
    for op in (
        tags("root.sg.d1.s1", {"a": "1"}, {}),
        alias("root.sg.d1.s1", "t9"),
        alias("root.sg.d1.s1", None),
        gone("root.sg.d1.s1"),
        create("root.sg.d1.s1"),
    ):
        assert do(state, op) == changed("series", "root.sg.d1.s1"), op
    assert changed("series", "root.sg.d1.s2") < state.newest
    assert do(state, records.TtlSet("root.sg", 5)) == changed("storage_group", "root.sg")
    assert do(state, records.KeysWritten([], {"k": "v"})) == changed("key", "k")
    assert do(state, records.KeysWritten(["k"], {})) == changed("key", "k")
    do(state, sender_seen())
    assert changed("schema_position", A) == 0
    assert do(state, records.SchemaSynced(A, "log", 5)) == changed("schema_position", A)


# -- a real committer ----------------------------------------------------------------------------


def run(engine, commits):
    """Commit from many threads at once; (timestamps, errors), in the order of the commits."""
    results = [None] * len(commits)
    start = threading.Barrier(len(commits))

    def work(at):
        start.wait()
        try:
            results[at] = engine.commit(commits[at])
        except Exception as error:
            results[at] = error

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(commits))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_of_commits_that_exclude_each_other_one_wins_and_the_tree_stays_whole(tmp_path):
    with Engine.open(tmp_path / "schema") as engine:
        engine.commit([records.StorageGroupSet("root.sg")])
        for number in range(20):
            node = f"root.sg.n{number}"
            commits = [
                [create(node)],
                [create(f"{node}.s1")],
                [create(f"{node}.s2")],
                [create(node)],
            ]
            results = run(engine, commits)
            leaf = [each for each in (results[0], results[3]) if isinstance(each, int)]
            below = [each for each in results[1:3] if isinstance(each, int)]
            assert (len(leaf), len(below)) in ((1, 0), (0, 2))
            for each in results:
                assert isinstance(each, int | SeriesExistsError | SeriesNestedError)


def test_a_limit_holds_for_a_batch_as_a_whole(tmp_path):
    with Engine.open(tmp_path / "free") as engine:
        engine.commit([records.StorageGroupSet("root.sg")])
        engine.commit([create("root.sg.d0.s1")])
        with engine.reading() as state:
            used = state.schema.memory.used
            cost = state.schema.memory.cost_of(create("root.sg.d1.s1"))
    assert cost > 0
    options = EngineOptions(max_memory=used + 5 * cost)
    with Engine.open(tmp_path / "full", options=options) as engine:
        engine.commit([records.StorageGroupSet("root.sg")])
        engine.commit([create("root.sg.d0.s1")])
        results = run(engine, [[create(f"root.sg.d{each}.s1")] for each in range(1, 17)])
        made = [each for each in results if isinstance(each, int)]
        assert 1 <= len(made) <= 5
        assert all(isinstance(each, int | MemoryLimitError) for each in results)
        with engine.reading() as state:
            assert state.schema.memory.used <= options.max_memory


# -- the limit -----------------------------------------------------------------------------------


def test_beyond_the_limit_series_and_storage_groups_are_refused_and_nothing_else(state):
    state.max_memory = state.schema.memory.used
    error = refuse(
        state, MemoryLimitError, "1 series of root.sg.d1 .*max_memory", create("root.sg.d1.s3")
    )
    assert error.extra["limit"] == error.extra["used"] == state.max_memory
    assert error.extra["needed"] > 0
    refuse(state, MemoryLimitError, "storage group root.new", records.StorageGroupSet("root.new"))
    do(state, records.StorageGroupSet("root.sg", if_missing=True))
    do(state, records.TtlSet("root.sg", 1), alias("root.sg.d1.s1", None))
    do(state, sender_seen(), records.KeysWritten([], {"a": "b"}))


def test_what_is_deleted_makes_room_again(state):
    do(state, create("root.sg.d1.s3"))
    state.max_memory = state.schema.memory.used
    refuse(state, MemoryLimitError, "root.sg.d1", create("root.sg.d1.s4"))
    do(state, gone("root.sg.d1.s3"))
    do(state, create("root.sg.d1.s4"))
    assert series(state, "root.sg.d1.*")[-1] == "root.sg.d1.s4"


def test_the_estimate_is_of_what_lives_whatever_was_there_before(state):
    before = seen(state)["memory"]
    many = create("root.sg.d2", *(f"s{each}" for each in range(200)), tags=[{"a": "b"}] * 200)
    do(state, many)
    assert state.schema.memory.used > before
    do(state, gone("root.sg.d2.**"))
    assert state.schema.memory.used == before
    do(state, many)
    after = state.schema.memory.used
    do(state, gone("root.sg.**"), create("root.sg.d1", "s1", "s2", aliases=["t1", None]), many)
    assert state.schema.memory.used == after


def test_what_a_commit_costs_is_what_it_adds(state):
    state.max_memory = 1 << 40
    for op in (
        create("root.sg.d3.s1"),
        create("root.sg.d4.x.y.z.s1", aliases="t", tags={"a": "1"}, attributes={"b": "2"}),
        create("root.sg.d3", "s2", "s3", "a much longer name than these"),
        records.StorageGroupSet("root.new.group"),
    ):
        before = state.schema.memory.used
        cost = examine(state, [op]).cost
        do(state, op)
        assert state.schema.memory.used - before <= cost, op


def test_records_of_the_key_value_store_are_checked(state):
    keys = records.KeysWritten
    refuse(state, RefusedCommitError, "nothing to write", keys([], {}))
    for bad in (keys([], {"": "x"}), keys([], {"k" * 5000: "x"}), keys(["p" * 5000], {})):
        refuse(state, RefusedCommitError, "key|prefix", bad)


def test_a_position_in_a_schema_log_belongs_to_a_known_sender_and_is_a_number(state):
    position = records.SchemaSynced
    refuse(state, RefusedCommitError, "not known", position(A, "log", 1))
    do(state, sender_seen())
    for bad in (
        position(A, "", 1),
        position(A, "log", -1),
        position(A, "log", 1, applied=-1),
        position(A, "log", 1 << 63),
    ):
        refuse(state, RefusedCommitError, "SchemaSynced", bad)


def test_a_position_counts_over_the_steps_of_one_log(state):
    do(state, sender_seen())
    do(state, records.SchemaSynced(A, "log", 10, 4, [("1,x", "no")], 1, "m1"))
    do(state, records.SchemaSynced(A, "log", 20, 3, [("1,y", "why")], 2, "m2"))
    row = state.schema_positions[A]
    assert (row.identity, row.offset, row.applied, row.unapplied, row.mark) == (
        "log",
        20,
        7,
        3,
        "m2",
    )
    assert row.failed == (("1,x", "no"), ("1,y", "why"))
    do(state, records.SchemaSynced(A, "other", 5, 1))
    row = state.schema_positions[A]
    assert (row.offset, row.applied, row.unapplied, row.failed) == (5, 1, 0, ())
    do(state, records.SchemaSynced(A, "other", 3, 1))
    assert state.schema_positions[A].applied == 1
    do(state, records.SchemaSynced(A, "other", 9, 5, whole=True))
    assert state.schema_positions[A].applied == 5
