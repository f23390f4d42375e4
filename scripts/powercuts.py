"""True power cuts of either side at random moments, many times in a row; then a judge.

As scripts/chaos.py, but the receiver's directories lie on a disk of their own, and those of the two
senders on another. Now one, now the other disk loses its power while everything is at work: what
was not flushed is gone (`tests.support.powercut`). The programs on it are killed, at once or after
they have met the dead disk; in between they are killed without a cut as well, so that they find
what was written and never flushed. Then the disk is switched on again, and all are started.

The databases at the edges flush some of their files, as they should, and of some say so too early.

The judge looks at the dead receiver's disk before anybody repairs it, after every cut: whatever a
sender's list or `status --safe-to-delete` ever called loaded is in the catalogue, and its bytes are
whole, unless the edge has deleted it since. A client of its own uploads block by block, and holds
the receiver to every offset that was answered. At the end everything is compared, as in
scripts/chaos.py, and both file systems are checked.

Needs root and loop devices. Exit code 0 if all of that holds, 1 if not; the directory with all logs
is kept then. 77 where there can be no such disks.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import metadata_cuts
from chaos import SENDER_CODES, Chaos, Failed, Part

from receiver.metadata.engine import Engine
from scripts.ended_by_signals import end_on_signals
from sender.kept.loaded_list.ledger import Ledger
from sender.select.data_dirs import DataDirs
from tests.support import judge, powercut
from tests.support.database import Database
from tests.support.procs import Children, children
from tests.support.tusprobe import UUID, TusProbe
from tests.support.workload import Workload

CENTRE, EDGE = "centre", "edge"
SIZES = (None, None, 30_000, 30_000, 400_000)


class PowerCuts(Chaos):
    """The whole run."""

    def __init__(
        self, run: Path, made: Children, seed: int, disks: dict[str, powercut.Disk]
    ) -> None:
        super().__init__(run, made, seed)
        self.disks = disks
        self.cuts = dict.fromkeys(disks, 0)
        self.safe = 0
        self.edges: dict[str, Database] = {
            name: Database(run / name / "data", name, seed + number, pads=SIZES)
            for number, name in enumerate(("north", "south"), 1)
        }
        self.claims: set[tuple[str, str, str]] = set()
        """(sender, path, MD5) of everything that was ever called loaded."""
        self._working = threading.Lock()
        self._dark = threading.Event()
        self.probe: TusProbe

    # -- setting up ------------------------------------------------------------------------

    def set_up(self) -> None:
        """As there, with the directories on the two disks."""
        for disk, names in ((CENTRE, (CENTRE,)), (EDGE, tuple(self.edges))):
            for name in names:
                (self.disks[disk].path / name).mkdir()
                (self.run / name).symlink_to(self.disks[disk].path / name)
        super().set_up()
        for disk in self.disks.values():
            flush(disk)  # what has been configured has been so for a long time
        port = next(
            line.rpartition("=")[2].strip()
            for line in self.centre.read_text().splitlines()
            if line.startswith("port")
        )
        self.probe = TusProbe(f"http://127.0.0.1:{port}", self.rng.randrange(1 << 30))

    def side(self, disk: str) -> list[Part]:
        """The programs whose directories are on a disk."""
        return self.parts[:1] if disk == CENTRE else self.parts[1:]

    def by_uuid(self) -> dict[str, Workload]:
        """The edges, and the client of our own."""
        return super().by_uuid() | {UUID: self.probe}  # type: ignore[dict-item]

    # -- cutting ---------------------------------------------------------------------------

    def rage(self, kills: int, until: float) -> None:
        """Cut until it is enough."""
        uploads = threading.Thread(target=self.probe.run, args=(self._stop,), daemon=True)
        uploads.start()
        try:
            super().rage(kills, until)
        finally:
            self._stop.set()
            uploads.join()

    def _work(self, edge: Workload, pause: float) -> None:
        """Work as long as there is power."""
        try:
            while not self._stop.wait(pause):
                with self._working:
                    try:
                        edge.step()
                    except OSError:
                        if not self._dark.is_set():
                            raise
        except BaseException as error:
            self._broken.append(error)

    def _rage(self, kills: int, until: float) -> None:
        """Here `kills` are cuts; about as often a program is killed without one."""
        shown = 0
        next_blow = time.monotonic() + 1.0
        while (total := sum(self.cuts.values())) < kills:
            if time.monotonic() > until:
                raise Failed(f"out of time after {total} cuts")
            for part in self.parts:
                part.poll()
            if self._broken:
                raise self._broken[0]
            if self.probe.broken:
                raise Failed("\n".join(self.probe.broken))
            if time.monotonic() >= next_blow:
                self.blow()
                next_blow = time.monotonic() + self.pause()
            if total >= shown + 10:
                shown = total
                self.show(f"{total:4d} cuts")
            time.sleep(0.01)

    def pause(self) -> float:
        """In quick succession, or long enough for rounds to come to their end."""
        if self.rng.random() < 0.6:
            return 0.05 + self.rng.expovariate(1 / 0.8)
        return self.rng.uniform(1.5, 4.0)

    def blow(self) -> None:
        """One program is killed, or one side loses its power: each side once before any twice."""
        if self.rng.random() < 0.4:
            self.rng.choice(self.parts).kill()
            return
        if self.rng.random() < 0.15:
            self.ask_safe()
        unharmed = [name for name, count in self.cuts.items() if not count]
        self.cut(self.rng.choice(unharmed or list(self.cuts)))

    def cut(self, name: str) -> None:
        """Cut the power of one side, look at what is left, and start it again."""
        disk, side = self.disks[name], self.side(name)
        self.note_lists()
        if name == EDGE:
            self._dark.set()
        disk.fail()
        if self.rng.random() < 0.5:  # they meet the dead disk, and may still talk
            time.sleep(self.rng.uniform(0.0, 0.6))
        for part in side:
            part.kill()
            self.reap(part)
        problems = []
        with self._working:
            disk.unmount()
            disk.mount()  # the journal is replayed
            if sum(self.cuts.values()) % 5 == 0:
                disk.unmount()
                disk.check()
                disk.mount()
            self.cuts[name] += 1
            if name == EDGE:
                problems = [lost for edge in self.edges.values() for lost in edge.recover()]
                self._dark.clear()
            else:
                problems = self.kept()
        if problems:
            raise Failed(f"after a cut of the {name}:\n" + "\n".join(problems))
        if name == EDGE:
            self.note_lists()
        for part in side:
            part.start()

    def reap(self, part: Part) -> None:
        """Count how a program ended; with a dead disk it may do so as it likes."""
        assert part.child is not None
        code = part.child.kill()
        if code >= 0:
            part.codes[code] += 1
        if code in (0, *SENDER_CODES) or code < 0:
            return
        if "Traceback" in part.tail():
            print(f"{part.name} met the dead disk and ended with {code}:\n{part.tail()}")

    # -- what was promised -------------------------------------------------------------------

    def note_lists(self) -> None:
        """Remember what the senders' lists call loaded."""
        for name, edge in self.edges.items():
            uuid, data = self.uuids[name], self.run / name / "data"
            if self._dark.is_set():
                return
            with DataDirs.open([data], uuid) as dirs:
                for found in (data / "sync-sender").glob("*_*"):
                    ledger = Ledger.open(dirs, found.name, repair=False)
                    for path, entry in ledger.entries.items():
                        if entry.md5 and (path.text, entry.md5) in edge.ever:
                            self.claims.add((uuid, path.text, entry.md5))
        self.claims |= {(UUID, path, each.md5) for path, each in dict(self.probe.files).items()}

    def ask_safe(self) -> None:
        """Ask a sender what may be deleted, and remember its word."""
        name = self.rng.choice(list(self.edges))
        edge, data = self.edges[name], (self.run / name / "data").resolve()
        before = dict(edge.files)
        config = self.run / name / "sender.toml"
        code, found, _ = self.call("tsferry-sender", config, "status", "--safe-to-delete")
        if code != 0 or found is None:
            return
        self.safe += len(found)
        for each in found:
            path = str(Path(each).resolve().relative_to(data))
            written = before.get(path)
            if written is not None and edge.files.get(path) == written:
                self.claims.add((self.uuids[name], path, written.md5))

    def kept(self) -> list[str]:
        """What the receiver's disk has lost, as nobody has repaired it yet."""
        rows = self.catalogue()
        there = {(row["sender"], row["path"], row["md5"]) for row in rows}
        shown = {
            (row["sender"], row["path"], row["md5"])
            for row in rows
            if row["state"] in ("live", "retired", "superseded")
        }
        edges = self.by_uuid()
        problems = judge.visible(rows, edges)
        for claim in sorted(self.claims - shown):
            sender, path, md5 = claim
            if claim not in there:
                problems.append(f"{path} of {sender[:8]}, MD5 {md5}: was called loaded, is lost")
            elif (path, md5) not in edges[sender].ended:  # type: ignore[attr-defined]
                problems.append(f"{path} of {sender[:8]}, MD5 {md5}: was deleted by nobody")
        self.looks += 1
        return problems

    def catalogue(self) -> list[dict[str, Any]]:
        """Every row, as the disk has it."""
        try:
            engine = Engine.read_only(self.run / CENTRE / "schema")
        except Exception as error:
            if not self.claims:
                return []  # cut before the engine was ever made
            raise Failed(f"the catalogue cannot be read: {error}") from error
        with engine.reading() as state:
            rows = list(state.files.values())
        engine.close()
        return [
            {name: getattr(row, name) for name in ("sender", "path", "physical", "md5", "data_dir")}
            | {"state": row.state.value}
            for row in rows
        ]

    # -- the end ---------------------------------------------------------------------------

    def serve(self, *settings: str) -> None:
        """As there; uploads that are open come to their end."""
        super().serve(*settings)
        self.probe.finish()

    def calm(self) -> list[str]:
        """As there, and both file systems are in order."""
        problems = super().calm() + self.probe.broken
        for part in self.parts:
            part.kill()
        for name, disk in self.disks.items():
            disk.unmount()
            try:
                disk.check()
            except AssertionError as error:
                problems.append(f"the file system of the {name}: {error}")
            disk.mount()
        return problems


