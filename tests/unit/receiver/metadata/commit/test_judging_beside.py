"""A large commit is judged beside the line: others go on, and what they commit counts."""

from __future__ import annotations

import threading

import msgspec
import pytest

from common import crash
from common.errors import ConflictError
from receiver.metadata.commit import commit_request, committer
from receiver.metadata.commit.commit_request import is_large
from receiver.metadata.commit.draft import Draft
from receiver.metadata.commit.guards import Guard
from receiver.metadata.commit.pace import Pace
from receiver.metadata.commit.recent_commits import JudgedOps
from receiver.metadata.engine import Engine, EngineOptions
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    GuardFailed,
    MemoryLimitError,
    RefusedCommitError,
    SchemaConflictError,
    StorageGroupNestedError,
)
from tests.support.metadata import B, load, path, physical, seen
from tests.support.procs import wait_until

DEVICES = 40
AT_ONCE = 8
NAMES = [f"root.t.site{each % 3}.d{each}" for each in range(DEVICES)]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    monkeypatch.setattr(commit_request, "_MANY", DEVICES)
    monkeypatch.setattr(Pace.__init__, "__defaults__", (AT_ONCE,))


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path / "schema", background=False) as engine:
        engine.commit([seen(), seen(B)])
        yield engine


def write(stem="1-1-0", *, group=True, kind=3, tag=1):
    """What a write from Spark commits."""
    logical = path(stem)
    one = load(logical, tag, devices=dict.fromkeys(NAMES, (1, 9)), content=stem)
    of = [
        records.LoadedDevice(each, False, ("s1", "s2"), bytes([kind] * 2), b"\0\0", b"\1\1", (9, 9))
        for each in NAMES
    ]
    made = [records.StorageGroupSet("root.t", if_missing=True)] if group else []
    return [*made, one, records.SeriesLoaded(physical(logical, tag), of)]


def at(name, do):
    """Do something at each passage of a step of the large commit, for others in this thread."""
    passed = []

    def hook(here):
        if here == name and not hook.inside:
            hook.inside = True  # a commit of others passes by steps as well
            passed.append(here)
            do(len(passed))
            hook.inside = False

    hook.inside = False
    return crash.arm(hook), passed


def is_whole(engine):
    with engine.reading() as state:
        there = (
            len(state.owners),
            len(state.file_table.catalogue(None, 9)),
            state.schema.columns.device_count,
            state.schema.columns.series_count,
        )
    assert there in [(0, 0, 0, 0), (DEVICES, 1, DEVICES, 2 * DEVICES)], there
    return there[0] > 0


def test_others_commit_and_read_between_any_few_devices_of_a_large_commit(engine):
    def others(number):
        engine.commit([seen(B, label=f"{number}")])
        assert not is_whole(engine)

    armed, passed = at("mlog.commit.judging", others)
    with armed:
        engine.commit(write())
    # An operation and a device are a step each; none of both lists is judged in one go.
    assert len(passed) == (3 + 2 * DEVICES - 1) // AT_ONCE
    assert is_whole(engine)


def test_nothing_of_a_large_commit_is_judged_in_the_line(engine, monkeypatch):
    def examine(*_, **__):
        raise AssertionError("judged in the line")

    armed, passed = at("mlog.commit.judged", lambda _: None)
    with armed:
        monkeypatch.setattr(committer, "examine", examine)
        engine.commit(write())
    assert passed == ["mlog.commit.judged"]
    assert is_whole(engine)


@pytest.mark.parametrize("step", ["mlog.commit.judging", "mlog.commit.judged"])
@pytest.mark.parametrize("device", [NAMES[0], NAMES[-1]])
def test_who_became_owner_meanwhile_counts(engine, step, device):
    def others(number):
        if number == 2 or step == "mlog.commit.judged":
            engine.commit([records.OwnerSet(device, B, "by hand")])

    armed, _ = at(step, others)
    with armed, pytest.raises(ConflictError, match=device):
        engine.commit(write())
    with engine.reading() as state:
        assert not state.file_table.catalogue(None, 9)
        assert list(state.owners) == [device]


