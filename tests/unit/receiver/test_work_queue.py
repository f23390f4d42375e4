"""Background work: scopes apart, the first committer takes it, a late executor commits nothing."""

import itertools
import random
import threading
import time

import msgspec
import pytest

from common.errors import ConflictError
from receiver.background.work_queue import WorkQueue
from receiver.metadata.commit.guards import Guard
from receiver.metadata.commit.judging import background_rules
from receiver.metadata.commit.judging.work_rules import overlap
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.metadata.model.records import WorkPlace
from receiver.metadata.state.tables import background_work
from receiver.metadata.state.tables.background_work import WorkTable, row_at
from receiver.metadata.state.work_rows import WorkRow, WorkState

GROUP, PARTITION = WorkPlace("root.a"), WorkPlace("root.a", "1")
FILE, OTHER = WorkPlace("root.a", "1", "f"), WorkPlace("root.a", "2")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path, background=False) as engine:
        yield engine


@pytest.fixture
def queue(engine, clock):
    return WorkQueue(engine, lease=60, most_attempts=2, clock=clock)


def table(engine):
    with engine.reading() as state:
        return dict(state.work_table.rows)


def result(key):
    return [records.KeysWritten((), {key: "made"})]


def has(engine, key):
    with engine.reading() as state:
        return state.keys.changed(key) > 0


@pytest.mark.parametrize(
    ("one", "other"), [*itertools.product([GROUP, PARTITION, FILE], repeat=2), (GROUP, OTHER)]
)
def test_what_overlaps_open_work_is_not_inserted(engine, queue, one, other):
    first = queue.add("merge", b"", [one])
    with pytest.raises(ConflictError) as refused:
        queue.add("prove", b"", [WorkPlace("root.b"), other])
    assert refused.value.extra["work"] == first
    taken = queue.take("x", ["merge"])
    with pytest.raises(ConflictError):
        queue.add("prove", b"", [other])
    assert list(table(engine)) == [first]
    queue.end(taken, "done")
    queue.add("prove", b"", [other])


def test_work_that_does_not_overlap_runs_side_by_side(queue):
    queue.add("merge", b"", [PARTITION])
    queue.add("merge", b"", [OTHER])
    assert queue.take("x", ["merge"]).id != queue.take("y", ["merge"]).id
    assert queue.take("z", ["merge"]) is None


def test_one_commit_holds_no_two_of_one_scope(engine):
    with pytest.raises(ConflictError):
        engine.commit_with(
            lambda ts: [
                records.WorkAdded(ts, "a", b"", [PARTITION]),
                records.WorkAdded(ts + 1, "a", b"", [FILE]),
            ]
        )
    assert not table(engine)


def test_ten_thousand_of_one_group_in_one_commit_are_not_held_against_each_other_in_pairs(
    engine, queue, monkeypatch
):
    compared = []
    monkeypatch.setattr(
        background_rules, "overlap", lambda *pair: compared.append(pair) or overlap(*pair)
    )
    added = [
        records.WorkAdded(at + 1, "a", b"", [WorkPlace("root.a", str(at))]) for at in range(10_000)
    ]
    engine.commit(added)
    assert compared == []
    for place in (GROUP, PARTITION, FILE):
        with pytest.raises(ConflictError):
            queue.add("a", b"", [place])


@pytest.mark.parametrize("seed", range(6))
def test_scopes_are_judged_in_one_commit_as_in_several(tmp_path, seed):
    rng = random.Random(seed)
    places = [WorkPlace(f"g{g}", p, f) for g in range(2)
              for p, f in (("", ""), ("1", ""), ("2", ""), ("1", "x"), ("1", "y"))]  # fmt: skip
    with (
        Engine.open(tmp_path / "one", background=False) as one,
        Engine.open(tmp_path / "several", background=False) as several,
    ):
        refused = ident = 0
        for _ in range(60):
            ops = []
            for _ in range(rng.randint(1, 6)):
                ident += 1
                ops.append(records.WorkAdded(ident, "a", b"", [rng.choice(places)]))
                if rng.random() < 0.6:
                    open_now = [row.id for row in table(several).values() if row.state == "pending"]
                    ended = rng.choice([*open_now, ident])
                    ops.append(records.WorkEnded(ended, 0, "cancelled"))
            error = None
            for op in ops:
                try:
                    several.commit([op])
                except ConflictError as found:
                    error = found
                    break
            if error is None:
                one.commit(ops)
                assert open_scopes(one) == open_scopes(several)
                continue
            refused += 1
            with pytest.raises(ConflictError) as again:
                one.commit(ops)
            assert again.value.extra.get("work") == error.extra.get("work")
            several.commit([records.WorkEnded(each, 0, "cancelled")
                            for each in open_scopes(several)] or result("none"))  # fmt: skip
            one.commit([records.WorkEnded(each, 0, "cancelled") for each in open_scopes(one)]
                       or result("none"))  # fmt: skip
        assert 5 < refused < 55


