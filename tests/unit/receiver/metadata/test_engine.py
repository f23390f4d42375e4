from contextlib import contextmanager

import pytest

from common.errors import (
    ConflictError,
    DamagedError,
    LockedError,
    NotFoundError,
    ReadOnlyError,
    TooLargeError,
)
from receiver.metadata.commit import commit_request
from receiver.metadata.commit.guards import Guard
from receiver.metadata.engine import Engine
from receiver.metadata.log.frames import VERSION, encode_log_head
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    GuardFailed,
    NewerLogError,
    RefusedCommitError,
    TimestampRefusedError,
)
from receiver.metadata.state.lock import Reading
from tests.support.metadata import (
    TASK,
    A,
    B,
    has_commit,
    load,
    log_file,
    path,
    physical,
    plain,
    seen,
)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "schema"


@pytest.fixture
def engine(home):
    with Engine.open(home) as engine:
        yield engine


def view(engine):
    with engine.reading() as state:
        return plain(state)


def test_what_was_committed_is_there_after_a_restart(home):
    with Engine.open(home) as engine:
        first = engine.commit([seen()])
        second = engine.commit([load(), records.TaskDone(A, TASK, [])])
        assert 0 < first < second == engine.newest_commit
        before, uuid = view(engine), engine.uuid
    with Engine.open(home) as engine:
        assert view(engine) == before
        assert engine.uuid == uuid
        assert engine.newest_commit == second
        assert has_commit(engine, first)
        assert has_commit(engine, second)
        assert not has_commit(engine, second + 1)
        assert engine.commit([seen(B)]) > second


def test_a_commit_is_on_the_disk_when_it_returns(home, engine):
    engine.commit([seen()])
    with Engine.read_only(home) as reader:
        assert view(reader) == view(engine)


def test_whoever_reads_sees_the_state_and_its_commit_together(engine, monkeypatch):
    writing = Reading.writing
    seen_together = []

    @contextmanager
    def watched(reading):
        with writing(reading) as state:
            yield state
            seen_together.append(engine.newest_commit == state.newest)

    monkeypatch.setattr(Reading, "writing", watched)
    engine.commit([seen()])
    assert seen_together == [True]


def test_two_engines_are_two(tmp_path):
    with Engine.open(tmp_path / "a") as one, Engine.open(tmp_path / "b") as two:
        assert one.uuid != two.uuid
        assert len(one.uuid) == 32


def test_one_engine_per_directory_and_the_holder_is_named(home, engine):
    import os

    with pytest.raises(LockedError, match=r"engine\.lock") as caught:
        Engine.open(home)
    assert caught.value.extra["pid"] == str(os.getpid())
    engine.close()
    Engine.open(home).close()


def test_nothing_of_a_refused_commit_is_logged_or_visible(home, engine):
    engine.commit([seen()])
    before, size = view(engine), log_file(home).stat().st_size
    for ops in (
        [load(), load(path("2-2-0"), 2, sender=B)],
        [records.FileDeleted("x", "gone")],
        [records.EngineMade("00" * 16)],
    ):
        with pytest.raises(RefusedCommitError):
            engine.commit(ops)
    assert view(engine) == before
    assert log_file(home).stat().st_size == size
    assert engine.failed is None
    engine.commit([load()])


@pytest.mark.parametrize(
    "op",
    [
        load(path=None),
        load(size="many"),
        load(points=1 << 70),
        records.OwnerSet("root.t.d1", A, None),
        seen(label="lone surrogate \ud800"),
        "no operation at all",
    ],
)
def test_a_value_that_the_next_start_could_not_read_never_gets_into_the_log(home, engine, op):
    engine.commit([seen()])
    before, size = view(engine), log_file(home).stat().st_size
    with pytest.raises(RefusedCommitError, match="cannot be stored"):
        engine.commit([seen(B), op])
    assert view(engine) == before
    assert log_file(home).stat().st_size == size
    engine.commit([load()])


