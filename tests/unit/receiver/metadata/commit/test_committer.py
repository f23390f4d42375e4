"""Many callers, one writer."""

import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from common.errors import ConflictError, FailedSyncError, ReadOnlyError
from receiver.metadata.commit import commit_request, committer
from receiver.metadata.commit.commit_request import CommitRequest
from receiver.metadata.commit.guards import Guard, note_guard
from receiver.metadata.commit.touched import Touched
from receiver.metadata.engine import Engine
from receiver.metadata.log.frames import LogWriter
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from tests.support import asking
from tests.support.metadata import A, B, has_commit, load, path, physical, plain, seen
from tests.support.schema_commits import series

BOUND = 60
"""Seconds after which a test that hangs is given up."""


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path / "schema") as engine:
        engine.commit([seen(), seen(B)])
        yield engine


@pytest.fixture
def frames(monkeypatch):
    """Sizes of the frames that were written; while `gate` is closed the writer waits."""
    sizes, gate, reached = [], threading.Event(), threading.Event()
    gate.set()
    append = LogWriter.append

    def slow(self, payload, commits):
        reached.set()
        assert gate.wait(BOUND)
        sizes.append(commits)
        append(self, payload, commits)

    monkeypatch.setattr(LogWriter, "append", slow)
    slow.sizes, slow.gate, slow.reached = sizes, gate, reached
    return slow


def together(engine, frames, *requests):
    """Commit all in one go: they queue up while the frame of a first commit is being written.

    Returns for each, in order of the calls, its timestamp or its error.
    """
    results = [None] * len(requests)

    def call(number, ops, guards=()):
        try:
            results[number] = engine.commit(ops, guards)
        except Exception as error:
            results[number] = error

    frames.gate.clear()
    frames.reached.clear()
    plug = threading.Thread(target=engine.commit, args=([seen(label="plug")],))
    plug.start()
    assert frames.reached.wait(BOUND)
    threads = []
    for number, request in enumerate(requests):
        ops, guards = request if isinstance(request, tuple) else (request, ())
        threads.append(threading.Thread(target=call, args=(number, ops, guards)))
        threads[-1].start()
        deadline = threading.Event()
        while (
            len(engine._committer._waiting) <= number
        ):  # bounded: the call above does nothing else
            deadline.wait(0.001)
    del frames.sizes[:]
    frames.gate.set()
    for thread in (plug, *threads):
        thread.join(BOUND)
    return results


def test_commits_that_wait_share_one_flush(engine, frames):
    puts = [[records.QuarantinePut(A, path(), f"{n:02}", 1, False, "x")] for n in range(50)]
    stamps = together(engine, frames, *puts)
    assert frames.sizes == [1, 50]
    assert stamps == sorted(set(stamps)), "first come, first committed"
    with engine.reading() as state:
        assert len(state.quarantine) == 50


def test_a_commit_that_touches_what_an_earlier_one_changes_waits_for_the_next_batch(engine, frames):
    engine.commit([load(path("9-9-0"), 9, devices={"z": (1, 2)})])  # of two first ones one waits
    claim_a = [load(path("1-1-0"), 1, devices={"d": (1, 2)})]
    claim_b = [load(path("2-2-0"), 2, sender=B, devices={"d": (1, 2)})]
    other = [load(path("3-3-0"), 3, sender=B, devices={"e": (1, 2)})]
    first, lost, third = together(engine, frames, claim_a, claim_b, other)
    assert first < third
    assert isinstance(lost, ConflictError)
    assert frames.sizes == [1, 2]


def test_commits_that_wait_for_each_other_keep_their_order(engine, frames):
    labels = [[seen(label=f"label {number}")] for number in range(5)]
    stamps = together(engine, frames, *labels)
    assert frames.sizes == [1, 1, 1, 1, 1, 1]
    assert stamps == sorted(stamps)
    with engine.reading() as state:
        assert state.senders[A].label == "label 4"


def test_loads_of_devices_that_are_owned_do_not_wait_for_each_other(engine, frames):
    engine.commit([load()])
    loads = [[load(path(f"{n}-1-0"), n)] for n in range(2, 22)]
    together(engine, frames, *loads)
    assert frames.sizes == [1, 20]


def test_of_two_that_compare_and_set_one_wins(engine, frames):
    ts = engine.commit([load()])
    guard = [Guard("file", physical(path(), 1), ts)]
    retire = ([records.FileRetired(physical(path(), 1))], guard)
    quarantine = ([records.FileQuarantined(physical(path(), 1), "bad")], guard)
    won, lost = together(engine, frames, retire, quarantine)
    assert isinstance(won, int)
    assert isinstance(lost, GuardFailed)


