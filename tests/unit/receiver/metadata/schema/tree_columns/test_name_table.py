from __future__ import annotations

import random

import numpy as np
import pytest

from receiver.metadata.schema.tree_columns.name_table import NameTable, containing


def holding(names: NameTable, text: str) -> list[int]:
    return containing(*names.copies(), text).tolist()


def test_a_text_is_kept_once_and_comes_back() -> None:
    names = NameTable()
    texts = ["", "s1", "s1 ", "ä", "\0", "a\0b", "\U0001f600", "s" * 300]
    numbers = names.intern_many(texts)
    assert len(set(numbers)) == len(texts)
    assert [names.text(number) for number in numbers] == texts
    assert names.intern_many(texts) == numbers
    assert names.find_many([*texts, "other"]) == [*numbers, -1]
    assert names.used == len(texts)


def test_thousands_of_texts_are_found_after_growth() -> None:
    names = NameTable()
    texts = [f"device-{i}" for i in range(20_000)]
    numbers = names.intern_many(texts)
    assert names.find_many(texts) == numbers
    assert names.texts(numbers) == texts
    assert names.find("device-20000") == -1


@pytest.mark.parametrize("few", [3, 10_000])
def test_the_order_is_that_of_the_texts(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.name_table._COMPARED", few)
    names = NameTable()
    source = random.Random(5)
    texts = ["", "\0", "a", "a\0", "a\0\0", "aa", "ä", "z" * 64, "z" * 65, "z" * 64 + "a"]
    texts += [
        "".join(source.choices("ab\0ä\U0001f600", k=source.randrange(90))) for _ in range(400)
    ]
    texts = list(dict.fromkeys(texts))
    numbers = np.array(names.intern_many(texts))
    source.shuffle(texts)
    numbers = np.array(names.find_many(texts))
    assert [texts[i] for i in names.order(numbers)] == sorted(texts)


def test_a_search_does_not_find_what_stands_half_in_one_text_and_half_in_the_next() -> None:
    names = NameTable()
    numbers = names.intern_many(["ab", "cd", "abcd", "xbcx", "ä"])
    assert holding(names, "bc") == sorted([numbers[2], numbers[3]])
    assert holding(names, "ä") == [numbers[4]]
    assert holding(names, "q") == []
    assert len(holding(names, "")) == 5


def test_numbers_and_bytes_of_released_texts_are_used_again() -> None:
    names = NameTable()
    texts = [f"name{i}" for i in range(1000)]
    numbers = names.intern_many(texts)
    used = np.zeros(len(names), bool)
    used[numbers[::10]] = True
    assert names.release(used) == 900
    assert names.used == 100
    assert names.find_many(texts[::10]) == numbers[::10]
    assert names.find("name1") == -1
    assert holding(names, "name1") == [
        number for number in numbers[::10] if "name1" in texts[number]
    ]
    slots = np.frombuffer(dict(names.sections())["names.slots"], np.int32)
    assert np.count_nonzero(slots >= 0) == 100
    del slots
    again = names.intern_many([f"other{i}" for i in range(900)])
    assert max(again) < 1000
    assert names.texts(again) == [f"other{i}" for i in range(900)]
    assert names.texts(numbers[::10]) == texts[::10]
    held = sum(len(names.text(number)) + 1 for number in range(1000))
    assert dict(names.sections())["names.blob"].__len__() <= 2 * held


@pytest.mark.parametrize("new", [0, 1, 40, 2000])
def test_many_texts_at_once_are_found_whatever_numbers_are_free(new: int) -> None:
    names = NameTable()
    texts = [f"name{i}" for i in range(3000)]
    numbers = names.intern_many(texts)
    used = np.ones(len(names), bool)
    used[numbers[:50]] = False
    assert names.release(used) == 50
    kept, more = texts[50:], [f"new{i}" for i in range(new)]
    found = names.intern_many([*kept, *more])
    assert found[: len(kept)] == numbers[50:]
    assert len(set(found)) == len(found)
    assert names.texts(found) == [*kept, *more]
    assert names.used == len(found)
    assert len(names) == max(3000, len(found))


def test_a_restart_gives_the_same_numbers() -> None:
    names = NameTable()
    names.intern_many([f"n{i}" for i in range(100)])
    used = np.ones(len(names), bool)
    used[[3, 5]] = False
    names.release(used)
    again = NameTable.thaw({name: bytes(part) for name, part in names.sections()}, swap=False)
    for each in (names, again):
        assert each.find("n3") == -1
        assert each.find("n99") == 99
    assert [again.intern(text) for text in ("x", "y", "z")] == [
        names.intern(text) for text in ("x", "y", "z")
    ]


@pytest.mark.parametrize("seed", range(4))
def test_many_at_once_have_the_numbers_that_they_have_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.name_table._MANY", 2)
    source = random.Random(seed)
    one, many = NameTable(), NameTable()
    for _ in range(30):
        texts = [
            "".join(source.choices("ab\0\ud800ä", k=source.randrange(5)))
            for _ in range(source.randrange(1, 80))
        ]
        many._ids.clear()  # none is at hand
        numbers = many.intern_many(texts)
        for text in texts:
            one.intern(text)
        assert many.texts(numbers) == texts
        assert many.used == one.used
        many._ids.clear()
        asked = [*texts, "other", *texts[:3]]
        assert many.find_many(asked) == [*numbers, -1, *numbers[:3]]
        assert [many.find(each) for each in texts] == numbers
        if not source.randrange(3):
            for names in (one, many):
                kept = np.zeros(len(names), bool)
                kept[[names.find(each) for each in texts[::2]]] = True
                names.release(kept)
    thawed = NameTable.thaw(
        {name: memoryview(bytes(part)) for name, part in many.sections()}, swap=False
    )
    assert thawed.find_many(texts[::2]) == many.find_many(texts[::2])


def test_texts_with_the_same_checksum_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "receiver.metadata.schema.tree_columns.name_table.crc32", lambda text: len(text) % 3
    )
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.name_table._MANY", 2)
    names = NameTable()
    texts = [f"device{i:03}" for i in range(200)] + ["", "x"]
    numbers = names.intern_many(texts)
    names._ids.clear()
    assert names.find_many(texts) == numbers
    assert len(set(numbers)) == len(texts)
    assert names.texts(numbers) == texts
