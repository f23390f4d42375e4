"""Many devices in one `df.write.format("tsfile")` of a real Spark, also behind a killed driver.

    .venv/bin/python scripts/bench/spark_devices.py [--devices 100000] [--rows 3] [--tasks 4]
                                                    [--kill] [--dir DIR]

A real receiver; drivers are processes with Spark on this machine (`local[2]`), whose rows come by
time and are shuffled by device. With `--kill` a first driver is killed (SIGKILL, its own process)
when a part of it has been sent: nothing of it may be visible, the next try has to be whole, and
what the dead one sent has to go when nothing has come for `limits.upload_expiry`. Told are seconds
by the clock and the most memory: of the JVM, of all Python of the driver and its workers (pages
that these share count for each), of the receiver.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.centre import Centre, centre  # noqa: E402
from tests.support.procs import Child, children, wait_until  # noqa: E402

BOUND = 3600.0
DRIVER = """
import sys, time
from receiver.spark.source import TsFileSource
from receiver.spark.verify.session import start

url, token, group, devices, rows, tasks = sys.argv[1:]
devices, rows, tasks = int(devices), int(rows), int(tasks)
begin = time.perf_counter()
spark = start("local[2]", name="devices")
spark.dataSource.register(TsFileSource)
started = time.perf_counter()
name = f"concat('root.{group}.site', id % {devices} % 100, '.d', id % {devices})"
frame = spark.range(0, devices * rows, 1, tasks).selectExpr(
    f"id div {devices} * 1000 as time", f"{name} as device", "id / 7.0D as s0", "id * 3.0D as s1"
).repartition(tasks, "device")
frame.write.format("tsfile").mode("append").options(receiver=url, tokenFile=token).save()
print(f"{started - begin:.1f} s to start, {time.perf_counter() - started:.1f} s to write")
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--devices", type=int, default=100_000)
    options.add_argument("--rows", type=int, default=3, help="of a device")
    options.add_argument("--tasks", type=int, default=4)
    options.add_argument("--kill", action="store_true", help="kill a driver in the middle first")
    options.add_argument("--dir", type=Path, help="where all of it goes")
    args = options.parse_args()
    more = '[load]\nkeep_deleted = "1s"\n'
    with (
        tempfile.TemporaryDirectory(dir=args.dir) as name,
        centre(Path(name) / "dc", more) as there,
        children(Path(name)) as all_,
    ):
        url, token = there.start(), Path(name) / "token"
        token.write_text(there.call("token", "create", "--role", "writer")["token"])
        env = {"PYTHONPATH": str(ROOT), "TMPDIR": name}
        words = [url, str(token), "many", *map(str, (args.devices, args.rows, args.tasks))]
        command = [sys.executable, "-c", DRIVER, *words]
        left: list[Path] = []
        if args.kill:
            left = killed(there, all_.start(command, env=env))
        driver = all_.start(command, env=env)
        most = watched(driver, there)
        assert driver.returncode == 0, driver.text()
        devices = loaded(there)
        assert devices == args.devices, devices
        print(
            f"{args.devices} devices of {args.rows} rows by {args.tasks} tasks: "
            f"{driver.text().strip().splitlines()[-1]}; most memory: "
            + ", ".join(f"{kind} {size >> 20} MiB" for kind, size in most.items())
            + f"; load {os.getloadavg()[0]:.1f}"
        )
        if left:
            swept(there, left)


def killed(there: Centre, driver: Child) -> list[Path]:
    """Kill a driver behind the first part that it sent; what that left."""
    driver.until(lambda: staged(there), "a part of it has come", bound=BOUND)
    workers = family(driver.pid)
    driver.signal(signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not any(map(is_there, workers)), "its workers ended with it", bound=BOUND)
    assert loaded(there) == 0, "something of it is visible"
    left = staged(there)
    print(f"killed with {len(left)} files staged: nothing is visible")
    return left


def swept(there: Centre, left: list[Path]) -> None:
    """What a killed driver has sent is there until nothing came for long; then it goes."""
    assert staged(there) == left, "it may be going on, for all that the receiver knows"
    for each in [*left, *{each.parent for each in left}]:
        os.utime(each, (1.0, 1.0))
    begin = time.perf_counter()
    wait_until(lambda: not staged(there), "swept", bound=BOUND)
    print(f"what was left of the killed one was swept in {time.perf_counter() - begin:.1f} s")


def staged(there: Centre) -> list[Path]:
    return sorted(there.data.glob("sync-receiver/*/writes/*/*"))


def loaded(there: Centre) -> int:
    """How many devices the visible files have together."""
    files = there.call("files", "--limit", "100000")["files"]
    return sum(each["series"] for each in files) // 2


def watched(driver: Child, there: Centre) -> dict[str, int]:
    """Bytes that kinds of processes took at most, while a driver lives."""
    assert there.server is not None
    most: Counter[str] = Counter()
    end = time.monotonic() + BOUND
    while driver.running:
        assert time.monotonic() < end, driver.text()
        now: Counter[str] = Counter(receiver=resident(there.server.pid))
        for pid in family(driver.pid):
            now["JVM" if "java" in command_of(pid) else "Python"] += resident(pid)
        most |= now
        time.sleep(0.2)
    return dict(most)


def family(pid: int) -> list[int]:
    """A process and all that it started, and they."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def resident(pid: int) -> int:
    """Bytes; pages that several share count for each."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text()
    return ""


def is_there(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


if __name__ == "__main__":
    main()
