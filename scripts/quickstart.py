"""Two edges ship real TsFiles to one centre; one sender dies on the way; Spark proves the load.

What happens, in order:

1. TsFiles of two edges are written with the library `tsfile`: the wind park in the north, the
   factory in the south. One file of the south carries a device of the north.
2. A receiver starts on a free port of the loopback interface.
3. The north ships. In the middle of its largest file its sender is killed with SIGKILL, started
   again, and goes on where the receiver's copy ends.
4. The south ships; the file with the foreign device is refused, the rest goes on.
5. The wind park's series get the tag `site = north`, as one transaction in SQL.
6. `tsferry-verify` proves on Spark that what is loaded is what was sent.

All of it stays in ./quickstart-run, with the configurations, to look at and to play with.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.console.progress_bar import WorkProgress
from common.console.start import enter
from common.console.terminal import table
from scripts.ended_by_signals import end_on_signals

if TYPE_CHECKING:
    from tsfile import TSDataType

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parent.parent
WEEK = 604_800_000
NOW = 1_788_000_000_000
"""Milliseconds: where the invented data begins; fixed, so that each run shows the same files."""
PARTITION = NOW // WEEK

FLEET = {
    "north": {
        "root.wind_north": [f"turbine_{n:02d}" for n in range(1, 17)],
        "root.mast_north": ["anemometer 1", "anemometer 2", "Böenmesser"],
    },
    "south": {
        "root.press_line": [f"press_{n:02d}" for n in range(1, 13)],
        "root.Ofenhalle Süd": [f"Ofen {n}" for n in range(1, 7)],
    },
}
SENSORS = {
    "speed": ("DOUBLE", lambda n: [random.gauss(12, 3) for _ in range(n)]),
    "power": ("FLOAT", lambda n: [float(int(random.gauss(800, 90))) for _ in range(n)]),
    "cycles": ("INT64", lambda n: list(range(n))),
}


def write_tsfile(
    path: Path, devices: list[str], kinds: list[TSDataType], rows: int, begin: int
) -> None:
    """A tree-model TsFile with three sensors a device, one row a second."""
    from tsfile import Compressor, Tablet, TimeseriesSchema, TSEncoding, TsFileWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    writer = TsFileWriter(str(path))
    for device in devices:
        for name, kind in zip(SENSORS, kinds, strict=True):
            writer.register_timeseries(
                device, TimeseriesSchema(name, kind, TSEncoding.PLAIN, Compressor.UNCOMPRESSED)
            )
        tablet = Tablet(list(SENSORS), kinds, rows)
        tablet.set_table_name(device)
        tablet.set_timestamp_list([begin + second * 1000 for second in range(rows)])
        tablet.data_list = [make(rows) for _, make in SENSORS.values()]
        writer.write_tablet(tablet)
    writer.close()


def planned_files(edge: str) -> Iterator[tuple[str, list[str], int, int]]:
    """(path, devices, rows, first time) of every file of an edge."""
    for storage_group, names in FLEET[edge].items():
        devices = [f"{storage_group}.{name}" for name in names]
        for number in range(4):
            partition = PARTITION + number // 2
            begin = partition * WEEK + number % 2 * 3_600_000
            yield _path("sequence", storage_group, partition, begin, number), devices, 600, begin
        late = PARTITION * WEEK + 500
        yield _path("unsequence", storage_group, PARTITION, late, 9), devices[:2], 100, late
    if edge == "north":
        begin = (PARTITION + 1) * WEEK + 7_200_000
        path = _path("sequence", "root.wind_north", PARTITION + 1, begin, 8)
        yield path, ["root.wind_north.turbine_01"], 900_000, begin
    else:
        begin = PARTITION * WEEK + 9_000_000
        path = _path("sequence", "root.press_line", PARTITION, begin, 7)
        yield path, ["root.press_line.press_01", "root.wind_north.turbine_02"], 300, begin


def _path(kind: str, storage_group: str, partition: int, created: int, version: int) -> str:
    return f"{kind}/{storage_group}/0/{partition}/{created}-{version}-0-0.tsfile"


def write_edges(run: Path) -> None:
    """All files of both edges."""
    from tsfile import TSDataType

    random.seed(7)
    kinds = [TSDataType[kind] for kind, _ in SENSORS.values()]
    work = [(edge, *each) for edge in FLEET for each in planned_files(edge)]
    progress = WorkProgress()
    for done, (edge, path, devices, rows, begin) in enumerate(work):
        progress.show("writing TsFiles", done, len(work))
        write_tsfile(run / edge / "data" / path, devices, kinds, rows, begin)
    progress.clear()


# -- configuration and processes ---------------------------------------------------------------


def write_configurations(run: Path, url: str) -> None:
    """One file for each sender; the receiver's is there before it starts."""
    for edge in FLEET:
        (run / edge / "sender.toml").write_text(
            f"""\
# {edge}: an edge of the quickstart. See conf/sender.toml for every key.
label = "{edge}"
schema_dir = "schema"
data_dirs = ["data"]
closed_by = "tail"        # files of the tsfile library have no .resource beside them
quiet_seconds = "0s"      # they are known to be finished here

[[receiver]]
name = "centre"
url = "{url}"

[transfer]
chunk_bytes = "1MiB"
"""
        )


