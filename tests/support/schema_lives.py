"""Lives of a metadata engine that end by a power cut, and what its disk must show afterwards.

    lives = Lives(disk, random.Random(seed))
    life = lives.begin(crash="*:40")     # another process commits, and dies at its 40th crash point
    lives.end(life)                      # the power is cut; everything is looked at

A life is a process of its own (a fork, so it begins at once). Some threads carry out a plan each,
in storage groups and keys of their own; meanwhile another lets history go and takes checkpoints.
What is told of a commit goes through a pipe, which no power cut reaches.

After the cut the log must have every commit that was told, at most one more of each thread (the one
it was at), and nothing else; all that the engine answers, now and for times of the history that is
kept, is compared with dictionaries (`tests.support.schema_model`) that went the same way.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from common import crash
from common.errors import TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.alterations import Alteration, Upsert
from receiver.metadata.model.engine_options import EngineOptions
from tests.support import schema_view
from tests.support.metadata import seen
from tests.support.powercut import Disk
from tests.support.schema_model import LEGAL, Rejected, Tree, Versions, text

KEPT = 300
"""Commits that history reaches back; a life has fewer, so all of it can be looked at."""
OPTIONS = EngineOptions(history=0.0, history_commits=KEPT)
_OPENINGS = 12
_PAST = 4
"""Times of the past that are asked about after a cut."""


@dataclass(frozen=True)
class Step:
    """What a thread does, and the operations that come of it."""

    ops: list[records.Op]
    alter: tuple[str, Alteration] | None = None


@dataclass
class Life:
    """A process that commits."""

    pid: int
    pipe: int
    plans: list[list[Step]]
    told: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Timestamp -> (thread, step) of what was acknowledged."""
    checkpoint: int = 0
    """LSN of the newest checkpoint that was told."""
    checkpoints: set[int] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)


class Lives:
    """An engine on a disk, from cut to cut."""

    def __init__(self, disk: Disk, rng: random.Random, *, threads: int = 3) -> None:
        self.disk = disk
        self.home = disk.path / "schema"
        self.rng = rng
        self.threads = threads
        self.versions = Versions()
        self.cuts = self.commits = self.in_flight = self.checkpoints = self.during_open = 0
        with Engine.open(self.home, options=OPTIONS, background=False) as engine:
            self.versions.append(engine.newest_commit, Tree())

    # -- living --------------------------------------------------------------------------------

    def begin(self, *, steps: int = 60, crash_at: str | None = None, tidy: bool = True) -> Life:
        """Start a life.

        Args:
            steps: commits of each thread, at most.
            crash_at: as `TSFERRY_CRASH_AT`.
            tidy: whether checkpoints are taken and history is let go all the time.
        """
        assert steps * self.threads < KEPT
        plans = [
            list(_plan(self.rng, clone(self.versions.newest), f"t{thread}", steps))
            for thread in range(self.threads)
        ]
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            try:
                _live(self.home, plans, theirs, crash_at, tidy)
            finally:
                os._exit(0)
        os.close(theirs)
        return Life(pid, ours, plans)

    def end(self, life: Life, *, after: float | None = None, linger: float = 0.0) -> None:
        """Cut the power, and see what is there.

        Args:
            life: of the process; it may have died.
            after: seconds until the power fails, under its hands; None: when the process has ended.
            linger: seconds that the process goes on with the dead disk.
        """
        if after is not None:
            time.sleep(after)
            with stopped(life.pid):
                self.disk.fail()
            time.sleep(linger)
            with suppress(ProcessLookupError):
                os.kill(life.pid, signal.SIGKILL)
        _reap(life.pid, 60.0)
        _listen(life)
        self.checkpoints += len(life.checkpoints)
        if after is None:
            self.disk.cut()
        else:
            self.disk.unmount()
            self.disk.mount()
        self.cuts += 1
        if self.rng.random() < 0.5:
            self._die_opening()
        self._judge(life)

    def _die_opening(self) -> None:
        """Recovery itself is cut off, twice perhaps."""
        for _ in range(self.rng.choice((1, 2))):
            at = f"*:{self.rng.randrange(1, _OPENINGS)}"
            pid = os.fork()
            if pid == 0:
                try:
                    with crash.arm(crash._die_at(at)):
                        Engine.open(self.home, options=OPTIONS, background=False)
                finally:
                    os._exit(0)
            _reap(pid, 60.0)
            self.disk.cut()
            self.cuts += 1
            self.during_open += 1

    # -- looking -------------------------------------------------------------------------------

    def _judge(self, life: Life) -> None:
        with Engine.read_only(self.home, options=OPTIONS) as engine:
            self._account(engine, life)
            self._compare(engine, "before anybody repaired it")
        self._again("as it is opened")
        self.disk.cut()  # what the recovery wrote and did not flush is gone
        self._again("as it is opened a second time")
        with Engine.open(self.home, options=OPTIONS, background=False) as engine:
            ts = engine.commit([seen(label=str(self.cuts))])
            self.versions.append(ts, self.versions.newest)
            if self.rng.random() < 0.3:
                engine.collect()
                engine.checkpoint()
            self._compare(engine, "as it goes on")
        if self.cuts % 10 == 0:
            self.disk.unmount()
            self.disk.check()
            self.disk.mount()

    def _again(self, when: str) -> None:
        with Engine.open(self.home, options=OPTIONS, background=False) as engine:
            self._compare(engine, when)

    def _account(self, engine: Engine, life: Life) -> None:
        """Every commit of the life, one by one, into the model."""
        at = [0] * self.threads
        untold: set[int] = set()
        told = dict(life.told)
        for commit in engine.log_since(self.versions.stamps[-1]):
            if commit.ts in told:
                thread, step = told.pop(commit.ts)
                assert at[thread] == step, f"thread {thread}: step {step} without {at[thread]}"
                assert list(commit.ops) == life.plans[thread][step].ops, (thread, step)
            else:
                [thread] = [
                    number
                    for number, plan in enumerate(life.plans)
                    if at[number] < len(plan) and plan[at[number]].ops == list(commit.ops)
                ]
                assert thread not in untold, "two commits at once of one thread"
                untold.add(thread)
            at[thread] += 1
            tree = clone(self.versions.newest)
            for op in commit.ops:
                tree.take(op, commit.ts)
            self.versions.append(commit.ts, tree)
            self.commits += 1
        assert not told, f"acknowledged and lost: {told}"
        self.in_flight += len(untold)
        based = engine._window.lsn - engine.entries_since_checkpoint
        assert based >= life.checkpoint, "a checkpoint that was taken is lost"
        refused = [each for each in life.errors if "Refused" in each or "Conflict" in each]
        assert not refused, refused

    def _compare(self, engine: Engine, when: str) -> None:
        newest = self.versions.newest
        assert engine.newest_commit == self.versions.stamps[-1], when
        assert schema_view.of_engine(engine) == schema_view.of_model(newest), when
        check_index(engine, newest, when)
        within = [ts for ts in self.versions.stamps if ts >= max(engine.oldest_answerable, 1)]
        assert len(within) >= min(KEPT, len(self.versions.stamps) - 1), "history went too early"
        for ts in self.rng.sample(within, min(_PAST, len(within))):
            expected = schema_view.of_model(self.versions.at(ts))
            assert schema_view.of_engine(engine, ts) == expected, (when, ts)
            check_index(engine, self.versions.at(ts), when, ts)


