import random
import threading

import pytest

from receiver.metadata.state.sorted_keys import SortedKeys


@pytest.mark.parametrize("burst", [1, 10, 500])
def test_pages_are_those_of_a_sorted_list(burst):
    rng = random.Random(burst)
    keys, model = SortedKeys(), set()
    for _ in range(30):
        for _ in range(burst):
            key = f"{rng.randrange(400):03}"
            if key in model:
                keys.remove(key)
                model.remove(key)
            else:
                keys.add(key)
                model.add(key)
        after = f"{rng.randrange(400):03}"
        assert len(keys) == len(model)
        assert keys.page(after, 7) == sorted(each for each in model if each > after)[:7]
    assert keys.page(None, 1000) == sorted(model)
    assert keys.page(None, 0) == []


def test_a_cursor_survives_the_removal_of_its_key():
    keys = SortedKeys()
    for key in "abcd":
        keys.add(key)
    assert keys.page(None, 2) == ["a", "b"]
    keys.remove("b")
    assert keys.page("b", 2) == ["c", "d"]


def test_removed_and_added_again_between_two_pages():
    keys = SortedKeys()
    keys.add("a")
    assert keys.page(None, 9) == ["a"]
    keys.remove("a")
    keys.add("a")
    assert keys.page(None, 9) == ["a"]
    keys.add("b")
    keys.remove("b")
    assert keys.page(None, 9) == ["a"]


def test_few_changes_among_many_keys_keep_the_order():
    rng = random.Random(3)
    keys, model = SortedKeys(), set()
    for number in range(0, 20_000, 2):
        keys.add(f"{number:06}")
        model.add(f"{number:06}")
    for turn in range(120):
        # All into the same place, so that blocks are cut; and all out of one, so that one ends.
        for _ in range(50):
            key = f"{rng.randrange(4000, 8000):06}x{rng.randrange(1000)}"
            if key not in model:
                keys.add(key)
                model.add(key)
        for key in sorted(model)[20 * turn : 20 * turn + 20]:
            keys.remove(key)
            model.remove(key)
        after = f"{rng.randrange(20_000):06}"
        assert keys.page(after, 2500) == sorted(each for each in model if each > after)[:2500]
    assert keys.page(None, len(model) + 1) == sorted(model)
    for prefix in ("0050", "0", "", "02", "9"):
        assert keys.starting(prefix) == sorted(key for key in model if key.startswith(prefix))


def test_a_few_keys_are_put_among_many_without_sorting_them_anew(monkeypatch):
    keys = SortedKeys()
    for number in range(10_000):
        keys.add(f"{number:06}")
    assert keys.page(None, 1) == ["000000"]
    monkeypatch.setattr(SortedKeys, "_sort_anew", lambda self: pytest.fail("sorted anew"))
    for number in range(100):
        keys.add(f"{number:06}x")
        keys.remove(f"{number + 5000:06}")
    assert keys.page("000000", 2) == ["000000x", "000001"]
    assert keys.page("004999", 1) == ["005100"]


def test_two_that_ask_at_once_get_each_key_once(monkeypatch):
    """Who checks a commit asks without the lock of the readers."""
    keys = SortedKeys()
    keys.add_many([f"{number:03}" for number in range(100)])
    keys.settle()
    added, found = [f"{number:03}+" for number in range(9)], []
    keys.add_many(added)
    other = threading.Thread(target=lambda: found.extend(keys.starting("00")))
    put_in = SortedKeys._put_in

    def meanwhile(self, key):
        if not other.ident:
            other.start()
            other.join(0.1)
        put_in(self, key)

    monkeypatch.setattr(SortedKeys, "_put_in", meanwhile)
    mine = keys.starting("00")
    other.join()
    expected = sorted([*added, *(f"{number:03}" for number in range(10))])
    assert mine == found == keys.starting("00") == expected
    assert len(keys) == 109
