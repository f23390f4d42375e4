"""`df.write.format("tsfile")` on a real Spark into a real receiver: one load of all, or nothing."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from common.errors import ForbiddenError, UsageError
from receiver.spark.source import TsFileSource
from tests.support.architecture import ROOT
from tests.support.centre import Centre, centre
from tests.support.procs import children, wait_until
from tests.support.tsfile_bytes import build
from tests.support.writing_world import as_set, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

WEEK = 604_800_000
TYPES = {
    "b": "BOOLEAN", "i": "INT32", "l": "INT64", "f": "FLOAT", "d": "DOUBLE", "t": "TEXT",
    "s": "STRING", "x": "BLOB", "y": "DATE", "m": "TIMESTAMP",
}  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "b": [True, False], "i": [-(2**31), 7], "l": [-(2**63), 3], "f": [0.5, 3.25],
    "d": [1e300, 0.1], "t": ["", "ä"], "s": ["null", "😀"], "x": [b"", b"\xff\x00"],
    "y": [20260131, 19691231], "m": [1, -5],
}  # fmt: skip
TREE = {
    device: {
        name: [(t * WEEK // 3, VALUES[name][t % 2]) for t in range(-3, 5) if (t + salt) % 3]
        for name in TYPES
    }
    for salt, device in enumerate(("root.wind.d1", "root.wind.north.`a.b`", "root.sun.d2"))
}
SCHEMA = StructType(
    [
        StructField("time", LongType()),
        StructField("device", StringType()),
        StructField("s1", LongType()),
    ]
)
DRIVER = """
import sys, time
from receiver.spark.source import TsFileSource
from receiver.spark.verify.session import start

def slow(batches):
    for batch in batches:
        if batch.column(0)[0].as_py() >= 1000:
            time.sleep(600)
        yield batch

spark = start("local[1]", name="left")
spark.dataSource.register(TsFileSource)
rows = spark.range(0, 2000, 1, 2).mapInArrow(slow, "id long")
rows = rows.selectExpr("id as time", "concat('root.left.d', id % 2) as device", "id as s1")
options = dict(receiver=sys.argv[1], tokenFile=sys.argv[2])
rows.write.format("tsfile").mode("append").options(**options).save()
"""
TABLE: dict[Any, Any] = {
    ("plant", "p1", None, "x"): {"l": [(1, 1), (2, 2)], "t": [(2, "a")]},
    ("plant", None, "null"): {"d": [(7, 0.5)]},
}


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Centre, str, Path]]:
    """One that runs: it, its URL, and a file with a writer's token."""
    root = tmp_path_factory.mktemp("receiver")
    with centre(root) as made:
        url = made.start()
        token = root / "writer.token"
        token.write_text(made.call("token", "create", "--role", "writer")["token"])
        yield made, url, token


