from __future__ import annotations

import pytest

from common.errors import DamagedError
from receiver.metadata.model import records
from receiver.metadata.model.paths import Nodes, Pattern, parse_pattern
from receiver.metadata.query.questions import ShowTimeseries
from receiver.metadata.schema import Schema, room
from tests.support.schema_asked import first, tagged

SG = ("root", "sg")
D1 = ("root", "sg", "d1")


def create(schema: Schema, device: Nodes, names: list[str], ts: int, **more: object) -> None:
    codes = bytes(len(names))
    schema.changes.create_series(device, names, codes, codes, codes, ts, **more)  # type: ignore[arg-type]


def schema(*names: str) -> Schema:
    made = Schema()
    made.changes.set_storage_group(SG, 1)
    create(made, D1, list(names or ["s1", "s2"]), 10)
    return made


def delete(made: Schema, pattern: str, ts: int) -> int:
    return made.changes.delete_series(parse_pattern(pattern), ts)


def paths(made: Schema, pattern: str = "root.**", at: int | None = None) -> list[str]:
    return first(made, ShowTimeseries(pattern=parse_pattern(pattern)), at)


def restarted(made: Schema) -> Schema:
    return Schema.thaw({name: memoryview(part) for name, part in made.freeze().sections()})


# -- deletion -------------------------------------------------------------------------------------


def test_deleting_prunes_empty_ancestors_up_to_the_storage_group() -> None:
    made = schema()
    create(made, (*SG, "a", "b", "c"), ["s"], 20)
    assert delete(made, "root.sg.a.b.c.s", 30) == 1
    assert made.nodes.kind_at((*SG, "a")) is None
    assert made.nodes.kind_at((*SG, "a", "b"), 25) == "internal"
    assert delete(made, "root.**", 40) == 2
    assert made.nodes.kind_at(SG) == "storage_group"
    assert made.nodes.kind_at(D1) is None
    assert (
        made.columns.series_count,
        made.columns.device_count,
        made.columns.storage_group_count,
    ) == (0, 0, 1)


def test_a_node_with_something_left_below_it_stays() -> None:
    made = schema()
    create(made, (*D1, "part"), ["s"], 20)
    delete(made, "root.sg.d1.*", 30)
    assert made.nodes.kind_at(D1) == "internal"
    assert made.devices.find(D1) is None
    assert made.devices.find(D1, 25) is not None
    assert paths(made) == ["root.sg.d1.part.s"]


def test_a_storage_group_goes_with_all_below_and_the_empty_nodes_above() -> None:
    made = schema()
    made.changes.set_storage_group(("root", "x", "y", "sg"), 20)
    create(made, ("root", "x", "y", "sg", "d"), ["s"], 21, aliases=["al"], tags=[{"k": "v"}])
    assert made.groups.is_any_below(("root", "x"))
    assert made.changes.delete_storage_group(("root", "x", "y", "sg"), 30) == 1
    assert made.nodes.kind_at(("root", "x")) is None
    assert not made.groups.is_any_below(("root", "x"))
    assert made.groups.is_any_below(("root", "x"), 25)
    assert tagged(made, "k", "v") == []
    assert [row.nodes for row in made.groups.rows()] == [SG]
    assert len(made.groups.rows(25)) == 2
    assert paths(made) == ["root.sg.d1.s1", "root.sg.d1.s2"]


def test_a_series_that_is_made_again_has_nothing_of_the_old_one() -> None:
    made = schema()
    made.changes.set_alias((*D1, "s1"), "al", 20)
    made.changes.set_tags((*D1, "s1"), {"k": "v"}, 77, 21)
    made.changes.load_series(D1, ["s1"], b"\0", b"\0", b"\0", [500], 22)
    delete(made, "root.sg.d1.s1", 30)
    create(made, D1, ["s1"], 40)
    row = made.series.describe(made.series.find((*D1, "s1")))
    assert (row.alias, row.tags_at, row.heat, row.created) == (None, -1, None, 40)
    assert made.index.tags(row.row) == {}
    assert made.series.find((*D1, "al")) == -1
    old = made.series.describe(made.series.find((*D1, "s1"), 29), 29)
    assert (old.alias, old.tags_at, old.heat, old.created) == ("al", 77, 500, 10)
    assert made.series.find((*D1, "s1"), 35) == -1


def test_what_was_made_and_deleted_in_one_commit_never_was() -> None:
    made = schema()
    create(made, D1, ["s3"], 20, tags=[{"k": "v"}])
    delete(made, "root.sg.d1.s3", 20)
    assert [made.series.find((*D1, "s3"), at) for at in (19, 20, 21, None)] == [-1] * 4
    assert tagged(made, "k", "v", at=20) == []