def flush(disk: powercut.Disk) -> None:
    """Flush a whole file system."""
    fd = os.open(disk.path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(fd)


def keep(run: Path, disks: dict[str, powercut.Disk]) -> None:
    """What is on the disks is gone from sight with them: make a copy."""
    for disk in disks.values():
        disk.unmount()
        disk.mount()  # one of them may be dead
    for name in (CENTRE, "north", "south"):
        if (run / name).is_symlink():
            sockets = shutil.ignore_patterns("*.sock")
            try:
                shutil.copytree((run / name).resolve(), run / "kept" / name, ignore=sockets)
            except (OSError, shutil.Error):
                print(f"not all of the {name}'s directories could be copied")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--minutes", type=float, default=30.0, help="give up after so long")
    parser.add_argument(
        "--metadata", action="store_true", help="of a metadata engine: scripts/metadata_cuts.py"
    )
    arguments = parser.parse_args()
    if reason := powercut.impossible():
        print(reason)
        return 77
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    end_on_signals()  # disks and programs are cleaned up
    if arguments.metadata:
        return metadata_cuts.run(arguments.cuts, seed, arguments.minutes)
    os.environ["PYTHONFAULTHANDLER"] = "1"  # of the programs
    run = Path(tempfile.mkdtemp(prefix="tsferry-powercuts-"))
    print(f"power cuts with seed {seed} in {run}", flush=True)
    begin = time.monotonic()
    with ExitStack() as stack:
        disks = {}
        for name in (CENTRE, EDGE):
            (run / f"disk-{name}").mkdir()
            disks[name] = stack.enter_context(powercut.disk(run / f"disk-{name}", megabytes=1000))
        made = stack.enter_context(children(run))
        cuts = PowerCuts(run, made, seed, disks)
        try:
            cuts.set_up()
            cuts.rage(arguments.cuts, begin + 60 * arguments.minutes)
            problems = cuts.calm()
        except (Failed, AssertionError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            problems = [f"{type(error).__name__}: {error}"]
        if problems:
            made.end_all()
            keep(run, disks)
    show(cuts, time.monotonic() - begin)
    for problem in problems:
        print(f"BROKEN: {problem}")
    if problems:
        print(f"{len(problems)} promises broken; everything is kept in {run}, seed {seed}")
        return 1
    print("everything that was called loaded is there, once and whole; nothing else is")
    shutil.rmtree(run)
    return 0


def show(cuts: PowerCuts, seconds: float) -> None:
    """What was done, in numbers."""
    each = ", ".join(f"{count} of the {name}" for name, count in cuts.cuts.items())
    cuts.show(f"power cuts: {each}; {cuts.kills} kills, {cuts.loads} loads in {seconds:.0f} s")
    discarded = sum(edge.discarded for edge in cuts.edges.values())
    print(
        f"{len(cuts.claims)} files were called loaded, {cuts.safe} times one safe to delete; "
        f"{len(cuts.probe.files)} uploads of our own, {cuts.probe.resumed} times resumed; "
        f"{discarded} files that no database had flushed were discarded"
    )


if __name__ == "__main__":
    sys.exit(main())
