"""A running receiver whose calls to the disk fail, one after the other, during real rounds.

strace lets the n-th call of a kind fail, in each thread of the receiver. Whatever fails: what the
sender lists as loaded is loaded, the process lives and says what is wrong, and the next round
(after a restart, where the process has said that it needs one) puts all right.

The long tier tries forty positions, and of more calls.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from receiver.metadata.engine import Engine
from receiver.metadata.state.table_rows import FileState
from tests.support import tiers, trace
from tests.support.centre import COMMAND, Centre
from tests.support.centre import centre as serving
from tests.support.edge import Edge
from tests.support.judge import md5_of
from tests.support.procs import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if tiers.is_long() else 900)]

SYNCS = ("fsync", "fdatasync")
SWEEP = 40 if tiers.is_long() else 0
POSITIONS = [*map(str, range(1, SWEEP + 1)), "1+", "3+"] if SWEEP else ["1", "2+"]
FULL, BROKEN = "ENOSPC", "EIO"
CASES = [
    ("fsync", BROKEN), ("fdatasync", BROKEN), ("renameat", BROKEN), ("unlinkat", BROKEN),
    ("fsync", FULL), ("fdatasync", FULL), ("pwrite64", FULL), ("write", FULL),
]  # fmt: skip
if SWEEP:
    CASES += [
        ("pwrite64", BROKEN), ("write", BROKEN), ("mkdirat", BROKEN),
        ("renameat", FULL), ("mkdirat", FULL),
    ]  # fmt: skip
UNFORESEEN = re.compile(r"receiver\.web\.problems: error|a load failed|^Traceback", re.MULTILINE)
LOGS = ("mlog*", "sync/device_owner.log")
FOLDER_LOGS = ("sync.log", "plan.log", "verified.log", "load.log")


class Site:
    """A receiver and an edge that change and meet again and again."""

    def __init__(self, root: Path, centre: Centre) -> None:
        self.centre = centre
        self.url = centre.start()
        self.edge = Edge(
            root / "edge",
            self.url,
            propagate_deletes="all",
            transfer={"chunk_bytes": 65_536, "batch_bytes": 65_536, "load_timeout": 3.0},
        )
        self.number = 0
        self.ever: dict[str, set[str]] = {}
        self.change()
        assert self.edge.round().exit_code == 0
        self.edge.remove(self.edge.write(0))

    def change(self) -> None:
        """Small files and a large one come, one is replaced, one goes."""
        old = sorted(self.edge.files)
        for size in (None, None, 150_000):
            self.number += 1
            self.edge.write(self.number, size=size, device=f"root.a.d{self.number % 3}")
        if len(old) > 6:
            self.edge.remove(old[0])
            number = int(old[1].rpartition("/")[2].split("-")[1])
            self.edge.write(number, points=11 + self.number, device=f"root.a.d{number % 3}")
        for path, md5 in self.edge.files.items():
            self.ever.setdefault(path, set()).add(md5)

    def paths(self) -> list[str]:
        """The receiver's logs, for calls that are not made to files alone."""
        found = [each for name in LOGS for each in (self.centre.root / "schema").glob(name)]
        (folder,) = (self.centre.data / "sync-receiver").iterdir()
        return [str(each) for each in found] + [str(folder / name) for name in FOLDER_LOGS]

    def ready(self) -> str | None:
        """What `/readyz` says is wrong; the process answers in any case."""
        assert requests.get(f"{self.url}/healthz", timeout=60).status_code == 200
        answer = requests.get(f"{self.url}/readyz", timeout=60)
        if answer.status_code == 200:
            return None
        assert answer.status_code == 503
        return answer.json()["detail"]

    def restart(self) -> None:
        code = self.centre.stop()
        assert code == 0, self.centre.server.text()
        assert self.centre.start() == self.url

    def loaded(self) -> dict[str, str]:
        """path -> MD5 of the bytes on disk, of every file that is live; none is there twice."""
        engine = Engine.read_only(self.centre.root / "schema")
        with engine.reading() as state:
            rows = [each for each in state.files.values() if each.state is FileState.LIVE]
        engine.close()
        assert len({each.path for each in rows}) == len(rows)
        for row in rows:
            assert md5_of(Path(row.data_dir) / row.physical) == row.md5, row.path
        return {each.path: each.md5 for each in rows}

    def acknowledged(self) -> None:
        """Whatever the sender lists, and the edge still has, is loaded and whole."""
        loaded = self.loaded()
        for path in set(self.edge.listed) & self.edge.files.keys():
            assert loaded.get(path) in self.ever[path], path

    def heals(self) -> None:
        """The next rounds complete without a human."""
        reports = []
        for _ in range(4):
            reports.append(self.edge.round())
            if reports[-1].exit_code == 0 and not reports[-1].held:
                break
        else:
            raise AssertionError([str(each.error) or each.as_json() for each in reports])
        assert self.loaded() == self.edge.files
        assert not self.edge.leftovers


