"""Resident memory of the idle sender daemon, after it has shipped many files to a receiver.

    .venv/bin/python scripts/bench/idle_memory.py [--files 10000] [--limit 60]

Starts a receiver and a daemon on loopback in a temporary directory, waits until all is loaded and
the daemon is idle, and prints its resident set (MB, 10^6 bytes). Exit code 1: above the limit.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.as_installed import compile_modules  # noqa: E402
from sender.daemon.control import ask  # noqa: E402
from tests.support.tsfile_bytes import build  # noqa: E402

BIN = Path(sys.executable).parent


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--files", type=int, default=10_000)
    arguments.add_argument("--limit", type=float, default=60.0, help="MB")
    given = arguments.parse_args()
    compile_modules()
    with tempfile.TemporaryDirectory(prefix="tsferry-bench-") as directory:
        resident, peak = measure(Path(directory), given.files)
    print(f"{given.files} files: idle daemon {resident:.1f} MB resident, at its peak {peak:.1f} MB")
    return 0 if resident <= given.limit else 1


def measure(root: Path, files: int) -> tuple[float, float]:
    write_files(root / "data", files)
    (root / "receiver.toml").write_text(
        f'schema_dir = "{root}/centre/schema"\ndata_dirs = ["{root}/centre/data"]\n'
        '[listen]\nhost = "127.0.0.1"\nport = 0\n[limits]\nmin_free_bytes = 0\n'
    )
    (root / "centre" / "data").mkdir(parents=True)
    ready = root / "ready"
    server = start(root / "receiver.log", "tsferry-receiver", root / "receiver.toml",
                   "serve", "--ready-file", ready)  # fmt: skip
    try:
        wait_for(ready.exists, server)
        url = ready.read_text().strip()
        config = root / "sender.toml"
        subprocess.run(
            [BIN / "tsferry-sender", "--config", config, "init", "--schema-dir", root / "schema",
             "--data-dir", root / "data", "--url", url],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        daemon = start(root / "sender.log", "tsferry-sender", config, "run")
        try:
            return idle(root / "schema", daemon, files)
        finally:
            end(daemon)
    finally:
        end(server)


def write_files(data: Path, files: int) -> None:
    """Small files, a hundred in each partition, twenty devices."""
    for number in range(files):
        partition = number // 100
        directory = data / "sequence" / "root.bench" / "0" / str(partition)
        if number % 100 == 0:
            directory.mkdir(parents=True)
        device = f"root.bench.d{number % 20}"
        name = f"{1581324718762 + number}-{number}-0-0.tsfile"
        (directory / name).write_bytes(build({device: {"s1": [(number, number)]}}))
        (directory / f"{name}.resource").write_bytes(b"resource")


def start(log: Path, command: str, config: Path, *rest: object) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(
            [BIN / command, "--config", config, *map(str, rest)], stdout=out, stderr=out
        )


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def wait_for(
    what: Callable[[], bool], process: subprocess.Popen[bytes], bound: float = 1800
) -> None:
    limit = time.monotonic() + bound
    while not what():
        if process.poll() is not None or time.monotonic() > limit:
            raise SystemExit("it did not come to pass; is the machine too slow?")
        time.sleep(0.2)


def idle(schema: Path, daemon: subprocess.Popen[bytes], files: int) -> tuple[float, float]:
    def rested() -> bool:
        if not (schema / "sync" / "control.sock").exists():
            return False
        lane = ask(schema, {"do": "status"})["lanes"]["dc1"]
        last = lane["last"]
        return bool(
            lane["state"] == "idle" and last and not last["error"] and last["pending"]["files"] == 0
        )

    wait_for(rested, daemon)
    first = numbers(daemon.pid)[0]
    # And after a round that found nothing to do, which is what a daemon does all day.
    ask(schema, {"do": "round", "receiver": "dc1"}, longer=600)
    wait_for(rested, daemon)
    time.sleep(1)
    resident, peak = numbers(daemon.pid)
    print(f"after the round that sent them {first:.1f} MB, after an empty one {resident:.1f} MB")
    return max(first, resident), peak


def numbers(pid: int) -> tuple[float, float]:
    """Resident set now and at its peak, in MB."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in ("VmRSS", "VmHWM"):
            found[key] = int(value.split()[0]) * 1024 / 1e6
    return found["VmRSS"], found["VmHWM"]


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