def check_index(engine: Engine, tree: Tree, when: str, at: int | None = None) -> None:
    """The index of tags has what a count over all series gives, and nothing else."""
    pairs: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for nodes, row in tree.series.items():
        for pair in row.tags.items():
            pairs.setdefault(pair, set()).add(nodes)
    with engine.reading() as state:
        schema = state.schema
        for (key, value), expected in pairs.items():
            found = [schema.tree.nodes(int(row)) for row in schema.index.find(key, value, at)]
            assert len(found) == len(set(found)), (when, key, value)
            assert set(found) == expected, (when, key, value)


# -- what a life does ------------------------------------------------------------------------------


def _live(home: Any, plans: list[list[Step]], pipe: int, crash_at: str | None, tidy: bool) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a dying disk makes many words
    engine = Engine.open(home, options=OPTIONS, background=False)
    done = threading.Event()

    def say(*words: object) -> None:
        os.write(pipe, (" ".join(map(str, words)) + "\n").encode())

    def work(thread: int) -> None:
        for number, step in enumerate(plans[thread]):
            try:
                ts = engine.commit(step.ops) if step.alter is None else engine.alter(*step.alter)
            except TsferryError as error:
                say("error", type(error).__name__, str(error))
                return
            say("done", thread, number, ts)

    def look_after() -> None:
        while not done.wait(0.005):
            try:
                engine.collect()
                say("checkpoint", engine.checkpoint())
            except TsferryError as error:
                say("error", type(error).__name__, str(error))
                return

    with crash.arm(crash._die_at(crash_at) if crash_at else lambda _: None):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(plans))]
        keeper = threading.Thread(target=look_after)
        if tidy:
            keeper.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        if tidy:
            keeper.join()


