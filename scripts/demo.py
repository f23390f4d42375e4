"""A centre, five edges with different troubles, Prometheus and the web page, until Ctrl-C.

    fine      ships what comes, a file now and then
    conflict  has a device that belongs to `fine`
    late      shipped once, and is silent since
    full      its disk has no room for what a round has to note
    cloned    is a copy of `fine`, switched on beside it

The programs are the real ones, each a process on the loopback interface; all that they keep lies
in a temporary directory. The centre has a hook, which writes each event into `events.jsonl`. The
end stops every process that was started here, and removes the directory; where something did not
come about it stays, with the logs.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.console.start import enter  # noqa: E402
from common.console.terminal import table  # noqa: E402
from scripts.quickstart import BIN, SENSORS, WEEK, write_tsfile  # noqa: E402

EDGES = ("fine", "conflict", "late", "full", "cloned")
ON_THE_PAGE = {
    "conflict": "Owners and conflicts",
    "late": "Fleet: `late`",
    "full": "Fleet: its last round",
    "cloned": "Fleet, at `fine`: two machines speak under its uuid",
}
"""Where the page has each trouble."""
LATE_AFTER = 15
NEW_FILE_EVERY = 20.0
PARTITION = 2956
"""A week of the data, fixed, so that each run shows the same files."""
_COMING = 120.0
"""Seconds for a thing to come about, on a busy machine."""


class Demo:
    """What runs, and where."""

    def __init__(self, root: Path, stop: threading.Event) -> None:
        self.root = root
        self.stop = stop
        self.url = ""
        self.prometheus = ""
        self.metrics = free_port()
        self.processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.notes: list[str] = []
        self._made = 0

    # -- processes -----------------------------------------------------------------------------

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a process, with what it says in a log of its own."""
        log = (self.root / f"{name}.log").open("ab")
        with log:
            process = subprocess.Popen(
                [str(each) for each in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours: they are ended in order
            )
        self.processes.append((name, process))
        return process

    def end(self) -> None:
        """End all that was started here, the last first."""
        for _, process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for name, process in reversed(self.processes):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                print(f"{name} does not end by itself: it is killed", file=sys.stderr)
                process.kill()
                process.wait()

    def until(self, what: Callable[[], bool], name: str) -> None:
        """Wait for something; not beyond the end of the demo.

        Raises:
            SystemExit: it does not come.
        """
        end = time.monotonic() + _COMING
        while not what():
            if time.monotonic() > end:
                raise SystemExit(f"{name} did not come about; the logs are in {self.root}")
            if self.stop.wait(0.2):
                raise KeyboardInterrupt

    # -- the centre ----------------------------------------------------------------------------

    def start_centre(self) -> None:
        """The receiver, with a hook, measures, and a short patience."""
        hook = self.root / "hook"
        hook.write_text(f'#!/bin/sh\ncat >> "{self.root}/events.jsonl"\n')
        hook.chmod(0o755)
        config = self.root / "centre" / "receiver.toml"
        config.parent.mkdir()
        (config.parent / "data").mkdir()
        config.write_text(
            f"""\
schema_dir = "schema"
data_dirs = ["data"]
[limits]
min_free_bytes = "16MiB"
[senders]
late_after = "{LATE_AFTER}s"
[metrics]
listen = "127.0.0.1:{self.metrics}"
[hooks]
command = ["{hook}"]
"""
        )
        ready = self.root / "ready"
        serve = ("serve", "--port", "0", "--ready-file", ready)
        process = self.start("centre", BIN / "tsferry-receiver", "--config", config, *serve)
        self.until(lambda: ready.exists() or process.poll() is not None, "the centre")
        if process.poll() is not None:
            raise SystemExit(f"the centre did not start: see {self.root}/centre.log")
        self.url = ready.read_text().strip()

    def ask(self, *arguments: str) -> Any:
        """What a command of the centre answers."""
        config = self.root / "centre" / "receiver.toml"
        return call("tsferry-receiver", config, *arguments)

    def start_prometheus(self) -> None:
        """Prometheus with the rules of conf/, where it is installed."""
        program = shutil.which("prometheus")
        if program is None:
            self.notes.append("Prometheus is not installed: its targets would be the centre's port")
            return
        port = free_port()
        config = self.root / "prometheus.yml"
        config.write_text(
            f"""\
global: {{ scrape_interval: 5s, evaluation_interval: 5s }}
rule_files: ["{ROOT / "conf" / "alerts.yml"}"]
scrape_configs:
  - job_name: tsferry
    static_configs: [{{ targets: ["127.0.0.1:{self.metrics}"] }}]
"""
        )
        self.prometheus = f"http://127.0.0.1:{port}"
        self.start(
            "prometheus",
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={self.root / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{port}",
        )

    # -- the edges -----------------------------------------------------------------------------

    def config(self, edge: str) -> Path:
        """The configuration of an edge."""
        return self.root / edge / "sender.toml"

    def make_edge(self, edge: str) -> None:
        """Its directories and configuration."""
        home = self.root / edge
        (home / "data").mkdir(parents=True)
        (home / "schema").mkdir()
        self.config(edge).write_text(
            f"""\
label = "{edge}"
schema_dir = "schema"
data_dirs = ["data"]
closed_by = "tail"
quiet_seconds = "0s"
[[receiver]]
name = "centre"
url = "{self.url}"
[daemon]
period = "5s"
heartbeat = "2s"
"""
        )

    def write(self, edge: str, device: str) -> None:
        """A new TsFile."""
        from tsfile import TSDataType

        self._made += 1
        begin = PARTITION * WEEK + self._made * 600_000
        group = device.rpartition(".")[0]
        path = f"sequence/{group}/0/{PARTITION}/{begin}-{self._made}-0-0.tsfile"
        kinds = [TSDataType[kind] for kind, _ in SENSORS.values()]
        write_tsfile(self.root / edge / "data" / path, [device], kinds, 300, begin)

    def init(self, edge: str) -> None:
        """Who it is, and the markers."""
        call("tsferry-sender", self.config(edge), "init")

    def run(self, edge: str) -> None:
        """Its daemon."""
        command = (BIN / "tsferry-sender", "--config", self.config(edge), "run")
        self.daemons[edge] = self.start(edge, *command)

    def run_full(self) -> None:
        """The daemon of an edge whose schema directory is a full file system of its own."""
        schema = self.root / "full" / "schema"
        sender = f'"{BIN}/tsferry-sender" --config "{self.config("full")}"'
        script = (
            f'mount -t tmpfs -o size=128k demo "{schema}" && {sender} init && '
            f'{{ head -c 1M /dev/zero > "{schema}/filler"; exec {sender} run; }}'
        )
        unshare = shutil.which("unshare")
        tried = () if unshare is None else (unshare, "--mount", "--map-root-user", "/bin/sh", "-c")
        if tried and subprocess.run([*tried, "mount -t tmpfs demo /mnt"]).returncode == 0:
            self.daemons["full"] = self.start("full", *tried, script)
        else:
            self.notes.append("`full` is left out: no file system can be mounted here (unshare)")


def free_port() -> int:
    """A port of the loopback interface that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def call(command: str, config: Path, *arguments: str) -> Any:
    """What a command writes as JSON, whatever it ends with."""
    line = [BIN / command, "--config", config, *arguments, "--json"]
    # Ctrl-C is ours, also while a command runs: it would end it, and not the demo.
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, start_new_session=True)
    if not done.stdout:
        raise SystemExit(f"{command} {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


_SHOWN = 90
"""Characters of an error in the table."""


# -- the story ---------------------------------------------------------------------------------


def bring_up(demo: Demo) -> None:
    """Start everything, and bring each trouble about."""
    demo.start_centre()
    demo.start_prometheus()
    for edge in EDGES[:-1]:
        demo.make_edge(edge)
    for edge in ("fine", "conflict", "late"):
        demo.init(edge)
    demo.write("fine", "root.north.pump_1")
    demo.write("late", "root.south.press_1")
    demo.write("full", "root.east.oven_1")
    for edge in ("fine", "late"):
        demo.run(edge)
    demo.until(lambda: files(demo).items() >= {("fine", 1), ("late", 1)}, "the first files")
    demo.daemons["late"].send_signal(signal.SIGTERM)
    demo.daemons["late"].wait(60)
    passing = shutil.ignore_patterns("*.sock", "*.lock", "*.tmp")  # of the daemon that runs
    shutil.copytree(demo.root / "fine", demo.root / "cloned", ignore=passing)
    demo.write("conflict", "root.west.mill_1")
    demo.write("conflict", "root.north.pump_1")
    demo.run("conflict")
    demo.run_full()
    demo.write("fine", "root.north.pump_2")
    demo.until(lambda: files(demo)["fine"] >= 2, "the second file of `fine`")
    demo.write("cloned", "root.north.pump_3")
    demo.run("cloned")


def files(demo: Demo) -> dict[str, int]:
    """Label -> files at the centre."""
    return {each["label"]: each["files"] for each in demo.ask("senders", "list")["senders"]}


def troubles(demo: Demo) -> dict[str, str]:
    """Edge -> what is with it, as the programs say."""
    found = dict.fromkeys(EDGES, "")
    for each in demo.ask("senders", "list")["senders"]:
        if each["label"] in found:
            found[each["label"]] = "late" if each["late"] else ""
    for each in demo.ask("quarantine", "list")["entries"]:
        if each.get("device"):
            found["conflict"] = f"{each['device']} belongs to another edge"
    for edge in ("full", "cloned"):
        found[edge] = last_error(demo.root / f"{edge}.log")
    return found


def last_error(log: Path) -> str:
    """The last line of a log that says that a round ended early."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line for line in text.splitlines() if "the round ended early: " in line]
    said = lines[-1].partition("the round ended early: ")[2] if lines else ""
    return said if len(said) <= _SHOWN else f"{said[: _SHOWN - 3]}..."


def awaited(demo: Demo) -> set[str]:
    """The edges that are to be in trouble, and are not yet."""
    found = troubles(demo)
    wanted = {"conflict", "late", "cloned"} | ({"full"} if "full" in demo.daemons else set())
    return {edge for edge in wanted if not found[edge]}


def show(demo: Demo) -> None:
    """What there is, and where to look."""
    found, there = troubles(demo), files(demo)
    rows = [(edge, there.get(edge, 0), found[edge] or "-") for edge in EDGES]
    print(table(("edge", "files at the centre", "what is with it"), rows))
    token = demo.ask("token", "create", "--role", "operator", "--note", "demo")["token"]
    centre = f"--config {demo.root}/centre/receiver.toml"
    print(f"\nthe page       {demo.url}/ui/   log in with {token}")
    for edge in EDGES:
        if edge in demo.daemons and edge in ON_THE_PAGE:
            print(f"{f'- {edge}':<15}{ON_THE_PAGE[edge]}")
    if demo.prometheus:
        print(f"Prometheus     {demo.prometheus}/alerts")
    print(
        f"measures       http://127.0.0.1:{demo.metrics}/metrics\n"
        f"events         tail -f {demo.root}/events.jsonl\n"
        f"the centre     {BIN}/tsferry-receiver {centre} status\n"
        f"an edge        {BIN}/tsferry-sender --config {demo.config('conflict')} status\n"
        f"logs           {demo.root}/*.log"
    )
    for note in demo.notes:
        print(f"note: {note}")


def keep_going(demo: Demo, seconds: float | None) -> None:
    """A new file of `fine` now and then, until somebody ends it."""
    end = None if seconds is None else time.monotonic() + seconds
    while end is None or time.monotonic() < end:
        left = NEW_FILE_EVERY if end is None else max(0.0, end - time.monotonic())
        if demo.stop.wait(min(NEW_FILE_EVERY, left)):
            return
        demo.write("fine", f"root.north.pump_{random.randint(1, 2)}")


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and a terminal that is closed set."""
    stop = threading.Event()
    taken = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]  # nohup
    before = {each: signal.signal(each, lambda *_: stop.set()) for each in taken}
    try:
        yield stop
    finally:
        for each, old in before.items():
            signal.signal(each, old)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A new directory, removed at the end; one of a demo that failed stays, for its logs."""
    root = Path(tempfile.mkdtemp(prefix="tsferry-demo-"))
    yield root
    shutil.rmtree(root)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--once", action="store_true", help="end when all troubles are there")
    arguments.add_argument("--seconds", type=float, help="end so long after that by itself")
    given = arguments.parse_args()
    random.seed(7)
    with ExitStack() as stack:
        stop = stack.enter_context(stopped_by_signals())
        demo = Demo(stack.enter_context(temporary_directory()), stop)
        stack.callback(demo.end)
        try:
            print("starting; it takes about half a minute", flush=True)
            bring_up(demo)
            demo.until(lambda: not awaited(demo), "a trouble")
            show(demo)
            if not given.once:
                print("\nCtrl-C ends it all.", flush=True)
                keep_going(demo, given.seconds)
        except KeyboardInterrupt:
            pass
        print("stopping", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(enter("demo", main))
