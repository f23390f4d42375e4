"""A write to etcd without an answer is found out about, and never made twice."""

import itertools
import threading
from contextlib import suppress

import pytest

from common import crash
from common.errors import NoSpaceError, UnreachableError
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.messages import Get, prefix_end
from receiver.metadata.etcd.patience import Patience
from receiver.metadata.kv.etcd_kv import EtcdKV
from receiver.metadata.model.errors import (
    CompactedError,
    KeyConflictError,
    KeyMissingError,
    TimestampRefusedError,
    UnknownOutcomeError,
)
from tests.support import tiers
from tests.support.etcd import running_etcd
from tests.support.etcd_faults import FAULTS, LossyClient, quick, stopped


class Keys:
    """A store over a lossy client, and the same store as another process sees it."""

    def __init__(self, settings, patience=None):
        self.settings = settings
        self.prefix = f"{settings.prefix}/keys"
        self.now = 100
        self.lossy = LossyClient(settings)
        self.kv = EtcdKV(
            self.lossy, self.prefix, allocate=lambda _: self.now, patience=patience or quick()
        )
        self.sound = EtcdClient(settings)
        self.other = self.fresh()

    def fresh(self):
        return EtcdKV(self.sound, self.prefix, allocate=lambda newest: newest + 50)

    def staged(self):
        below = f"{self.prefix}/batch/".encode()
        return self.sound.get(Get(below, prefix_end(below), keys_only=True)).keys


@pytest.fixture
def keys(shared_etcd):
    keys = Keys(shared_etcd.settings())
    keys.kv.save("a", "before")
    keys.now = 200
    return keys


def values(kv, ts=None):
    return dict(zip(*kv.load_with_prefix("", ts), strict=True))


def test_a_commit_whose_answer_was_lost_is_a_commit(keys):
    keys.lossy.script += ["answer lost"]
    writes = keys.lossy.writes
    assert keys.kv.save("a", "after") == 200
    assert keys.lossy.writes == writes + 2  # it, and the question what became of it
    assert keys.other.load("a") == keys.kv.load("a") == "after"
    assert keys.other.load("a", 199) == keys.kv.load("a", 199) == "before"
    keys.now = 300
    assert keys.kv.save("a", "last") == 300
    assert [keys.fresh().load("a", ts) for ts in (100, 200, 299, 300)] == [
        "before", "after", "after", "last",
    ]  # fmt: skip


@pytest.mark.parametrize("fault", ["request lost", "no connection"])
def test_a_commit_that_never_arrived_is_none(keys, fault):
    keys.lossy.script += [fault]
    with pytest.raises(UnreachableError):
        keys.kv.save("a", "after")
    assert keys.other.load("a") == "before"
    assert keys.kv.save("a", "again") == 200
    assert keys.fresh().load("a", 200) == "again"


def test_a_commit_that_arrives_late_is_refused(keys):
    keys.lossy.script += ["late"]
    with pytest.raises(UnreachableError, match="nothing was written"):
        keys.kv.save("a", "after")
    assert keys.lossy.arrive() == [False]
    assert keys.other.load("a") == "before"
    assert keys.kv.save("a", "again") == 200
    assert keys.fresh().load("a") == "again"


def test_the_first_commit_of_all_is_found_out_about_too(shared_etcd):
    for fault in FAULTS:
        keys = Keys(shared_etcd.settings())
        keys.lossy.script += [fault]
        if fault == "answer lost":
            assert keys.kv.save("a", "1") == 100
        else:
            with pytest.raises(UnreachableError):
                keys.kv.save("a", "1")
            assert keys.lossy.arrive() in ([], [False])
            with pytest.raises(KeyMissingError):
                keys.fresh().load("a")
            assert keys.kv.save("a", "1") == 100
        assert keys.fresh().load("a", 100) == "1"
        with pytest.raises(KeyMissingError):
            keys.fresh().load("a", 99)


def test_others_may_commit_before_the_question_is_asked(keys):
    keys.lossy.script += ["answer lost", lambda: keys.other.save("b", "theirs")]
    assert keys.kv.save("a", "after") == 200
    assert values(keys.fresh()) == {"a": "after", "b": "theirs"}
    assert values(keys.fresh(), 249) == {"a": "after"}


def test_a_lost_commit_that_another_came_before_is_a_conflict(keys):
    keys.lossy.script += ["request lost", lambda: keys.other.save("b", "theirs")]
    with pytest.raises(KeyConflictError, match="try again"):
        keys.kv.save("a", "after")
    assert values(keys.fresh()) == {"a": "before", "b": "theirs"}
    keys.now = 300
    assert keys.kv.save("a", "after") == 300