def test_a_series_that_came_meanwhile_with_another_type_counts(engine):
    engine.commit([records.StorageGroupSet("root.t")])

    def others(number):
        if number == 1:
            engine.commit([records.SeriesCreated(NAMES[-1], ("s1",), b"\1", b"\0", b"\1")])

    armed, _ = at("mlog.commit.judged", others)
    with armed, pytest.raises(SchemaConflictError):
        engine.commit(write(group=False))


def test_a_storage_group_that_came_meanwhile_counts(engine):
    def others(number):
        if number == 1:
            engine.commit([records.StorageGroupSet("root.t.site0")])

    armed, passed = at("mlog.commit.judged", others)
    with armed, pytest.raises(StorageGroupNestedError, match=r"root\.t\.site0"):
        engine.commit(write())
    assert passed


def ttl_of_table(engine):
    with engine.reading() as state:
        (row,) = state.loaded_tables.there()
        return row.name, row.ttl


@pytest.mark.parametrize("before", [None, 1000])
@pytest.mark.parametrize("step", ["mlog.commit.judging", "mlog.commit.judged"])
def test_a_ttl_that_was_set_meanwhile_is_that_of_the_new_table(engine, step, before):
    engine.commit([records.StorageGroupSet("root.t"), records.TtlSet("root.t", before)])

    def others(number):
        if number == 1:
            engine.commit([records.TtlSet("root.t", 2000)])

    armed, passed = at(step, others)
    with armed:
        engine.commit(write(group=False))
    assert passed
    assert ttl_of_table(engine) == ("root.t", 2000)


@pytest.mark.parametrize("ttl_first", [False, True])
def test_a_new_table_and_the_ttl_of_its_group_are_not_in_one_batch(engine, monkeypatch, ttl_first):
    monkeypatch.setattr(commit_request, "_MANY", 1 << 20)
    engine.commit([records.StorageGroupSet("root.t"), records.TtlSet("root.t", 1000)])
    commits = [write(group=False), [records.TtlSet("root.t", 2000)]]
    begun, go_on = threading.Event(), threading.Event()

    def hold():
        begun.set()
        assert go_on.wait(60)

    threads = [threading.Thread(target=engine._committer.between_batches, args=(hold,))]
    threads += [
        threading.Thread(target=engine.commit, args=(each,))
        for each in (reversed(commits) if ttl_first else commits)
    ]
    for number, each in enumerate(threads):
        each.start()
        if number == 0:
            assert begun.wait(60)
        else:
            wait_until(
                lambda number=number: len(engine._committer._waiting) > number,
                "a commit that waits",
            )
    go_on.set()
    for each in threads:
        each.join()
    assert ttl_of_table(engine) == ("root.t", 2000)


def test_a_guard_holds_in_the_line(engine):
    with engine.reading() as state:
        guard = Guard("sender", B, state.senders[B].changed)
    armed, _ = at("mlog.commit.judged", lambda _: engine.commit([seen(B, label="other")]))
    with armed, pytest.raises(GuardFailed):
        engine.commit(write(), [guard])
    assert not is_whole(engine)


def test_guards_on_owners_are_looked_at_beside_the_line_and_count_in_it(engine, monkeypatch):
    unowned = [Guard("owner", each, 0) for each in NAMES]
    looked = []
    check = committer.check_guards
    monkeypatch.setattr(
        committer, "check_guards", lambda state, guards: looked.extend(guards) or check(state, ())
    )
    other = records.OwnerSet(NAMES[-1], B, "other")
    armed, passed = at("mlog.commit.judged", lambda n: n == 1 and engine.commit([other]))
    with armed, pytest.raises(GuardFailed):
        engine.commit(write(), unowned)
    assert passed
    assert not looked
    with engine.reading() as state:
        assert list(state.owners) == [NAMES[-1]]


def test_an_owner_that_goes_meanwhile_counts_for_a_guard_on_it(engine):
    engine.commit([records.OwnerSet("root.t.other", B, "by hand")])
    with engine.reading() as state:
        guard = Guard("owner", "root.t.other", state.changed("owner", "root.t.other"))
    gone = records.OwnerSet("root.t.other", None, "released")
    armed, passed = at("mlog.commit.judged", lambda n: n == 1 and engine.commit([gone]))
    with armed, pytest.raises(GuardFailed):
        engine.commit(write(), [guard])
    assert passed
    assert not is_whole(engine)


