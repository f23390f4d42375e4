"""What a transfer is measured against: rsync, rclone, a plain copy, and the digest alone.

Each way starts its server before the clock and ends it behind it; what is timed is the client, from
its start to its end, interpreter and all. CPU is that of both ends, children included.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.as_installed import compile_modules

BIN = Path(sys.executable).parent
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE_S = 600.0
_WARMED = 2 << 30


@dataclass(frozen=True)
class Spent:
    """What one transfer took: seconds by the clock, and of processors at both ends."""

    seconds: float
    cpu: float


class Way(ABC):
    """A way to bring a tree of files from one directory to another."""

    name: str
    checks = ""
    """What it has verified and flushed when it says that it is done."""

    def usable(self) -> bool:
        """Whether this machine has what it needs."""
        return True

    @abstractmethod
    def run(self, source: Path, place: Path) -> Spent:
        """Transfer the files below `source` to a directory in `place`, which is empty."""


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_of(pid: int) -> float:
    """Processor seconds of a process and of those children of it that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) / _TICKS


def wait_for_children(pid: int) -> None:
    """Until a process has seen the end of its children: what they spent counts only then."""
    end = time.monotonic() + 5
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while children.read_text() and time.monotonic() < end:
        time.sleep(0.01)


def wait_until_idle(pid: int) -> None:
    """Until a process has had nothing to do for a second."""
    spent = -1.0
    while spent != (spent := cpu_of(pid)):
        time.sleep(1.0)


@contextmanager
def serving(command: Sequence[object], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that ends with the block; the programs of this checkout are ready to start."""
    compile_modules()
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [str(each) for each in command], stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until a server listens."""
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit(f"{process.args}: does not listen\n{log.read_text(errors='replace')}")


def warm_memory() -> None:
    """Use memory and let it go: a virtual machine may have given what was free back to its host.

    Who uses it first pays for that, in CPU, several times what a copy into it costs; a server that
    takes two seconds to start would pay, one that starts at once finds what the last run had.
    """
    with mmap.mmap(-1, _WARMED) as memory:
        for at in range(0, _WARMED, mmap.PAGESIZE):
            memory[at] = 1


def timed(command: Sequence[object], server: subprocess.Popen[bytes] | None) -> Spent:
    """Run a client to its end beside its server."""
    warm_memory()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    server_before = cpu_of(server.pid) if server else 0.0
    begin = time.perf_counter()
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, timeout=_PATIENCE_S, check=False
    )
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stderr.decode()[-2000:]}")
    if server:
        wait_for_children(server.pid)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(seconds, cpu + (cpu_of(server.pid) - server_before if server else 0.0))


class Tsferry(Way):
    """One round of the real sender to the real receiver, to *loaded*."""

    name = "tsferry"
    checks = "xxh3 a block, MD5 a file, tail; fsync; loaded in one commit"

    def __init__(self, settings: Sequence[str] = ()) -> None:
        self.settings = settings

    def run(self, source: Path, place: Path) -> Spent:
        with self.pair(source, place) as (sender, server):
            sets = [word for each in self.settings for word in ("--set", each)]
            return timed([*sender, *sets, "sync", "--json"], server)

    @contextmanager
    def pair(
        self, source: Path, place: Path
    ) -> Iterator[tuple[list[object], subprocess.Popen[bytes]]]:
        """A receiver that runs, and how to call a sender that has its identity."""
        centre, edge, ready = (place / name for name in ("centre.toml", "edge.toml", "ready"))
        for name in ("cs", "cd", "es"):
            (place / name).mkdir()
        centre.write_text('schema_dir = "cs"\ndata_dirs = ["cd"]\n')
        command = [BIN / "tsferry-receiver", "-c", centre, "serve", "--port", 0]
        with serving([*command, "--ready-file", ready], place / "server.log") as server:
            while not ready.exists():
                if server.poll() is not None:
                    raise SystemExit((place / "server.log").read_text())
                time.sleep(0.02)
            edge.write_text(
                f'schema_dir = "es"\ndata_dirs = ["{source}"]\n'
                'closed_by = "tail"\nquiet_seconds = 0\n'
                f'[[receiver]]\nname = "c"\nurl = "{ready.read_text().strip()}"\n'
            )
            sender: list[object] = [BIN / "tsferry-sender", "-c", edge]
            subprocess.run([*map(str, sender), "init"], check=True, capture_output=True)
            try:
                yield sender, server
            finally:
                shutil.rmtree(source / "sync-sender", ignore_errors=True)
                (source / ".tsferry").unlink(missing_ok=True)