def test_what_nobody_can_tell_is_said_to_be_unknown(keys):
    keys.lossy.script += ["late", *["no connection"] * 50]
    with pytest.raises(UnknownOutcomeError, match="true or not") as caught:
        keys.kv.save("a", "after")
    assert caught.value.extra["ts"] == 200
    keys.lossy.script.clear()
    assert keys.lossy.arrive() == [True]
    assert keys.kv.load("a") == "after"
    keys.now = 300
    assert keys.kv.save("a", "later") == 300
    assert keys.fresh().load("a", 200) == "after"


def test_what_was_compacted_away_before_the_question_is_unknown(own_etcd):
    keys = Keys(own_etcd.settings())
    keys.kv.save("a", "before")
    keys.now = 200

    def others():
        for number in range(12):
            keys.other.save("b", str(number))
        own_etcd.compact()

    keys.lossy.script += ["answer lost", others]
    with pytest.raises(UnknownOutcomeError, match="compacted"):
        keys.kv.save("a", "after")
    with pytest.raises(CompactedError):
        keys.kv.load("a", 200)


# -- large commits -------------------------------------------------------------------------------

BEFORE = {f"old/{number:03}": "x" for number in range(150)} | {"stays": "s"}
AFTER = {f"new/{number:03}": "y" * 9000 for number in range(140)}


def large(keys):
    keys.now = 200
    return keys.kv.multi_save_and_remove_with_prefix(AFTER, ["old/"])


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("fault", "step"),
    tiers.sample(itertools.product(FAULTS, range(7)), 3, kind=lambda each: each[0]),
)
def test_a_large_commit_is_whole_or_nothing_whatever_is_lost(shared_etcd, fault, step):
    keys = Keys(shared_etcd.settings())
    keys.kv.multi_save(BEFORE)
    keys.lossy.script += ["ok"] * step + [fault]
    whole = AFTER | {"stays": "s"}
    try:
        ts = large(keys)
    except UnreachableError:
        expected = BEFORE
    else:
        assert ts == 200
        expected = whole
    assert not keys.lossy.script  # there were as many steps
    late = keys.lossy.arrive()
    assert values(keys.fresh()) == values(keys.kv) == expected
    assert values(keys.fresh(), 199) == BEFORE
    keys.now = 300
    assert keys.kv.save("next", "n") == 300
    assert values(keys.fresh()) == expected | {"next": "n"}
    assert values(keys.fresh(), 299) == values(keys.kv, 299) == expected
    assert values(keys.fresh(), 199) == values(keys.kv, 199) == BEFORE
    if not any(late):
        assert not keys.staged()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("point", "happened"),
    [
        ("kv.etcd.batch.staged", False),
        ("kv.etcd.batch.marked", True),
        ("kv.etcd.batch.unpacking", True),
    ],
)
def test_a_death_leaves_a_large_commit_whole_or_nothing(shared_etcd, point, happened):
    for passage in range(3 if "unpacking" in point else 1):
        keys = Keys(shared_etcd.settings())
        keys.kv.multi_save(BEFORE)
        left = [passage]

        def die(name, left=left):
            if name == point:
                if not left[0]:
                    raise crash.SimulatedCrash(name)
                left[0] -= 1

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            large(keys)
        expected = AFTER | {"stays": "s"} if happened else BEFORE
        assert values(keys.other) == expected
        assert keys.other.load("stays", 199) == "s"
        assert keys.staged()
        ts = keys.fresh().save("next", "n")
        assert not keys.staged()
        assert values(keys.fresh()) == expected | {"next": "n"}
        assert values(keys.fresh(), ts - 1) == expected
        assert values(keys.fresh(), 149) == BEFORE
        if happened:
            assert keys.fresh().load("new/007", 200) == AFTER["new/007"]
            with pytest.raises(KeyMissingError):
                keys.fresh().load("old/007", 200)


def test_a_paused_writer_that_wakes_does_not_undo_what_came_after(shared_etcd):
    # It marked a large commit and stopped; another unpacked it and went on.
    keys = Keys(shared_etcd.settings())
    keys.kv.multi_save(BEFORE)
    keys.lossy.script += ["ok"] * 3 + [lambda: keys.other.multi_save({"new/000": "newer"})]
    assert large(keys) == 200
    assert keys.fresh().load("new/000") == "newer"
    assert keys.fresh().load("new/000", 200) == AFTER["new/000"]


def test_parts_that_somebody_removed_make_no_commit(shared_etcd):
    # Another process starts, removes what it takes for rubbish, and commits nothing.
    keys = Keys(shared_etcd.settings())
    keys.kv.multi_save(BEFORE)

    def start_another():
        other = EtcdKV(keys.sound, keys.prefix, allocate=lambda _: 0)
        with pytest.raises(TimestampRefusedError):
            other.save("a", "x")
        assert not keys.staged()

    keys.lossy.script += ["ok", "ok", start_another]
    with pytest.raises(KeyConflictError):
        large(keys)
    assert values(keys.fresh()) == BEFORE
    assert large(keys) == 200
    assert values(keys.fresh()) == AFTER | {"stays": "s"}


