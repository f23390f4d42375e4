"""What is decided before a commit is what the engine takes: of a schema, and of files behind it.

Each side is asked what the other said: all that was decided is committed, and of what was refused
the engine refuses the rest, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from common.errors import TsferryError
from common.formats.schemaitems import Altered, Dropped, Group, Item, SeriesItem
from receiver.load.schema.authority import Authority
from receiver.load.schema.registering import Registering, SeriesRefusal
from receiver.load.schema.schema_change import decide_schema
from receiver.metadata.commit.draft import Draft, examine
from receiver.metadata.model import records
from receiver.metadata.model.paths import format_path, parse_stored
from receiver.metadata.state.state import State
from receiver.scope import Scope
from tests.support import tiers
from tests.support.committing import create, do, fresh
from tests.support.metadata import A, load, path, seen

names = st.sampled_from(["a", "b", "c"])
devices = st.lists(names, min_size=1, max_size=2).map(lambda nodes: ".".join(["root.g", *nodes]))
series = st.tuples(devices, names).map(".".join)
aliases = st.none() | names
types = st.sampled_from([1, 2])

committed = st.one_of(
    st.builds(
        lambda device, name, alias, type, aligned: create(
            device, name, type=type, aliases=[alias], aligned=aligned
        ),
        devices, names, aliases, types, st.booleans(),
    ),
    st.builds(records.SeriesDeleted, series),
    st.builds(records.AliasSet, series, aliases),
)  # fmt: skip

items = st.one_of(
    st.builds(
        lambda path, type, alias, replaces: SeriesItem(
            path=path, type=type, encoding=0, compression=1, alias=alias, replaces=replaces
        ),
        series, types, st.just(UNSET) | aliases, st.booleans(),
    ),
    st.builds(lambda path, alias: Altered(path=path, alias=alias), series, aliases),
    st.builds(lambda path: Dropped(path=path), series),
    st.builds(lambda path: Group(path=path), st.sampled_from(["root.g", "root.h"])),
)  # fmt: skip

columns = st.dictionaries(names, types, min_size=1, max_size=2)
files = st.lists(st.dictionaries(devices, columns, min_size=1, max_size=2), max_size=3)


def start(ops: list[records.Op]) -> State:
    state = fresh("root.g")
    do(state, seen())
    for op in ops:
        takes(state, op)
    return state


def takes(state: State, *ops: records.Op) -> bool:
    try:
        do(state, *ops)
    except TsferryError:
        return False
    return True


def fits(state: State, ops: list[records.Op]) -> bool:
    try:
        examine(state, ops)
    except TsferryError:
        return False
    return True


@dataclass
class Decided:
    schema: list[records.Op]
    failed: list[tuple[str, str]]
    ops: list[records.Op] = field(default_factory=list)
    refused: list[tuple[list[records.Op], list[records.Op], str]] = field(default_factory=list)


def head_of(number: int) -> records.FileLoaded:
    return load(path(f"{number}-{number}-0", sg="root.g"), number, devices={})


def registers(file: dict[str, dict[str, int]]) -> list[records.LoadedDevice]:
    return [
        records.LoadedDevice(
            device, False, tuple(own), bytes(own.values()),
            bytes(len(own)), bytes(len(own)), (1,) * len(own),
        )
        for device, own in file.items()
    ]  # fmt: skip


def decide(state: State, schema: list[Item], task: list[dict[str, dict[str, int]]]) -> Decided:
    draft = Draft(state)
    change = decide_schema(
        draft, schema, Authority(state, A, Scope(())),
        level=0, tag_bytes=700, tags_of=lambda _: ({}, {}),
    )  # fmt: skip
    decided = Decided(change.ops, change.failed)
    registering = Registering(draft, level=0)
    decided.ops = list(change.ops)
    for number, file in enumerate(task, 1):
        head, devices = head_of(number), registers(file)
        found = registering.take(head.physical, "root.g", devices, before=[head])
        if isinstance(found, SeriesRefusal):
            whole = [head, records.SeriesLoaded(head.physical, devices)]
            decided.refused.append((list(decided.ops), whole, found.reason))
        else:
            decided.ops += [head, *found]
    return decided


schemas = st.lists(items, max_size=4, unique_by=lambda each: each.path)


@settings(max_examples=tiers.examples(200))
@given(st.lists(committed, max_size=5), schemas, files)
def test_what_is_decided_is_what_the_engine_takes(before, schema, task) -> None:
    state = start(before)
    decided = decide(state, schema, task)
    if decided.ops:
        examine(state, decided.ops)
    for ops, file, why in decided.refused:
        assert not fits(state, [*ops, *file]), why


@settings(max_examples=tiers.examples(200))
@given(st.lists(committed, max_size=5), schemas)
def test_what_is_refused_of_a_schema_the_engine_does_not_take_either(before, schema) -> None:
    state = start(before)
    decided = decide(state, schema, [])
    assert not decided.schema or takes(state, *decided.schema)
    by_path = {each.path: each for each in schema}
    for where, why in decided.failed:
        op = missed(state, by_path[where])
        assert op is None or not fits(state, [op]), why


def missed(state: State, item: Item) -> records.Op | None:
    """What a failed item wanted, and has not got."""
    nodes = parse_stored(item.path)
    row = state.schema.series.find(nodes, alias=False)
    if isinstance(item, SeriesItem) and row < 0:
        there = state.schema.devices.find(nodes[:-1])
        return create(
            format_path(nodes[:-1]), nodes[-1], type=item.type, encoding=0,
            aligned=there is not None and there.aligned,
        )  # fmt: skip
    if isinstance(item, SeriesItem | Altered) and row >= 0 and item.alias is not UNSET:
        same = isinstance(item, Altered) or state.schema.series.type_of(row) == item.type
        if same and state.schema.series.describe(row).alias != item.alias:
            return records.AliasSet(item.path, item.alias)
    return None
