"""Looking back in etcd: few reads, whatever others do in the cluster; compaction by others."""

import math
import random

import pytest

from common.errors import DamagedError, UnreachableError
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.messages import Delete, Put, prefix_end
from receiver.metadata.etcd.patience import Patience
from receiver.metadata.kv.etcd_kv import EtcdKV
from receiver.metadata.model.errors import (
    CompactedError,
    HistoryGoneError,
    KeyMissingError,
    NewerLogError,
)
from tests.support.etcd import Settings
from tests.support.snapshot_kv import SEED

pytestmark = pytest.mark.slow


class CountingClient(EtcdClient):
    """Counts requests."""

    calls = 0

    def _call(self, path, request, *, changes):
        self.calls += 1
        return super()._call(path, request, changes=changes)

    def counted(self, question):
        before = self.calls
        answer = question()
        return self.calls - before, answer


class Keys:
    """A store whose commits are made at given times."""

    def __init__(self, settings, ring=1024):
        self.settings = settings
        self.client = CountingClient(settings)
        self.now = 0
        self.kv = self.another(ring)

    def another(self, ring=1024):
        return EtcdKV(
            self.client,
            f"{self.settings.prefix}/keys",
            allocate=lambda newest: self.now,
            ring=ring,
            patience=Patience(5.0),
        )

    def commit(self, ts, saves, removals=()):
        self.now = ts
        self.kv.multi_save_and_remove_with_prefix(saves, removals)

    def seed(self):
        for ts, saves, removals in SEED:
            self.commit(ts, saves, removals)


@pytest.fixture
def keys(shared_etcd):
    return Keys(shared_etcd.settings())


