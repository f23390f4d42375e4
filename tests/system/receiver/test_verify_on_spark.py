"""The proof, on a real Spark: each kind of fault becomes a finding, and never a failed job."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("numba")

from common.console.cli import run
from receiver.metadata.state.table_rows import FileState
from receiver.spark.verify import job as jobs
from receiver.spark.verify.cli import cli
from receiver.spark.verify.examining import parts
from receiver.spark.verify.examining.part_rows import Settings, span_table
from receiver.spark.verify.examining.parts import Expected, PartSpan
from receiver.spark.verify.examining.subjects import Neighbours, Subject
from receiver.spark.verify.job import VerifyJob
from receiver.spark.verify.job_progress import JobProgress
from tests.support.compacting import compact
from tests.support.json_schema import check_output
from tests.support.site import Site, path
from tests.support.spark_world import NORTH, SOUTH, World
from tests.support.tsfile_bytes import build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
PATH = "{kind}/root.wind_park/0/0/{created}-{created}-0-0.tsfile"
PARK = "root.wind_park"
PATIENCE = 400
"""Seconds for a step of a program, on a machine that is busy with other things."""


def series(device: str, begin: int, count: int = 20) -> bytes:
    return build({device: {"s1": [(begin + n, n) for n in range(count)]}})


def load(
    world: World, created: int, content: bytes, kind: str = "sequence", sender: str = NORTH,
    **other: Any,
) -> Path:  # fmt: skip
    return world.load(sender, PATH.format(kind=kind, created=created), content, **other)


class Kept:
    """The session of all tests, which no run ends."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        pass


Verify = Callable[..., tuple[int, Any]]