def test_series_of_a_device_that_was_deleted_stay_with_its_old_life() -> None:
    made = schema()
    delete(made, "root.sg.d1.**", 20)
    create(made, D1, ["s9"], 30)
    assert paths(made) == ["root.sg.d1.s9"]
    assert paths(made, at=15) == ["root.sg.d1.s1", "root.sg.d1.s2"]
    assert paths(made, at=25) == []
    assert made.series.find((*D1, "s1")) == -1


# -- aliases --------------------------------------------------------------------------------------


def test_an_alias_finds_its_series_and_takes_the_name_in_the_device() -> None:
    made = schema()
    made.changes.set_alias((*D1, "s1"), "temperature", 20)
    row = made.series.find((*D1, "temperature"))
    assert row == made.series.find((*D1, "s1"))
    assert made.nodes.kind_at((*D1, "temperature")) == "alias"
    names = ["temperature", "s1", "s3", *(f"n{i}" for i in range(10))]
    for some in (names, names[:3]):
        assert list(made.devices.taken(D1, some)) == [0, 1]
        assert made.devices.missing(D1, some) == list(range(2, len(some)))
        missing, differing = made.devices.compare(D1, some, bytes(len(some)))
        assert (list(missing), list(differing)) == (list(range(2, len(some))), [0])
        assert list(made.devices.compare(D1, some, b"\1" * len(some))[1]) == [0, 1]
    made.changes.set_alias((*D1, "s1"), "t2", 30)
    assert made.series.find((*D1, "temperature")) == -1
    assert made.series.find((*D1, "temperature"), 25) == row
    made.changes.set_alias((*D1, "s1"), None, 40)
    assert made.series.describe(row).alias is None
    assert [made.series.describe(row, at).alias for at in (15, 20, 30, 40)] == [
        None,
        "temperature",
        "t2",
        None,
    ]
    assert paths(made) == ["root.sg.d1.s1", "root.sg.d1.s2"]


def test_a_row_that_was_an_alias_and_is_used_again_is_no_alias_any_more() -> None:
    made = schema()
    row = made.series.find((*D1, "s1"))
    made.changes.set_alias((*D1, "s1"), "a1", 20)
    made.changes.set_alias((*D1, "s1"), "a2", 30)
    while made.collector.collect(30):
        pass
    create(made, D1, ["z1"], 40)
    made.changes.set_alias((*D1, "s1"), None, 50)
    assert [made.series.describe(row, at).alias for at in (30, 49, 50, None)] == [
        "a2",
        "a2",
        None,
        None,
    ]
    while made.collector.collect(50):
        pass
    create(made, D1, ["z2"], 60)
    assert made.series.describe(row).alias is None


# -- guards ---------------------------------------------------------------------------------------


def test_every_alteration_is_seen_by_who_looked_before() -> None:
    made = schema()
    path = (*D1, "s1")
    seen = [made.series.changed((*D1, "s9")), made.series.changed(path)]
    made.changes.set_alias(path, "al", 20)
    seen.append(made.series.changed(path))
    made.changes.set_tags(path, {}, 5, 30)
    seen.append(made.series.changed(path))
    made.changes.set_alias(path, None, 40)
    seen.append(made.series.changed(path))
    delete(made, "root.sg.d1.s1", 50)
    seen.append(made.series.changed(path))
    delete(made, "root.sg.**", 60)
    create(made, D1, ["s2"], 70)
    seen.append(made.series.changed(path))
    create(made, D1, ["s1"], 80)
    assert [*seen, made.series.changed(path)] == [0, 10, 20, 30, 40, 50, 50, 80]


def test_collecting_does_not_make_a_living_series_look_changed() -> None:
    made = schema()
    path = (*D1, "s1")
    made.changes.set_tags(path, {"k": "v"}, 7, 20)
    made.changes.set_alias(path, "al", 30)
    made.changes.set_alias(path, None, 40)
    assert made.series.changed(path) == 40
    while made.collector.collect(50):
        pass
    assert made.series.changed(path) == 40
    assert made.series.describe(made.series.find(path)).tags_at == 7


# -- memory ---------------------------------------------------------------------------------------