def _listen(life: Life) -> None:
    with os.fdopen(life.pipe, "rb") as pipe:
        lines = pipe.read().decode().splitlines()
    for line in lines:
        word, *rest = line.split(" ")
        if word == "done":
            thread, step, ts = map(int, rest)
            life.told[ts] = (thread, step)
        elif word == "checkpoint":
            life.checkpoint = max(life.checkpoint, int(rest[0]))
            life.checkpoints.add(life.checkpoint)
        else:
            life.errors.append(" ".join(rest))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A child that stands still, with no call to the disk under way.

    A flush that is under way when `Disk.fail` comes may tell of success and be lost: ext4 looks
    whether it is shut down at the begin of an fsync, and a write that fails behind that is not
    found in the journal it then waits for. No disk does that, so no flush may be under way.
    """
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _reap(pid: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("a life did not come to its end")


# -- plans -----------------------------------------------------------------------------------------


def clone(tree: Tree) -> Tree:
    """A copy; what is in it never changes, so the dictionaries are enough."""
    copy = Tree(tree.tag_bytes)
    copy.groups, copy.series = dict(tree.groups), dict(tree.series)
    copy.keys, copy.aligned = dict(tree.keys), dict(tree.aligned)
    return copy


def _plan(rng: random.Random, tree: Tree, mine: str, steps: int) -> Iterator[Step]:
    """Steps that the rules allow, one after the other, in groups and keys of one's own."""
    left = steps
    while left:
        step = _step(rng, tree, mine)
        if step is None:
            continue
        after = clone(tree)
        try:
            for op in step.ops:
                after.take(op, 1)
        except Rejected:
            continue
        # As the log gives it back.
        ops = records.decode_ops(records.encode_ops(step.ops))
        yield Step(list(ops), step.alter)
        tree, left = after, left - 1


def _step(rng: random.Random, tree: Tree, mine: str) -> Step | None:
    groups = [nodes for nodes in tree.groups if nodes[1].startswith(mine)]
    series = [nodes for nodes in tree.series if nodes[1].startswith(mine)]
    kind = rng.choices(_KINDS, _WEIGHTS)[0]
    if kind == "group" or not groups:
        return Step([records.StorageGroupSet(f"root.{mine}g{rng.randrange(3)}")])
    group = text(rng.choice(groups))
    if kind == "ungroup":
        return Step([records.StorageGroupDeleted(group)])
    if kind == "ttl":
        return Step([records.TtlSet(group, rng.choice([None, 1000, 5000]))])
    if kind == "keys":
        return Step([_keys(rng, mine)])
    if kind == "create" or not series:
        made: list[records.Op] = [_created(rng, f"{group}.d{rng.randrange(6)}")]
        return Step([*made, _keys(rng, mine)] if rng.random() < 0.2 else made)
    nodes = rng.choice(series)
    if kind == "delete":
        wide = [f"{text(nodes[:-1])}.*", f"{text(nodes[:2])}.**.s{rng.randrange(4)}"]
        return Step([records.SeriesDeleted(rng.choice([text(nodes), text(nodes), *wide]))])
    if kind == "tags":
        return Step([records.TagsSet(text(nodes), _pairs(rng, "k"), _pairs(rng, "a"))])
    if kind == "alias":
        return Step([records.AliasSet(text(nodes), rng.choice([None, "x", "y", "z"]))])
    row, tags, attributes = tree.series[nodes], _pairs(rng, "k"), _pairs(rng, "a")
    if {**row.tags, **tags} == row.tags and {**row.attributes, **attributes} == row.attributes:
        return None  # nothing would be committed
    ops = [records.TagsSet(text(nodes), row.tags | tags, row.attributes | attributes)]
    return Step(list(ops), (text(nodes), Upsert(tags=tags, attributes=attributes)))


_KINDS = ("create", "tags", "alter", "alias", "delete", "keys", "ttl", "group", "ungroup")
_WEIGHTS = (40, 14, 14, 8, 8, 10, 3, 3, 1)


def _created(rng: random.Random, device: str) -> records.SeriesCreated:
    names = rng.sample([f"s{number}" for number in range(4)], rng.randrange(1, 4))
    codes: Sequence[tuple[int, int, int]] = [rng.choice(LEGAL) for _ in names]
    types, encodings, compressions = (bytes(column) for column in zip(*codes, strict=True))
    return records.SeriesCreated(
        device,
        names,
        types,
        encodings,
        compressions,
        aliases=[None if rng.random() < 0.7 else f"other-{name}" for name in names],
        tags=[_pairs(rng, "k") for _ in names],
        attributes=[_pairs(rng, "a") for _ in names],
    )


def _pairs(rng: random.Random, kind: str) -> dict[str, str]:
    keys = rng.sample([f"{kind}{number}" for number in range(4)], rng.randrange(4))
    return {key: rng.choice(["on", "off", "é, hall 7", "x" * rng.randrange(90)]) for key in keys}


def _keys(rng: random.Random, mine: str) -> records.KeysWritten:
    saves = {f"{mine}/{rng.randrange(8)}": str(rng.random()) for _ in range(rng.randrange(1, 4))}
    removals = [f"{mine}/{rng.randrange(8)}"] if rng.random() < 0.3 else []
    return records.KeysWritten(removals, saves)