def test_an_old_value_is_found_with_as_many_reads_as_revisions_have_bits(own_etcd):
    keys = Keys(own_etcd.settings())
    times = []
    for number in range(1, 121):
        own_etcd.write_elsewhere(number % 3)
        keys.commit(number * 10, {"a": str(number), f"b{number}": "x"})
        times.append(number * 10)
    most = math.floor(math.log2(own_etcd.revision())) + 1
    fresh = keys.another()
    for ts in range(10, 1210, 19):
        reads, value = keys.client.counted(lambda ts=ts: keys.another().load("a", ts))
        assert value == str(ts // 10)
        assert reads <= most
        assert fresh.load("a", ts) == value
    reads, _ = keys.client.counted(lambda: _missing(keys.another(), "a", 9))
    assert reads <= most


def test_within_the_ring_a_value_is_found_with_one_read(keys):
    for number in range(1, 21):
        keys.commit(number * 10, {"a": str(number)})
    for ts in (10, 15, 100, 199, 200, 5000):
        reads, value = keys.client.counted(lambda ts=ts: keys.kv.load("a", ts))
        assert (reads, value) == (1, str(min(ts // 10, 20)))


def test_what_is_below_the_ring_is_bisected_from_its_oldest(keys):
    keys.kv = keys.another(ring=4)
    for number in range(1, 41):
        keys.commit(number * 10, {"a": str(number)})
    for ts in range(5, 450, 4):
        expected = min(ts // 10, 40)
        if expected:
            reads, value = keys.client.counted(lambda ts=ts: keys.kv.load("a", ts))
            assert value == str(expected)
            assert reads == 1 if ts >= 370 else reads <= math.log2(40) + 1
        else:
            _missing(keys.kv, "a", ts)


def test_a_time_between_commits_of_others_is_not_answered_from_the_ring(keys):
    other = keys.another()
    rng = random.Random(4)
    written = {}
    for number in range(1, 120):
        keys.now = number * 10
        (keys.kv if rng.random() < 0.5 else other).save("a", str(number))
        written[number * 10] = str(number)
        ts = rng.randrange(10, number * 10 + 20)
        expected = written[min(ts // 10 * 10, number * 10)]
        for each in (keys.kv, other):
            assert each.load("a", ts) == expected
        assert keys.kv.load("a") == other.load("a") == str(number)


def test_what_others_committed_unseen_is_not_answered_from_the_ring(keys):
    other = keys.another()
    keys.commit(10, {"a": "mine"})
    for number in range(2, 30):
        keys.now = number * 10
        other.save("a", str(number))
    assert keys.kv.load("a") == "29"
    for ts in (10, 19, 20, 55, 200, 289):
        expected = "mine" if ts < 20 else str(ts // 10)
        assert keys.kv.load("a", ts) == expected
    keys.commit(300, {"a": "mine"})
    assert [keys.kv.load("a", ts) for ts in (100, 295, 300)] == ["10", "29", "mine"]


def _missing(kv, key, ts=None):
    with pytest.raises(KeyMissingError):
        kv.load(key, ts)


# -- compaction by somebody else -----------------------------------------------------------------


def test_compaction_by_others_stops_no_start_and_leaves_a_clear_answer(own_etcd):
    keys = Keys(own_etcd.settings())
    keys.seed()
    own_etcd.compact()
    own_etcd.defragment()
    for kv in (keys.another(), keys.kv):
        _missing(kv, "B", 99)  # before all: that is known without looking
        assert kv.load_with_prefix("", 99) == ([], [])
        for ts in (100, 450, 599):
            with pytest.raises(CompactedError) as caught:
                kv.load("B", ts)
            assert caught.value.extra["oldest"] == 600
            assert str(ts) in caught.value.message
            with pytest.raises(HistoryGoneError):
                kv.load_with_prefix("", ts)
        assert kv.load("A", 600) == "10"
        assert kv.load("A") == "10"
        _missing(kv, "B", 600)
        assert kv.load_with_prefix("", 650) == (["A"], ["10"])
    keys.commit(700, {"A": "11"})
    for kv in (keys.another(), keys.kv):
        assert kv.load("A", 699) == "10"
        assert kv.load("A", 700) == "11"


def test_what_a_compaction_left_is_still_answered(own_etcd):
    keys = Keys(own_etcd.settings())
    revisions = {}
    for number in range(1, 26):
        own_etcd.write_elsewhere(2)
        keys.commit(number * 10, {"a": str(number)})
        revisions[number * 10] = own_etcd.revision()
    own_etcd.write_elsewhere(30)
    for oldest in (100, 230):
        own_etcd.compact(revisions[oldest])
        for kv in (keys.another(), keys.another(ring=8), keys.kv):
            for ts in range(10, 280, 23):
                if ts < oldest:
                    with pytest.raises(CompactedError) as caught:
                        kv.load("a", ts)
                    assert caught.value.extra["oldest"] == oldest
                else:
                    assert kv.load("a", ts) == str(min(ts // 10, 25))


def test_compaction_past_the_last_commit_leaves_it_readable(own_etcd):
    # The revision at which it was made is gone; what it made is not.
    keys = Keys(own_etcd.settings())
    keys.seed()
    own_etcd.write_elsewhere(20)
    own_etcd.compact()
    for kv in (keys.kv, keys.another()):
        assert kv.load("A", 600) == kv.load("A", 10**9) == "10"
    keys.commit(700, {"A": "11"})
    assert keys.kv.load("A", 650) == "10"


def test_a_commit_is_read_at_the_last_revision_that_shows_it(own_etcd):
    keys = Keys(own_etcd.settings())
    keys.commit(100, {"a": "1"})
    own_etcd.write_elsewhere(10)
    own_etcd.compact()
    keys.commit(200, {"a": "2"})
    reads, value = keys.client.counted(lambda: keys.kv.load("a", 150))
    assert (reads, value) == (1, "1")


# -- what is in the way --------------------------------------------------------------------------


def test_unreachable_is_no_answer_about_a_key(own_etcd):
    keys = Keys(own_etcd.settings())
    keys.seed()
    own_etcd.kill()
    for question in (
        lambda: keys.kv.load("A"),
        lambda: keys.kv.load("B", 450),
        lambda: keys.kv.load("nothing", 150),
        lambda: keys.kv.load_with_prefix(""),
        lambda: keys.another().load("A"),
    ):
        with pytest.raises(UnreachableError, match="etcd does not answer"):
            question()
    own_etcd.start()
    assert keys.kv.load("B", 450) == "2"
    _missing(keys.kv, "nothing", 450)


def test_rubbish_under_the_keys_is_damage_with_the_key(keys):
    keys.seed()
    prefix = f"{keys.settings.prefix}/keys/".encode()
    keys.client.transaction([], [Put(prefix + b"kv/A", b"\xff")])
    with pytest.raises(DamagedError, match="kv/A"):
        keys.kv.load("A")
    with pytest.raises(DamagedError, match="kv/A"):
        keys.kv.load_with_prefix("")
    keys.client.transaction([], [Put(prefix + b"head", b"450")])
    with pytest.raises(DamagedError, match="head"):
        keys.another().load("A")


def test_a_store_of_a_newer_version_is_refused_with_its_number(keys):
    head = f"{keys.settings.prefix}/keys/head".encode()
    keys.client.transaction([], [Put(head, b'{"ts": 5, "id": "x", "version": 9, "more": []}')])
    for question in (lambda: keys.kv.load("A"), lambda: keys.commit(10, {"A": "1"})):
        with pytest.raises(NewerLogError, match="version 9"):
            question()


def test_a_store_that_was_removed_begins_anew(keys):
    keys.seed()
    prefix = f"{keys.settings.prefix}/keys/".encode()
    keys.client.transaction([], [Delete(prefix, prefix_end(prefix))])
    _missing(keys.kv, "A")
    keys.commit(50, {"A": "new"})
    assert keys.kv.load("A") == keys.another().load("A", 50) == "new"
    _missing(keys.another(), "A", 49)


def test_a_settings_object_of_the_configuration_will_do():
    from receiver.config import EtcdConfig

    EtcdClient(EtcdConfig()).close()
    EtcdClient(Settings(("http://127.0.0.1:1",))).close()