def test_a_guard_on_a_path_sees_the_file_change_beneath_it(engine, frames):
    ts = engine.commit([load()])
    quarantine = [records.FileQuarantined(physical(path(), 1), "bad")]
    guarded = ([seen(B, "relabelled")], [Guard("path", (A, path()), ts)])
    won, lost = together(engine, frames, quarantine, guarded)
    assert isinstance(won, int)
    assert isinstance(lost, GuardFailed)


def test_a_refused_commit_takes_no_other_along(engine, frames):
    bad = [records.FileDeleted("nothing", "gone")]
    good = [records.QuarantinePut(A, path(), "00", 1, False, "x")]
    refused, committed = together(engine, frames, bad, good)
    assert isinstance(refused, RefusedCommitError)
    assert isinstance(committed, int)


def test_a_batch_is_bounded_by_number_and_bytes(engine, frames, monkeypatch):
    puts = [[records.QuarantinePut(A, path(), f"{n:02}", 1, False, "x" * 90)] for n in range(20)]
    monkeypatch.setattr(committer, "MAX_BATCH_COMMITS", 8)
    together(engine, frames, *puts)
    assert frames.sizes == [1, 8, 8, 4]
    monkeypatch.setattr(committer, "MAX_BATCH_BYTES", 1000)
    huge = [records.QuarantinePut(A, path(), "huge", 1, False, "x" * 5000)]
    stamps = together(engine, frames, puts[0], huge, *puts[1:])
    assert all(isinstance(each, int) for each in stamps)
    assert sum(frames.sizes) == 22
    assert max(frames.sizes[1:]) < 8


def test_commits_that_wait_when_the_engine_closes_are_finished(engine, frames):
    puts = [[records.QuarantinePut(A, path(), f"{n:02}", 1, False, "x")] for n in range(5)]
    closer = []

    def close_soon():
        closer.append(threading.Thread(target=engine.close))
        closer[0].start()

    frames.gate.clear()
    frames.reached.clear()
    results = []
    threads = [
        threading.Thread(target=lambda op=op: results.append(engine.commit(op))) for op in puts
    ]
    threads[0].start()
    assert frames.reached.wait(BOUND)
    for thread in threads[1:]:
        thread.start()
    while len(engine._committer._waiting) < 4:
        threading.Event().wait(0.001)
    close_soon()
    frames.gate.set()
    for thread in (*threads, *closer):
        thread.join(BOUND)
    assert len(results) == 5
    with Engine.read_only(Path(engine._what)) as reader:
        assert has_commit(reader, max(results))


def test_a_commit_is_visible_as_a_whole_or_not_at_all(engine):
    """Readers race with commits that each delete three files and load three others."""
    names = [path(f"{n}-1-0") for n in range(3)]

    def ops(number):
        before = [
            records.FileDeleted(physical(name, 10 * (number - 1) + n), "replaced")
            for n, name in enumerate(names)
            if number
        ]
        return before + [
            load(name, 10 * number + n, content=str(number)) for n, name in enumerate(names)
        ]

    engine.commit(ops(0))
    stop, problems, looks = threading.Event(), [], Counter()

    def look():
        while not stop.is_set():
            with engine.reading() as state:
                rows = [state.file_table.live(A, name) for name in names]
                listed = [row.md5 for row in state.file_table.catalogue(None, 10)]
                newest = state.newest
            versions = {row and row.md5 for row in rows}
            if None in versions or len(versions) != 1 or set(listed) != versions:
                problems.append((versions, listed))
            if engine.newest_commit > newest:
                looks["behind"] += 1
            looks["all"] += 1

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 150):
        engine.commit(ops(number))
    stop.set()
    for reader in readers:
        reader.join(BOUND)
    assert not problems
    assert looks["all"] > 100


def test_readers_never_wait_for_the_disk(engine, frames):
    frames.gate.clear()
    frames.reached.clear()
    writer = threading.Thread(target=engine.commit, args=([load()],))
    writer.start()
    assert frames.reached.wait(BOUND)
    seen_by_reader = []

    def look():
        with engine.reading() as state:
            seen_by_reader.append(state.file_table.live(A, path()))

    reader = threading.Thread(target=look)
    reader.start()
    reader.join(BOUND)
    assert seen_by_reader == [None], "not visible before it is durable"
    frames.gate.set()
    writer.join(BOUND)
    with engine.reading() as state:
        assert state.file_table.live(A, path())


