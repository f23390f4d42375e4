"""Each call to the disk failing, once and from then on, or killing, in the work of an engine.

A process opens an engine that has something to put right, commits with tags, takes checkpoints,
lets go of segments. Then its power is cut. Whatever failed: what was acknowledged is there, what
was refused is not, and a full disk heals while the engine lives.

The long tier tries every call, looking ones too; the others try a part.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.durable import Tree
from common.durable.flushing import meaning
from common.errors import DiskError, NoSpaceError, TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.metadata.model import records
from receiver.metadata.model.alterations import Upsert
from receiver.metadata.model.engine_options import EngineOptions
from tests.support import powercut, schema_view, tiers
from tests.support.disk import CHANGING, LOOKING, NAMING, Faults
from tests.support.metadata import has_commit
from tests.support.schema_commits import HISTORY, everything, series

CALLS = (*CHANGING, *NAMING, "open", "renameat2", *(LOOKING if tiers.is_long() else ()))
OPTIONS = EngineOptions(history=0.0, history_commits=500)
UNKNOWN = {"FailedSyncError"}
"""After these a commit may be there, or not."""
KILL = 0
WAYS = [
    (errno.EIO, True),
    (errno.ENOSPC, True),
    (errno.ENOSPC, False),
    (errno.EIO, False),
    (KILL, True),
]


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
        what = errno.errorcode[self.code] if self.code else "death"
        return f"{what} at call {self.at}{'' if self.once else ' and on'}"


def work(home: Path, say: Callable[..., None], case: Case | None) -> None:
    """What the process does; it tells of each step, and how many calls there were."""
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch)
        faults.watch(*CALLS)
        if case is not None:
            faults.fail(case.code, case.at, *CALLS, once=case.once)
            if case.code == KILL:
                faults._error = lambda: os.kill(os.getpid(), signal.SIGKILL)
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
    commits = [commit.ts for commit in engine.log_since(engine.oldest_answerable)]
    assert commits[-1:] == [engine.newest_commit][: len(commits)]
    assert all(has_commit(engine, each) for each in commits), "the log goes on without a gap"
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
    assert altered in [
        ({"unit": "f"}, {"maker": "x"}),
        ({"unit": "f", "name": "alter"}, altered[1]),
    ]
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
    calls = max((number for name, _, number in said if name == "calls"), default=0)
    failed = "".join(text for name, text, _ in said if name == "failed")
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
    if case is not None and case.code == KILL:
        may |= set(COMMITS[len(steps) : len(steps) + 1])  # the one that it died at
    with Engine.read_only(home, options=OPTIONS) as engine:
        there = found(engine)
    assert must <= there <= must | may, f"{case}: {steps}; there is {there}"
    for _ in range(2):
        with Engine.open(home, options=OPTIONS, background=False) as engine:
            assert found(engine) == there, f"{case}: recovery is not the same"
    assert not list(home.glob("*.damaged")), case


def test_whatever_call_fails_the_acknowledged_is_kept_and_the_refused_is_not(tmp_path, prepared):
    with powercut.disk(tmp_path) as disk:
        home = restore(disk, prepared)
        steps, calls, failed = lived(home, None)
        assert {how for _, how in steps} == {"done"}
        assert not failed
        cases = [Case(at, *way) for at in range(1, calls + 1) for way in WAYS]
        for case in tiers.sample(cases, 2, kind=lambda case: (case.code, case.once)):
            home = restore(disk, prepared)
            steps, _, _ = lived(home, case)
            disk.cut()
            judge(home, steps, case)


def test_short_writes_lose_nothing(prepared, tmp_path, monkeypatch):
    home = tmp_path / "schema"
    shutil.copytree(prepared, home)
    write, pwrite = os.write, os.pwrite
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:100])))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data[:100]), at))
    with Engine.open(home, options=OPTIONS, background=False) as engine:
        for _, step in STEPS:
            step(engine)
        expected = everything(engine)
    monkeypatch.undo()
    with Engine.open(home, options=OPTIONS, background=False) as engine:
        assert everything(engine) == expected
        assert found(engine) == {"a", "alter", "b", "c"}


@pytest.mark.parametrize("full", [False, True])
def test_a_flush_of_the_tags_without_room_heals_and_loses_none(
    prepared, tmp_path, monkeypatch, full
):
    """What a flush did not find room for may be gone from memory too: the log has it."""
    home = tmp_path / "schema"
    shutil.copytree(prepared, home)
    with Engine.open(home, options=OPTIONS, background=False) as engine:
        engine.commit([tagged("a")])
        engine.commit([tagged("b"), records.KeysWritten([], {"b": "b"})])
        expected = everything(engine)
        tlog, fsync, pwrite = engine._tlog._file.fileno(), os.fsync, os.pwrite
        gone, ways = engine._tlog.size - 60, {"fsync", "pwrite"} if full else {"fsync"}

        def without_room(name, call):
            def calling(fd, *more):
                if fd == tlog and name in ways:
                    pwrite(fd, bytes(60), gone)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return call(fd, *more)

            monkeypatch.setattr(os, name, calling)

        without_room("fsync", fsync)
        without_room("pwrite", pwrite)
        for _ in range(2):
            with pytest.raises(NoSpaceError):
                engine.checkpoint()
            assert engine.failed is None
            assert full or everything(engine) == expected
        ways.clear()
        engine.commit([tagged("c")])
        assert found(engine) == {"a", "b", "c"}
        engine.checkpoint()
        expected = everything(engine)
    for _ in range(2):
        with Engine.open(home, options=OPTIONS, background=False) as engine:
            assert everything(engine) == expected
            assert found(engine) == {"a", "b", "c"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_segment_that_was_made_and_could_not_be_opened_does_not_stay(
    prepared, tmp_path, monkeypatch, code
):
    """Or commits that go on in the one before would run into it, and the next start be refused."""
    home = tmp_path / "schema"
    shutil.copytree(prepared, home)
    with Engine.open(home, options=OPTIONS, background=False) as engine:
        engine.commit([tagged("a")])
        with monkeypatch.context() as broken:

            def append_file(self, rel, **more):
                with meaning(rel):
                    raise OSError(code, os.strerror(code))

            broken.setattr(Tree, "append_file", append_file)
            with pytest.raises((NoSpaceError, OSError)):
                engine.checkpoint()
        engine.commit([tagged("b"), records.KeysWritten([], {"b": "b"})])
        expected = everything(engine)
    with Engine.open(home, options=OPTIONS, background=False) as engine:
        assert everything(engine) == expected
        engine.checkpoint()
        assert found(engine) == {"a", "b"}


def bad_sector(monkeypatch, name):
    """From now on a file cannot be read."""
    real = os.preadv

    def preadv(fd, *more):
        if name in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, *more)

    monkeypatch.setattr(os, "preadv", preadv)


def test_a_checkpoint_that_cannot_be_read_is_passed_over(prepared, tmp_path, monkeypatch):
    home = tmp_path / "schema"
    shutil.copytree(prepared, home)
    with Engine.read_only(home, options=OPTIONS) as engine:
        expected = everything(engine)
    bad_sector(monkeypatch, newest(home).name)
    with Engine.read_only(home, options=OPTIONS) as engine:
        assert everything(engine) == expected
    with Engine.open(home, options=OPTIONS, background=False) as engine:
        assert everything(engine) == expected


@pytest.mark.parametrize("name", ["mlog-4.tsf", "tlog-1.tsf"])
def test_a_log_that_cannot_be_read_is_named(prepared, tmp_path, monkeypatch, name):
    home = tmp_path / "schema"
    shutil.copytree(prepared, home)
    real = os.pread

    def pread(fd, *more):
        if name in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, *more)

    monkeypatch.setattr(os, "pread", pread)
    for opening in (Engine.open, Engine.read_only):
        with pytest.raises(DiskError, match=name):
            opening(home, options=OPTIONS)


def newest(home: Path) -> Path:
    return max(home.glob("mtree.snapshot-*.tsf"), key=lambda each: int(each.stem.split("-")[1]))
