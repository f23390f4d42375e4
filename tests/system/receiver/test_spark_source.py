"""`format("tsfile")` on a real Spark: what the files hold is in the rows, in SQL and in streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from receiver.metadata.model import records
from tests.support.architecture import ROOT
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PATH = "sequence/root.wind/0/0/{0}-{0}-0-0.tsfile"
D1, D2 = "root.wind.d1", "root.wind.d2"
TREE = {
    D1: {"s1": [(t, t * 10) for t in range(1, 101)], "s2": [(1, "on"), (50, "off")]},
    D2: {"s1": [(t, t) for t in range(50, 60)], "s3": [(50, 0.5)]},
}
TABLE = {
    ("plant", "p1", None): {"temp": [(1, 20.5), (2, 21.0)], "hum": [(1, 7)]},
    ("plant", "p2", "x"): {"temp": [(2, 1.5)]},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tree files, a damaged one apart, and a file of a table."""
    root = tmp_path_factory.mktemp("data")
    for name in ("tree", "table", "hurt"):
        (root / name).mkdir()
    (root / "tree/a.tsfile").write_bytes(build(TREE))
    (root / "tree/b.tsfile").write_bytes(build({D1: {"s1": [(t, 0) for t in range(200, 300)]}}))
    (root / "table/t.tsfile").write_bytes(build(TABLE))
    hurt = bytearray(build({D1: {"s1": [(7, 7)], "s2": [(7, "x" * 40)]}}))
    hurt[hurt.index(b"x" * 40) - 2] ^= 0xFF
    (root / "hurt/h.tsfile").write_bytes(hurt)
    (root / "hurt/cut.tsfile").write_bytes(build(TREE)[:-9])
    (root / "hurt/good.tsfile").write_bytes(build({D2: {"s1": [(9, 9)]}}))
    return root


def patiently(run: Callable[[], Any]) -> None:
    """Once more, where the machine was so busy that Spark gave its own worker up."""
    for left in range(5, -1, -1):
        try:
            run()
        except Exception as error:
            if not left or "Python worker failed to connect back" not in str(error):
                raise
        else:
            return


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


def test_wide_rows_have_every_point_and_filters_find_the_same_ones_pushed_or_not(
    spark: Any, data: Path
) -> None:
    frame = spark.read.format("tsfile").load(str(data / "tree"))
    assert frame.dtypes == [
        ("time", "bigint"), ("device", "string"),
        ("s1", "bigint"), ("s2", "string"), ("s3", "double"),
    ]  # fmt: skip
    expected = [(t, D1, t * 10, {1: "on", 50: "off"}.get(t), None) for t in range(1, 101)]
    expected += [(t, D1, 0, None, None) for t in range(200, 300)]
    expected += [(t, D2, t, None, 0.5 if t == 50 else None) for t in range(50, 60)]
    assert rows(frame) == sorted(expected, key=repr)
    # Each plan is a few processes of Python's that start: so few filters, of many kinds.
    wheres = {
        "device like '%d2' and not time = 50": lambda r: r[1] == D2 and r[0] != 50,
        f"time in (1, 50, 250) and s2 is not null and (device <> '{D2}' or s1 = 0)": (
            lambda r: r[0] in (1, 50) and r[3]
        ),
        f"device = '{D2}' and time > 57": lambda r: r[1] == D2 and r[0] > 57,
    }
    spark.conf.set(PUSHDOWN, "true")
    pushing = spark.read.format("tsfile").schema(frame.schema).option("pushFilters", "true")
    for where, keep in wheres.items():
        narrow = pushing.load(str(data / "tree")).where(where)
        assert rows(narrow) == sorted(filter(keep, expected), key=repr), where
    plan = narrow._jdf.queryExecution().optimizedPlan().toString()
    assert "Filter" not in plan, "Spark filters again what was pushed"
    # Left to itself, one query of a frame leaves nothing behind for the next one.
    assert frame.where("time > 57").union(frame.where("time > 295")).count() == 43 + 102 + 4
    assert frame.count() == len(expected)  # the same frame as before
    spark.conf.set(PUSHDOWN, "false")


