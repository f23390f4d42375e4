from __future__ import annotations

import pytest

from receiver.metadata.model.paths import Pattern, parse_pattern
from receiver.metadata.query.questions import ShowTagKeys, ShowTagValues
from receiver.metadata.schema import Schema
from tests.support.schema_asked import first, rows, tagged

SG = ("root", "sg")
D1 = ("root", "sg", "d1")


def restarted(schema: Schema) -> Schema:
    return Schema.thaw({name: memoryview(part) for name, part in schema.freeze().sections()})


def schema(count: int = 3, **tags: str) -> Schema:
    made = Schema()
    made.changes.set_storage_group(SG, 1)
    codes = bytes(count)
    names = [f"s{i}" for i in range(count)]
    made.changes.create_series(D1, names, codes, codes, codes, 10, tags=[tags] * count)
    return made


def found(made: Schema, key: str, value: str, at: int | None = None, **how: bool) -> list[str]:
    return [path.rpartition(".")[2] for path in tagged(made, key, value, at=at, **how)]


def test_the_index_is_exact_after_a_restart() -> None:
    made = schema(unit="C", place="west")
    made.changes.set_tags((*D1, "s1"), {"unit": "K"}, 5, 20)
    made.changes.delete_series(Pattern.of((*D1, "s2")), 30)
    for each in (made, restarted(made), restarted(restarted(made))):
        assert found(each, "unit", "C") == ["s0"]
        assert found(each, "unit", "K") == ["s1"]
        assert found(each, "place", "west") == ["s0"]
        assert found(each, "unit", "C", 25) == ["s0", "s2"]
        assert found(each, "unit", "C", 19) == ["s0", "s1", "s2"]
        assert found(each, "unit", "C", 9) == []
        assert first(each, ShowTagKeys()) == ["place", "unit"]
        assert rows(each, ShowTagValues(key="unit")) == [("unit", "C"), ("unit", "K")]
        assert rows(each, ShowTagValues(key="unit"), 19) == [("unit", "C")]


def test_a_tag_that_comes_back_is_there_once() -> None:
    made = schema(unit="C")
    made.changes.set_tags((*D1, "s0"), {}, 5, 20)
    made.changes.set_tags((*D1, "s0"), {"unit": "C"}, 6, 30)
    assert found(made, "unit", "C", 20) == ["s1", "s2"]
    assert found(made, "unit", "C") == ["s0", "s1", "s2"]
    assert made.index.tags(made.series.find((*D1, "s0")), 15) == {"unit": "C"}


def test_contains_looks_into_values_and_not_into_keys() -> None:
    made = schema(1, unit="Celsius", Cel="x")
    assert found(made, "unit", "els", contains=True) == ["s0"]
    assert found(made, "unit", "", contains=True) == ["s0"]
    assert found(made, "unit", "xx", contains=True) == []
    assert found(made, "Cel", "Cel", contains=True) == []
    assert found(made, "nothing", "a", contains=True) == []


def test_deleting_ends_tags_and_the_past_keeps_them() -> None:
    made = schema(unit="C")
    made.changes.delete_series(parse_pattern("root.sg.**"), 20)
    codes = bytes(1)
    made.changes.create_series(D1, ["s0"], codes, codes, codes, 30)
    assert found(made, "unit", "C") == []
    assert found(made, "unit", "C", 19) == ["s0", "s1", "s2"]
    assert made.index.tags(made.series.find((*D1, "s0"))) == {}


@pytest.mark.slow
def test_history_lets_go_of_tags_and_their_texts() -> None:
    made = schema(1)
    for step in range(30_000):
        made.changes.set_tags((*D1, "s0"), {"serial": f"number {step}"}, step, 100 + step)
    while made.collector.collect(30_099):
        pass
    assert len(made.index.pair) < 45_000  # each place was used more than once, or is free
    for step in range(30_000):
        made.changes.set_tags((*D1, "s0"), {"serial": f"other {step}"}, step, 50_000 + step)
        if step % 1000 == 0:
            while made.collector.collect(50_000 + step):
                pass
    while made.collector.collect(90_000):
        pass
    assert len(made.index.pair) < 45_000
    assert made.tree.names.used < 9_000
    assert found(made, "serial", "other 29999") == ["s0"]
    assert found(made, "serial", "number", contains=True) == []


@pytest.mark.parametrize("loose", [2, 100_000])
def test_tens_of_thousands_of_postings_are_found(
    loose: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.tagindex._LOOSE", loose)
    made = Schema()
    made.changes.set_storage_group(SG, 1)
    codes = bytes(100)
    names = [f"s{i}" for i in range(100)]
    for device in range(100):
        tags = [{"group": f"g{i % 7}", "serial": f"{device}-{i}"} for i in range(100)]
        made.changes.create_series((*SG, f"d{device}"), names, codes, codes, codes, 10, tags=tags)
    assert len(tagged(made, "group", "g3")) == 1400
    assert len(tagged(made, "group", "g", contains=True)) == 10_000
    assert tagged(made, "serial", "77-5") == ["root.sg.d77.s5"]
    assert len(tagged(made, "group", "g3", parse_pattern("root.sg.d1*.s3"))) == 11