class TsferryDaemon(Tsferry):
    """The same by a daemon that saw the files being closed: timed is `sync`, which asks it."""

    name = "tsferry, MD5 known ahead"

    def run(self, source: Path, place: Path) -> Spent:
        with self.pair(source, place) as (sender, server):
            calm = ["--set", "daemon.period=1h", "--set", "daemon.watch_settle=1h"]
            (source / "sequence").rename(place / "later")
            (source / "sequence").mkdir()
            with serving([*sender, *calm, "run"], place / "daemon.log") as daemon:
                wait_until_idle(daemon.pid)  # a first round, which finds nothing
                for each in (place / "later").iterdir():
                    each.rename(source / "sequence" / each.name)
                wait_until_idle(daemon.pid)
                for file in source.rglob("*.tsfile"):
                    with open(file, "r+b"):
                        pass
                wait_until_idle(daemon.pid)
                before = cpu_of(daemon.pid)
                spent = timed([*sender, "sync", "--json"], server)
                return Spent(spent.seconds, spent.cpu + cpu_of(daemon.pid) - before)


class Rsync(Way):
    """To a daemon of its own on loopback, whole files."""

    def __init__(self, name: str, checks: str, *flags: str) -> None:
        self.name, self.checks, self._flags = name, checks, flags

    def usable(self) -> bool:
        return shutil.which("rsync") is not None

    def run(self, source: Path, place: Path) -> Spent:
        (place / "to").mkdir()
        port, config, log = free_port(), place / "rsyncd.conf", place / "server.log"
        config.write_text(
            f"use chroot = no\nuid = {os.getuid()}\ngid = {os.getgid()}\n"
            f"[to]\npath = {place / 'to'}\nread only = no\n"
        )
        flags = ["--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}"]
        with serving(["rsync", *flags, f"--config={config}"], log) as server:
            wait_for_port(port, server, log)
            target = f"rsync://127.0.0.1:{port}/to/"
            return timed(["rsync", "-a", "-W", *self._flags, f"{source}/", target], server)


class Rclone(Way):
    """To its own SFTP server on loopback, sizes and MD5 compared."""

    name = "rclone, sftp"
    checks = "MD5 a file; no fsync"

    def usable(self) -> bool:
        return shutil.which("rclone") is not None

    def run(self, source: Path, place: Path) -> Spent:
        (place / "to").mkdir()
        port, log = free_port(), place / "server.log"
        address = ["--addr", f"127.0.0.1:{port}", "--user", "u", "--pass", "p"]
        with serving(["rclone", "serve", "sftp", place / "to", *address], log) as server:
            wait_for_port(port, server, log)
            word = subprocess.run(
                ["rclone", "obscure", "p"], capture_output=True, text=True, check=True
            )
            remote = f":sftp,host=127.0.0.1,port={port},user=u,pass={word.stdout.strip()}:"
            return timed(["rclone", "copy", "--transfers", 4, source, remote], server)


class Bare(Way):
    """The floor of any Python program with these promises: bare_transfer.py at both ends."""

    name = "the checks, bare"
    checks = "xxh3 a block, MD5 a file; fsync"

    def run(self, source: Path, place: Path) -> Spent:
        (place / "to").mkdir()
        port, log = free_port(), place / "server.log"
        program = [sys.executable, Path(__file__).with_name("bare_transfer.py")]
        with serving([*program, "receive", port, place / "to"], log) as server:
            wait_for_port(port, server, log)
            return timed([*program, "send", port, source], server)


class Copy(Way):
    """The floor of any transfer: bytes from file to file by one thread, each file flushed."""

    name = "copy and fsync"
    checks = "fsync"

    def run(self, source: Path, place: Path) -> Spent:
        before, begin = time.process_time(), time.perf_counter()
        for each in sorted(source.rglob("*.tsfile")):
            to = place / each.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            with open(each, "rb") as read, open(to, "wb") as write:
                left = os.fstat(read.fileno()).st_size
                while left:
                    left -= os.sendfile(write.fileno(), read.fileno(), None, left)
                os.fsync(write.fileno())
        return Spent(time.perf_counter() - begin, time.process_time() - before)


class Md5(Way):
    """The floor of any that proves an MD5: one core's digest of what is in the page cache."""

    name = "MD5 alone"

    def run(self, source: Path, place: Path) -> Spent:
        before, begin = time.process_time(), time.perf_counter()
        for each in sorted(source.rglob("*.tsfile")):
            with open(each, "rb") as content:
                hashlib.file_digest(content, "md5")
        return Spent(time.perf_counter() - begin, time.process_time() - before)


WAYS: tuple[Way, ...] = (
    Tsferry(),
    TsferryDaemon(),
    Rsync("rsync, md5, --fsync", "MD5 a file; fsync", "--checksum-choice=md5", "--fsync"),
    Rsync("rsync, xxh128", "xxh128 a file; no fsync", "--checksum-choice=xxh128"),
    Rclone(),
    Bare(),
    Copy(),
    Md5(),
)