def test_long_rows_of_several_paths_and_a_view_in_sql(spark: Any, data: Path) -> None:
    paths = [str(data / "tree/a.tsfile"), str(data / "table/*.tsfile")]
    long = spark.read.format("tsfile").option("form", "long").option("fileColumn", "file")
    found = long.load(paths).where("time <= 2")
    assert rows(found.select("device", "measurement", "time", "value_long", "value_double",
                             "value_string", "data_type")) == sorted(
        [
            (D1, "s1", 1, 10, None, None, "INT64"), (D1, "s1", 2, 20, None, None, "INT64"),
            (D1, "s2", 1, None, None, "on", "TEXT"),
            ("plant:p1", "temp", 1, None, 20.5, None, "DOUBLE"),
            ("plant:p1", "temp", 2, None, 21.0, None, "DOUBLE"),
            ("plant:p1", "hum", 1, 7, None, None, "INT64"),
            ("plant:p2.x", "temp", 2, None, 1.5, None, "DOUBLE"),
        ],
        key=repr,
    )  # fmt: skip
    assert {each.file for each in found.select("file").collect()} == {
        paths[0], str(data / "table/t.tsfile"),
    }  # fmt: skip
    spark.sql(
        f"CREATE TEMPORARY VIEW plant USING tsfile OPTIONS (path '{data}/table', table 'plant')"
    )
    assert spark.table("plant").columns == ["time", "tag1", "tag2", "temp", "hum"] or (
        spark.table("plant").columns == ["time", "tag1", "tag2", "hum", "temp"]
    )
    assert rows(spark.sql("SELECT tag1, tag2, time, temp FROM plant WHERE time = 2")) == [
        ("p1", None, 2, 21.0), ("p2", "x", 2, 1.5),
    ]  # fmt: skip
    tagged = spark.read.format("tsfile").option("tags", '{"tag1": "p1", "tag2": [null, "y"]}')
    assert rows(tagged.option("columns", "hum").load(str(data / "table"))) == [
        (1, "p1", None, 7), (2, "p1", None, None),
    ]  # fmt: skip


def test_a_schema_chooses_columns_and_a_wrong_one_is_named(spark: Any, data: Path) -> None:
    def read(schema: str) -> Any:
        return spark.read.schema(schema).format("tsfile").load(str(data / "tree/a.tsfile"))

    assert rows(read("s2 string, time bigint")) == [("off", 50), ("on", 1)]
    with pytest.raises(Exception, match="schema: column time = string: expected bigint"):
        read("time string").collect()


def test_wrong_options_and_bad_files_are_named_or_become_rows(spark: Any, data: Path) -> None:
    reader = spark.read.format("tsfile")
    with pytest.raises(Exception, match="option form = 'tall': expected long or wide"):
        reader.option("form", "tall").load(str(data))
    long = spark.read.format("tsfile").option("form", "long")
    with pytest.raises(Exception, match=r"h\.tsfile, device root\.wind\.d1, series s2"):
        long.load(str(data / "hurt/h.tsfile")).collect()
    found = long.option("onError", "row").load(str(data / "hurt")).select(
        "device", "measurement", "time", "_error"
    )  # fmt: skip
    good, bad = [], []
    for each in found.collect():
        (good if each[3] is None else bad).append(tuple(each))
    assert sorted(good) == [(D1, "s1", 7, None), (D2, "s1", 9, None)]
    assert sorted((each[0] or "", each[2]) for each in bad) == [("", None), (D1, None)]
    said = " ".join(each[3] for each in bad)
    assert "cut.tsfile" in said
    assert "h.tsfile, device root.wind.d1, series s2, chunk at" in said