@pytest.fixture
def options(receiver: tuple[Centre, str, Path]) -> dict[str, str]:
    _, url, token = receiver
    return {"receiver": url, "tokenFile": str(token)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "in/sequence/site/0/0"
    place.mkdir(parents=True)
    (place / "a.tsfile").write_bytes(build(TABLE))
    (tmp_path / "tree.tsfile").write_bytes(build(TREE, types=TYPES, aligned=["root.wind.d1"]))
    return tmp_path


def found(**given: str) -> list[str]:
    """Rows as the source gives them, without Spark, of whose jobs each takes a second."""
    return as_set(rows_of(**given)[1])


def staged(made: Centre) -> list[str]:
    return [str(each) for each in made.data.glob("sync-receiver/*/writes/*/*")]


def test_what_is_read_and_written_is_read_again_in_both_models_with_all_types(
    spark: Any, receiver: tuple[Centre, str, Path], options: dict[str, str], data: Path
) -> None:
    made, _, _ = receiver
    (example,) = re.findall(r"```py\n(.*?)```", (ROOT / "docs/spark.md").read_text(), re.DOTALL)
    for said, meant in (
        ("/srv/tsfiles", str(data / "tree.tsfile")),
        ("http://127.0.0.1:8765", options["receiver"]),
        ("/etc/tsferry/writer.token", options["tokenFile"]),
    ):
        assert said in example
        example = example.replace(said, meant)
    exec(compile(example, "docs/spark.md", "exec"), {"spark": spark})
    table = spark.read.format("tsfile").load(str(data / "in"))
    writer = table.repartition(2).write.format("tsfile").mode("append").options(**options)
    writer.option("table", "/site/plant").save()
    there = str(made.config)
    for given, before in (
        ({"table": "/site/plant"}, {"path": str(data / "in")}),
        ({"devices": "root.**", "form": "long"}, {"path": str(data / "tree.tsfile")}),
    ):  # in the long form with the types, which the metadata of the columns had
        form = {"form": given["form"]} if "form" in given else {}
        assert found(catalog=there, **given) == found(**before, **form)
    commits = {each["created"] for each in made.call("files", "--limit", "1000")["files"]}
    assert len(commits) == 2
    assert staged(made) == []


def dies_once(marker: Path) -> Any:
    """Batches as they are, but that the first task to give one dies behind it."""
    place = str(marker)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            try:
                os.close(os.open(place, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os._exit(9)

    return run


def test_a_task_that_is_killed_is_made_again_and_its_rows_are_there_once(
    spark: Any, receiver: tuple[Centre, str, Path], options: dict[str, str], tmp_path: Path
) -> None:
    made, _, _ = receiver
    frame = spark.range(0, 40, 1, 1).selectExpr(
        "id as time", "concat('root.killed.d', id % 2) as device", "id as s1"
    )
    frame = frame.mapInArrow(dies_once(tmp_path / "died"), frame.schema)
    frame.write.format("tsfile").mode("append").options(**options).save()
    assert (tmp_path / "died").exists()
    _, batches = rows_of(catalog=str(made.config), devices="root.killed.*", merge="false")
    times = [row["time"] for batch in batches for row in batch.to_pylist()]
    assert sorted(times) == list(range(40))
    assert staged(made) == []


def processes_with(mark: str) -> list[int]:
    """Those whose environment has a text."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and mark.encode() in (each / "environ").read_bytes():
                found.append(int(each.name))
        except OSError:
            continue
    return found


@pytest.mark.long
def test_a_driver_that_is_killed_leaves_nothing_visible_and_what_it_sent_is_swept(
    spark: Any, tmp_path: Path
) -> None:
    """The second of two tasks is at work when it dies: what the first one has sent is there."""
    mark = f"TSFERRY_TEST_DRIVER={tmp_path}"
    env = dict([mark.split("=")]) | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    more = '[load]\nkeep_deleted = "1s"\n'
    with centre(tmp_path / "dc", more) as made, children(tmp_path) as all_:
        options = {"receiver": made.start(), "tokenFile": str(tmp_path / "token")}
        secret = made.call("token", "create", "--role", "writer")["token"]
        Path(options["tokenFile"]).write_text(secret)
        script = [sys.executable, "-c", DRIVER, options["receiver"], options["tokenFile"]]
        driver = all_.start(script, env=env)
        driver.until(lambda: len(staged(made)) >= 2, "a part of the first task", bound=240)
        driver.signal(signal.SIGKILL)
        driver.wait()
        wait_until(lambda: not processes_with(mark), "its workers ended with it")
        assert made.call("files")["files"] == []

        left = staged(made)
        rows = spark.range(0, 2000, 1, 2).selectExpr(
            "id as time", "concat('root.left.d', id % 2) as device", "id as s1"
        )
        rows.write.format("tsfile").mode("append").options(**options).save()
        _, batches = rows_of(catalog=str(made.config), devices="root.left.*")
        assert sorted(row["time"] for each in batches for row in each.to_pylist()) == [*range(2000)]
        assert staged(made) == left, "it may be going on, for all that the receiver knows"
        for each in [*left, *{str(Path(each).parent) for each in left}]:
            os.utime(each, (1.0, 1.0))  # for limits.upload_expiry nothing has come
        wait_until(lambda: staged(made) == [], "swept")


def test_rows_that_contradict_what_is_there_are_refused_by_name_with_nothing_visible(
    spark: Any, receiver: tuple[Centre, str, Path], options: dict[str, str]
) -> None:
    made, _, _ = receiver

    def write(*selected: str, tasks: int = 1) -> None:
        frame = spark.range(0, 8, 1, tasks).selectExpr(*selected)
        frame.write.format("tsfile").mode("append").options(**options).save()

    write("id as time", "concat('root.typed.d', id % 2) as device", "id as s1")
    before = made.call("files", "--limit", "1000")
    double = "cast(id as double) as s1"
    with pytest.raises(Exception, match=r"root\.typed\.d1, series s1: double in the rows, INT64"):
        write("id + 100 as time", "if(id = 7, 'root.typed.d1', 'root.typed.e') as device", double)
    with pytest.raises(Exception, match=r"nothing of this write is loaded: .*root\.typed\.d1"):
        write("id + 7 as time", "if(id = 0, 'root.typed.d1', 'root.typed.e') as device", "id as s1")
    with pytest.raises(Exception, match=r"device root\.typed\.e, series s1: time 0 is in .* here"):
        write("id % 4 as time", "'root.typed.e' as device", "id as s1", tasks=2)
    assert made.call("files", "--limit", "1000") == before
    assert staged(made) == []


def test_what_cannot_be_meant_is_refused_before_a_job_starts(
    receiver: tuple[Centre, str, Path], options: dict[str, str]
) -> None:
    with pytest.raises(UsageError, match="option token of a write"):
        TsFileSource(options | {"token": "x"}).writer(SCHEMA, overwrite=False)
    with pytest.raises(UsageError, match="mode overwrite"):
        TsFileSource(options).writer(SCHEMA, overwrite=True)
    with pytest.raises(UsageError, match="rows go to a receiver"):
        TsFileSource(options | {"path": "/x"}).writer(SCHEMA, overwrite=False)
    with pytest.raises(ForbiddenError, match="may not load as 'nobody'"):
        TsFileSource(options | {"as": "nobody"}).writer(SCHEMA, overwrite=False)
    assert staged(receiver[0]) == []


def test_no_token_is_in_the_plan_or_in_what_is_pickled(
    receiver: tuple[Centre, str, Path], options: dict[str, str]
) -> None:
    writer = TsFileSource(options).writer(SCHEMA, overwrite=False)
    secret = Path(options["tokenFile"]).read_text().strip()
    assert secret.encode() not in pickle.dumps(writer)
    assert secret not in json.dumps(options)
    writer.abort([])
    assert staged(receiver[0]) == []


def test_attempts_of_one_task_are_apart_and_one_of_each_counts(
    receiver: tuple[Centre, str, Path], options: dict[str, str], tmp_path: Path
) -> None:
    """As Spark does it where it speculates: two attempts write, it names what one of them told."""
    made, _, _ = receiver
    before = len(made.call("files", "--limit", "1000")["files"])
    writer = TsFileSource(options).writer(SCHEMA, overwrite=False)

    def batch(first: int) -> Any:
        return pa.record_batch(
            {"time": [first, first + 1], "device": ["root.twice.d"] * 2, "s1": [1, 2]}
        )

    def dying() -> Iterator[Any]:
        yield batch(10)
        raise RuntimeError("killed")

    one, _other = writer.write(iter([batch(10)])), writer.write(iter([batch(10)]))
    with pytest.raises(RuntimeError):
        writer.write(dying())
    second = writer.write(iter([batch(20)]))
    assert len(staged(made)) == 4  # and the record of the write
    writer.commit([one, second])
    assert staged(made) == []
    files = made.call("files", "--limit", "1000")["files"]
    assert len(files) == before + 2
    assert len({each["created"] for each in files if "root.twice" in each["path"]}) == 1
    late = writer  # an attempt that wakes up behind the commit
    with pytest.raises(Exception, match="is over"):
        late.write(iter([batch(30)]))
