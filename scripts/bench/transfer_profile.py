"""Where the CPU and the waiting of one transfer go, at both ends.

    .venv/bin/python scripts/bench/transfer_profile.py [--work NAME] [--at DIR] [--symbols 15]
                                                       [--json FILE]

CPU: the transfer is that of transfer.py, once, with Linux' `perf` recording both processes; the
sender's start is in it, the receiver's is not. Shares are of samples of the CPU's clock, by library
and by symbol.

Waiting: the transfer once more, with each thread looked at 50 times a second (`/proc`, which needs
root): on a processor or waiting for one, or in which call of the system it sleeps. Seconds are of
threads, of which several wait at once; a thread that nobody has given anything to do (`futex`,
`poll`, `accept`) is among them, so what counts are flushes, reads, writes and `recvfrom`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench import transfer_peers  # noqa: E402
from scripts.bench.transfer import WORKS  # noqa: E402

_LOOK_S = 0.02
_CALLS = {
    0: "read", 1: "write", 7: "poll", 17: "pread64", 18: "pwrite64", 20: "writev", 23: "select",
    35: "nanosleep", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4",
    74: "fsync", 75: "fdatasync", 83: "mkdir", 86: "link", 87: "unlink", 202: "futex",
    230: "clock_nanosleep", 232: "epoll_wait", 257: "openat", 263: "unlinkat", 264: "renameat",
    265: "linkat", 270: "pselect6", 271: "ppoll", 277: "sync_file_range", 288: "accept4",
    306: "syncfs", 316: "renameat2",
}  # fmt: skip
"""Numbers of calls on x86-64."""
_RECORD = ["perf", "record", "-e", "cpu-clock", "-F", "1999", "-g"]
_Spent = transfer_peers.Spent
_Server = subprocess.Popen[bytes]
_Timed = Callable[[Sequence[object], _Server | None], _Spent]


def recorded(work: str, at: Path, ends: dict[str, Path]) -> _Spent:
    """One transfer, with the CPU of both ends recorded."""

    def with_perf(timed: _Timed, command: Sequence[object], server: _Server) -> _Spent:
        beside = [*_RECORD, "-o", str(ends["receiver"]), "-p", str(server.pid)]
        with subprocess.Popen(beside, stderr=subprocess.DEVNULL) as perf:
            time.sleep(0.5)
            try:
                return timed([*_RECORD, "-o", ends["sender"], "--", *command], server)
            finally:
                perf.terminate()

    return transferred(work, at, with_perf)


def waited(work: str, at: Path) -> tuple[_Spent, dict[str, Counter[str]]]:
    """One transfer, with the threads of both ends looked at; seconds of threads by what they do."""
    found: dict[str, Counter[str]] = {"sender": Counter(), "receiver": Counter()}
    over = threading.Event()

    def look(pids: dict[str, Callable[[], Sequence[int]]]) -> None:
        last = time.perf_counter()
        while not over.wait(_LOOK_S):
            now = time.perf_counter()
            for end, of_end in pids.items():
                for pid in of_end():
                    for doing in doings(pid):
                        found[end][doing] += now - last
            last = now

    def watched(timed: _Timed, command: Sequence[object], server: _Server) -> _Spent:
        # The sender is the child of this process that is not the receiver.
        pids = {"receiver": lambda: [server.pid], "sender": lambda: children_but(server.pid)}
        looking = threading.Thread(target=look, args=(pids,))
        looking.start()
        try:
            return timed(command, server)
        finally:
            over.set()
            looking.join()

    return transferred(work, at, watched), found


def children_but(pid: int) -> list[int]:
    """The children of this process, but for one."""
    told = Path("/proc/self/task").glob("*/children")
    return [int(each) for task in told for each in task.read_text().split() if int(each) != pid]


def doings(pid: int) -> list[str]:
    """What each thread of a process does now."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError, IndexError):
            call = (task / "syscall").read_text().split()[0]
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            number = int(call) if call.isdigit() else -1
            sleeps = state in "SD" and number >= 0
            found.append(_CALLS.get(number, f"call {number}") if sleeps else "on a processor")
    return found


def transferred(
    work: str, at: Path, around: Callable[[_Timed, Sequence[object], _Server], _Spent]
) -> _Spent:
    """One transfer, whose client is started by `around`."""
    timed = transfer_peers.timed

    def instead(command: Sequence[object], server: _Server | None) -> _Spent:
        assert server is not None
        return around(timed, command, server)

    transfer_peers.timed = instead
    try:
        with tempfile.TemporaryDirectory(dir=at) as base:
            source, place = Path(base) / "source", Path(base) / "place"
            source.mkdir()
            place.mkdir()
            WORKS[work](source)
            return transfer_peers.Tsferry().run(source, place)
    finally:
        transfer_peers.timed = timed


def report(data: Path, key: str, lines: int) -> list[str]:
    """The first lines of perf's own report, its remarks left out."""
    command = ["perf", "report", "-i", str(data), "--no-children", "--stdio", "-g", "none"]
    done = subprocess.run(
        [*command, "--sort", key], capture_output=True, text=True, check=True
    ).stdout
    return [each for each in done.splitlines() if each.strip() and each[0] != "#"][:lines]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--work", default="1 x 512 MiB", choices=list(WORKS))
    options.add_argument("--at", type=Path, default=Path("/dev/shm"))
    options.add_argument("--symbols", type=int, default=15)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    told: dict[str, object] = {"work": given.work, "at": str(given.at)}
    with tempfile.TemporaryDirectory() as kept:
        ends = {name: Path(kept) / name for name in ("sender", "receiver")}
        spent = recorded(given.work, given.at, ends)
        told["cpu"] = {"seconds": spent.seconds, "cpu": spent.cpu}
        print(f"{spent.seconds:.2f} s, of processors {spent.cpu:.2f} s (slower than unrecorded)")
        for name, data in ends.items():
            libraries, symbols = report(data, "dso", 8), report(data, "sym", given.symbols)
            told[name] = {"libraries": libraries, "symbols": symbols}
            print(f"\n{name}:", *libraries, *symbols, sep="\n")
    spent, waits = waited(given.work, given.at)
    print(f"\nlooked at, {spent.seconds:.2f} s; seconds of threads:")
    for name, each in waits.items():
        shown = ", ".join(f"{doing} {seconds:.2f}" for doing, seconds in each.most_common(12))
        print(f"{name}: {shown}")
    told["waiting"] = {"seconds": spent.seconds} | waits
    if given.json:
        given.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
