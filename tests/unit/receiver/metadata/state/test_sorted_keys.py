import random

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
