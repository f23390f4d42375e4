"""What a task of a write does with its rows: sorts them in pieces, and refuses what contradicts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from common.errors import ConflictError, UsageError
from receiver.node import Node
from receiver.row_checks import constraints, installed
from receiver.spark.sink import task_rows
from receiver.spark.sink.sink_options import parse_sink_options
from receiver.spark.sink.sorted_rows import Sorter
from receiver.spark.sink.write_plan import SinkColumn, planned_columns
from receiver.spark.source.read_plans.result_columns import ResultColumn
from tests.support.node_world import A, B, Edge, path_of, tsfile
from tests.support.writing_world import Write, as_set, batch_of, config_of, rows_of

WEEK = 604_800_000
WIDE = {"time": "bigint", "device": "string", "s1": "bigint", "s2": "string"}
LONG = {
    "device": "string", "measurement": "string", "time": "bigint", "data_type": "string",
    "value_long": "bigint", "value_double": "double", "value_string": "string",
}  # fmt: skip
Rows = list[dict[str, Any]]


def columns(types: dict[str, str]) -> list[ResultColumn]:
    return [ResultColumn(name, kind) for name, kind in types.items()]


def written(node: Node, rows: Rows, types: dict[str, str] = WIDE, **given: str) -> Write:
    write = Write(node, columns(types), **given)
    write.commit(write.run([batch_of(rows, types)]))
    return write


@pytest.fixture
def read(node: Node, tmp_path: Path) -> Callable[..., list[str]]:
    def found(**given: str) -> list[str]:
        return as_set(rows_of(catalog=config_of(node, tmp_path / "c.toml"), **given)[1])

    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("form", ["wide", "long"])
@pytest.mark.parametrize("aligned", ["true", "false"])
def test_rows_that_do_not_fit_are_sorted_in_pieces_into_the_same_files(
    node: Node, read: Any, form: str, aligned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(5)
    rows: Rows = [
        {"time": time * 1000, "device": f"root.sg.d{device}", "s1": time, "s2": str(device)}
        for device in range(3)
        for time in range(900)
    ]
    types = WIDE
    if form == "long":
        types = LONG
        rows = [
            {**row, "measurement": name, "data_type": kind, column: row[name]}
            for row in rows
            for name, kind, column in (
                ("s1", "INT64", "value_long"),
                ("s2", "TEXT", "value_string"),
            )
        ]
    chance.shuffle(rows)
    batches = [batch_of(rows[low : low + 100], types) for low in range(0, len(rows), 100)]
    made: list[Sorter] = []

    class Watched(Sorter):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(task_rows, "Sorter", Watched)
    monkeypatch.setattr("receiver.spark.sink.ordered_rows._ROWS", 300)
    write = Write(node, columns(types), form=form, aligned=aligned)
    write.plan = replace(write.plan, options=replace(write.plan.options, buffer_bytes=16 << 10))
    (part,) = write.run(batches)
    assert made[0]._spilled > 3
    write.commit([part])
    assert read(form=form) == as_set(_filled(batches, form))


def _filled(batches: Any, form: str) -> Any:
    """With the columns that the long form always has."""
    if form == "wide":
        return batches
    more = {"value_boolean": "boolean", "value_binary": "binary", "value_date": "date"}
    return [batch_of(each.to_pylist(), LONG | more) for each in batches]


def test_rows_are_cut_by_storage_group_and_partition(node: Node) -> None:
    rows: Rows = [
        {"time": time, "device": f"root.{group}.d", "s1": time}
        for group in ("a", "b")
        for time in (-1, 0, WEEK - 1, WEEK)
    ]
    write = Write(node, columns(WIDE))
    parts = write.run([batch_of(rows, WIDE)])
    assert [(each.group, each.partition) for each in parts] == [
        (group, partition) for group in ("root.a", "root.b") for partition in (-1, 0, 1)
    ]
    answer = write.commit(parts)
    assert {each.path.rpartition("/")[0] for each in answer.files} == {
        f"sequence/root.{group}/0/{partition}" for group in "ab" for partition in (-1, 0, 1)
    }
    with node.engine.reading() as state:
        assert len({each.created for each in state.files.values()}) == 1


def test_rows_are_cut_by_owner_too_and_all_of_them_are_one_commit(node: Node) -> None:
    Edge(node).round({path_of(1): tsfile("root.sg.a")})
    Edge(node, B).round({path_of(2): tsfile("root.sg.b")})
    rows: Rows = [
        {"time": 100, "device": f"root.sg.{name}", "s1": 1} for name in ("a", "b", "new", "b2")
    ]
    for given in ({}, {"as": A}, {"as": f"{B}, centre"}):
        with pytest.raises(ConflictError, match="belongs to"):
            Write(node, columns(WIDE), **given).run([batch_of(rows, WIDE)])
    write = Write(node, columns(WIDE), **{"as": f"{A}, {B}"})
    parts = write.run([batch_of(rows, WIDE)])
    assert [(each.group, each.partition) for each in parts] == [("root.sg", 0)] * 2
    assert {each.result for each in write.commit(parts).files} == {"loaded"}
    with node.engine.reading() as state:
        made = [row for row in state.files.values() if row.sender not in (A, B)]
        assert [sorted(row.devices) for row in made] == [
            ["root.sg.a", "root.sg.b2", "root.sg.new"],
            ["root.sg.b"],
        ]
        assert len({row.created for row in made}) == 1
        owners = {name: row.sender for name, row in state.owners.items()}
    assert owners == {
        f"root.sg.{name}": B if name == "b" else A for name in ("a", "b", "new", "b2")
    }
    everybody = Write(node, columns(WIDE), **{"as": "*", "onDuplicate": "skip"})
    assert len(everybody.run([batch_of(rows, WIDE)])) == 2


def test_a_device_that_is_known_keeps_its_storage_group_its_form_and_its_types(
    node: Node, read: Any
) -> None:
    Edge(node).round({path_of(1, sg="root.a.b"): tsfile("root.a.b.d1")})
    types = {"time": "bigint", "device": "string", "s1": "bigint"}
    rows: Rows = [{"time": 100, "device": "root.a.b.d1", "s1": 1}]
    write = Write(node, columns(types), **{"as": A, "aligned": "true"})
    (part,) = write.run([batch_of(rows, types)])
    assert part.group == "root.a.b"
    assert {each.result for each in write.commit([part]).files} == {"loaded"}
    with node.engine.reading() as state:
        device = state.schema.devices.find(("root", "a", "b", "d1"))
        assert device is not None
        assert not device.aligned
    assert len(read(form="long")) == 6


@pytest.mark.parametrize(
    ("rows", "types", "given", "said"),
    [
        ([{"time": 9, "device": "root.sg.d1", "s1": 1.5}], {"s1": "double"}, {},
         "root.sg.d1, series s1: double in the rows, INT64 at the receiver"),
        ([{"time": 9, "device": "root.sg.d1", "measurement": "s1", "data_type": "DOUBLE",
           "value_double": 1.0}], LONG, {"form": "long"}, "DOUBLE in the rows, INT64 at"),
        ([{"time": 9, "device": "root.sg.d2", "s1": 1}] * 2, {}, {}, "time 9 comes twice"),
        ([{"time": None, "device": "root.sg.d2", "s1": 1}], {}, {}, "column time: NULL in 1 rows"),
        ([{"time": 1, "s1": 1}], {}, {}, "column device: NULL in 1 rows"),
        ([{"time": 1, "device": "root..d", "s1": 1}], {}, {}, "is not the text form of a device"),
        ([{"time": 1, "device": "root.sg.ä", "s1": 1}], {}, {}, "expected root.sg.`ä`"),
        ([{"time": 1, "device": "root.sg.`d`", "s1": 1}], {}, {}, "expected root.sg.d"),
        ([{"time": 1, "device": "d1", "s1": 1}], {}, {}, "expected a path such as root.site.d1"),
        ([{"time": 1, "device": "root", "s1": 1}], {}, {}, "expected a path such as root.site.d1"),
        ([{"time": 1, "device": "plant:x", "s1": 1}], {}, {}, "expected its database"),
        ([{"time": 1, "device": "/db/plant:x", "s1": 1}], {}, {}, "expected option tagColumns"),
        ([{"time": 1, "device": "root.sg.d2", "measurement": "f", "data_type": "FLOAT",
           "value_double": 0.1}], LONG, {"form": "long"}, "no FLOAT exactly"),
        ([{"time": 1, "device": "root.sg.d2", "measurement": "i", "data_type": "INT32",
           "value_long": 2**31}], LONG, {"form": "long"}, "no INT32"),
        ([{"time": 1, "device": "root.sg.d2", "measurement": "i", "data_type": "INT32"}], LONG,
         {"form": "long"}, "expected a value in value_long"),
        ([{"time": t, "device": "root.sg.d2", "measurement": "i", "data_type": kind,
           "value_long": 1} for t, kind in enumerate(["INT32", "INT64"])], LONG,
         {"form": "long"}, "series i: INT32 and INT64 in the rows"),
    ],
)  # fmt: skip
def test_rows_that_contradict_are_refused_by_name_and_nothing_is_sent_of_them(
    node: Node, rows: Rows, types: dict[str, str], given: dict[str, str], said: str
) -> None:
    Edge(node).round({path_of(1): tsfile()})
    kinds = types if given else WIDE | types
    write = Write(node, columns(kinds), **{"as": A, **given})
    with pytest.raises((UsageError, ConflictError), match=said):
        write.run([batch_of(rows, kinds)])
    with node.engine.reading() as state:
        assert len(state.files) == 1


def test_another_senders_device_is_refused_before_anything_is_sent(node: Node) -> None:
    Edge(node).round({path_of(1): tsfile()})
    write = Write(node, columns(WIDE))
    with pytest.raises(ConflictError, match=f"device root.sg.d1: .*: expected option as = '{A}'"):
        write.run([batch_of([{"time": 100, "device": "root.sg.d1", "s1": 1}], WIDE)])
    assert write.calls.largest == 0


def test_a_large_file_goes_in_blocks_as_it_grows(
    node: Node, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.spark.sink.sink_calls._BLOCK", 5000)
    texts = random.Random(2)
    rows: Rows = [
        {"time": time, "device": "root.sg.d", "s2": texts.randbytes(500).hex()}
        for time in range(100)
    ]
    write = written(node, rows)
    assert write.calls.largest == 5000
    assert len(read(form="long")) == 100


def test_the_receiver_is_asked_once_for_each_device(node: Node) -> None:
    batch = batch_of([{"time": t, "device": f"root.sg.d{t % 3}", "s1": t} for t in range(9)], WIDE)
    write = Write(node, columns(WIDE))
    later = batch_of([{"time": 99, "device": "root.sg.d1", "s1": 1}], WIDE)
    write.run([batch, later])
    assert write.calls.asked == ["root.sg.d0", "root.sg.d1", "root.sg.d2"]


def no_negatives(rows: Any) -> None:
    if min(rows.column("s1").to_pylist()) < 0:
        raise ValueError("s1 below zero")


def test_constraints_of_a_site_are_found_by_entry_point_and_refuse_rows(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = EntryPoints([EntryPoint("positive", f"{__name__}:no_negatives", "tsferry.constraints")])
    for each in (constraints, installed):
        monkeypatch.setattr(each, "entry_points", lambda **given: found.select(**given))
    write = Write(node, columns(WIDE), constraints="positive")
    good = batch_of([{"time": 1, "device": "root.sg.d", "s1": 1}], WIDE)
    assert write.run([good])
    with pytest.raises(UsageError, match="constraint positive: s1 below zero"):
        write.run([good, batch_of([{"time": 2, "device": "root.sg.d", "s1": -1}], WIDE)])
    other = Write(node, columns(WIDE), constraints="unheard")
    with pytest.raises(
        UsageError, match=r"'unheard' is not installed here .*: finite, positive, tagged\)"
    ):
        other.run([good])


def test_values_that_are_no_numbers_and_rows_without_a_tag_are_refused_where_that_is_asked_for(
    node: Node,
) -> None:
    types = {"time": "bigint", "plant": "string", "v": "double", "f": "float"}
    given = {"table": "/db/t", "tagColumns": "plant"}
    good = {"time": 1, "plant": "p", "v": 1.5, "f": None}
    for wrong, said in (
        ({"v": float("nan")}, "finite: column v: NaN or infinite in 1 rows"),
        ({"f": float("-inf")}, "finite: column f: NaN or infinite in 1 rows"),
        ({"plant": None}, "tagged: tag plant: NULL in 1 rows"),
    ):
        batch = batch_of([good, {**good, "time": 2, **wrong}], types)
        write = Write(node, columns(types), constraints="finite, tagged", **given)
        with pytest.raises(UsageError, match=said):
            write.run([batch])
        assert Write(node, columns(types), **given).run([batch])
    assert Write(node, columns(types), constraints="finite, tagged", **given).run(
        [batch_of([good], types)]
    )


@pytest.mark.parametrize(
    ("types", "given", "said"),
    [
        ({"time": "bigint", "device": "string"}, {}, "no column is a measurement"),
        ({"time": "bigint", "device": "string", "": "double"}, {}, "needs a name"),
        ({"time": "bigint", "g": "string"}, {"tagColumns": "g, g"}, "each once, and not the time"),
        ({"time": "bigint", "g": "string"}, {"tagColumns": "time"}, "each once, and not the time"),
        ({"ts": "bigint", "Time": "double"}, {"timeColumn": "ts"}, "its time under that name"),
        ({"time": "bigint", "d": "decimal(10,2)"}, {}, "expected cast.d as double., or as string"),
        ({"time": "bigint", "d": "timestamp_ntz"}, {}, "unix_millis.to_timestamp_ltz.d.."),
        ({"time": "bigint", "d": "interval day"}, {}, "which no TsFile has .*, date.$"),
    ],
)
def test_columns_that_mean_nothing_are_named_before_a_row_is_read(
    types: dict[str, str], given: dict[str, str], said: str
) -> None:
    table = {} if "device" in types else {"table": "/db/t"}
    options = parse_sink_options({"receiver": "http://127.0.0.1:1", **table, **given})
    found = [SinkColumn(name, kind, {}) for name, kind in types.items()]
    with pytest.raises(UsageError, match=said):
        planned_columns(options, found)
    twice = [*found, found[-1]]
    with pytest.raises(UsageError, match="no two the same"):
        planned_columns(options, twice)


def test_rows_that_are_odd_are_read_again_as_they_were(node: Node, read: Any) -> None:
    names = ["`a.b`", "`a``b`", "`ü😀`", "`1`", "`x\ny`", "中文", "x" * 3000]
    rows: Rows = [
        {"time": time, "device": f"root.odd.{name}", "`a.b`": float(time), "a b": text}
        for name in names
        for time, text in ((-(2**63), ""), (-1, "null"), (0, None), (2**63 - 1, "\0"))
    ]
    types = {"time": "bigint", "device": "string", "`a.b`": "double", "a b": "string"}
    write = Write(node, columns(types))
    answer = write.commit(write.run([batch_of(rows, types)]))
    assert {each.result for each in answer.files} == {"loaded"}
    assert read(devices="root.odd.*") == as_set([batch_of(rows, types)])
