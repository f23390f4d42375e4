"""Schemas as text logs: out and in again, reduced, told once more."""

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from common.formats.schemaitems import Altered, Dropped, Group, SeriesItem
from receiver.load.schema.end_state import reduce_text
from receiver.load.schema.task_schema import import_items
from receiver.metadata.engine import Engine
from receiver.metadata.model.paths import format_path
from receiver.metadata.text.mlog_text import (
    ChangeAlias,
    CreateSeries,
    DeletePath,
    DeleteStorageGroup,
    SetStorageGroup,
)
from receiver.metadata.text.schema_dump import Slots, log_lines, log_records, tree_lines
from receiver.transfer.schemachanges import SchemaReader
from tests.support import mlog, tiers

LEGAL = [(0, 0, 1), (1, 2, 1), (2, 4, 7), (3, 8, 1), (4, 0, 0), (5, 0, 2)]
names = st.sampled_from(["d1", "d2", "a,b", "x y", "1", "`q`", "b\\c", "dotted.name", "风", "*"])
labels = st.dictionaries(
    st.sampled_from(["unit", "where", "k,l", "m=n"]), st.text("ab,=&\\ü", max_size=4), max_size=2
)
measurements = st.sampled_from(["s1", "s2", "s,3", "4", "t.5"])


@st.composite
def schemas(draw):
    """Items of a schema that can be: groups, and devices one level below them."""
    items = []
    for group in draw(st.sets(names, min_size=1, max_size=3)):
        path = ("root", group)
        ttl = draw(st.none() | st.integers(1, 10_000))
        items.append(Group(path=format_path(path), ttl=ttl))
        for device in draw(st.sets(names, max_size=3)):
            aligned = draw(st.booleans())
            for number, name in enumerate(draw(st.sets(measurements, min_size=1, max_size=3))):
                kind, encoding, compression = draw(st.sampled_from(LEGAL))
                alias = draw(st.none() | st.sampled_from(["alias", "al,ias", "3,2,1"]))
                items.append(
                    SeriesItem(
                        path=format_path((*path, device, name)),
                        type=kind,
                        encoding=encoding,
                        compression=compression,
                        aligned=aligned,
                        alias=None if alias is None else f"{alias}{number}",
                        props=draw(labels.filter(lambda found: "" not in found.values())),
                        tags=draw(labels.filter(lambda found: "" not in found.values())),
                        attributes={f"a {key}": each for key, each in draw(labels).items()},
                    )
                )
    return items


def told(engine):
    """All of a schema, but for where its tags happen to be."""
    return [
        msgspec.structs.replace(each, tags_at=-1) if isinstance(each, SeriesItem) else each
        for each in SchemaReader(engine).every(limit=3)
    ]


@settings(max_examples=tiers.examples(15))
@given(schemas())
def test_a_dump_that_is_imported_into_an_empty_engine_gives_the_same_tree(items):
    with tempfile.TemporaryDirectory() as place:
        with Engine.open(Path(place) / "one") as one:
            assert import_items(one, items, dry_run=False).failed == []
            before, tlog = told(one), Slots()
            assert {each.path for each in before} == {each.path for each in items}
            text = "".join(log_lines(log_records(before, tlog.place)))
            tree = list(tree_lines(before, lambda series: -1))
        slots = {
            record.offset: tlog.content()[record.offset :]
            for _, record in mlog.parse(text.encode()).records
            if isinstance(record, CreateSeries) and record.offset >= 0
        }
        reduced = reduce_text(text.encode(), slots)
        assert reduced.failed == []
        with Engine.open(Path(place) / "two") as two:
            assert import_items(two, reduced.items, dry_run=False).failed == []
            assert told(two) == before
            assert list(tree_lines(told(two), lambda series: -1)) == tree
            assert import_items(two, reduced.items, dry_run=True).ops == []


# -- reducing ------------------------------------------------------------------------------------

few = st.sampled_from([("root", "a", d, s) for d in ("d", "e") for s in ("s", "t")])
histories = st.lists(
    st.builds(CreateSeries, few, st.sampled_from([1, 2]), st.just(0), st.just(0))
    | st.builds(DeletePath, few)
    | st.builds(ChangeAlias, few, st.sampled_from([None, "x", "y"]))
    | st.builds(SetStorageGroup, st.just(("root", "a")))
    | st.builds(DeleteStorageGroup, st.just(("root", "a"))),
    max_size=14,
)


def play(records):
    """A database: the lines that it logs, which are those that succeed, and what it has then."""
    there, logged = {}, []
    for record in records:
        path = record.path
        if isinstance(record, SetStorageGroup | DeleteStorageGroup):
            if isinstance(record, DeleteStorageGroup):
                there = {each: kept for each, kept in there.items() if each[:2] != path}
        elif (path in there) is isinstance(record, CreateSeries):
            continue
        elif isinstance(record, CreateSeries):
            there[path] = [record.type, record.alias]
        elif isinstance(record, DeletePath):
            del there[path]
        else:
            there[path][1] = record.alias
        logged.append(record)
    return logged, {format_path(path): kept for path, kept in there.items()}


def applied(items, there):
    """Reduced items done to what is there already."""
    there = dict(there)
    for item in items:
        if isinstance(item, Dropped):
            there.pop(item.path, None)
        elif isinstance(item, SeriesItem):
            alias = item.alias if isinstance(item.alias, str) else None
            there[item.path] = [item.type, alias]
        elif isinstance(item, Altered) and item.path in there:
            there[item.path] = [there[item.path][0], item.alias]
    return there


@settings(max_examples=tiers.examples(150))
@given(histories)
def test_the_end_state_of_a_log_is_what_a_database_has_that_plays_it(records):
    logged, there = play(records)
    text = "".join(mlog.dump(logged, wide=False)).encode()
    reduced = reduce_text(text, {})
    assert reduced.failed == []
    assert applied(reduced.items, {}) == there


@settings(max_examples=tiers.examples(150))
@given(histories)
def test_a_log_that_is_told_again_changes_nothing(records):
    text = "".join(mlog.dump(play(records)[0], wide=False)).encode()
    items = reduce_text(text, {}).items
    once = applied(items, {})
    assert applied(items, once) == once


@settings(max_examples=tiers.examples(150))
@given(
    st.lists(
        st.builds(CreateSeries, few, st.sampled_from([1, 2]), st.just(0), st.just(0))
        | st.builds(DeletePath, few)
        | st.builds(ChangeAlias, few, st.sampled_from([None, "x", "y"])),
        max_size=14,
    ),
    st.integers(0, 14),
)
def test_a_log_in_two_pieces_ends_as_the_whole_does(records, cut):
    logged, there = play(records)
    lines = list(mlog.dump(logged, wide=False))
    first, second = ("".join(part).encode() for part in (lines[:cut], lines[cut:]))
    state = applied(reduce_text(first, {}).items, {})
    start = len(first)
    state = applied(reduce_text(second, {}, start=start, news=start).items, state)
    assert state == there


def test_a_series_that_is_made_twice_without_a_deletion_is_reported() -> None:
    log = b"0,root.a.d.s,1,0,0,,,\n0,root.a.d.s,2,0,0,,,\n0,root.a.d.s,1,0,0,,,\n"
    reduced = reduce_text(log, {})
    assert [where for where, _ in reduced.failed] == ["root.a.d.s"]
    assert [each.type for each in reduced.items] == [1]
