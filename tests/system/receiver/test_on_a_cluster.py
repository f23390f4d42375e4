"""The built wheel on a standalone cluster: a master and workers on loopback."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("numba")

from tests.support import tiers
from tests.support.architecture import ROOT
from tests.support.procs import Child, Children, children
from tests.support.spark_cluster import Cluster
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES = 12
READ = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
frame = spark.read.format("tsfile").option("fileColumn", "file").load({path!r})
files = [each["count"] for each in frame.groupBy("file").count().collect()]
print(sum(files), len(files), spark.sparkContext.master)
spark.stop()
"""
BOUND = 240.0
"""Seconds for a run, on a machine that is busy with other things."""


@dataclass(frozen=True)
class Installed:
    """The wheel, in an environment of its own.

    Attributes:
        python: the interpreter of the environment.
        site: where its packages are.
        wheel: the file.
    """

    python: str
    site: Path
    wheel: Path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Only tsferry itself is in the environment; its dependencies are those of the tests."""
    root = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    if importlib.util.find_spec("hatchling"):
        command.insert(-1, "--no-build-isolation")
    built = subprocess.run([*command, str(root), str(ROOT)], capture_output=True, check=False)
    if built.returncode:
        pytest.skip(f"no wheel can be built here: {built.stderr.decode()[-300:]}")
    (wheel,) = root.glob("*.whl")
    venv.create(root / "venv", symlinks=True)
    (site,) = (root / "venv").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{Path(pytest.__file__).parent.parent}\n")
    zipfile.ZipFile(wheel).extractall(site)
    for kept in ROOT.glob("receiver/points/**/*.nb[ic]"):  # compiled already: the same sources
        place = site / kept.relative_to(ROOT)
        place.parent.mkdir(exist_ok=True)
        shutil.copy(kept, place)
    return Installed(str(root / "venv/bin/python"), site, wheel)


@dataclass(frozen=True)
class Centre:
    """Worlds of files and the cluster.

    What the one test of the default tier needs: a worker, and what that sees. In the long tier:

    Attributes:
        workers: two.
        near: every worker sees all of it.
        half: the second worker does not see the directory `far` of it.
        damaged: a file of `half`, outside of `far`.
    """

    cluster: Cluster
    workers: list[Child]
    near: Path
    half: Path = Path()
    damaged: Path = Path()
    far: Path = Path()


def make_world(root: Path) -> tuple[World, list[Path]]:
    world = World(root)
    places = []
    for number in range(1, FILES + 1):
        content = build({"root.wind.d1": {"s1": [(number * 100 + n, n / 2) for n in range(50)]}})
        name = f"sequence/root.wind/0/0/{number}-{number}-0-0.tsfile"
        places.append(world.load(NORTH, name, content, registered=True))
    world.engine.close()
    return world, places


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with children(tmp_path_factory.mktemp("output")) as all_of_them:
        yield all_of_them


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory, started: Children) -> Centre:
    root = tmp_path_factory.mktemp("centre")
    make_world(root / "near")
    if not tiers.is_long():
        cluster = Cluster(started, root / "spark")
        return Centre(cluster, cluster.add_workers([[]]), root / "near")
    hidden = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", str(root)], check=False
    )
    if hidden.returncode:
        pytest.skip("a directory cannot be hidden from one process here")
    world, places = make_world(root / "half")
    far = world.root / "far"
    for each in places[1:]:
        there = far / each.relative_to(world.data)
        there.parent.mkdir(parents=True, exist_ok=True)
        each.rename(there)
    content = bytearray(places[0].read_bytes())
    content[60] ^= 0xFF
    places[0].write_bytes(content)
    world.config.write_text('schema_dir = "schema"\ndata_dirs = ["data", "far"]\n')
    cluster = Cluster(started, root / "spark")
    hide = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {far} && exec "$@"', "sh"]
    workers = cluster.add_workers([[], hide])
    return Centre(cluster, workers, root / "near", root / "half", places[0], far)


def run(started: Children, centre: Centre, installed: Installed, cwd: Path, *command: str) -> Child:
    """A program in a directory of its own, that knows nothing of the sources."""
    cwd.mkdir()
    path = f"{Path(installed.python).parent}:{os.environ['PATH']}"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean = [f"{name}={value}" for name, value in plain.items() if not name.startswith("PYSPARK")]
    settings = [f"{name}={value}" for name, value in centre.cluster.environment.items()]
    return started.start(
        ["env", "-i", "-C", str(cwd), *clean, *settings, f"PATH={path}", *command]
    )  # fmt: skip


def summary(child: Child, code: int) -> dict[str, Any]:
    """The JSON that a verification printed, after whatever Spark had to say."""
    assert child.wait(bound=BOUND) == code, child.text()
    text = child.text()
    told: dict[str, Any] = json.JSONDecoder().raw_decode(text[text.index("{\n") :])[0]
    return told


def test_the_wheel_holds_all_that_is_no_python(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())
    sources = {
        str(each.relative_to(ROOT))
        for package in ("common", "sender", "receiver")
        for each in (ROOT / package).rglob("*")
        if each.is_file() and "__pycache__" not in each.parts
    }
    moved = "receiver/spark/source/pyspark_tsfile.py"
    assert sources - names == {moved}
    assert Path(moved).name in names
    assert {"receiver/spark/report/page.html", "receiver/spark/verify/log4j2.properties"} <= names


@pytest.mark.long
def test_submitted_to_workers_of_which_one_does_not_see_a_directory_nothing_is_called_lost(
    started: Children, centre: Centre, installed: Installed, tmp_path: Path
) -> None:
    child = run(
        started, centre, installed, tmp_path / "empty",
        centre.cluster.submit, "--master", centre.cluster.url,
        str(installed.site / "receiver/spark/verify/__main__.py"), "--json",
        "--config", str(centre.half / "receiver.toml"), "--report", str(tmp_path / "report"),
    )  # fmt: skip
    told = summary(child, 1)
    assert told["master"] == centre.cluster.url
    assert (told["files"], told["bad"]) == (FILES, 1)
    assert told["proved"] >= 1
    assert told["unproved"] >= 1
    for each in told["findings"]:
        if each["severity"] == "bad":
            assert each["physical"] == str(centre.damaged.relative_to(centre.half / "data"))
        else:
            assert (each["severity"], each["check"]) == ("unproved", "present")
            assert f"this machine sees it in {centre.far}, a worker did not (on " in each["detail"]
    assert told["delivery"] == {
        "verified": told["proved"],
        "quarantined": 1,
        "stale": 0,
        "dissolved": 0,
        "mended": 0,
        "merges_verified": 0,
    }
    assert "</html>" in (tmp_path / "report/report.html").read_text()


def test_from_an_empty_directory_the_format_is_there_without_a_line_of_set_up(
    started: Children, centre: Centre, installed: Installed, tmp_path: Path
) -> None:
    program = tmp_path / "read.py"
    program.write_text(READ.format(path=str(centre.near / "data")))
    child = run(
        started, centre, installed, tmp_path / "empty", "env", f"PYSPARK_PYTHON={installed.python}",
        centre.cluster.submit, "--master", centre.cluster.url, str(program),
    )  # fmt: skip
    assert child.wait(bound=BOUND) == 0, child.text()
    assert f"{FILES * 50} {FILES} {centre.cluster.url}" in child.text()


@pytest.mark.long
def test_a_worker_that_is_killed_changes_nothing_in_what_is_found(
    started: Children, centre: Centre, installed: Installed, tmp_path: Path
) -> None:
    child = run(
        started, centre, installed, tmp_path / "empty",
        installed.python, "-m", "receiver.spark.verify", "--json", "--master",
        centre.cluster.url, "--config", str(centre.near / "receiver.toml"),
    )  # fmt: skip
    first = centre.workers[0]
    # Its Python has just been started for a task, and needs a second to be ready for it.
    child.until(lambda: centre.cluster.python_of(first), "a task at the first worker", bound=BOUND)
    assert first.kill() == -signal.SIGKILL  # with its executor, as a machine that goes away
    told = summary(child, 0)
    assert (told["files"], told["proved"], told["points"]) == (FILES, FILES, FILES * 50)
    assert told["findings"] == []