def test_an_empty_commit_is_refused(engine):
    with pytest.raises(RefusedCommitError, match="nothing to commit"):
        engine.commit([])


def test_a_commit_that_fits_no_frame_is_refused_before_it_is_logged(engine, monkeypatch):
    monkeypatch.setattr(commit_request, "_MAX_COMMIT", 1000)
    engine.commit([seen()])
    with pytest.raises(TooLargeError, match="at most 1000"):
        engine.commit([seen(label="x" * 1000)])
    engine.commit([seen(label="short")])


def test_a_guard_that_holds_lets_the_commit_through(engine):
    engine.commit([seen()], [Guard("sender", A, 0)])
    ts = engine.commit([load()], [Guard("sender", A, engine.newest_commit), Guard("owner", "d", 0)])
    guards = [
        Guard("file", physical(path(), 1), ts),
        Guard("path", (A, path()), ts),
        Guard("owner", "root.t.d1", ts),
        Guard("task", (A, TASK), 0),
        Guard("token", "t", 0),
        Guard("quarantine", (A, path(), "00"), 0),
    ]
    engine.commit([records.FileRetired(physical(path(), 1))], guards)


@pytest.mark.parametrize(
    "guard",
    [
        Guard("sender", A, 0),
        Guard("file", physical(path(), 1), 1),
        Guard("path", (A, path()), 0),
        Guard("owner", "root.t.d1", 0),
        Guard("token", "t", 5),
    ],
)
def test_a_guard_that_does_not_hold_stops_the_commit(engine, guard):
    engine.commit([seen(), load()])
    before = view(engine)
    with pytest.raises(GuardFailed, match=guard.table) as caught:
        engine.commit([seen(B)], [guard])
    assert caught.value.retry
    assert view(engine) == before


def test_a_released_and_claimed_device_is_another_row(engine):
    engine.commit([seen(), load()])
    with engine.reading() as state:
        changed = state.owners["root.t.d1"].changed
    engine.commit([records.OwnerSet("root.t.d1", None, "release")])
    engine.commit([records.OwnerSet("root.t.d1", A, "transfer")])
    with pytest.raises(GuardFailed):
        engine.commit([seen(B)], [Guard("owner", "root.t.d1", changed)])


def test_an_allocator_can_be_handed_in(home):
    given = iter([1, 450, 451])
    with Engine.open(home, allocate=lambda newest: next(given)) as engine:
        assert engine.commit([seen()]) == 450
        assert engine.commit([seen(B)]) == 451


def test_a_timestamp_that_goes_back_is_refused_when_it_is_written(home):
    given = iter([100, 450, 450, 90, 1 << 63, 451])
    engine = Engine.open(home, allocate=lambda newest: next(given))
    engine.commit([seen()])
    for wrong in (450, 90, 1 << 63):
        with pytest.raises(TimestampRefusedError, match=f"{wrong} does not follow 450"):
            engine.commit([seen(B)])
    assert engine.newest_commit == 450
    assert engine.failed is None
    assert B not in view(engine)["senders"]
    assert engine.commit([seen(B)]) == 451, "it was that commit's trouble alone"
    engine.close()
    with Engine.open(home) as again:
        assert again.newest_commit == 451


def test_a_clock_that_jumps_changes_nothing_but_the_pace(home):
    now = [1_000_000.0]
    with Engine.open(home, clock=lambda: now[0]) as engine:
        stamps = [engine.commit([seen()])]
        for now[0] in (10.0, 4e12, 1_000_001.0, -1.0):
            stamps.append(engine.commit([seen()]))
    now[0] = 5.0
    with Engine.open(home, clock=lambda: now[0]) as engine:
        stamps.append(engine.commit([seen()]))
    assert stamps == sorted(set(stamps))


