"""Each call to the disk failing, once and from then on, in the work of an engine; then a power cut.

A process opens an engine that has something to put right, commits with tags, takes checkpoints,
lets go of segments. Whatever fails: what was acknowledged is there after the cut, what was refused
is not, a full disk heals while the engine lives.

`TSFERRY_SWEEP=1` in the environment tries every call; without it, a part of them.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.errors import TsferryError
from receiver.metadata import records
from receiver.metadata.alterations import Upsert
from receiver.metadata.engine import Engine
from receiver.metadata.options import EngineOptions
from receiver.metadata.tlog import TLOG_NAME
from tests.support import powercut, schema_view
from tests.support.disk import CHANGING, LOOKING, NAMING, Faults
from tests.support.schema_commits import HISTORY, series

CALLS = (*CHANGING, *NAMING, *LOOKING, "open", "renameat2")
OPTIONS = EngineOptions(history=0.0, history_commits=500)
EVERY = 1 if os.environ.get("TSFERRY_SWEEP") else 9
UNKNOWN = {"FailedSyncError"}
"""After these a commit may be there, or not."""
WAYS = [(errno.EIO, True), (errno.ENOSPC, True), (errno.ENOSPC, False), (errno.EIO, False)]


def tagged(name: str) -> records.SeriesCreated:
    return series(f"root.t.{name}", "s", tags=[{"name": name}], attributes=[{"of": name * 9}])


STEPS: list[tuple[str, Callable[[Engine], int]]] = [
    ("a", lambda engine: engine.commit([tagged("a")])),
    ("checkpoint", lambda engine: engine.checkpoint()),
    ("alter", lambda engine: engine.alter("root.t.d1.s1", Upsert(tags={"name": "alter"}))),
    ("b", lambda engine: engine.commit([tagged("b"), records.KeysWritten([], {"b": "b"})])),
    ("collect", lambda engine: engine.collect() or 0),
    ("checkpoint", lambda engine: engine.checkpoint()),
    ("c", lambda engine: engine.commit([tagged("c")])),
]
COMMITS = ("a", "alter", "b", "c", "healed")


@dataclass
class Case:
    at: int
    code: int
    once: bool

    def __str__(self) -> str:
        return f"{errno.errorcode[self.code]} at call {self.at}{'' if self.once else ' and on'}"


def work(home: Path, say: Callable[..., None], case: Case | None) -> None:
    """What the process does; it tells of each step, and how many calls there were."""
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch)
        faults.watch(*CALLS)
        if case is not None:
            faults.fail(case.code, case.at, *CALLS, once=case.once)
        engine = None
        for name, step in STEPS:
            try:
                if engine is None:
                    engine = Engine.open(home, options=OPTIONS, background=False)
                say(name, "done", step(engine))
            except (TsferryError, OSError) as error:
                say(name, type(error).__name__, str(error))
        say("calls", "", len(faults.calls))
        faults.off()
        if engine is not None and engine.failed is None:
            say("healed", "done", engine.commit([tagged("healed")]))
            say("healed checkpoint", "done", engine.checkpoint())
            found(engine)
        say("failed", "" if engine is None else engine.failed or "", 0)


def found(engine: Engine) -> set[str]:
    """The commits of `STEPS` that are there; each as a whole, or it fails."""
    view = schema_view.of_engine(engine)
    labels = {nodes: row["labels"] for nodes, row in view["series"].items()}
    indexed = {nodes: row["indexed"] for nodes, row in view["series"].items()}
    there = set()
    for name in ("a", "b", "c", "healed"):
        nodes = ("root", "t", name, "s")
        if nodes in labels:
            assert labels[nodes] == ({"name": name}, {"of": name * 9})
            there.add(name)
    altered = labels["root", "t", "d1", "s1"]
    assert altered in [({"unit": "f"}, {"maker": "x"}), ({"unit": "f", "name": "alter"}, altered[1])]
    if "name" in altered[0]:
        there.add("alter")
    assert ("b" in view["keys"][0] and "b" in there) or "b" not in there, "half a commit"
    for nodes, tags in indexed.items():
        assert tags == labels[nodes][0], nodes
    return there


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Two checkpoints, commits behind them, a tlog that lost its end, a torn log."""
    home = tmp_path_factory.mktemp("prepared") / "schema"
    with Engine.open(home, options=OPTIONS, background=False) as engine:
        engine.commit([*HISTORY[0], *HISTORY[1]])
        engine.checkpoint()
        engine.commit(HISTORY[2])
        engine.checkpoint()
        end = (home / TLOG_NAME).stat().st_size
        for ops in HISTORY[3:]:
            engine.commit([op for op in ops if getattr(op, "key", "") != "b"])
        [log] = sorted(home.glob("mlog-*.tsf"), key=lambda each: each.stat().st_mtime)[-1:]
    os.truncate(home / TLOG_NAME, end + 3)
    with log.open("ab") as file:
        file.write(b"TSFm" + bytes(900))
    return home


def lived(home: Path, case: Case | None) -> tuple[list[tuple[str, str]], int, str]:
    """(steps and how they ended, number of calls, why the engine stopped) of a life."""
    ours, theirs = socket.socketpair()

    def say(*words):
        theirs.sendall(f"{json.dumps(words)}\n".encode())

    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work(home, say, case)
        except BaseException:
            say("broken", traceback.format_exc(), 0)
        finally:
            os._exit(0)
    theirs.close()
    with ours, ours.makefile() as lines:
        said = [json.loads(line) for line in lines]
    os.waitpid(pid, 0)
    broken = [text for name, text, _ in said if name == "broken"]
    assert not broken, f"{case}: {broken[0]}"
    [calls] = [number for name, _, number in said if name == "calls"]
    [failed] = [text for name, text, _ in said if name == "failed"]
    return [(name, how) for name, how, _ in said if name in COMMITS], calls, failed


def restore(disk, prepared):
    home = disk.path / "schema"
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(prepared, home)
    disk.unmount()  # all of it is on the disk
    disk.mount()
    return home


def judge(home: Path, steps: list[tuple[str, str]], case: Case | None) -> None:
    must = {name for name, how in steps if how == "done"}
    may = {name for name, how in steps if how in UNKNOWN}
    with Engine.read_only(home, options=OPTIONS) as engine:
        there = found(engine)
    assert must <= there <= must | may, f"{case}: {steps}; there is {there}"
    for _ in range(2):
        with Engine.open(home, options=OPTIONS, background=False) as engine:
            assert found(engine) == there, f"{case}: recovery is not the same"
    assert not list(home.glob("*.damaged")), case


@pytest.mark.parametrize("part", range(2))
def test_whatever_call_fails_the_acknowledged_is_kept_and_the_refused_is_not(
    tmp_path, prepared, part
):
    with powercut.disk(tmp_path) as disk:
        home = restore(disk, prepared)
        steps, calls, failed = lived(home, None)
        assert {how for _, how in steps} == {"done"}
        assert not failed
        cases = [Case(at, *way) for at in range(1, calls + 1) for way in WAYS]
        for case in cases[part :: 2 * EVERY + 1 - EVERY % 2]:
            home = restore(disk, prepared)
            steps, _, _ = lived(home, case)
            disk.cut()
            judge(home, steps, case)