@pytest.fixture
def verify(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verify:
    """The command in this process and session: arguments in, exit code and summary out."""
    monkeypatch.setattr("receiver.spark.verify.session.start", lambda _: Kept(spark))

    def once(*arguments: str) -> tuple[int, Any]:
        code = run(cli, "tsferry-verify", ["--json", *arguments])
        return code, check_output("tsferry-verify", capsys.readouterr().out)

    return once


def command(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "receiver.spark.verify",
        "--json",
        "--master",
        "local[1]",
        *arguments,
    ]


def flip(place: Path, at: int) -> None:
    data = bytearray(place.read_bytes())
    data[at] ^= 0xFF
    place.write_bytes(data)


def test_good_files_are_proved_and_every_kind_of_fault_is_named_and_committed(
    tmp_path: Path, verify: Verify
) -> None:
    world = World(tmp_path)
    good = [
        load(world, 1, series(f"{PARK}.d1", 0), registered=True),
        load(world, 2, series(f"{PARK}.d1", 100), registered=True),
        load(world, 3, series(f"{PARK}.`d 2`", 0), sender=SOUTH),
        load(world, 4, series(f"{PARK}.d1", 10), "unsequence"),
    ]
    gone = load(world, 11, series(f"{PARK}.d3", 200))
    gone.unlink()
    tail = load(world, 12, series(f"{PARK}.d3", 300))
    flip(tail, -40)
    cut = load(world, 13, series(f"{PARK}.d3", 400))
    cut.write_bytes(cut.read_bytes()[:-7])
    page = load(world, 14, series(f"{PARK}.d3", 500))
    flip(page, 60)
    counts = load(world, 15, series(f"{PARK}.d4", 0), points=99)
    sent = load(world, 16, series(f"{PARK}.d5", 0), sent=series(f"{PARK}.d5", 1))
    settled = load(world, 21, series(f"{PARK}.d1", 110))
    # Its name ranks as that of the second one.
    twin = f"sequence/{PARK}/1/0/2-2-0-0.tsfile"
    overlap = world.load(NORTH, twin, series(f"{PARK}.d1", 110))
    world.engine.close()

    report = tmp_path / "report"
    code, told = verify("--config", str(world.config), "--report", str(report))
    found = {
        (Path(each["physical"]).name.partition("-")[0], each["severity"], each["check"])
        for each in told["findings"]
    }
    assert found == {
        ("4", "note", "duplicates"),
        ("11", "bad", "present"),
        ("12", "bad", "md5"), ("12", "bad", "structure"),
        ("13", "bad", "size"), ("13", "bad", "structure"),
        ("14", "bad", "md5"), ("14", "bad", "pages"), ("14", "bad", "manifest"),
        ("15", "bad", "manifest"),
        ("16", "bad", "manifest"),
        ("2", "problem", "overlap"),
    }  # fmt: skip
    assert (code, told["files"], told["proved"], told["bad"], told["unproved"]) == (1, 12, 6, 6, 0)
    assert told["delivery"] == {
        "verified": 6,
        "quarantined": 6,
        "stale": 0,
        "dissolved": 0,
        "mended": 0,
        "merges_verified": 0,
    }
    assert told["merged_points"] is None
    for name in ("files", "findings", "chunks", "spans", "days", "codecs", "duplicates"):
        assert (report / f"{name}.parquet").is_file()
    import pyarrow.parquet as pq

    (both,) = pq.read_table(report / "duplicates.parquet").to_pylist()
    assert (both["points"], both["first"], both["last"]) == (10, 10, 19)
    assert json.loads((report / "report.json").read_text())["bad"] == 6

    reopened = World.reopened(tmp_path)
    with reopened.engine.reading() as state:
        rows = {place: state.files[str(place.relative_to(world.data))] for place in
                (*good, gone, tail, cut, page, counts, sent, overlap, settled)}  # fmt: skip
        held = {row.path for row in state.quarantine.values() if row.hold}
    reopened.load(NORTH, twin.replace("/1/", "/2/"), series(f"{PARK}.d1", 105, 3))
    reopened.engine.close()
    assert all(rows[place].verified for place in (*good, overlap, settled))
    bad = (gone, tail, cut, page, counts, sent)
    assert {rows[place].state for place in bad} == {FileState.QUARANTINED}
    assert "manifest" in str(rows[sent].reason)
    assert held == {rows[counts].path, rows[sent].path}, "their bytes are as they were sent"

    code, again = verify("--config", str(world.config), "--new")
    assert (code, again["files"], again["proved"], again["passed_over"]) == (1, 1, 1, 6)
    (finding,) = again["findings"]
    assert finding["check"] == "overlap"
    assert "begins at 105" in finding["detail"], "compared with files that were not asked for, too"
    assert finding["detail"].endswith("; their names rank the same")


def test_merged_files_are_proved_and_a_bad_one_is_read_no_more(
    tmp_path: Path, verify: Verify
) -> None:
    world = World(tmp_path)
    for number in range(4):
        load(world, number + 1, series(f"{PARK}.d1", number * 100))
    load(world, 9, series(f"{PARK}.d1", 50, 100), "unsequence")
    with world.engine.reading() as state:
        inputs = sorted(state.files)
    (place,) = compact(world.engine, tmp_path / "schema", world.data, inputs, 1)
    world.engine.close()
    code, told = verify("--config", str(world.config), "--no-commit")
    assert (code, told["proved"], told["merged"], told["merged_bad"]) == (0, 5, 1, 0)
    assert {each["check"] for each in told["findings"]} <= {"duplicates"}

    flip(place, 60)
    report = tmp_path / "report"
    code, told = verify("--config", str(world.config), "--report", str(report))
    assert (code, told["proved"], told["bad"], told["merged_bad"]) == (1, 5, 0, 1)
    assert told["delivery"] == {
        "verified": 5,
        "quarantined": 0,
        "stale": 0,
        "dissolved": 1,
        "mended": 0,
        "merges_verified": 0,
    }
    bad = [each for each in told["findings"] if each["severity"] == "bad"]
    assert {each["physical"] for each in bad} == {str(place.relative_to(world.data))}
    assert {each["check"] for each in bad} == {"md5", "pages"}
    assert place.name in (report / "report.html").read_text()

    reopened = World.reopened(tmp_path)
    with reopened.engine.reading() as state:
        assert not list(state.compacted_table.holding())
        assert state.compacted_table.rows[1].reason.startswith(str(place.relative_to(world.data)))
    reopened.engine.close()
    code, told = verify("--config", str(world.config))
    assert (code, told["merged"]) == (0, 0)


def test_a_disk_that_is_not_mounted_costs_no_verdict(tmp_path: Path, verify: Verify) -> None:
    world = World(tmp_path)
    place = load(world, 1, series(f"{PARK}.d1", 0))
    world.engine.close()
    code, told = verify("--config", str(world.config))
    assert (code, told["proved"], told["merged_points"]) == (0, 1, told["points"])
    world.data.rename(tmp_path / "elsewhere")
    world.data.mkdir()
    code, told = verify("--config", str(world.config))
    assert (code, told["unproved"], told["bad"]) == (1, 1, 0)
    assert told["delivery"] == {
        "verified": 0,
        "quarantined": 0,
        "stale": 0,
        "dissolved": 0,
        "mended": 0,
        "merges_verified": 0,
    }
    assert not place.exists()


def test_files_that_kill_their_workers_are_rows_and_the_job_goes_on(
    tmp_path: Path, spark: SparkSession, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        content = series(f"{PARK}.d{number}", 0)
        (tmp_path / f"{number}.tsfile").write_bytes(content)
    # The workers of this test are others than those of the rest: Spark keeps them by their
    # environment.
    environment = spark.sparkContext.environment
    monkeypatch.setitem(environment, "TSFERRY_CRASH_AT", "verify.decoding")
    code, told = verify("--path", str(tmp_path))
    assert (code, told["files"], told["unproved"]) == (1, 2, 2)
    for finding in told["findings"]:
        assert finding["check"] == "worker"
        assert "signal 9" in finding["detail"]


def test_a_sender_in_mid_task_has_each_of_its_files_once(tmp_path: Path, verify: Verify) -> None:
    """Links in its snapshot, files that came from further out and are on their way, hidden ones."""
    site = Site(tmp_path)
    (data,) = site.data_dirs
    for number in range(2):
        site.put(path(f"{number}-{number}-0.tsfile", sg=PARK), series(f"{PARK}.d1", 100 * number))
    site.snapshot().take(site.scan().files.values())
    snapshot = site.sender_dir() / "snapshot"
    assert len(list(snapshot.rglob("*.tsfile"))) == 2
    for rest in ("sync-receiver/x/data/sequence/root.a/0/0/9-9-0.tsfile", ".old/8.tsfile"):
        place = data / rest
        place.parent.mkdir(parents=True)
        place.write_bytes(b"half of a f")
    for given in (str(data), f"{data}/**/*.tsfile", f"{data}/*"):
        code, told = verify("--path", given)
        assert (code, told["files"], told["proved"], told["findings"]) == (0, 2, 2, [])
    code, told = verify("--path", str(snapshot))  # it is named: it is meant
    assert (code, told["files"], told["proved"]) == (0, 2, 2)


def test_an_unknown_task_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    load(world, 1, series(f"{PARK}.d1", 0))
    world.engine.close()
    arguments = ["--config", str(world.config), "--task", "e" * 32]
    assert run(cli, "tsferry-verify", arguments) == 2
    assert "e" * 32 in capsys.readouterr().err


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("stage", "number"),
    [
        ("java", signal.SIGINT),
        ("pyspark.daemon", signal.SIGTERM),
        pytest.param("java", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("pyspark.daemon", signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_ctrl_c_ends_it_with_one_line_and_leaves_no_java(
    tmp_path: Path, stage: str, number: int
) -> None:
    (tmp_path / "a.tsfile").write_bytes(series(f"{PARK}.d", 0))
    process = subprocess.Popen(
        command("--path", str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + PATIENCE
    while stage not in commands_below(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)  # which waits for all that could write there
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "tsferry-verify: error: interrupted"
    assert "Traceback" not in err


def commands_below(pid: int) -> str:
    """The command lines of what a process has started, and of what those have."""
    found = ""
    for each in children(pid):
        with suppress(OSError):  # it has ended
            found += Path(f"/proc/{each}/cmdline").read_text() + commands_below(each)
    return found


def children(pid: int) -> list[int]:
    found = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += map(int, each.read_text().split())
    return found


# -- the job itself, in one session --------------------------------------------------------------


def subjects(root: Path, *contents: tuple[str, bytes]) -> list[Subject]:
    found = []
    for number, (kind, content) in enumerate(contents):
        physical = PATH.format(kind=kind, created=number)
        place = root / physical
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        expected = Expected(physical, roots=(str(root),), kind=kind, database=PARK)
        found.append(Subject(expected, len(content)))
    return found


def summary(job: VerifyJob) -> Any:
    chunks = [row for batch in job.chunks() for row in batch.to_pylist()]
    spans = [row for batch in job.spans() for row in batch.to_pylist()]
    results = {
        number: (each.points, each.chunks, each.pages, each.findings)
        for number, each in job.results.items()
    }
    findings = {number: list(each) for number, each in job.findings.items()}
    return (
        sorted(chunks, key=str), sorted(spans, key=str), results, findings, job.days, job.codecs,
        job.duplicates, sorted(job.widest_gaps(), key=str),
    )  # fmt: skip


def test_large_files_in_parts_and_large_runs_say_the_same_as_small_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut into parts, and compared by Spark instead of the driver: two ways, one outcome."""
    devices = {
        f"{PARK}.d{n}": {"a": [(t * (n + 1), t) for t in range(50 + n)], "b": [(5, 1.5)]}
        for n in range(7)
    }
    late = build({f"{PARK}.d3": {"a": [(t, 1) for t in range(0, 100, 3)]}})
    files = subjects(
        tmp_path,
        ("sequence", build(devices, aligned=[f"{PARK}.d1"], chunks=2)),
        ("sequence", series(f"{PARK}.d5", 20)),
        ("unsequence", late),
    )
    settings = Settings("ms", keep_chunks=True, limit=PATIENCE)
    other = Expected(PATH.format(kind="sequence", created=9), kind="sequence", database=PARK)
    span = PartSpan(f"{PARK}.d2", 10, 20, 0, None, None, None)
    neighbours = Neighbours([Subject(other, 0)], span_table([0], [span]))
    with VerifyJob(spark, files, settings, JobProgress(), neighbours) as job:
        small = summary(job)
        assert [finding.device for finding in job.findings[0]] == [f"{PARK}.d2"]
        assert [each.points for each in job.duplicates] == [9]
        assert job.overlapping
        assert [finding.check for finding in job.findings[1]] == ["overlap"]
        assert sum(each.points for each in job.days) == sum(
            each.points for each in job.results.values()
        )
        assert all(each.longest_gap > (each.typical_interval or 0) for each in job.widest_gaps())
    monkeypatch.setattr(parts, "PART_BYTES", files[0].size // 4)
    monkeypatch.setattr(jobs, "LOCAL_SPANS", 0)
    with VerifyJob(spark, files, settings, JobProgress(), neighbours) as job:
        large = summary(job)
    for one, other in zip(small, large, strict=True):
        assert one == other
