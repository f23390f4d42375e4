"""What a snapshot key-value store promises, whatever keeps its keys."""

import pytest

from common.errors import NotFoundError, TooLargeError, UnreachableError
from receiver.metadata.model.errors import (
    HistoryGoneError,
    KeyMissingError,
    KeyRefusedError,
    RefusedCommitError,
    TimestampRefusedError,
)
from receiver.metadata.model.snapshot_kv import MAX_KEY, MAX_VALUE
from tests.support.snapshot_kv import opened


@pytest.fixture(params=["embedded", "etcd", "etcd, ring of 2"])
def store(request):
    with opened(request.param, request) as made:
        yield made


def missing(store, key, ts=None):
    with pytest.raises(KeyMissingError) as caught:
        store.kv.load(key, ts)
    assert repr(key) in caught.value.message
    return True


def test_the_example_of_the_design_comes_out(store):
    store.seed()
    for _ in range(2):
        assert store.kv.load("B", 450) == "2"
        assert missing(store, "B", 550)
        assert missing(store, "B")
        assert missing(store, "B", 199)
        assert store.kv.load("B", 200) == "2"
        assert store.kv.load("B", 499) == "2"
        assert missing(store, "B", 500)
        assert store.kv.load("A", 399) == "1"
        assert store.kv.load("A", 400) == "10"
        assert store.kv.load("A", 700) == "10"
        assert store.kv.load("A") == "10"
        assert store.kv.load("C", 599) == "3"
        assert missing(store, "C", 600)
        assert missing(store, "A", 99)
        assert missing(store, "A", 1)
        store.reopen()


def test_a_prefix_gives_keys_in_order_with_their_values(store):
    store.seed()
    store.commit(700, {"a/2": "x", "a/10": "y", "a": "z", "b": "-", "aé": "w", "a😀": "v"})
    assert store.kv.load_with_prefix("a/") == (["a/10", "a/2"], ["y", "x"])
    assert store.kv.load_with_prefix("a")[0] == ["a", "a/10", "a/2", "aé", "a😀"]
    assert store.kv.load_with_prefix("nothing") == ([], [])
    assert store.kv.load_with_prefix("", 450) == (["A", "B", "C"], ["10", "2", "3"])
    assert store.kv.load_with_prefix("", 99) == ([], [])
    assert store.kv.load_with_prefix("a/", 699) == ([], [])


def test_a_store_that_was_never_written_has_nothing(store):
    assert missing(store, "A")
    assert missing(store, "A", 10**15)
    assert store.kv.load_with_prefix("") == ([], [])
    assert store.kv.load_with_prefix("", 5) == ([], [])


def test_saves_return_the_timestamp_of_their_commit(store):
    store.now = 7
    assert store.kv.save("a", "1") == 7
    store.now = 9
    assert store.kv.multi_save({"a": "2", "b": "3"}) == 9
    assert store.kv.load_with_prefix("") == (["a", "b"], ["2", "3"])
    assert store.kv.load("a", 8) == "1"


def test_additions_are_called_with_the_timestamp_of_the_commit(store):
    store.now = 450
    ts = store.kv.multi_save(
        {"collection": "c"},
        lambda ts: ("created", str(ts)),
        lambda ts: ("collection", f"c at {ts}"),
    )
    assert ts == 450
    assert store.kv.load("created", 450) == "450"
    assert store.kv.load("collection") == "c at 450"
    store.now = 460
    assert store.kv.multi_save_and_remove_with_prefix({}, ["c"], lambda ts: ("c", str(ts))) == 460
    assert store.kv.load_with_prefix("") == (["c"], ["460"])
    assert store.kv.load_with_prefix("", 459)[0] == ["collection", "created"]


def test_an_addition_that_fails_leaves_nothing_written(store):
    store.commit(10, {"a": "1"})

    def fails(ts):
        raise RuntimeError(f"no name for {ts}")

    store.now = 20
    with pytest.raises(RuntimeError, match="no name for 20"):
        store.kv.multi_save({"a": "2"}, lambda ts: ("b", "x"), fails)
    assert store.kv.load_with_prefix("") == (["a"], ["1"])
    store.commit(30, {"a": "3"})
    assert store.kv.load("a", 29) == "1"


def test_removals_come_before_saves(store):
    store.commit(10, {"p/a": "1", "p/b": "2", "q": "3", "p": "4"})
    store.commit(20, {"p/b": "new", "p/c": "5"}, ("p/",))
    assert store.kv.load_with_prefix("") == (["p", "p/b", "p/c", "q"], ["4", "new", "5", "3"])
    assert store.kv.load_with_prefix("", 10)[1] == ["4", "1", "2", "3"]
    store.commit(30, {"x": "y"}, ("p", "p/", "p/c", "q"))
    assert store.kv.load_with_prefix("") == (["x"], ["y"])
    store.commit(40, {"z": ""}, ("",))
    assert store.kv.load_with_prefix("") == (["z"], [""])
    assert store.kv.load("z") == ""