def test_a_reader_beside_large_commits_sees_each_whole(shared_etcd):
    keys = Keys(shared_etcd.settings())
    keys.other.multi_save({f"{number:03}": "0" for number in range(200)})
    stop = threading.Event()
    seen = []

    def read():
        kv = keys.fresh()
        while not stop.is_set():
            found = set(kv.load_with_prefix("")[1])
            seen.append(found)
            one = kv.load("199")
            assert one >= next(iter(found))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for round_ in range(1, 9):
            keys.other.multi_save({f"{number:03}": str(round_) for number in range(200)})
    finally:
        stop.set()
        reader.join()
    assert seen
    assert all(len(found) == 1 for found in seen)


# -- two processes -------------------------------------------------------------------------------


def test_of_two_that_write_at_the_same_time_one_gets_a_conflict_and_can_try_again(shared_etcd):
    settings = shared_etcd.settings()
    one, two = Keys(settings), Keys(settings)
    one.kv.save("a", "before")

    def meanwhile(newest):
        if one.now == 200:
            one.now = 500
            two.now = 300
            two.kv.save("a", "two")
            return 400
        return one.now

    one.kv = EtcdKV(EtcdClient(settings), one.prefix, allocate=meanwhile)
    one.now = 200
    with pytest.raises(KeyConflictError):
        one.kv.multi_save({"a": "one", "b": "one"})
    assert values(one.fresh()) == {"a": "two"}
    assert one.kv.multi_save({"a": "one", "b": "one"}) == 500
    assert values(one.fresh()) == {"a": "one", "b": "one"}
    assert values(one.fresh(), 499) == {"a": "two"}


def test_no_update_is_lost_between_processes(shared_etcd):
    settings = shared_etcd.settings()
    prefix = f"{settings.prefix}/keys"
    conflicts = []

    def count():
        client = EtcdClient(settings)
        kv = EtcdKV(client, prefix, allocate=lambda newest: newest + 10)
        for _ in range(15):
            while True:
                try:
                    # What is added is known only when the head is: so nobody came in between.
                    kv.multi_save({}, lambda ts: (f"commit/{ts:09}", "x"))
                    break
                except KeyConflictError:
                    conflicts.append(1)
        client.close()

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys, _ = EtcdKV(EtcdClient(settings), prefix).load_with_prefix("")
    assert keys == [f"commit/{number * 10:09}" for number in range(1, 46)]


# -- the server ----------------------------------------------------------------------------------


def test_a_server_that_stops_for_a_while_loses_and_doubles_nothing(own_etcd):
    keys = Keys(own_etcd.settings(), Patience(20.0))
    keys.kv.save("a", "0")
    outcomes = {}
    for number in range(1, 4):
        keys.now = 100 + number
        outcomes[keys.now] = False
        with stopped(own_etcd, keys.lossy), suppress(UnreachableError):
            keys.kv.save("a", str(number))
            outcomes[keys.now] = True
    kept = "0"
    for ts, done in outcomes.items():
        kept = str(ts - 100) if done else kept
        assert keys.fresh().load("a", ts) == kept
    keys.now = 200
    assert keys.kv.save("a", "end") == 200


def test_a_server_that_is_killed_and_started_again_has_what_was_said_to_be_kept(own_etcd):
    keys = Keys(own_etcd.settings(), Patience(0.2))
    for number in range(1, 4):
        keys.now = number * 100
        keys.kv.save("a", str(number))
        own_etcd.kill()
        with pytest.raises(UnreachableError):
            keys.kv.save("a", "never")
        own_etcd.start()
        assert keys.kv.load("a") == str(number)
    assert [keys.fresh().load("a", ts) for ts in (100, 200, 300)] == ["1", "2", "3"]


def test_a_full_etcd_says_so_and_keeps_what_it_said_it_kept(tmp_path):
    with running_etcd(tmp_path / "etcd", "--quota-backend-bytes", str(3 << 20)) as etcd:
        keys = Keys(etcd.settings())
        kept = {}

        def fill():
            for number in range(1, 60):
                keys.now = number * 10
                keys.kv.save("a", str(number) * 100_000)
                kept[keys.now] = str(number) * 100_000

        with pytest.raises(NoSpaceError, match="compact"):
            fill()
        assert len(kept) > 5
        newest = keys.fresh().load("a")
        assert newest == kept[max(kept)]
        assert all(keys.fresh().load("a", ts) == value for ts, value in kept.items())