def open_scopes(engine):
    return {row.id: row.scope for row in table(engine).values() if row.state == "pending"}


def test_the_highest_priority_goes_first_then_the_oldest(queue):
    ids = [
        queue.add("merge", b"", [WorkPlace("root.a", str(at))], priority=priority)
        for at, priority in enumerate((0, 5, 5, -3))
    ]
    taken = [queue.take("x", ["merge", "none of it"]).id for _ in ids]
    assert taken == [ids[1], ids[2], ids[0], ids[3]]


def test_an_executor_that_slept_commits_nothing(engine, queue, clock):
    queue.add("merge", b"", [PARTITION])
    sleeper = queue.take("sleeper", ["merge"])
    clock.now += 600
    with pytest.raises(ConflictError):
        queue.end(sleeper, "done", ops=result("late"))
    awake = queue.take("awake", ["merge"])
    assert (awake.id, awake.attempt) == (sleeper.id, 2)
    for late in (lambda: queue.end(sleeper, "done", ops=result("late")),
                 lambda: queue.renew(sleeper)):  # fmt: skip
        with pytest.raises(ConflictError):
            late()
    queue.end(awake, "done", ops=result("good"))
    with pytest.raises(ConflictError):
        queue.end(awake, "done", ops=result("late"))
    assert has(engine, "good")
    assert not has(engine, "late")


def test_who_renews_keeps_its_lease(queue, clock):
    queue.add("merge", b"", [PARTITION])
    row = queue.take("x", ["merge"])
    for _ in range(5):
        clock.now += 59
        queue.renew(row)
    queue.end(row, "done")


def test_what_nobody_ends_fails_with_the_reason_and_can_be_tried_again(engine, queue, clock):
    ident = queue.add("merge", b"", [PARTITION])
    for _ in range(2):
        queue.take("mayfly", ["merge"])
        clock.now += 60
    assert queue.take("x", ["merge"]) is None
    failed = table(engine)[ident]
    assert failed.state is WorkState.FAILED
    assert "mayfly was not heard of for 60 s (attempt 2)" in failed.reason
    other = queue.add("prove", b"", [FILE])  # its scope is free
    with pytest.raises(ConflictError):
        queue.retry(failed)
    with pytest.raises(ConflictError):
        queue.end(failed, "pending", ops=result("late"))
    queue.cancel(table(engine)[other], "not now")
    queue.retry(failed)
    assert queue.take("x", ["merge"]).attempt == 3


def test_attempts_that_were_given_back_are_none_that_nobody_ended(engine, queue, clock):
    """And what an operator has tried again has all of its attempts."""
    ident = queue.add("merge", b"", [PARTITION])
    for _ in range(5):
        queue.end(queue.take("full", ["merge"]), "pending", reason="no room")
    for state in (WorkState.PENDING, WorkState.FAILED) * 2:
        queue.end(queue.take("full", ["merge"]), "pending", reason="no room")
        queue.take("mayfly", ["merge"])
        clock.now += 60
        queue.expire()
        assert table(engine)[ident].state is state
        if state is WorkState.FAILED:
            queue.retry(table(engine)[ident])


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restart_keeps_all_and_gives_one_fresh_lease(tmp_path, clock, checkpoint):
    with Engine.open(tmp_path, background=False) as engine:
        queue = WorkQueue(engine, clock=clock, lease=60)
        queue.add("merge", b"spec", [PARTITION, OTHER], priority=2)
        row = queue.take("x", ["merge"])
        before = table(engine)
        if checkpoint:
            engine.checkpoint()
    clock.now = 1e6
    with Engine.open(tmp_path, background=False) as engine:
        assert table(engine) == before
        queue = WorkQueue(engine, clock=clock, lease=60)
        clock.now += 59
        assert queue.expire() == 0
        with pytest.raises(ConflictError):
            queue.add("prove", b"", [FILE])
        clock.now += 1
        assert queue.expire() == 1
        with pytest.raises(ConflictError):
            queue.end(row, "done", ops=result("late"))


@pytest.mark.parametrize(
    "op",
    [
        records.WorkAdded(1, "", b"", [PARTITION]),
        records.WorkAdded(0, "a", b"", [PARTITION]),
        records.WorkAdded(1, "a", b"", []),
        records.WorkAdded(1, "a", b"", [PARTITION, FILE]),
        records.WorkAdded(1, "a", b"", [WorkPlace("")]),
        records.WorkAdded(1, "a", b"", [WorkPlace("root.a", "", "f")]),
        records.WorkAdded(1, "a", b"", [PARTITION], 128),
    ],
)
def test_what_is_no_work_is_refused(engine, op):
    with pytest.raises(RefusedCommitError):
        engine.commit([op])