def test_many_new_series_of_a_device_make_a_commit_large():
    codes = bytes([1] * (8 * DEVICES))
    names = tuple(f"s{each}" for each in range(len(codes)))
    made = records.SeriesCreated("root.t.d", names, codes, codes, codes)
    assert is_large([made])
    assert not is_large([msgspec.structs.replace(made, names=names[:8])])


@pytest.mark.parametrize("stands", [True, False])
def test_a_large_transaction_that_was_overtaken_is_judged_beside_the_line(
    engine, monkeypatch, stands
):
    with engine.reading() as state:
        guard = Guard("sender", B, state.senders[B].changed)
        draft = Draft(state, notes=True)
        ops = write()
        draft.take(ops)
        pieces = [records.encode_op(op) for op in ops]
        judged = JudgedOps(ops, pieces, state.newest, draft.touched, lambda: [guard])
    engine.commit([seen(label="touches what it looked at")])
    if not stands:
        engine.commit([seen(B, label="other")])
    monkeypatch.setattr(committer, "examine", None)  # in the line nothing is judged
    if stands:
        engine.commit_judged(judged, records.TxnCommitted(7))
    else:
        with pytest.raises(GuardFailed):
            engine.commit_judged(judged, records.TxnCommitted(7))
    assert is_whole(engine) is stands


def test_one_that_is_overtaken_again_and_again_is_judged_in_the_line(engine, monkeypatch):
    judged = []
    examine = committer.examine

    def counted(state, ops, **more):
        judged.append(is_large(ops))
        return examine(state, ops, **more)

    monkeypatch.setattr(committer, "examine", counted)
    armed, passed = at(
        "mlog.commit.judged", lambda number: engine.commit([seen(label=str(number))])
    )
    with armed:
        engine.commit(write())
    assert len(passed) == committer._TRIES
    assert judged.count(True) == 1
    assert is_whole(engine)


def test_what_the_rules_refuse_is_refused_beside_the_line(engine, monkeypatch):
    monkeypatch.setattr(committer, "examine", None)
    none = records.FileDeleted(physical(path("9-9-0"), 9), "replaced")
    with pytest.raises(RefusedCommitError, match="there is no file"):
        engine.commit([none, *write()])
    assert not is_whole(engine)


def test_what_the_schema_takes_meanwhile_counts_for_the_limit(tmp_path):
    other = records.SeriesCreated("root.other.d", ("s" * 200,), b"\1", b"\0", b"\1")
    first = [seen(), records.StorageGroupSet("root.other")]
    with Engine.open(tmp_path / "trial", options=EngineOptions(max_memory=1 << 40)) as engine:
        engine.commit(first)
        with engine.reading() as state:
            needed = state.schema.memory.used + committer.examine(state, write()).cost
    limited = EngineOptions(max_memory=needed + 100)
    with Engine.open(tmp_path / "schema", options=limited) as engine:
        engine.commit(first)
        armed, passed = at("mlog.commit.judged", lambda n: n == 1 and engine.commit([other]))
        with armed, pytest.raises(MemoryLimitError):
            engine.commit(write())
        assert passed
        with engine.reading() as state:
            assert not state.owners


def test_encoded_one_by_one_it_is_what_all_together_is(engine):
    for count in (1, 15, 16, 70_000):
        ops = [records.TtlSet("root.t", each) for each in range(count)]
        assert records.join_ops([records.encode_op(op) for op in ops]) == records.encode_ops(ops)


@pytest.mark.parametrize(
    ("point", "there"),
    [
        ("mlog.commit.judging", False),
        ("mlog.commit.judged", False),
        ("mlog.commit.before", False),
        ("mlog.commit.durable", True),
        ("mlog.commit.published", True),
    ],
)
def test_a_crash_at_any_step_of_it_leaves_all_of_it_or_nothing(engine, tmp_path, point, there):
    def die(name):
        if name == point:
            raise crash.SimulatedCrash(name)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        engine.commit(write())
    engine.close()
    with Engine.open(tmp_path / "schema") as again:
        assert is_whole(again) is there
