from __future__ import annotations

import pytest

from receiver.metadata.model.paths import Pattern, parse_pattern
from receiver.metadata.schema import Schema

SG = ("root", "sg")
D1 = ("root", "sg", "d1")


def restarted(schema: Schema) -> Schema:
    return Schema.thaw({name: memoryview(part) for name, part in schema.freeze().sections()})


def schema(count: int = 3, **tags: str) -> Schema:
    made = Schema()
    made.set_storage_group(SG, 1)
    codes = bytes(count)
    names = [f"s{i}" for i in range(count)]
    made.create_series(D1, names, codes, codes, codes, 10, tags=[tags] * count)
    return made


def found(made: Schema, key: str, value: str, at: int | None = None, **how: bool) -> list[str]:
    return [made.nodes_of(row)[-1] for row in made.find_tagged(key, value, None, at, **how)]


def test_the_index_is_exact_after_a_restart() -> None:
    made = schema(unit="C", place="west")
    made.set_tags((*D1, "s1"), {"unit": "K"}, 5, 20)
    made.delete_series(Pattern.of((*D1, "s2")), 30)
    for each in (made, restarted(made), restarted(restarted(made))):
        assert found(each, "unit", "C") == ["s0"]
        assert found(each, "unit", "K") == ["s1"]
        assert found(each, "place", "west") == ["s0"]
        assert found(each, "unit", "C", 25) == ["s0", "s2"]
        assert found(each, "unit", "C", 19) == ["s0", "s1", "s2"]
        assert found(each, "unit", "C", 9) == []
        assert each.tag_keys() == ["place", "unit"]
        assert each.tag_values("unit") == ["C", "K"]
        assert each.tag_values("unit", at=19) == ["C"]


def test_a_tag_that_comes_back_is_there_once() -> None:
    made = schema(unit="C")
    made.set_tags((*D1, "s0"), {}, 5, 20)
    made.set_tags((*D1, "s0"), {"unit": "C"}, 6, 30)
    assert found(made, "unit", "C", 20) == ["s1", "s2"]
    assert found(made, "unit", "C") == ["s0", "s1", "s2"]
    assert made.tags_of(made.find_series((*D1, "s0")), 15) == {"unit": "C"}


def test_contains_looks_into_values_and_not_into_keys() -> None:
    made = schema(1, unit="Celsius", Cel="x")
    assert found(made, "unit", "els", contains=True) == ["s0"]
    assert found(made, "unit", "", contains=True) == ["s0"]
    assert found(made, "unit", "xx", contains=True) == []
    assert found(made, "Cel", "Cel", contains=True) == []
    assert found(made, "nothing", "a", contains=True) == []


def test_deleting_ends_tags_and_the_past_keeps_them() -> None:
    made = schema(unit="C")
    made.delete_series(parse_pattern("root.sg.**"), 20)
    codes = bytes(1)
    made.create_series(D1, ["s0"], codes, codes, codes, 30)
    assert found(made, "unit", "C") == []
    assert found(made, "unit", "C", 19) == ["s0", "s1", "s2"]
    assert made.tags_of(made.find_series((*D1, "s0"))) == {}


@pytest.mark.slow
def test_history_lets_go_of_tags_and_their_texts() -> None:
    made = schema(1)
    for step in range(30_000):
        made.set_tags((*D1, "s0"), {"serial": f"number {step}"}, step, 100 + step)
    while made.collect(30_099):
        pass
    assert len(made.index.pair) < 45_000  # each place was used more than once, or is free
    for step in range(30_000):
        made.set_tags((*D1, "s0"), {"serial": f"other {step}"}, step, 50_000 + step)
        if step % 1000 == 0:
            while made.collect(50_000 + step):
                pass
    while made.collect(90_000):
        pass
    assert len(made.index.pair) < 45_000
    assert made.tree.names.used < 9_000
    assert found(made, "serial", "other 29999") == ["s0"]
    assert found(made, "serial", "number", contains=True) == []


@pytest.mark.parametrize("loose", [2, 100_000])
def test_tens_of_thousands_of_postings_are_found(
    loose: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.metadata.schema.tagindex._LOOSE", loose)
    made = Schema()
    made.set_storage_group(SG, 1)
    codes = bytes(100)
    names = [f"s{i}" for i in range(100)]
    for device in range(100):
        tags = [{"group": f"g{i % 7}", "serial": f"{device}-{i}"} for i in range(100)]
        made.create_series((*SG, f"d{device}"), names, codes, codes, codes, 10, tags=tags)
    assert len(made.find_tagged("group", "g3")) == 1400
    assert len(made.find_tagged("group", "g", contains=True)) == 10_000
    assert [made.nodes_of(row)[2:] for row in made.find_tagged("serial", "77-5")] == [("d77", "s5")]
    rows = made.find_tagged("group", "g3", parse_pattern("root.sg.d1*.s3"))
    assert len(rows) == 11