def test_a_removal_of_nothing_is_a_commit(store):
    store.commit(50, {}, ("nothing",))
    store.commit(60, {"a": "1"})
    assert store.kv.load_with_prefix("", 50) == ([], [])


def test_a_timestamp_that_goes_back_is_refused_when_it_is_written(store):
    store.seed()
    for ts in (600, 599, 0, -1, 1 << 63):
        store.now = ts
        with pytest.raises(TimestampRefusedError):
            store.kv.save("D", "4")
    store.reopen()
    store.now = 600
    with pytest.raises(TimestampRefusedError):
        store.kv.save("D", "4")
    assert missing(store, "D")
    store.commit(601, {"D": "4"})
    store.reopen()
    assert store.kv.load("D", 601) == "4"
    assert store.kv.load("B", 450) == "2"


@pytest.mark.parametrize(
    ("saves", "removals", "error"),
    [
        ({}, (), KeyRefusedError),
        ({"": "x"}, (), KeyRefusedError),
        ({"k" * (MAX_KEY + 1): "x"}, (), KeyRefusedError),
        ({"a": "x"}, ("k" * (MAX_KEY + 1),), KeyRefusedError),
        ({"\ud800": "x"}, (), KeyRefusedError),
        ({"a": "\ud800"}, (), KeyRefusedError),
        ({}, ("\ud800",), KeyRefusedError),
        ({"a": "x" * (MAX_VALUE + 1)}, (), TooLargeError),
    ],
    ids=["nothing", "empty", "long", "long-prefix", "no-key", "no-value", "no-prefix", "large"],
)
def test_what_cannot_be_stored_is_refused_whole(store, saves, removals, error):
    store.commit(10, {"a": "1"})
    store.now = 20
    with pytest.raises(error):
        store.kv.multi_save_and_remove_with_prefix(saves, removals)
    if saves and not removals:
        addition = next(iter(saves.items()))
        with pytest.raises(error):
            store.kv.multi_save({"b": "1"}, lambda _: addition)
    assert store.kv.load_with_prefix("") == (["a"], ["1"])


def test_the_largest_keys_and_values_are_kept(store):
    key, value = "ké" * (MAX_KEY // 3), "é" * (MAX_VALUE // 2)
    store.commit(10, {key: value, "other\x00\n": "\x00"})
    store.reopen()
    assert store.kv.load(key) == value
    assert store.kv.load("other\x00\n") == "\x00"
    assert missing(store, "\ud800")


def test_a_commit_of_many_keys_is_visible_whole_or_not(store):
    store.commit(10, {f"old/{number}": "x" for number in range(300)} | {"stays": "s"})
    store.commit(20, {"between": "b"})
    store.commit(
        30,
        {f"new/{number}": str(number) for number in range(1000)} | {"old/7": "kept"},
        ("old/", "between"),
    )
    store.commit(40, {"after": "a"})
    for _ in range(2):
        for ts in (10, 15, 19):
            assert len(store.kv.load_with_prefix("", ts)[0]) == 301
        for ts in (20, 29):
            assert len(store.kv.load_with_prefix("", ts)[0]) == 302
        for ts in (30, 39):
            keys, values = store.kv.load_with_prefix("", ts)
            assert len(keys) == 1002
            assert keys == sorted(keys)
            assert dict(zip(keys, values, strict=True))["new/500"] == "500"
            assert store.kv.load("old/7", ts) == "kept"
            assert missing(store, "old/8", ts)
        assert len(store.kv.load_with_prefix("")[0]) == 1003
        store.reopen()


@pytest.mark.few(1)
def test_commits_larger_than_a_request_are_kept(store):
    values = {f"k{number}": str(number) * 600_000 for number in range(4)}
    store.commit(10, {"k1": "old"})
    store.commit(20, values)
    store.reopen()
    assert store.kv.load_with_prefix("k")[1] == list(values.values())
    assert store.kv.load("k1", 10) == "old"


def test_many_removals_in_one_commit(store):
    store.commit(10, {f"{number:03}": "x" for number in range(200)})
    store.commit(20, {"007": "y"}, tuple(f"{number:03}" for number in range(150)))
    assert store.kv.load_with_prefix("")[0] == ["007", *(f"{each:03}" for each in range(150, 200))]
    assert len(store.kv.load_with_prefix("", 10)[0]) == 200


def test_the_three_answers_differ():
    kinds = (UnreachableError, NotFoundError, HistoryGoneError)
    for one in kinds:
        for other in kinds:
            assert one is other or not issubclass(one, other)
    assert issubclass(KeyMissingError, NotFoundError)
    assert issubclass(KeyRefusedError, RefusedCommitError)