def test_work_that_has_ended_takes_no_more_memory(monkeypatch):
    monkeypatch.setattr(background_work, "KEPT_WORK", 100)
    rows = WorkTable()
    for ident in range(1, 5000):
        for state in (WorkState.PENDING, WorkState.RUNNING, WorkState.DONE):
            rows.restore(
                WorkRow(id=ident, kind="a", spec=b"", scope=(FILE,), priority=0, state=state,
                        created=1, changed=1)
            )  # fmt: skip
    assert list(rows.rows) == list(range(4900, 5000))
    assert rows.running() == []
    assert not rows.overlapping(GROUP)


def overlaps(one, other):
    def parts(place):
        return [each for each in (place.group, place.partition, place.file) if each]

    return any(
        all(x == y for x, y in zip(parts(a), parts(b), strict=False)) for a in one for b in other
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(8))
def test_random_lives_agree_with_a_model(tmp_path, clock, seed):
    rng = random.Random(seed)
    places = [WorkPlace(f"g{g}", p, f) for g in range(2)
              for p, f in (("", ""), ("1", ""), ("2", ""), ("1", "x"), ("1", "y"))]  # fmt: skip
    scopes, held, results = {}, [], []
    engine = Engine.open(tmp_path, background=False)
    queue = WorkQueue(engine, lease=10, most_attempts=3, clock=clock)
    for step in range(150):
        match rng.choice(["add", "add", "take", "take", "end", "end", "renew", "sleep", "kill"]):
            case "add":
                scope = [rng.choice(places)]
                held_now = [each for each, row in table(engine).items()
                            if row.state in ("pending", "running")]  # fmt: skip
                free = not any(overlaps(scope, scopes[each]) for each in held_now)
                try:
                    scopes[queue.add("a", b"", scope, priority=rng.randrange(3))] = scope
                    assert free
                except ConflictError:
                    assert not free
            case "take":
                if (row := queue.take(f"e{step}", ["a"])) is not None:
                    held.append((row, clock.now + 10))
            case "end" if held:
                row, until = held.pop(rng.randrange(len(held)))
                try:
                    queue.end(row, rng.choice(["done", "failed"]), ops=result(f"r{step}"))
                    results.append(row.id)
                    assert clock.now < until
                    assert has(engine, f"r{step}")
                except ConflictError:
                    assert clock.now >= until
                    assert not has(engine, f"r{step}")
            case "renew" if held:
                row, until = held.pop()
                try:
                    queue.renew(row)
                    held.append((row, clock.now + 10))
                    assert clock.now < until
                except ConflictError:
                    assert clock.now >= until
            case "sleep":
                clock.now += rng.choice([1, 3, 11])
            case "kill":
                before = table(engine)
                if rng.random() < 0.5:
                    engine.checkpoint()
                engine.close()
                engine = Engine.open(tmp_path, background=False)
                assert table(engine) == before
                queue = WorkQueue(engine, lease=10, most_attempts=3, clock=clock)
                held = [(row, clock.now + 10 if before[row.id] == row else 0) for row, _ in held]
        rows = [row for row in table(engine).values() if row.state is WorkState.RUNNING]
        for one, other in itertools.combinations(rows, 2):
            assert not overlaps(one.scope, other.scope)
    assert len(results) == len(set(results))
    assert results
    engine.close()


def test_who_does_what_is_cancelled_commits_nothing(engine, queue):
    queue.add("merge", b"", [PARTITION])
    row = queue.take("x", ["merge"])
    queue.cancel(row, "not now")
    with pytest.raises(ConflictError):
        queue.end(row, "done", ops=result("late"))
    assert not has(engine, "late")
    assert table(engine)[row.id].reason == "not now"


