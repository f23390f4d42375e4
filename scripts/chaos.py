"""kill -9 of either side at random moments, many times in a row; then a judge.

One receiver and two senders on the loopback interface: the north's runs as a daemon, the south's by
single rounds, as cron would call it. A workload at each edge adds, deletes, compacts and rewrites
TsFiles all the time; half of the paths are the same at both edges. Now one, now another process is
killed with SIGKILL: at a random moment, or at a random crash point that it was started with, in
recovery too. It is started again at once.

While that goes on, what readers see is checked now and then against the bytes on the disk. After
the last kill the workload stops, the senders do their last rounds, and the judge compares the
catalogue and the bytes of the receiver with the edges, file by file: nothing lost, nothing twice,
nothing unverified visible, nothing left lying about, the last round clean without a human.

Exit code 0 if all of that holds, 1 if not; the directory with all logs is kept then.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.ended_by_signals import end_on_signals  # noqa: E402
from tests.support import judge  # noqa: E402
from tests.support.ports import free_port  # noqa: E402
from tests.support.procs import Child, Children, children  # noqa: E402
from tests.support.workload import Workload  # noqa: E402

BIN = Path(sys.executable).parent
SENDER_CODES = {0, 3, 4, 5, 6}
"""How a round may end by itself while the other side comes and goes; 1 would be a fault of ours."""

_COMMON = """\
# Made by scripts/chaos.
schema_dir = "schema"
data_dirs = ["data"]
[log]
level = "info"
"""
_RECEIVER = """\
# Made by scripts/chaos.
schema_dir = "schema"
data_dirs = ["data"]
[listen]
port = {port}
[limits]
min_free_bytes = "16MiB"
[deletes]
max_fraction = 1
"""
_SENDER = """\
# Made by scripts/chaos.
schema_dir = "schema"
data_dirs = ["data"]
propagate_deletes = "{propagate}"
task_max_files = 15
[[receiver]]
name = "centre"
url = "http://127.0.0.1:{port}"
[transfer]
chunk_bytes = "64KiB"
batch_bytes = "64KiB"
retry_first = "50ms"
retry_max = "500ms"
read_timeout = "10s"
load_poll = "2s"
[daemon]
period = "1s"
watch_settle = "200ms"
"""


class Failed(Exception):
    """A promise was broken."""


class Part:
    """One of the three programs, started over and over again."""

    def __init__(self, chaos: Chaos, name: str, command: list[str]) -> None:
        self.chaos = chaos
        self.name = name
        self.command = command
        self.child: Child | None = None
        self.planned = False
        self.starts = 0
        self.kills = 0
        self.codes: Counter[int] = Counter()

    def start(self, *, calm: bool = False) -> None:
        """Start it; every other time with a crash point at which it will die."""
        rng = self.chaos.rng
        self.planned = not calm and rng.random() < 0.5
        env = {}
        if self.planned:
            env["TSFERRY_CRASH_AT"] = f"*:{int(2 ** rng.uniform(0, 12))}"
        self.child = self.chaos.children.start(self.command, env=env, forked=True)
        self.starts += 1

    def poll(self) -> None:
        """Notice its end, count it, judge it, and start it again."""
        assert self.child is not None
        code = self.child.returncode
        if code is None:
            return
        if code == -signal.SIGKILL:
            self.kills += 1
        else:
            self.codes[code] += 1
            self.ended(code)
        self.start()

    def ended(self, code: int) -> None:
        """It ended by itself."""
        raise Failed(f"{self.name} ended by itself with exit code {code}:\n{self.tail()}")

    def kill(self) -> None:
        """Kill it now; `poll` counts it."""
        if self.child is not None and self.child.running:
            self.child.kill()

    def tail(self) -> str:
        """The end of its output."""
        assert self.child is not None
        return "\n".join(self.child.text().splitlines()[-30:])


class Rounds(Part):
    """A sender that does single rounds, one after the other."""

    def ended(self, code: int) -> None:
        if code not in SENDER_CODES:
            super().ended(code)


class Chaos:
    """The whole run."""

    def __init__(self, run: Path, made: Children, seed: int) -> None:
        self.run = run
        self.children = made
        self.rng = random.Random(seed)
        self.edges = {
            "north": Workload(run / "north" / "data", "north", seed + 1),
            "south": Workload(run / "south" / "data", "south", seed + 2),
        }
        self.centre = run / "centre" / "receiver.toml"
        self.uuids: dict[str, str] = {}
        self.parts: list[Part] = []
        self.looks = 0
        self.loads = 0
        self._stop = threading.Event()
        self._broken: list[BaseException] = []

    @property
    def kills(self) -> int:
        return sum(part.kills for part in self.parts)

    # -- setting up ------------------------------------------------------------------------

    def set_up(self) -> None:
        """Configurations, identities, and the commands."""
        port = free_port()
        for name in ("centre", *self.edges):
            (self.run / name / "data").mkdir(parents=True)
        self.centre.write_text(_RECEIVER.format(port=port))
        for name, propagate in (("north", "all"), ("south", "replaced")):
            config = self.run / name / "sender.toml"
            config.write_text(_SENDER.format(port=port, propagate=propagate))
            self.call("tsferry-sender", config, "init", json_out=False)
            text = (self.run / name / "schema" / "sync" / "uuid.txt").read_text()
            self.uuids[name] = text.strip()
        ready = self.run / "centre" / "ready"
        self.parts = [
            Part(self, "receiver", self.command(
                "tsferry-receiver", self.centre, "serve", "--ready-file", str(ready))),
            Part(self, "north", self.command(
                "tsferry-sender", self.run / "north" / "sender.toml", "run")),
            Rounds(self, "south", self.command(
                "tsferry-sender", self.run / "south" / "sender.toml", "sync", "--json")),
        ]  # fmt: skip

    @staticmethod
    def command(program: str, config: Path, *arguments: str) -> list[str]:
        return [str(BIN / program), "--config", str(config), *arguments]

    def call(self, program: str, config: Path, *arguments: str, json_out: bool = True) -> Any:
        """Run a command to its end; what it printed, and its exit code under `code`."""
        extra = ["--json"] if json_out else []
        done = subprocess.run(
            self.command(program, config, *arguments, *extra),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if not json_out:
            if done.returncode != 0:
                raise Failed(f"{program} {' '.join(arguments)}: {done.stderr}")
            return None
        try:
            return done.returncode, json.loads(done.stdout), done.stderr
        except json.JSONDecodeError:
            return done.returncode, None, done.stderr

    # -- chaos -----------------------------------------------------------------------------

    def rage(self, kills: int, until: float) -> None:
        """Kill until it is enough."""
        workers = [
            threading.Thread(target=self._work, args=(edge, pause), daemon=True)
            for edge, pause in zip(self.edges.values(), (0.11, 0.13), strict=True)
        ]
        for worker in workers:
            worker.start()
        for part in self.parts:
            part.start()
        try:
            self._rage(kills, until)
        finally:
            self._stop.set()
            for worker in workers:
                worker.join()

    def _rage(self, kills: int, until: float) -> None:
        next_kill = time.monotonic() + 1.0
        next_look = 20
        shown = 0
        while self.kills < kills:
            if time.monotonic() > until:
                raise Failed(f"out of time after {self.kills} kills")
            for part in self.parts:
                part.poll()
            if self._broken:
                raise self._broken[0]
            if time.monotonic() >= next_kill:
                self.rng.choices(self.parts, [2, 1, 1])[0].kill()
                next_kill = time.monotonic() + self.pause()
            if self.kills >= next_look:
                self.look()
                next_look += 20
            if self.kills >= shown + 10:
                shown = self.kills
                self.show(f"{self.kills:4d} kills")
            time.sleep(0.01)

    def pause(self) -> float:
        """In quick succession, or long enough for rounds to come to their end."""
        if self.rng.random() < 0.6:
            return 0.05 + self.rng.expovariate(1 / 0.8)
        return self.rng.uniform(2.0, 7.0)

    def _work(self, edge: Workload, pause: float) -> None:
        try:
            while not self._stop.wait(pause):
                edge.step()
        except BaseException as error:
            self._broken.append(error)

    def look(self) -> None:
        """Compare what readers see now with the disk; between two listings a file may go."""
        first = self._visible()
        if first:
            second = set(self._visible())
            if both := [problem for problem in first if problem in second]:
                raise Failed("visible while everything moved:\n" + "\n".join(both))
        self.looks += 1

    def _visible(self) -> list[str]:
        code, found, _ = self.call("tsferry-receiver", self.centre, "files")
        if code != 0 or found is None:
            return []  # the receiver is down or just coming up
        return judge.visible(self.rows(found), self.by_uuid())

    def by_uuid(self) -> dict[str, Workload]:
        return {self.uuids[name]: edge for name, edge in self.edges.items()}

    @staticmethod
    def rows(found: Any) -> list[dict[str, Any]]:
        return found["files"] if isinstance(found, dict) else found

    # -- the end ---------------------------------------------------------------------------

    def calm(self) -> list[str]:
        """Stop killing, let the last rounds run, judge."""
        for part in self.parts:
            part.kill()
        for edge in self.edges.values():
            edge.settle()
        problems = []
        self.serve()
        for name in self.edges:
            problems += self.last_rounds(name)
        problems += self.judged(["live", "retired", "superseded", "deleted"])
        problems += self.stopped()
        # What was deleted leaves the disk when its time has come, and nothing else does.
        self.serve("--set", "load.keep_deleted=1s", "--set", "metadata.history=1s")
        problems += self.judged(["live", "retired", "superseded"], patience=100)
        problems += self.stopped()
        code, report, errors = self.call("tsferry-receiver", self.centre, "fsck")
        if code != 0:
            problems.append(f"fsck: exit code {code}: {json.dumps(report)[:2000]} {errors[-500:]}")
        return problems

    def serve(self, *settings: str) -> None:
        """Start the receiver without a crash point, and wait until it is ready."""
        receiver = self.parts[0]
        ready = self.run / "centre" / "ready"
        ready.unlink(missing_ok=True)
        receiver.command[3:3] = settings
        receiver.start(calm=True)
        assert receiver.child is not None
        receiver.child.until(ready.exists, "the receiver is ready")

    def stopped(self) -> list[str]:
        """Stop the receiver in good order."""
        receiver = self.parts[0]
        assert receiver.child is not None
        code = receiver.child.terminate()
        return [f"the receiver stopped with {code}:\n{receiver.tail()}"] if code else []

    def last_rounds(self, name: str) -> list[str]:
        """Rounds until one is clean and has nothing to do."""
        config = self.run / name / "sender.toml"
        told = []
        for turn in range(8):
            code, report, errors = self.call("tsferry-sender", config, "sync")
            if report is None:
                return [f"{name}: round {turn + 1} of the end: exit code {code}: {errors}"]
            counts = {key: report[key] for key in ("sent", "already", "deleted", "retired")}
            told.append(f"{name}: exit code {code}, {counts}, {len(report['held'])} held")
            if code == 0 and not report["held"] and not any(counts.values()):
                print("\n".join(told))
                return []
        return [f"no idle round at the end: {told}; the last: {json.dumps(report)[:3000]}"]

    def judged(self, states: list[str], *, patience: float = 10) -> list[str]:
        """The judge's list of what is wrong, once what is cleaned up later has been."""
        retiring = [self.uuids["south"]]

        def look() -> list[str]:
            rows = []
            for state in ("live", "retired", "superseded", "quarantined", "deleted"):
                code, found, errors = self.call(
                    "tsferry-receiver", self.centre, "files", "--state", state
                )
                if code != 0:
                    return [f"files: exit code {code}: {errors}"]
                rows += self.rows(found)
            self.loads = max(self.loads, len(rows))
            problems = judge.settled(rows, self.by_uuid(), retiring=retiring)
            problems += judge.strays(rows, self.run / "centre" / "data", states)
            for name in ("centre", *self.edges):
                left = judge.leftovers(self.run / name / "data")
                problems += [f"{name}: {each}" for each in left]
            return problems

        end = time.monotonic() + patience
        while (problems := look()) and time.monotonic() < end:
            time.sleep(1)
        return problems

    def show(self, text: str) -> None:
        work = Counter()
        for edge in self.edges.values():
            work.update(edge.counts)
        parts = ", ".join(f"{part.name} {part.kills}/{part.starts}" for part in self.parts)
        changes = ", ".join(f"{count} {what}" for what, count in work.items())
        print(f"{text}  (killed/started: {parts}; {changes})", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--minutes", type=float, default=30.0, help="give up after so long")
    parser.add_argument("--keep", action="store_true", help="keep the directory in any case")
    arguments = parser.parse_args()
    end_on_signals()
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    run = Path(tempfile.mkdtemp(prefix="tsferry-chaos-"))
    print(f"chaos with seed {seed} in {run}", flush=True)
    begin = time.monotonic()
    with children(run) as made:
        chaos = Chaos(run, made, seed)
        try:
            chaos.set_up()
            chaos.rage(arguments.kills, begin + 60 * arguments.minutes)
            problems = chaos.calm()
        except Failed as error:
            problems = [str(error)]
    seconds = time.monotonic() - begin
    chaos.show(f"{chaos.kills} kills in {seconds:.0f} s, {chaos.loads} loads, {chaos.looks} looks")
    print("rounds of the south by exit code:", dict(sorted(chaos.parts[-1].codes.items())))
    for problem in problems:
        print(f"BROKEN: {problem}")
    files = sum(len(edge.files) for edge in chaos.edges.values())
    if problems:
        print(f"{len(problems)} promises broken; everything is kept in {run}, seed {seed}")
        return 1
    print(f"all {files} files of both edges are loaded, once and whole; nothing else is there")
    if not arguments.keep:
        shutil.rmtree(run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