def test_the_estimate_follows_deletions_collections_and_restarts_exactly() -> None:
    made = schema()
    before = made.memory.used
    props = [{"e": "1"}] * 20
    tags = [{"k": f"v{i}", "unit": "C"} for i in range(20)]
    names = [f"n{i}" for i in range(20)]
    create(made, (*SG, "dä"), names, 20, aliases=["a b"] + [None] * 19, tags=tags, props=props)
    grown = made.memory.used
    assert grown > before
    assert restarted(made).memory.used == grown
    made.changes.set_tags((*SG, "dä", "n1"), {"unit": "F"}, 1, 21)
    made.changes.set_alias((*SG, "dä", "n0"), "other", 22)
    delete(made, "root.sg.`dä`.*", 30)
    assert made.memory.used == before
    while made.collector.collect(100):
        pass
    assert restarted(made).memory.used == before
    assert made.changes.delete_storage_group(SG, 50) == 2
    assert made.memory.used == Schema().memory.used == 0


def test_what_an_operation_costs_is_what_the_estimate_grows_by() -> None:
    made = schema()
    codes = b"\1\1"
    tags = [{"k": "v"}, {"k": "ww", "l": ""}]
    before = made.memory.used
    op = records.SeriesCreated(
        "root.sg.x.`d 1`", ["ä", "b"], codes, codes, codes, aliases=["q", None], tags=tags
    )
    expected = before + made.memory.cost_of(op)
    made.changes.create_series(
        ("root", "sg", "x", "d 1"), op.names, codes, codes, codes, 20, aliases=op.aliases, tags=tags
    )
    assert made.memory.used == expected
    expected += made.memory.cost_of(records.StorageGroupSet("root.new.sg"))
    made.changes.set_storage_group(("root", "new", "sg"), 30)
    assert made.memory.used == expected
    device = records.LoadedDevice("root.sg.d1", False, ["s1", "s3"], codes, codes, codes, [1, 2])
    expected += made.memory.cost_of(records.SeriesLoaded("p", [device]))
    made.changes.load_series(D1, device.names, codes, codes, codes, device.lasts, 40)
    assert made.memory.used == expected
    assert made.memory.cost_of(records.SeriesDeleted("root.**")) == 0


def test_props_are_at_most_what_was_foreseen() -> None:
    made = schema()
    props = [{"a": "b", "c": '\x01é"\\'}]
    op = records.SeriesCreated("root.sg.d1", ["p"], b"\1", b"\1", b"\1", props=props)
    before, cost = made.memory.used, made.memory.cost_of(op)
    create(made, D1, ["p"], 20, props=props)
    assert made.memory.used - before <= cost
    assert made.series.describe(made.series.find((*D1, "p"))).props == props[0]


def test_a_row_that_is_used_again_has_no_props_of_what_was_there() -> None:
    made = schema()
    create(made, D1, ["p"], 20, props=[{"a": "b"}])
    row = made.series.find((*D1, "p"))
    delete(made, "root.sg.d1.p", 30)
    while made.collector.collect(30):
        pass
    create(made, D1, ["q"], 40)
    assert made.series.find((*D1, "q")) == row
    assert made.series.describe(row).props == {}


# -- history --------------------------------------------------------------------------------------


def test_collecting_is_bounded_and_gives_everything_back() -> None:
    made = schema()
    rows = len(made.tree)
    for step in range(50):
        ts = 100 + step * 10
        create(made, (*SG, "tmp"), [f"t{i}" for i in range(20)], ts, tags=[{"k": str(step)}] * 20)
        delete(made, "root.sg.tmp.*", ts + 5)
        while (count := made.collector.collect(ts + 5, 7)) > 0:
            assert count <= 7
    assert len(made.tree) <= rows + 21
    assert len(made.columns.ended) == 0
    assert paths(made) == ["root.sg.d1.s1", "root.sg.d1.s2"]


def test_what_a_question_can_still_reach_is_not_collected() -> None:
    made = schema()
    made.changes.set_tags((*D1, "s1"), {"k": "1"}, 1, 20)
    made.changes.set_ttl(SG, 5, 20)
    made.changes.set_tags((*D1, "s1"), {"k": "2"}, 2, 30)
    made.changes.set_ttl(SG, 6, 30)
    delete(made, "root.sg.d1.s2", 30)
    while made.collector.collect(29):
        pass
    row = made.series.find((*D1, "s1"))
    assert (
        made.columns.offsets.get(row, 29, -1),
        made.index.tags(row, 29),
        made.groups.ttl(SG, 29),
    ) == (1, {"k": "1"}, 5)
    assert paths(made, at=29) == ["root.sg.d1.s1", "root.sg.d1.s2"]
    while made.collector.collect(30):
        pass
    assert (
        made.columns.offsets.get(row, 30, -1),
        made.index.tags(row, 30),
        made.groups.ttl(SG, 30),
    ) == (2, {"k": "2"}, 6)
    assert paths(made, at=30) == ["root.sg.d1.s1"]


