"""What a loaded file does to the schema: what is missing is made, what contradicts is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from common.tsfile import DataType, read_tail
from receiver.load.schema.registering import Registering, SeriesRefusal, read_series
from receiver.metadata.commit.draft import Draft
from receiver.metadata.model import records
from receiver.metadata.model.paths import format_path, parse_path, quote_node
from receiver.metadata.schema import Schema
from receiver.metadata.state.state import State
from tests.support.metadata import A, load, path
from tests.support.tsfile_bytes import build

Op = records.Op
TSFILES = Path(__file__).parents[4] / "data" / "tsfiles"


def series_of(
    devices: Mapping[Any, Any], sg: str = "root.sg", **more: Any
) -> tuple[records.LoadedDevice, ...]:
    content = build(devices, **more)
    return tuple(read_series(content, read_tail(content), sg))


class Task:
    """Files that are registered one after the other, each behind its load."""

    def __init__(
        self,
        schema: Schema,
        level: int = 0,
        max_memory: int | None = None,
        before: Sequence[Op] = (),
        creates: bool = True,
    ) -> None:
        state = State()
        state.apply(records.Commit(1, [records.SenderSeen(A, "", f"x_{A}")]))
        state.schema, state.max_memory = schema, max_memory
        draft = Draft(state)
        draft.take(before)
        self.registering = Registering(draft, level=level, trusting=not creates, creates=creates)

    def take(
        self, name: str, sg: str, devices: Sequence[records.LoadedDevice]
    ) -> list[Op] | SeriesRefusal:
        number = int(name[1:] or 0)
        head = load(path(f"{number}-1-0", sg="x"), number, devices={})
        return self.registering.take(head.physical, sg, devices, before=[head])


registering = Task


def schema_with(*paths: str, groups: tuple[str, ...] = ("root.sg",)) -> Schema:
    """Series of INT64 below storage groups."""
    schema = Schema()
    for ts, group in enumerate(groups, 1):
        schema.changes.set_storage_group(parse_path(group), ts)
    for ts, each in enumerate(paths, 100):
        *device, name = parse_path(each)
        schema.changes.create_series(tuple(device), [name], b"\x02", b"\x00", b"\x00", ts)
    return schema


def groups_of(found: list[Op] | SeriesRefusal) -> list[str]:
    assert isinstance(found, list), found
    return [op.path for op in found if isinstance(op, records.StorageGroupSet)]


def reason_of(found: list[Op] | SeriesRefusal) -> str:
    assert isinstance(found, SeriesRefusal), found
    assert found.hold
    return found.reason


# -- reading ---------------------------------------------------------------------------------


def test_a_device_is_registered_under_its_path_with_all_its_series() -> None:
    (device,) = series_of(
        {"root.sg.`a.b`": {"s1": [(1, 2), (5, 3)], "s2": []}}, types={"s2": "FLOAT"}
    )
    assert device == records.LoadedDevice(
        device="root.sg.`a.b`",
        aligned=False,
        names=("s1", "s2"),
        types=bytes([DataType.INT64, DataType.FLOAT]),
        encodings=b"\0\0",
        compressions=b"\0\0",
        lasts=(5, None),
    )


def test_a_table_device_stands_below_its_database() -> None:
    (device,) = series_of({("sensors", "west", None, "7"): {"t": [(3, 1.5)]}}, sg="plant")
    assert device.device == "root.`/plant`.sensors.`:west.null.`7``".replace("`7``", "``7```")
    assert device.aligned
    assert groups_of(registering(Schema()).take("p", "plant", [device])) == ["root.`/plant`"]


# -- storage groups --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "sg", "device", "made"),
    [
        (0, "root.sg", "root.sg.a.d1", "root.sg"),
        (0, "root.sg.a", "root.sg.a.d1", "root.sg.a"),
        (0, "root.sg.a.d1", "root.sg.a.d1", "root.sg.a.d1"),
        (0, "elsewhere", "root.sg.a.d1", "root.sg"),
        (0, "root.other", "root.sg.a.d1", "root.sg"),
        (1, "root.sg.a", "root.sg.a.d1", "root.sg"),
        (2, "root.sg", "root.sg.a.d1", "root.sg.a"),
        (9, "root.sg", "root.sg.a.d1", "root.sg.a.d1"),
        (0, "root.sg", "d1", "root.`/`"),
    ],
)
def test_a_missing_storage_group_is_made_where_it_belongs(
    level: int, sg: str, device: str, made: str
) -> None:
    devices = series_of({device: {"s1": [(1, 2)]}}, sg, version=3)
    found = registering(Schema(), level).take("p", sg, devices)
    assert groups_of(found) == [made]


def test_a_storage_group_that_is_there_is_used() -> None:
    devices = series_of({"root.sg.a.d1": {"s1": [(1, 2)]}})
    found = registering(schema_with(groups=("root.sg.a",))).take("p", "root.sg", devices)
    assert groups_of(found) == []


@pytest.mark.parametrize(
    ("device", "made"),
    [("root.sg.c.d1", "root.sg.c"), ("root.sg.a.c.d1", "root.sg.a.c"), ("root.sg.c", "root.sg.c")],
)
def test_beside_a_deeper_storage_group_the_new_one_is_as_deep_as_it_must_be(
    device: str, made: str
) -> None:
    schema = schema_with(groups=("root.sg.a.b",))
    devices = series_of({device: {"s1": [(1, 2)]}})
    assert groups_of(registering(schema).take("p", "root.sg", devices)) == [made]


@pytest.mark.parametrize("device", ["root.sg", "root.sg.a"])
def test_a_device_above_a_storage_group_is_refused(device: str) -> None:
    schema = schema_with(groups=("root.sg.a.b",))
    devices = series_of({device: {"s1": [(1, 2)]}})
    reason = reason_of(registering(schema).take("p", "root.sg", devices))
    assert f"device {device} lies in no storage group" in reason


def test_a_storage_group_that_the_task_makes_counts_for_its_next_file() -> None:
    task = registering(Schema())
    first = series_of({"root.sg.a.b.d": {"s1": [(1, 2)]}})
    assert groups_of(task.take("p1", "root.sg.a.b", first)) == ["root.sg.a.b"]
    second = series_of({"root.sg.c": {"s1": [(1, 2)]}})
    assert groups_of(task.take("p2", "root.sg", second)) == ["root.sg.c"]
    reason_of(task.take("p4", "root.sg", series_of({"root.sg.a": {"s1": [(1, 2)]}})))
    third = series_of({"root.sg.a.b.e": {"s1": [(1, 2)]}})
    assert groups_of(task.take("p3", "root.sg", third)) == []


# -- types -----------------------------------------------------------------------------------


def test_a_series_with_another_type_is_refused_with_both_types() -> None:
    schema = schema_with("root.sg.d1.s1")
    devices = series_of({"root.sg.d1": {"s1": [(1, 2.5)]}})
    found = registering(schema).take("p", "root.sg", devices)
    assert reason_of(found) == "series root.sg.d1.s1 is INT64 in the schema, DOUBLE in the file"
    assert isinstance(found, SeriesRefusal)
    assert found.device == "root.sg.d1"


def test_of_two_files_that_disagree_the_first_wins() -> None:
    task = registering(schema_with())
    whole = series_of({"root.sg.d1": {"s1": [(1, 2)]}})
    other = series_of({"root.sg.d0": {"s9": [(1, 2)]}, "root.sg.d1": {"s1": [(1, "x")]}})
    same = series_of(
        {"root.sg.d0": {"s9": [(1, "of another type")]}, "root.sg.d1": {"s1": [(3, 2)]}}
    )
    assert isinstance(task.take("p1", "root.sg", whole), list)
    reason = reason_of(task.take("p2", "root.sg", other))
    assert reason == "series root.sg.d1.s1 is INT64 in the schema, TEXT in the file"
    assert isinstance(task.take("p3", "root.sg", same), list)  # p2 has left nothing behind


@pytest.mark.parametrize(
    ("there", "device", "name"),
    [
        ("root.sg.d1", "root.sg.d1", "s1"),  # below a series
        ("root.sg.d1", "root.sg.d1.x.y", "s1"),
        ("root.sg.d1.s1.x", "root.sg.d1", "s1"),  # in the place of a node
    ],
)
def test_a_series_is_neither_below_another_nor_above(there: str, device: str, name: str) -> None:
    devices = series_of({device: {name: [(1, 2)]}})
    found = registering(schema_with(there)).take("p", "root.sg", devices)
    assert device in reason_of(found)


@pytest.mark.parametrize("order", [1, -1])
def test_the_same_holds_within_one_file_and_between_two(order: int) -> None:
    devices = series_of({"root.sg.d1": {"s1": [(1, 2)]}, "root.sg.d1.s1": {"x": [(1, 2)]}})
    reason_of(registering(schema_with()).take("p", "root.sg", devices[::order]))
    task = registering(schema_with())
    first, second = devices[::order]
    assert isinstance(task.take("p1", "root.sg", [first]), list)
    reason_of(task.take("p2", "root.sg", [second]))


def test_a_name_that_is_an_alias_is_refused() -> None:
    schema = schema_with("root.sg.d1.s1")
    schema.changes.set_alias(parse_path("root.sg.d1.s1"), "speed", 200)
    devices = series_of({"root.sg.d1": {"speed": [(1, 2)]}})
    assert "alias" in reason_of(registering(schema).take("p", "root.sg", devices))


# -- behind a schema of the same commit ------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "name", "reason"),
    [
        ("root.sg.d1", "speed", "series root.sg.d1.speed of the file has the name of another"),
        ("root.sg.d1.speed", "s1", "device root.sg.d1.speed would lie below the series"),
    ],
)
@pytest.mark.parametrize("new", [False, True])
def test_an_alias_that_the_schema_has_just_given_is_seen(
    device: str, name: str, reason: str, new: bool
) -> None:
    given: Op = records.AliasSet("root.sg.d1.s1", "speed")
    if new:
        given = records.SeriesCreated(
            "root.sg.d1", ("s1",), b"\x02", b"\x00", b"\x00", aliases=["speed"]
        )
    task = registering(schema_with(*[] if new else ["root.sg.d1.s1"]), before=[given])
    found = task.take("p1", "root.sg", series_of({device: {name: [(1, 2)]}}))
    assert reason in reason_of(found)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("root.sg.d1", "s1"),  # in its place, with another type
        ("root.sg.d1.s1", "x"),  # below it
        ("root.sg.d1", "speed"),  # its alias
        ("root.sg", "d1"),  # the node above it
    ],
)
def test_what_the_schema_has_just_deleted_is_not_in_the_way(device: str, name: str) -> None:
    schema = schema_with("root.sg.d1.s1")
    schema.changes.set_alias(parse_path("root.sg.d1.s1"), "speed", 200)
    task = registering(schema, before=[records.SeriesDeleted("root.sg.d1.s1")])
    found = task.take("p1", "root.sg", series_of({device: {name: [(1, 2.5)]}}))
    assert isinstance(found, list), found


def test_a_path_that_is_too_long_to_be_read_again_is_refused_with_the_file() -> None:
    devices = series_of({"root.sg.d1": {"s" * 70_000: [(1, 2)]}})
    assert "more than" in reason_of(registering(schema_with()).take("p1", "root.sg", devices))


# -- memory ----------------------------------------------------------------------------------


def test_new_series_beyond_the_limit_are_put_off_and_known_ones_are_not() -> None:
    schema = schema_with("root.sg.d1.s1")
    full = registering(schema, max_memory=schema.memory.used)
    new = series_of({"root.sg.d2": {"s1": [(1, 2)]}})
    found = full.take("p1", "root.sg", new)
    assert isinstance(found, SeriesRefusal)
    assert not found.hold
    assert "max_memory" in found.reason
    known = series_of({"root.sg.d1": {"s1": [(1, 2)]}})
    assert isinstance(full.take("p2", "root.sg", known), list)


def test_series_that_two_files_of_a_task_make_are_counted_once() -> None:
    schema = schema_with()
    new = series_of({"root.sg.d2": {f"s{at}": [(1, 2)] for at in range(10)}})
    cost = schema.memory.cost_of(records.SeriesLoaded("p", new))
    task = registering(schema, max_memory=schema.memory.used + cost)
    assert isinstance(task.take("p1", "root.sg", new), list)
    assert isinstance(task.take("p2", "root.sg", new), list)
    more = series_of({"root.sg.d3": {"s1": [(1, 2)]}})
    assert isinstance(task.take("p3", "root.sg", more), SeriesRefusal)


def test_paths_are_in_their_stored_form() -> None:
    (device,) = series_of({"root.sg.`1`": {"s1": [(1, 2)]}})
    assert device.device == format_path(("root", "sg", "1")) == "root.sg.`1`"


# -- nothing is made by a load ---------------------------------------------------------------


def test_where_loads_make_nothing_an_unknown_series_is_refused() -> None:
    task = registering(schema_with("root.sg.d1.s1"), creates=False)
    known = series_of({"root.sg.d1": {"s1": [(1, 2)]}})
    found = task.take("f1", "root.sg", known)
    assert isinstance(found, list)
    assert groups_of(found) == []
    for name, devices in {
        "root.sg.d1.s2": {"root.sg.d1": {"s1": [(1, 2)], "s2": [(1, 2)]}},
        "root.sg.d2.s1": {"root.sg.d2": {"s1": [(1, 2)]}},
        "root.other.d1.s1": {"root.other.d1": {"s1": [(1, 2)]}},
    }.items():
        reason = reason_of(task.take("f2", "root.sg", series_of(devices)))
        assert reason.startswith(f"series {name} is not in the schema")


def test_what_the_schema_of_the_same_commit_makes_is_known() -> None:
    made = records.SeriesCreated(
        device="root.sg.d1",
        names=["s1"],
        types=b"\x02",
        encodings=b"\x00",
        compressions=b"\x00",
    )
    task = registering(schema_with(), before=[made], creates=False)
    assert isinstance(task.take("f1", "root.sg", series_of({"root.sg.d1": {"s1": [(1, 2)]}})), list)


def test_a_series_that_its_database_wrote_in_back_ticks_is_the_one_that_a_path_names() -> None:
    """Servers since 0.13 write `a.b` with them in the file, and tell the schema without."""
    content = (TSFILES / "iotdb-1.0.1" / "names.tsfile").read_bytes()
    devices = read_series(content, read_tail(content), "root.names")
    found = {f"{each.device}.{quote_node(name)}" for each in devices for name in each.names}
    assert {"root.names.`a.b`.`a.b`", "root.names.aligned.`x``y`.`x``y`"} <= found
    assert {"root.names.`1`.`1`", "root.names.`größe`.plain", "root.names.设备.设备"} <= found
    assert not any("```" in each for each in found)


def test_a_series_that_a_file_has_with_back_ticks_and_without_stays_two() -> None:
    (device,) = series_of({"root.sg.d": {"a": [(1, 1)], "`a`": [(1, True)], "`b`": [(1, 1)]}})
    assert set(device.names) == {"a", "`a`", "b"}


def test_a_column_of_a_table_is_called_as_its_file_says() -> None:
    (device,) = series_of({("t", "x"): {"`a b`": [(1, 1)]}}, sg="db")
    assert device.names == ("`a b`",)
