from __future__ import annotations

import random
from array import array

import numpy as np
import pytest

from receiver.metadata.schema.tree_columns.hashindex import PairIndex


def test_it_answers_as_a_dictionary_does_over_any_order_of_changes() -> None:
    source = random.Random(7)
    first, second = array("i"), array("i")
    index = PairIndex(first, second)
    expected: dict[tuple[int, int], int] = {}
    for step in range(8000):
        key = (source.randrange(12), source.randrange(40))
        row = expected.get(key)
        if row is not None and step % 3 == 0:
            index.remove(row)
            del expected[key]
        else:
            first.append(key[0])
            second.append(key[1])
            before = index.put(*key, len(first) - 1)
            assert before == (-1 if row is None else row)
            expected[key] = len(first) - 1
    assert index._used == len(expected)
    for a in range(13):
        names = np.arange(-1, 41)
        found = index.find_many(a, names)
        assert found.tolist() == [expected.get((a, int(b)), -1) for b in names]
        assert [index.find(a, int(b)) for b in names] == found.tolist()


@pytest.mark.parametrize("count", [5, 300, 20_000])
def test_many_keys_at_once_are_the_same_as_one_by_one(count: int) -> None:
    first, second = array("i", range(1000)), array("i", range(1000))
    index = PairIndex(first, second)
    for row in range(1000):
        index.put(row, row, row)
    first.extend([7] * count)
    second.extend(range(10_000, 10_000 + count))
    rows = np.arange(1000, 1000 + count)
    keys = np.arange(10_000, 10_000 + count)
    index.put_new(7, keys, rows)
    assert index._used == 1000 + count
    assert index.find_many(7, keys).tolist() == rows.tolist()
    assert [index.find(7, int(key)) for key in keys] == rows.tolist()
    assert index.find_many(np.full(count, 7), keys).tolist() == rows.tolist()
    assert set(index.find_many(8, keys).tolist()) == {-1}
    assert [index.find(row, row) for row in range(1000)] == list(range(1000))


def test_another_row_takes_the_place_of_one() -> None:
    first, second = array("i", [1, 1]), array("i", [2, 2])
    index = PairIndex(first, second)
    index.put(1, 2, 0)
    index.replace(0, 1)
    assert index.find(1, 2) == 1
    assert index._used == 1