@contextmanager
def failing(pid: int, call: str, code: str, when: str, log: Path, paths: list[str]):
    """Let calls of a running process fail while the block lasts; gives how many did."""
    if reason := trace.impossible():
        pytest.skip(reason)
    only = [each for path in paths for each in ("-P", path)]
    strace = subprocess.Popen(
        ["strace", "-f", "-o", str(log), "-e", f"trace={call}",
         "-e", f"inject={call}:error={code}:when={when}", *only, "-p", str(pid)],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    first = strace.stderr.readline()
    drain = threading.Thread(target=strace.stderr.read)
    drain.start()
    try:
        if "attached" not in first:
            pytest.skip(f"strace cannot attach here: {first.strip()}")
        yield lambda: log.read_text().count("(INJECTED)")
    finally:
        strace.send_signal(signal.SIGINT)
        strace.wait(timeout=60)
        drain.join()
        strace.stderr.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("failing")
    with serving(root / "dc") as made:
        yield Site(root, made)


@pytest.mark.few(4)
@pytest.mark.parametrize(("call", "code"), CASES)
def test_whatever_call_fails_nothing_acknowledged_is_lost_and_the_next_round_heals(
    site, tmp_path, call, code
):
    hits = 0
    paths = site.paths() if call == "write" else []  # a socket's or pipe's write is no disk's
    for when in POSITIONS:
        site.change()
        log = tmp_path / f"{when}.strace"
        with failing(site.centre.server.pid, call, code, when, log, paths) as count:
            site.edge.round()
            site.ready()
        wrong = site.ready()  # of all that has failed until nothing fails any more
        hits += count()
        judge(site, call, code, count(), wrong)
        if wrong is not None:
            assert site.centre.loaded(site.edge.uuid)  # readers are served all the same
            site.restart()
        site.acknowledged()
        site.heals()
        assert site.ready() is None
    assert hits


def judge(site: Site, call: str, code: str, hits: int, wrong: str | None) -> None:
    """Whether the process says of itself what is true."""
    said = f"{call} {code}, {hits} times: readyz says {wrong!r}"
    output = site.centre.server.text()
    assert not UNFORESEEN.search(output), output[-6000:]
    if hits == 0:
        assert wrong is None, said
    elif call in SYNCS and code == BROKEN:
        assert wrong is not None, said
        assert os.strerror(errno.EIO) in wrong, said
    elif code == FULL and call not in SYNCS:
        assert wrong is None, f"{said}; a full disk heals by itself"


@pytest.mark.few(2)
@pytest.mark.parametrize("call", SYNCS)
@pytest.mark.parametrize("when", range(1, max(SWEEP, 2) + 1))
def test_a_disk_that_fails_at_the_start_costs_a_start_and_nothing_else(site, tmp_path, call, when):
    site.change()
    site.centre.stop()
    site.centre.start(env={"TSFERRY_CRASH_AT": f"*:{20 + 15 * when}"})  # work for the recovery
    site.edge.round()
    site.centre.kill()
    ready, log = tmp_path / "ready", tmp_path / "strace"
    begun = site.centre.processes.start(
        ["strace", "-f", "-o", str(log), "-e", f"trace={call}",
         "-e", f"inject={call}:error=EIO:when={when}",
         COMMAND, "--config", str(site.centre.config), "serve", "--ready-file", str(ready)]
    )  # fmt: skip
    wait_until(lambda: ready.exists() or not begun.running, "it runs, or has given up")
    if ready.exists():
        site.edge.round()
        wait_until(
            lambda: (site.ready() is None) == ("INJECTED" not in log.read_text()),
            "readyz says so where a flush has failed, and only there",
        )
        begun.kill()
    else:
        assert begun.returncode == 1, begun.text()
    assert not UNFORESEEN.search(begun.text()), begun.text()
    site.centre.start()
    site.acknowledged()
    site.heals()