def test_sixteen_threads_lose_nothing(tmp_path):
    home = tmp_path / "many"
    stamps = []
    with Engine.open(home) as engine:
        engine.commit([seen()])

        def work(worker):
            for number in range(40):
                op = records.QuarantinePut(A, path(f"{worker}-{number}-0"), "00", 1, False, "x")
                stamps.append(engine.commit([op]))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
        with engine.reading() as state:
            before = plain(state)
    assert len(set(stamps)) == 16 * 40
    with Engine.open(home) as again, again.reading() as state:
        assert plain(state) == before
        assert len(state.quarantine) == 16 * 40
        assert all(has_commit(again, ts) for ts in stamps)


# -- commits that are told their timestamp ---------------------------------------------------------


def test_a_commit_that_is_built_knows_its_timestamp(engine):
    ts = engine.commit_with(lambda ts: [records.KeysWritten([], {"at": str(ts)})])
    with engine.reading() as state:
        assert state.keys.load("at") == str(ts)
        assert state.newest == ts


def test_what_building_raises_refuses_that_commit_alone(engine, frames):
    def build(ts):
        raise LookupError("no")

    before = engine.newest_commit
    with pytest.raises(LookupError):
        engine.commit_with(build)
    with pytest.raises(RefusedCommitError, match="cannot be stored"):
        engine.commit_with(lambda ts: [records.KeysWritten([], {"k": 7})])
    with pytest.raises(RefusedCommitError, match="nothing to commit"):
        engine.commit_with(lambda ts: [])
    assert engine.newest_commit == before
    assert engine.failed is None
    assert engine.commit([seen(label="on")]) > before


def test_built_commits_of_a_batch_have_rising_timestamps(engine):
    results = {}
    start = threading.Barrier(16)

    def work(number):
        def build(ts):
            results.setdefault(number, []).append(ts)
            return [records.KeysWritten([], {f"k{number}": str(ts)})]

        start.wait(BOUND)
        for _ in range(20):
            ts = engine.commit_with(build)
            assert results[number][-1] == ts

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert len(results) == 16
    assert all(stamps == sorted(stamps) and len(stamps) >= 20 for stamps in results.values())


def test_a_commit_from_inside_a_commit_is_an_error_and_no_deadlock(engine):
    def build(ts):
        engine.commit([seen(label="inside")])
        return []

    with pytest.raises(RuntimeError, match="inside a commit"):
        engine.commit_with(build)
    engine.commit([seen(label="on")])


# -- who leads -------------------------------------------------------------------------------------


def test_a_lone_commit_is_written_by_its_own_caller(tmp_path, monkeypatch):
    writers = []
    append = LogWriter.append

    def noted(self, payload, commits):
        writers.append(threading.get_ident())
        append(self, payload, commits)

    # Looking after the engine in the background may lead too, and write what comes meanwhile.
    with Engine.open(tmp_path / "schema", background=False) as engine:
        monkeypatch.setattr(LogWriter, "append", noted)
        engine.commit([seen(label="x")])
    assert writers == [threading.get_ident()]


def test_a_caller_that_is_interrupted_while_it_waits_keeps_nobody_waiting(engine, frames):
    """A signal takes a waiting caller away; its commit goes its way, and so do the others."""
    committer = engine._committer
    frames.gate.clear()
    frames.reached.clear()
    plug = threading.Thread(target=engine.commit, args=([seen(label="plug")],))
    plug.start()
    assert frames.reached.wait(BOUND)

    class Interrupted(BaseException):
        pass

    class Turn:
        def __init__(self, lock):
            self._lock = lock

        def acquire(self):
            raise Interrupted

        def release(self):
            self._lock.release()

    submit = committer._submit

    def interrupted(request, **more):
        request.turn = Turn(request.turn)
        return submit(request, **more)

    committer._submit = interrupted
    with pytest.raises(Interrupted):
        engine.commit([seen(label="abandoned")])
    committer._submit = submit
    other = threading.Thread(target=engine.commit, args=([seen(label="last")],))
    other.start()
    while len(committer._waiting) < 2:
        threading.Event().wait(0.001)
    frames.gate.set()
    for thread in (plug, other):
        thread.join(BOUND)
        assert not thread.is_alive()
    with engine.reading() as state:
        assert state.senders[A].label == "last"
    engine.commit([seen(label="on")])


def test_a_signal_is_of_the_thread_that_writes_for_others_and_of_no_other(tmp_path, monkeypatch):
    """It writes a batch in which its own commit is not, and others wait for what becomes of it."""

    class Interrupted(BaseException):
        pass

    def interrupt(self, payload, commits):
        raise Interrupted

    with Engine.open(tmp_path / "schema", background=False) as engine:
        monkeypatch.setattr(committer, "MAX_BATCH_COMMITS", 1)
        monkeypatch.setattr(LogWriter, "append", interrupt)
        other = CommitRequest([seen(label="other")])
        engine._committer._waiting.append(other)
        with pytest.raises(Interrupted):
            engine.commit([seen(label="mine")])
        assert isinstance(other.error, FailedSyncError), "whether it is there is not known"
        assert engine._committer._leader == 0
        with pytest.raises(ReadOnlyError):
            engine.commit([seen(label="next")])