@pytest.mark.slow
def test_one_series_altered_and_made_again_very_often_is_collected_in_time() -> None:
    made = schema("s1")
    path = (*D1, "s1")
    for step in range(3000):
        ts = 100 + 10 * step
        made.changes.set_tags(path, {"k": str(step), "stays": "x"}, step, ts)
        made.changes.set_alias(path, f"a{step}", ts + 1)
        made.changes.set_ttl(SG, step, ts + 2)
        delete(made, "root.sg.d1.s1", ts + 3)
        create(made, D1, ["s1"], ts + 4)
    while made.collector.collect(10**9):
        pass
    assert len(made.tree._older) == 0
    assert made.groups.ttl(SG) == 2999


# -- restart --------------------------------------------------------------------------------------


def test_a_restart_continues_as_if_there_had_been_none() -> None:
    made = schema()
    delete(made, "root.sg.d1.s1", 20)
    create(made, D1, ["s1"], 30, aliases=["al"], tags=[{"k": "v"}])
    made.changes.load_series(D1, ["s1"], b"\0", b"\0", b"\0", [5], 40)
    again = restarted(made)
    for each in (made, again):
        delete(each, "root.sg.d1.s2", 50)
        create(each, (*SG, "d2"), ["s1", "s2"], 60)
        while each.collector.collect(45):
            pass
    first = {name: bytes(part) for name, part in made.freeze().sections()}
    assert first == {name: bytes(part) for name, part in again.freeze().sections()}


def test_a_copy_is_the_same_with_and_without_room_for_it() -> None:
    made = schema()
    plain = {name: bytes(part) for name, part in made.freeze().sections()}
    for memory in (room(made.frozen_bytes()), bytearray(100)):
        frozen = made.freeze(memory)
        delete(restarted(made), "root.**", 99)
        assert {name: bytes(part) for name, part in frozen.sections()} == plain


def test_a_copy_stands_still_while_commits_go_on() -> None:
    made = schema()
    plain = {name: bytes(part) for name, part in made.freeze().sections()}
    frozen = made.freeze(room(made.frozen_bytes()))
    for step in range(100):
        create(made, (*SG, f"e{step}"), ["a"] + [f"s{i}" for i in range(20)], 100 + step)
    delete(made, "root.**", 1000)
    assert {name: bytes(part) for name, part in frozen.sections()} == plain


@pytest.mark.parametrize("how", ["missing", "short", "odd"])
def test_sections_that_do_not_fit_together_are_damage_and_no_empty_tree(how: str) -> None:
    made = schema()
    create(made, (*SG, "d2"), ["s"], 20, tags=[{"k": "v"}], offsets=[3])
    good = {name: bytes(part) for name, part in made.freeze().sections()}
    may_be_empty = {name for name, part in good.items() if not part}
    for name in good:
        sections = dict(good)
        if how == "missing":
            del sections[name]
        elif name in may_be_empty or name.endswith(
            (".free", ".loose", ".order", ".head", ".heads")
        ):
            continue
        elif how == "short":
            sections[name] = good[name][:-8]
        else:
            sections[name] = good[name][:-1]
            if name == "names.blob":
                continue
        if how == "short" and name in ("names.blob", "tags.free_pairs", "tree.slots", "tags.slots"):
            continue
        with pytest.raises(DamagedError):
            Schema.thaw(sections)


def test_a_checkpoint_of_the_other_byte_order_is_read() -> None:
    import json
    from array import array

    made = schema()
    create(made, (*SG, "d2"), ["s"], 20, tags=[{"k": "v"}], offsets=[3], aliases=["al"])
    kinds = dict(made.columns.sections())
    swapped = {}
    for name, part in kinds.items():
        if isinstance(part, array):
            other = array(part.typecode, part)
            other.byteswap()
            swapped[name] = other.tobytes()
        else:
            swapped[name] = bytes(part)
    head = json.loads(swapped["schema.head"])
    head["byteorder"] = "big" if head["byteorder"] == "little" else "little"
    swapped["schema.head"] = json.dumps(head).encode()
    again = Schema.thaw(swapped)
    assert paths(again) == paths(made)
    assert tagged(again, "k", "v") == tagged(made, "k", "v") == ["root.sg.d2.s"]
    assert again.series.describe(again.series.find((*SG, "d2", "al"))).tags_at == 3


def test_patterns_made_of_nodes_are_the_same_as_parsed_ones() -> None:
    made = schema()
    assert made.changes.delete_series(Pattern.of((*D1, "s1")), 20) == 1
    assert paths(made) == ["root.sg.d1.s2"]
