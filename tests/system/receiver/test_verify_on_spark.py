"""The proof, on a real Spark: each kind of fault becomes a finding, and never a failed job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from receiver.metadata import records
from tests.support.spark_world import NORTH, SOUTH, World
from tests.support.tsfile_bytes import build

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PATH = "sequence/root.wind_park/0/0/{created}-{version}-0-0.tsfile"


def series(device: str, begin: int, count: int = 20) -> bytes:
    return build({device: {"s1": [(begin + n, n) for n in range(count)]}})


def verify(world: World, *arguments: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "receiver.spark.cli", "--config", str(world.config), "--json",
         "--master", "local[1]", *arguments],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_good_set_is_proved_and_every_kind_of_fault_is_named(
    world: World, tmp_path: Path
) -> None:
    world.load(NORTH, PATH.format(created=1, version=1), series("root.wind_park.d1", 0))
    world.load(NORTH, PATH.format(created=2, version=2), series("root.wind_park.d1", 100))
    world.load(SOUTH, PATH.format(created=1, version=1), series("root.wind_park.`d 2`", 0))
    code, good = verify(world)
    assert (code, good["files"], good["bad"], good["points"]) == (0, 3, 0, 60)

    gone = world.load(NORTH, PATH.format(created=3, version=3), series("root.wind_park.d3", 200))
    gone.unlink()
    hurt = world.load(NORTH, PATH.format(created=4, version=4), series("root.wind_park.d3", 300))
    data = bytearray(hurt.read_bytes())
    data[len(data) - 40] ^= 0xFF
    hurt.write_bytes(data)
    cut = world.load(NORTH, PATH.format(created=5, version=5), series("root.wind_park.d3", 400))
    cut.write_bytes(cut.read_bytes()[:-7])
    world.load(NORTH, PATH.format(created=6, version=6), series("root.wind_park.d1", 110))
    world.load(NORTH, PATH.format(created=7, version=7), series("root.wind_park.d4", 0), points=99)
    foreign = world.load(NORTH, PATH.format(created=8, version=8), series("root.wind_park.d5", 0))
    code, bad = verify(world, "--report", str(tmp_path / "report"))
    found = {(Path(each["physical"]).name.split("-")[0], each["check"]) for each in bad["problems"]}
    assert code == 1
    assert {("3", "present"), ("5", "size"), ("5", "structure"), ("6", "overlap")} <= found
    assert {("4", "md5"), ("7", "manifest")} <= found
    assert not any(created in ("1", "2", "8") for created, _ in found), foreign
    assert (bad["files"], bad["bad"]) == (9, 5)

    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "report" / "files.parquet").to_pylist()
    assert sorted(each["good"] for each in table) == [False] * 5 + [True] * 4
    problems = pq.read_table(tmp_path / "report" / "problems.parquet").to_pylist()
    assert len(problems) == len(bad["problems"])
    assert json.loads((tmp_path / "report" / "report.json").read_text())["bad"] == 5


def test_a_file_of_a_device_that_another_owned_by_then_is_found(world: World) -> None:
    world.load(NORTH, PATH.format(created=1, version=1), series("root.wind_park.d1", 0))
    world.engine.commit(
        [records.OwnerSet(device="root.wind_park.d1", sender=SOUTH, reason="moved")]
    )
    world.load(SOUTH, PATH.format(created=2, version=2), series("root.wind_park.d1", 100))
    code, result = verify(world)
    assert (code, result["bad"]) == (0, 0), "what was loaded is judged by the owner at its time"


def test_one_task_can_be_proved_alone_and_an_unknown_one_is_usage(world: World) -> None:
    world.load(NORTH, PATH.format(created=1, version=1), series("root.wind_park.d1", 0))
    task = "f" * 32
    world.engine.commit(
        [
            records.TaskDone(
                sender=NORTH,
                task=task,
                outcomes=[],
            )
        ]
    )
    done = subprocess.run(
        [sys.executable, "-m", "receiver.spark.cli", "--config", str(world.config),
         "--task", "e" * 32],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "e" * 32 in done.stderr
    code, result = verify(world, "--task", task)
    assert (code, result["files"]) == (0, 0)