def test_read_only_takes_no_commit_and_needs_an_engine(home, tmp_path):
    with pytest.raises(NotFoundError, match="no such directory"):
        Engine.read_only(home)
    with pytest.raises(NotFoundError, match="no metadata engine"):
        Engine.read_only(tmp_path)
    with Engine.open(home) as engine:
        reader = Engine.read_only(home)
        with pytest.raises(ReadOnlyError, match="reading only"):
            reader.commit([seen()])
        assert reader.uuid == engine.uuid
        assert reader.failed is None
        reader.close()
        engine.commit([seen()])


def test_read_only_stops_at_a_torn_tail_and_leaves_it(home):
    with Engine.open(home) as engine:
        engine.commit([seen()])
        before = view(engine)
    content = log_file(home).read_bytes() + b"TSFm torn"
    log_file(home).write_bytes(content)
    with Engine.read_only(home) as reader:
        assert view(reader) == before
    assert log_file(home).read_bytes() == content
    with Engine.open(home) as engine:
        assert view(engine) == before
    assert log_file(home).read_bytes() == content[:-9]


def test_a_torn_tail_is_cut_before_anything_is_written_behind_it(home):
    with Engine.open(home) as engine:
        engine.commit([seen()])
    log_file(home).write_bytes(log_file(home).read_bytes()[:-3])
    with Engine.open(home) as engine:
        assert A not in view(engine)["senders"]
        engine.commit([seen(B)])
    with Engine.open(home) as engine:
        assert set(view(engine)["senders"]) == {B}


def test_a_log_from_a_newer_version_stops_the_start(home):
    Engine.open(home).close()
    log_file(home).write_bytes(encode_log_head(5, 1, version=VERSION + 1) + b"whatever")
    for opening in (Engine.open, Engine.read_only):
        with pytest.raises(NewerLogError, match=f"version {VERSION + 1}"):
            opening(home)
    log_file(home).unlink()


def test_a_failed_start_gives_the_lock_back(home):
    Engine.open(home).close()
    content = log_file(home).read_bytes()
    log_file(home).write_bytes(b"")
    with pytest.raises(DamagedError, match="no log"):
        Engine.open(home)
    log_file(home).write_bytes(content)
    Engine.open(home).close()


def test_a_log_that_is_gone_is_an_error_never_an_empty_engine(home):
    Engine.open(home).close()
    log_file(home).unlink()
    with pytest.raises(DamagedError, match="is gone"):
        Engine.open(home)


def test_a_log_without_its_first_commit_is_damaged(home):
    Engine.open(home).close()
    log_file(home).write_bytes(log_file(home).read_bytes()[:-5])
    with pytest.raises(DamagedError, match="first commit is not whole"):
        Engine.open(home)


def test_what_an_unfinished_creation_left_is_swept(home):
    home.mkdir()
    (home / ".0123456789abcdef.tmp").write_bytes(b"half")
    (home / ".other.tmp").write_bytes(b"not ours")
    Engine.open(home).close()
    assert sorted(each.name for each in home.iterdir()) == [
        ".other.tmp",
        "clock.json",
        "engine.lock",
        "mlog-1.tsf",
        "sync",
        "tlog-1.tsf",
    ]


def test_the_log_is_not_for_everybody_to_read(home, engine):
    assert log_file(home).stat().st_mode & 0o007 == 0


def test_reading_nests_and_a_commit_inside_is_refused(engine):
    with engine.reading() as outer, engine.reading() as inner:
        assert outer is inner
        with pytest.raises(RuntimeError, match="would wait for itself"):
            engine.commit([seen()])
    engine.commit([seen()])


def test_closing_twice_is_harmless_and_a_closed_engine_takes_nothing(home):
    engine = Engine.open(home)
    engine.close()
    engine.close()
    with pytest.raises(ReadOnlyError, match="closed"):
        engine.commit([seen()])


def test_a_conflict_found_at_commit_names_the_device(engine):
    engine.commit([seen(), seen(B), load()])
    with pytest.raises(ConflictError) as caught:
        engine.commit([load(path("2-2-0"), 2, sender=B)])
    assert caught.value.extra["device"] == "root.t.d1"