def test_a_receiver_is_read_as_of_any_commit(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.load(NORTH, PATH.format(1), build({D1: {"s1": [(1, 1), (2, 2)]}}))
    commit = world.engine.newest_commit
    world.load(NORTH, PATH.format(2), build({D1: {"s1": [(3, 3)]}}))
    world.engine.commit(
        [records.FileDeleted(str(first.relative_to(world.data)), "replaced")]
    )  # fmt: skip
    reader = spark.read.format("tsfile").option("catalog", str(world.config))
    frame = reader.load()
    assert frame.schema["time"].metadata == {"unit": "ms"}
    assert rows(frame) == [(3, D1, 3)]
    assert rows(
        reader.option("asOf", str(commit)).option("startTime", "1970-01-01T00:00:00.002Z").load()
    ) == [(2, D1, 2)]
    world.engine.close()


def test_files_that_overlap_give_each_time_once(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    early = world.load(NORTH, PATH.format(1), build({
        D1: {"s1": [(t, 1) for t in range(1, 6)], "s2": [(t, "early") for t in range(1, 6)]},
    }))  # fmt: skip
    first = world.engine.newest_commit
    late = world.load(NORTH, "unsequence/root.wind/0/0/2-2-0-0.tsfile", build({
        D1: {"s1": [(2, 2), (9, 2)]},
    }))  # fmt: skip
    world.load(NORTH, PATH.format(3), build({D2: {"s1": [(2, 3)]}}))
    before = world.engine.newest_commit
    files = [str(each.relative_to(world.data)) for each in (early, late)]
    world.engine.commit([
        records.DeletionsNoted(
            NORTH, "unsequence/root.wind/0/0/2-2-0-0.tsfile", files[1], "mods", 0,
            f"DELETION,{D1}.*,{2**63 - 1},4,9\n".encode(), before,
        )
    ])  # fmt: skip
    reader = spark.read.format("tsfile").option("catalog", str(world.config))
    told = rows(reader.option("fileColumn", "file").load().where(f"device = '{D1}'"))
    assert told == [
        (1, D1, 1, "early", files[0]),
        (2, D1, 2, "early", files[1]),
        (3, D1, 1, "early", files[0]),
    ]
    then = reader.option("asOf", str(before))
    assert then.load().count() == 7
    assert then.option("merge", "false").load().count() == 8
    world.engine.commit([records.FileDeleted(files[0], "replaced")])
    assert reader.option("asOf", str(before)).option("merge", "true").load().count() == 7
    assert reader.option("asOf", str(first)).load().count() == 5
    world.engine.close()


def test_a_stream_gives_each_loaded_file_once_over_restarts(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path / "centre")
    sink, checkpoint = str(tmp_path / "sink"), str(tmp_path / "checkpoint")

    def load(number: int) -> str:
        place = world.load(NORTH, PATH.format(number), build({D1: {"s1": [(number, number)]}}))
        return str(place.relative_to(world.data))

    def run() -> list[int]:
        stream = (
            spark.readStream.format("tsfile").schema("time bigint, s1 bigint")
            .option("catalog", str(world.config)).option("maxFilesPerTrigger", "2").load()
        )  # fmt: skip
        into = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        patiently(lambda: into.trigger(availableNow=True).start(sink).awaitTermination())
        return sorted(each.time for each in spark.read.parquet(sink).collect())

    first, second, _ = load(1), load(2), load(3)
    world.engine.commit([records.FileQuarantined(second, "bad")])
    assert run() == [1, 3]
    world.engine.commit([records.FileDeleted(first, "replaced")])
    world.engine.commit([records.FileRestored(second)])
    load(4)
    assert run() == [1, 2, 3, 4]
    world.engine.close()


def test_the_examples_of_the_page_for_users_run(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path / "centre")
    start = 1_700_000_000_000
    content = build({D1: {"s1": [(start + n, n / 2) for n in range(9)], "s2": [(start, 1)]}})
    place = world.load(NORTH, PATH.format(1), content)
    world.engine.close()
    text = (ROOT / "docs/spark.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) >= 6
    scope: dict[str, Any] = {"spark": spark}
    for example in examples:
        here = (
            example.replace("/srv/tsfiles", str(place.parent))
            .replace("/etc/tsferry/receiver.toml", str(world.config))
            .replace("/srv/out", str(tmp_path / "out"))
        )
        patiently(lambda: exec(compile(here, "docs/spark.md", "exec"), scope))  # noqa: B023
    assert scope["df"].count() == scope["now"].count() == scope["then"].count() == 9
    assert scope["bad"].count() == 0
    assert spark.read.parquet(str(tmp_path / "out/wind")).count() == 9


def test_tables_of_sparks_catalogue_keep_their_options(
    spark: Any, data: Path, tmp_path: Path
) -> None:
    for name in ("wide_one", "long_one", "typed"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    tree = data / "tree"
    try:
        spark.sql(
            f"CREATE TABLE wide_one USING tsfile LOCATION '{tree}' "
            "TBLPROPERTIES ('q' = '1') COMMENT 'a table'"
        )
        frame = spark.read.format("tsfile").load(str(tree))
        assert rows(spark.table("wide_one")) == rows(frame)
        spark.sql(
            f"CREATE TABLE long_one USING tsfile OPTIONS (path '{tree}', form 'long', "
            f"devices '{D2}')"
        )
        assert spark.sql("SELECT DISTINCT device FROM long_one").collect() == [(D2,)]
        spark.sql(f"CREATE TABLE typed (s1 BIGINT) USING tsfile OPTIONS (path '{tree}')")
        with pytest.raises(Exception, match="names no columns"):
            spark.sql("SELECT * FROM typed").collect()
        with pytest.raises(Exception, match="expected tokenFile in a table"):
            spark.sql(
                f"CREATE TABLE secret USING tsfile OPTIONS (catalog '{data}', token 't', "
                "form 'long')"
            )
    finally:
        for name in ("wide_one", "long_one", "typed"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_nothing_to_read_is_said_in_every_form(spark: Any, tmp_path: Path) -> None:
    for form in ("wide", "long"):
        for frame in (
            lambda form=form: spark.read.format("tsfile").option("form", form),
            lambda form=form: spark.read.format("tsfile").option("form", form).schema("time long"),
        ):
            with pytest.raises(Exception, match="expected TsFiles there, there are none"):
                frame().load(str(tmp_path)).collect()