class _Signal(BaseException):
    pass


class _SignalAt:
    """Raises in this thread at one of the places in the line where a signal can be heard.

    These are the begin of a function, and behind a call of one that is not Python's.
    """

    def __init__(self, place: int) -> None:
        self.place = place
        self.heard = ""

    def __call__(self, frame, event: str, _) -> None:
        if event not in ("call", "c_return") or frame.f_code.co_filename not in _LINE:
            return
        self.place -= 1
        if self.place == 0:
            self.heard = f"{event} in {frame.f_code.co_qualname}, line {frame.f_lineno}"
            raise _Signal


_LINE = (committer.__file__, commit_request.__file__)


def _interrupted_at(place: int, directory: Path) -> str:
    """A commit with others in its batch, and behind it, is interrupted; what is left goes on."""
    signal = _SignalAt(place)
    engine = Engine.open(directory, background=False)
    line = engine._committer
    others = [CommitRequest([seen(label=f"other {at}")]) for at in range(2)]
    others[1].guards = (Guard("sender", A, 0),)  # is put off

    def wait(request: CommitRequest) -> None:
        request.turn.acquire()
        if not request.settled:
            line._lead(request)

    line._waiting.extend(others)
    threads = [threading.Thread(target=wait, args=(each,), daemon=True) for each in others]
    for thread in threads:
        thread.start()
    with suppress(_Signal):
        sys.setprofile(signal)
        try:
            engine.commit([seen(label="mine")])
        finally:
            sys.setprofile(None)
    threads.append(threading.Thread(target=_commit_or_not, args=(engine,), daemon=True))
    threads[-1].start()
    for thread in threads:
        thread.join(BOUND)
        assert not thread.is_alive(), f"somebody waits for ever behind a {signal.heard}"
    assert line._leader == 0, signal.heard
    engine.close()  # not where that would wait, too
    return signal.heard


def _commit_or_not(engine: Engine) -> None:
    with suppress(ReadOnlyError):
        engine.commit([seen(label="next")])


def test_wherever_a_signal_is_heard_in_the_line_nobody_waits_for_ever(tmp_path):
    """Ctrl-C at the start of a server, or a test's time-out: what closes the engine waits, too."""
    place = 1
    while _interrupted_at(place, tmp_path / str(place)):
        place += 1
    assert place > 50


def test_work_between_batches_sees_no_commit_half_done(engine):
    """Commits race with work that looks at log and state: they always agree."""
    stop, problems = threading.Event(), []

    def write():
        number = 0
        while not stop.is_set():
            engine.commit([records.KeysWritten([], {"n": str(number)})])
            number += 1

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()

    def look():
        return engine._committer._appender.log.next_lsn - 1, engine._window.lsn

    for _ in range(200):
        logged, published = engine._committer.between_batches(look)
        if logged != published:
            problems.append((logged, published))
    stop.set()
    for thread in threads:
        thread.join(BOUND)
    assert not problems


def test_what_work_between_batches_raises_is_raised_where_it_was_asked_for(engine):
    def fail():
        raise LookupError("no")

    with pytest.raises(LookupError):
        engine._committer.between_batches(fail)
    engine.commit([seen(label="on")])


def test_a_deletion_by_pattern_is_a_batch_of_its_own(engine, frames):
    engine.commit([records.StorageGroupSet("root.t"), series("root.t.d1", "a", "b")])
    one = [series("root.t.d2", "a")]
    everything = [records.SeriesDeleted("root.t.**")]
    two = [series("root.t.d3", "a")]
    results = together(engine, frames, one, everything, two)
    assert all(isinstance(each, int) for each in results)
    assert 1 in frames.sizes
    assert asking.number(engine, "count timeseries") in (0, 1)


def test_a_guard_on_a_prefix_does_not_hold_behind_another_commit_of_its_batch(engine, frames):
    other = [records.KeysWritten((), {"a/1": "new"})]
    mine = [seen(label="mine")], (Guard("keys", "a/", 0),)
    first, second = together(engine, frames, other, mine)
    assert isinstance(first, int)
    assert isinstance(second, GuardFailed)


@pytest.mark.parametrize(
    ("table", "key", "alone"), [("keys", "a/", True), ("state", "", True), ("sender", A, False)]
)
def test_a_guard_on_more_than_a_row_makes_a_batch_of_its_own(engine, table, key, alone):
    touched = Touched()
    with engine.reading() as state:
        note_guard(touched, Guard(table, key, 0), state)
    assert touched.exclusive is alone
