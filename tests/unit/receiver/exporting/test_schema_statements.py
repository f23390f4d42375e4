"""A schema comes out as statements that make the same schema again."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.formats.schemaitems import Item
from receiver.exporting.schema_statements import tree_statements
from receiver.exporting.wanted_points import SchemaSeries, WantedPoints
from receiver.metadata.engine import Engine
from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.sql.executing import execute
from receiver.transfer.schemachanges import SchemaReader

MADE = (
    "set storage group to root.a",
    "set ttl to root.a 86400000",
    "set storage group to root.`b.c`",
    "create timeseries root.a.d1.s(heat) with datatype=FLOAT, encoding=GORILLA, "
    "compression=SNAPPY tags(unit='c', `a b`='it''s') attributes(who='x')",
    "create timeseries root.a.d1.`t-1` with datatype=TEXT, encoding=PLAIN",
    "create aligned timeseries root.`b.c`.d(x INT32 encoding=RLE, y DOUBLE)",
)


def items(engine: Engine) -> list[Item]:
    return list(SchemaReader(engine).every())


def statements(engine: Engine, pattern: str = "root.**", version: int = 4) -> list[str]:
    wanted = SchemaSeries(items(engine), WantedPoints(parse_pattern(pattern)))
    return list(tree_statements(wanted.groups, wanted.series, version))


@pytest.mark.parametrize("version", [3, 4])
def test_said_to_another_engine_they_make_the_same_schema(tmp_path: Path, version: int) -> None:
    with Engine.open(tmp_path / "one") as one, Engine.open(tmp_path / "other") as other:
        for each in MADE:
            execute(one, each)
        for each in statements(one, version=version):
            as_here = each.replace("CREATE DATABASE", "SET STORAGE GROUP TO")
            execute(other, as_here.removesuffix(";"))
        assert statements(other) == statements(one)
        assert [each.path for each in items(other)] == [each.path for each in items(one)]


def test_what_is_not_meant_is_left_out(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "one") as one:
        for each in MADE:
            execute(one, each)
        found = statements(one, "root.a.d1.s")
        assert found[:2] == ["CREATE DATABASE root.a;", "SET TTL TO root.a 86400000;"]
        (made,) = found[2:]
    assert made == (
        "CREATE TIMESERIES root.a.d1.s(heat) WITH DATATYPE=FLOAT, ENCODING=GORILLA, "
        "COMPRESSOR=SNAPPY TAGS(unit='c', `a b`='it''s') ATTRIBUTES(who='x');"
    )


def test_a_version_has_the_encodings_that_all_its_servers_read(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "one") as one:
        execute(one, "set storage group to root.a")
        execute(one, "create timeseries root.a.d.s with datatype=INT32, encoding=ZIGZAG, "
                     "compression=ZSTD")  # fmt: skip
        assert "ENCODING=TS_2DIFF, COMPRESSOR=LZ4" in statements(one, version=3)[-1]
        assert "ENCODING=ZIGZAG, COMPRESSOR=ZSTD" in statements(one, version=4)[-1]