def write_receiver_configuration(run: Path) -> Path:
    """The centre: everything else is as by default."""
    file = run / "centre" / "receiver.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        """\
# The centre of the quickstart. See conf/receiver.toml for every key.
schema_dir = "schema"
data_dirs = ["data"]

[limits]
min_free_bytes = "64MiB"
"""
    )
    return file


@contextmanager
def receiver(config: Path) -> Iterator[str]:
    """A running receiver; yields its address, stops it at the end."""
    ready = config.parent / "ready"
    log = (config.parent / "receiver.log").open("wb")
    command = [
        BIN / "tsferry-receiver", "--config", config, "serve", "--port", "0", "--ready-file", ready,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(ready.exists, "the receiver", process)
        yield ready.read_text().strip()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        log.close()


def wait_for(what: Callable[[], bool], name: str, process: subprocess.Popen[bytes]) -> None:
    """Wait for a condition, as long as the process that is to bring it about lives."""
    end = time.monotonic() + 180
    while not what():
        if process.poll() is not None:
            raise SystemExit(f"{name} ended with exit code {process.returncode}; see its log")
        if time.monotonic() > end:
            raise SystemExit(f"{name} did not come up within three minutes")
        time.sleep(0.02)


def tag_wind_park(centre: Path) -> None:
    """`site = north` at each series of the wind park, all in one commit."""
    series = (
        f"root.wind_north.{turbine}.{sensor}"
        for turbine in FLEET["north"]["root.wind_north"]
        for sensor in SENSORS
    )
    changes = (f"alter timeseries {each} add tags site = north;" for each in series)
    done = subprocess.run(
        [BIN / "tsferry-receiver", "--config", centre, "sql"],
        input="\n".join(("begin;", *changes, "commit;")),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"tsferry-receiver sql: exit code {done.returncode}: {done.stderr}")


def call(command: str, config: Path, *arguments: str, good: tuple[int, ...] = (0,)) -> Any:
    """Run a command with --json and return what it printed."""
    done = subprocess.run(
        [BIN / command, "--config", config, *arguments, "--json"],
        capture_output=True,
        text=True,
    )
    if done.returncode not in good:
        sys.stderr.write(done.stderr)
        raise SystemExit(f"{command} {' '.join(arguments)}: exit code {done.returncode}")
    return json.loads(done.stdout)


# -- the story ---------------------------------------------------------------------------------


def kill_in_mid_file(run: Path) -> None:
    """Let the north's sender die in the middle of its largest file."""
    slow = ["--set", "transfer.bandwidth_limit=12MiB/s"]
    process = subprocess.Popen(
        [BIN / "tsferry-sender", "--config", run / "north" / "sender.toml", *slow, "sync"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    parts = run / "centre" / "data" / "sync-receiver"

    def largest() -> int:
        return max((each.stat().st_size for each in parts.rglob("*.part")), default=0)

    try:
        wait_for(lambda: largest() > 4 << 20, "the north's sender", process)
    finally:
        process.kill()
        process.wait()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--dir", type=Path, default=Path("quickstart-run"))
    run = arguments.parse_args().dir.resolve()
    end_on_signals()
    if run.exists() and not (run / ".quickstart").exists():
        raise SystemExit(f"{run} is there and was not made by this script; use --dir")
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    (run / ".quickstart").touch()
    write_edges(run)
    centre = write_receiver_configuration(run)
    with receiver(centre) as url:
        rounds = ship(run, centre, url)
        senders = call("tsferry-receiver", centre, "senders", "list")["senders"]
        owners = call("tsferry-receiver", centre, "owners", "list")["owners"]
        show_loaded(run, rounds, senders, owners)
        need_spark()
        print("\nproving on Spark ...", flush=True)
        proof = call("tsferry-verify", centre, "--report", str(run / "report"), good=(0, 1))
    show_proof(run, proof)
    return 0 if proof["proved"] == proof["files"] else 1


def ship(run: Path, centre: Path, url: str) -> dict[str, Any]:
    """Both edges, one of which dies on the way; what their last rounds came to."""
    write_configurations(run, url)
    progress, steps = WorkProgress(), len(FLEET) + 2
    progress.show("shipping", 0, steps)
    for edge in FLEET:
        call("tsferry-sender", run / edge / "sender.toml", "init")
    progress.show("shipping", 1, steps)
    kill_in_mid_file(run)
    progress.show("shipping", 2, steps, note="one sender killed, resuming")
    north = call("tsferry-sender", run / "north" / "sender.toml", "sync")
    progress.show("shipping", 3, steps)
    south = call("tsferry-sender", run / "south" / "sender.toml", "sync", good=(3,))
    tag_wind_park(centre)
    progress.clear()
    return {"north": north, "south": south}


def need_spark() -> None:
    """What proves is large, so that it comes when the rest has run."""
    if find_spec("pyspark") is not None:
        return
    print(flush=True)
    done = subprocess.run(["bash", "-c", ". scripts/venv.sh && venv all"], cwd=ROOT)
    if done.returncode:
        raise SystemExit(
            "Spark could not be installed, and nothing is proved; what is loaded is there"
        )


def show_loaded(run: Path, rounds: dict[str, Any], senders: Any, owners: Any) -> None:
    """The table of the edges."""
    rows = []
    for edge, done in rounds.items():
        uuid = (run / edge / "schema" / "sync" / "uuid.txt").read_text().strip()
        there = next(each for each in senders if each["uuid"] == uuid)
        devices = sum(1 for each in owners if each["sender"] == uuid)
        conflicts = ", ".join(each["device"] for each in done["conflicts"])
        resumed = ", ".join(f"byte {each['offset']:,}" for each in done["resumed"])
        rows.append(
            (edge, there["files"], f"{there['bytes']:,}", devices, conflicts or "-", resumed or "-")
        )
    print()
    print(table(("edge", "files", "bytes", "devices", "conflict", "resumed from"), rows))


def show_proof(run: Path, proof: Any) -> None:
    """What is verified, and where to look next."""
    verdict = "verified" if proof["proved"] == proof["files"] else "NOT verified"
    print(
        f"\n{verdict}: {proof['proved']} of {proof['files']} loaded files, "
        f"{proof['series']} series, {proof['points']:,} points"
    )
    here = os.path.relpath(run)
    print(
        f"\nWhere to look next (the receiver is stopped)\n"
        f"  {here}/report/report.html      what Spark proved; open it in a browser\n"
        f"  {here}/centre/data/sequence/   the loaded files\n"
        f"  {here}/south/sender.toml       how a sender is set up; conf/sender.toml has every key\n"
        f"  .venv/bin/tsferry-receiver --config {here}/centre/receiver.toml owners list\n"
        f"  .venv/bin/tsferry-sender --config {here}/south/sender.toml status"
    )


if __name__ == "__main__":
    sys.exit(enter("quickstart", main))
