"""What is read, written and read again is what was read: in both forms, of both models."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from receiver.node import Node
from tests.support.node_world import fsck_of
from tests.support.tsfile_bytes import build
from tests.support.writing_world import Write, as_set, config_of, rows_of

WEEK = 604_800_000
TYPES = {
    "b": "BOOLEAN", "i": "INT32", "l": "INT64", "f": "FLOAT", "d": "DOUBLE", "t": "TEXT",
    "s": "STRING", "x": "BLOB", "y": "DATE", "m": "TIMESTAMP",
}  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "b": [True, False], "i": [-(2**31), 7, 2**31 - 1], "l": [-(2**63), 0, 2**63 - 1],
    "f": [0.5, math.inf, -0.0, 3.25], "d": [1e300, -1.5, 0.1], "t": ["", "ä", "x" * 300],
    "s": ["null", "😀"], "x": [b"", b"\xff\x00"], "y": [20260131, 19691231], "m": [1, -5],
}  # fmt: skip


def points(chance: random.Random, name: str) -> list[tuple[int, Any]]:
    """Of several partitions, before 1970 too."""
    times = sorted(chance.sample(range(-40, 60), 20))
    return [(t * WEEK // 20 + t % 7, chance.choice(VALUES[name])) for t in times]


def tree(seed: int) -> dict[str, dict[str, list[tuple[int, Any]]]]:
    chance = random.Random(seed)
    few = ["b", "i", "t"]
    return {
        "root.wind.d1": {name: points(chance, name) for name in TYPES},
        "root.wind.north.`a.b`": {name: points(chance, name) for name in TYPES},
        "root.sun.d2": {name: points(chance, name) for name in few},
    }


def copied(node: Node, source: dict[str, str], tmp_path: Path, **given: str) -> None:
    form = {"form": given["form"]} if "form" in given else {}
    columns, batches = rows_of(**source, **form)
    write = Write(node, columns, **given)
    half = len(batches) // 2
    parts = write.run(batches[:half]) + write.run(batches[half:])
    answer = write.commit(parts)
    assert {each.result for each in answer.files} == {"loaded"}
    _, again = rows_of(catalog=config_of(node, tmp_path / "c.toml"), **form)
    assert as_set(again) == as_set(batches)
    assert batches
    assert fsck_of(node).found == []


@pytest.mark.few(2)
@pytest.mark.parametrize("form", ["wide", "long"])
@pytest.mark.parametrize("aligned", ["true", "false"])
def test_rows_of_the_tree_are_the_same_rows_behind_a_write_and_a_read(
    node: Node, tmp_path: Path, form: str, aligned: str
) -> None:
    (tmp_path / "in").mkdir()
    for seed, few in enumerate((["root.wind.d1"], [])):
        (tmp_path / f"in/{seed}.tsfile").write_bytes(
            build(tree(seed), types=TYPES, aligned=few, chunks=2)
        )
    copied(node, {"path": str(tmp_path / "in")}, tmp_path, form=form, aligned=aligned)
    _, long = rows_of(catalog=str(tmp_path / "c.toml"), form="long")
    _, before = rows_of(path=str(tmp_path / "in"), form="long")
    assert as_set(long) == as_set(before), "types too"


TABLE: dict[Any, Any] = {
    ("plant", "p1", None, "x"): {"l": [(1, 1), (2, 2)], "t": [(2, "a")]},
    ("plant", "p1"): {"l": [(5 * WEEK, 3)]},
    ("plant", None, "null"): {"d": [(7, 0.5)]},
    ("plant", "ä b", "q.r", "x"): {"d": [(7, -0.5)], "b": [(7, True)]},
}


@pytest.mark.parametrize("form", ["wide", "long"])
def test_rows_of_tables_are_the_same_rows_behind_a_write_and_a_read(
    node: Node, tmp_path: Path, form: str
) -> None:
    (tmp_path / "in").mkdir()
    place = tmp_path / "in/sequence/site/0/0"
    place.mkdir(parents=True)
    (place / "a.tsfile").write_bytes(build(TABLE, types={"b": "BOOLEAN"}))
    more = {"tagColumns": "tag1, tag2, tag3"} if form == "long" else {"table": "/site/plant"}
    copied(node, {"path": str(tmp_path / "in")}, tmp_path, form=form, **more)


def test_a_row_of_a_table_without_any_value_stays_a_row(node: Node, tmp_path: Path) -> None:
    from receiver.spark.source.read_plans.result_columns import ResultColumn
    from tests.support.writing_world import batch_of

    types = {"time": "bigint", "tag": "string", "v": "double"}
    columns = [ResultColumn(name, kind) for name, kind in types.items()]
    write = Write(node, columns, table="/site/plant", tagColumns="tag")
    rows = [{"time": 1, "tag": "a", "v": 1.5}, {"time": 2, "tag": "a"}, {"time": 2}]
    write.commit(write.run([batch_of(rows, types)]))
    _, found = rows_of(catalog=config_of(node, tmp_path / "c.toml"), table="/site/plant")
    assert as_set(found) == as_set([batch_of(rows, types)])