def test_a_piece_of_a_result_is_committed_by_its_attempt_alone(engine, queue, clock):
    queue.add("merge", b"", [PARTITION])
    sleeper = queue.take("sleeper", ["merge"])
    queue.commit(sleeper, result("first"))
    queue.commit(sleeper, result("second"))
    queue.renew(sleeper)
    clock.now += 60
    with pytest.raises(ConflictError, match="no more that of attempt 1"):
        queue.commit(sleeper, result("late"))
    awake = queue.take("awake", ["merge"])
    with pytest.raises(ConflictError):
        queue.commit(sleeper, result("late"))
    queue.commit(awake, result("third"))
    queue.cancel(table(engine)[awake.id], "not now")
    with pytest.raises(ConflictError):
        queue.commit(awake, result("late"))
    assert [has(engine, each) for each in ("first", "second", "third", "late")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_an_attempt_that_ends_in_the_same_batch_commits_nothing_more(engine, queue):
    """The guard is held against commits of the same batch too, not only against what is applied."""
    queue.add("merge", b"", [PARTITION])
    row = queue.take("x", ["merge"])
    guard = Guard("work", str(row.id), row.changed)
    ended = [records.WorkEnded(row.id, row.attempt, "done")]
    late = threading.Thread(target=lambda: engine.commit(ended))
    refused = []

    def more():
        try:
            engine.commit(result("late"), [guard])
        except GuardFailed as error:
            refused.append(error)

    other = threading.Thread(target=more)

    def both():
        late.start()
        wait_for(engine, 1)
        other.start()
        wait_for(engine, 2)

    engine._writer().between_batches(both)
    late.join()
    other.join()
    assert len(refused) == 1
    assert not has(engine, "late")


def wait_for(engine, count):
    until = time.monotonic() + 60
    while len(engine._writer()._waiting) < count + 1:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_a_result_holds_only_if_what_it_was_made_of_stands(engine, queue):
    queue.add("merge", b"", [PARTITION])
    row = queue.take("x", ["merge"])
    engine.commit(result("base"))
    with pytest.raises(GuardFailed):
        queue.commit(row, result("made"), [Guard("key", "base", 0)])
    with pytest.raises(GuardFailed):
        queue.end(row, "done", ops=result("made"), guards=[Guard("key", "base", 0)])
    assert not has(engine, "made")
    queue.end(row, "failed", reason="the base has changed")


def test_what_is_held_is_renewed_and_who_loses_it_is_told(engine, queue, clock, monkeypatch):
    queue.lease = 0.06  # of the test's clock; a third of it, of the real one, between renewals
    renewed, renew = threading.Event(), queue.renew
    monkeypatch.setattr(queue, "renew", lambda row: (renew(row), renewed.set()))
    queue.add("merge", b"", [PARTITION])
    row = queue.take("x", ["merge"])
    with queue.held(row) as lost:
        for _ in range(5):
            clock.now += 0.05
            for _ in range(2):  # the first may have begun before
                renewed.clear()
                assert renewed.wait(60)
            assert queue.expire() == 0
        assert not lost.is_set()
        queue.cancel(table(engine)[row.id], "not now")
        assert lost.wait(60)


def test_what_an_executor_ran_that_is_no_more_waits_at_once(engine, queue):
    queue.add("merge", b"", [PARTITION])
    queue.add("merge", b"", [OTHER])
    queue.take("mine", ["merge"])
    other = queue.take("another", ["merge"])
    assert queue.give_back("mine") == 1
    again = queue.take("mine", ["merge"])
    assert again.attempt == 2
    queue.end(other, "done")


def test_a_failure_that_an_operator_knows_of_is_counted_no_more(engine, queue):
    queue.add("merge", b"", [PARTITION])
    row = queue.take("x", ["merge"])
    queue.end(row, "failed", reason="types contradict")
    with engine.reading() as state:
        assert [each.reason for each in state.work_table.failed()] == ["types contradict"]
    queue.cancel(table(engine)[row.id], "known")
    with engine.reading() as state:
        assert state.work_table.failed() == []


def test_what_failed_is_not_crowded_out_by_what_was_done(monkeypatch):
    monkeypatch.setattr(background_work, "KEPT_WORK", 3)
    rows = WorkTable()
    for ident in range(1, 20):
        state = WorkState.FAILED if ident in (1, 5) else WorkState.DONE
        rows.restore(
            WorkRow(id=ident, kind="a", spec=b"", scope=(FILE,), priority=0, state=state,
                    created=1, changed=1)
        )  # fmt: skip
    assert sorted(rows.rows) == [1, 5, 17, 18, 19]


def test_each_moment_of_a_row_is_known_as_it_was(engine, queue, clock):
    queue.add("merge", b"", [PARTITION])
    (ident,) = table(engine)
    seen = [(engine.newest_commit, table(engine)[ident])]
    for end in ("pending", "failed"):
        row = queue.take(f"until {end}", ["merge"])
        seen.append((engine.newest_commit, table(engine)[ident]))
        queue.end(row, end, reason=f"so {end}")
        seen.append((engine.newest_commit, table(engine)[ident]))
    now = table(engine)[ident]
    assert row_at(now, ident - 1) is None
    for ts, then in seen:
        found = row_at(now, ts)
        assert msgspec.structs.replace(found, stood=()) == msgspec.structs.replace(then, stood=())
    assert row_at(now, engine.newest_commit + 9) == now
    for _ in range(60):
        queue.retry(table(engine)[ident])
        queue.end(queue.take("x", ["merge"]), "failed")
    with pytest.raises(LookupError):
        row_at(table(engine)[ident], seen[0][0])
