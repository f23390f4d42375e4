"""Random histories of an edge against a centre, each step with what must hold after it."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

from common import crash
from common.crash import SimulatedCrash
from sender.round.freed_files.removing import Removal
from sender.round.round_words.round_report import RoundReport
from sender.select.walk import Walk
from tests.support.edge_database import DatabaseFile
from tests.support.edge_shapes import ALL, ROW, SERIES, SPAN, Key, Points
from tests.support.oracle import CentreView, EdgeBackup, Oracle, difference

WEIGHTS = {
    "write": 40.0,
    "flush": 6.0,
    "close": 14.0,
    "delete": 4.0,
    "inner": 4.0,
    "cross": 4.0,
    "expire": 1.0,
    "restart": 1.0,
    "move": 1.0,
    "rename": 0.5,
    "free": 2.0,
    "round": 8.0,
    "whole_round": 8.0,
    "dying_round": 3.0,
    "prove": 2.0,
}


_READ = 8
"""Every so many checks the product's reader, which takes long, is asked as well."""


TOLD_OTHERWISE = WEIGHTS | {"delete": 6.0, "keep": 1.5, "rewrite": 1.5}
"""The same where deletions are only kept for a while, and deletion files are written anew."""
RESTORES = WEIGHTS | {"backup": 1.5, "restore": 1.5}
"""The same with copies of the edge, and restores from them."""
_FORGOTTEN = (
    (),
    ("**/sync-sender/*/last_local_files.txt",),
    ("**/sync-sender/*/local_files.state",),
    ("schema/sync/*/looks.state",),
    ("schema/sync/*/receiver.json",),
)


class WrongAnswer(AssertionError):
    """Readers of the centre get what the edge's database would not have given."""


class Play:
    """One history.

    Attributes:
        events: what happened, for whoever has to find out why it was wrong.
        checks: rounds after which the answer had to be that of the database.
    """

    def __init__(self, world: Oracle, seed: int, *, weights: dict[str, float] | None = None):
        self.world, self.database = world, world.database
        self.chance = random.Random(seed)
        self.weights = WEIGHTS if weights is None else weights
        self.head = self.checks = 0
        self.events: list[tuple[Any, ...]] = []
        self.given: Points = {}
        self.before: Points = {}
        self.compacted = False
        self.partly = self.died = False
        self.unsure: set[int] = set()
        self.backup: EdgeBackup | None = None
        self.accepting = False
        self.ended: set[Key] = set()
        self.rotted = False

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        (name,) = self.chance.choices(list(self.weights), list(self.weights.values()))
        getattr(self, f"_{name}")()

    def _note(self, *what: Any) -> None:
        self.events.append(what)

    # -- what happens at the edge ----------------------------------------------------------

    def _write(self) -> None:
        if self.chance.random() < 0.6:
            self.head += 1
            time = self.head
        else:
            low = max(self.database.floor, self.head - 7, 0)
            time = self.chance.randint(low, max(self.head, self.database.floor))
        series = self.chance.choice(SERIES + " " * self.database.shape.table).strip()
        self._note("write", series, time, self.database.write(series, time))

    def _flush(self) -> None:
        if opened := self.database.opened():
            file = self.chance.choice(opened)
            self.database.flush(file)
            self._note("flush", file.name)

    def _close(self) -> None:
        if opened := self.database.opened():
            file = self.chance.choice(opened)
            self.database.close(file)
            self._note("close", file.partition, file.name, file.points)

    def _delete(self) -> None:
        low = self.chance.randint(max(0, self.head - 9), self.head + 1)
        what = (self.chance.choice(SERIES), low, low + self.chance.randint(0, 4))
        number = self.database.delete(*what)
        self._note("delete", *what, number)
        if self.partly:
            self.unsure.add(number)  # no look can tell what it was made before

    def _rewrite(self) -> None:
        """A deletion file is written anew."""
        if files := [each for each in self.database.closed() if each.deletions]:
            file = self.chance.choice(files)
            self.database.rewrite_deletions(file)
            self._note("rewrite", file.partition, file.name)

    def _keep(self) -> None:
        """What is deleted for a while is only kept; then all of it applies."""
        self.world.edge.with_settings(deletion_files="keep")
        for what in self.chance.choices(["write", "close", "delete"], k=4):
            getattr(self, f"_{what}")()
        report = self.world.round()
        self._note("kept", report.sent, report.held, report.error)
        self.world.edge.with_settings(deletion_files="apply")
        self._whole_round()

    def _partition(self) -> int:
        return max(0, self.head // SPAN - self.chance.randint(0, 1))

    def _inner(self) -> None:
        partition, late = self._partition(), self.chance.random() < 0.5
        if (count := len(self.database.closed(late, partition))) > 1:
            at = self.chance.randrange(count - 1)
            self.database.inner(partition, late, at, self.chance.randint(2, 3))
            self.compacted = True
            self._note("inner", partition, late, at)

    def _cross(self) -> None:
        partition = self._partition()
        self.database.cross(partition, self.chance.randint(1, 3))
        self.compacted = True
        self._note("cross", partition, [(f.partition, f.name) for f in self.database.closed()])

    def _expire(self) -> None:
        if not self.compacted:  # what it takes between a compaction and the next look is a limit
            self.database.expire(
                self.head - self.chance.randint(4, 10), drop=self.chance.random() < 0.7
            )
            self._note("expire", self.database.floor)

    def _restart(self) -> None:
        self.database.restart()
        self._note("restart")

    def _move(self) -> None:
        if closed := self.database.closed():
            file = self.chance.choice(closed)
            self.database.move(file, 1 - file.home)
            self._note("move", file.name, file.home)

    def _rename(self) -> None:
        """As if it had been compacted once more; its order among the others stays."""
        if closed := self.database.closed():
            file = self.chance.choice(closed)
            name = (*file.name[:3], file.name[3] + 1, file.name[4])
            if all((each.partition, each.name) != (file.partition, name) for each in closed):
                self.database.rename(file, name)
                self._note("rename", file.partition, name)

    def _free(self) -> None:
        """An operator frees some of what is safe, and the command may die on the way."""
        closed = self.database.closed()
        wanted = [f.path(self.database.group) for f in closed if self.chance.random() < 0.6]
        if not wanted:
            return
        dying = self.chance.random() < 0.3
        passed: list[str] = []
        hook = self._deadly(passed, self.chance.randint(-25, 0) if dying else 1)
        before, edge = self.world.answer(), self.database.answer(ttl=False)
        with self._meanwhile(), contextlib.suppress(SimulatedCrash), crash.arm(hook):
            self.world.free(wanted)
        gone = self._noticed()
        self._note("free", [(f.partition, f.name) for f in gone], passed[-1:] if dying else "whole")
        if gone and self.world.mode == "all":
            raise WrongAnswer("a mirror frees", gone)
        if self.world.answer() != before:
            raise WrongAnswer("freeing changed the centre's answer")
        for key, value in self.database.answer(ttl=False).items():
            if key[0] == ROW:
                continue
            if value < edge.get(key, 0) and not self._covered(key, edge[key]):
                raise WrongAnswer("the edge itself answers with an older point", key, value)

    def _noticed(self) -> list[DatabaseFile]:
        """Files that are gone: what was deleted in them must be known at the centre."""
        gone, seen = self.database.notice_freed(), self.world.view().seen
        for file in gone:
            if untold := {each.line.number for each in file.deletions} - seen:
                raise WrongAnswer("freed with deletions that nobody else knows", file.name, untold)
        return gone

    @contextlib.contextmanager
    def _meanwhile(self) -> Iterator[None]:
        """The database goes on between a judgement and a removal."""
        original, left = Removal.names, itertools.count(self.chance.randint(-6, 0))

        def names(removal: Removal, directories: Any) -> Any:
            if next(left) == 0:
                self._note("freed", [f.name for f in self._noticed()])
                for _ in range(2):
                    what = ["write", "close", "inner", "cross", "delete"]
                    getattr(self, f"_{self.chance.choice(what)}")()
            return original(removal, directories)

        Removal.names = names  # type: ignore[method-assign]
        try:
            yield
        finally:
            Removal.names = original  # type: ignore[method-assign]

    def _deadly(self, passed: list[str], begin: int) -> Callable[[str], None]:
        """Dies at the crash point that makes a count from `begin` come to 0."""
        left, me = itertools.count(begin), threading.get_ident()

        def hook(name: str) -> None:
            if threading.get_ident() == me:
                passed.append(name)
                if next(left) == 0:
                    raise SimulatedCrash(name)

        return hook

    def _backup(self) -> None:
        if not self.partly and not self.died:  # of an edge that a look has seen as it is
            self.backup = self.world.backup()
            self._note("backup")

    def _restore(self) -> None:
        """The edge is what its copy was, with or without what its sender remembered."""
        if self.backup is None or not self.world.view().rows:
            return
        lost = self.chance.choice(_FORGOTTEN)
        kept, self.backup = self.backup, None
        # What was deleted since holds in what had ended; what the centre does not know, and what is
        # deleted before the next whole look, in the files of the edge alone.
        known = kept.database.log.keys() & self.world.view().seen
        self.unsure |= self.database.log.keys() - known
        self.partly = self.compacted = self.accepting = True
        self.ended |= self.world.answer().keys()
        self.world.restore(kept, lost=lost)
        there = self.database.answer(ttl=False)  # the value of old stands above what came since
        self.given, self.before = (
            {key: min(value, there.get(key, value)) for key, value in old.items()}
            for old in (self.given, self.before)
        )
        self._note("restore", lost)

    # -- rounds ----------------------------------------------------------------------------

    def _whole_round(self) -> None:
        self.judge(self.world.round())

    def judge(self, report: RoundReport) -> None:
        """A round that could reach everything has to have brought everything."""
        self._note("round", report.sent, report.retired, report.already)
        if report.error is not None:
            raise WrongAnswer("a round failed", report.error)
        for _ in range(2):  # the first round behind a comparison with the receiver holds ends
            if report.held:
                report = self.world.round()
        if report.held or report.pending_files or report.conflicts:
            raise WrongAnswer("a whole look left something", report)
        self._weak()
        self._strict()
        self._lists()
        self.compacted = self.partly = self.died = self.accepting = False

    def _round(self) -> None:
        """A round that does not reach everything, or in which files are not ready."""
        kind = self.chance.choice(["late", "linked", "unmarked", "torn"])
        with self._hindered(kind):
            report = self.world.round()
        self._note("round", kind, report.sent, report.retired, report.already, report.held)
        if report.error is not None:
            raise WrongAnswer("a round failed", report.error)
        self._weak()
        self.partly = self.partly or kind != "late"

    @contextlib.contextmanager
    def _hindered(self, kind: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if kind == "linked":
                late, home = self.chance.random() < 0.5, self.chance.randint(0, 1)
                stack.enter_context(self.world.linked(late, home))
            elif kind == "unmarked":
                stack.enter_context(self.world.unmarked(self.chance.randint(0, 1)))
            elif kind == "torn":
                stack.enter_context(self._torn())
            else:
                files = [f for f in self.database.closed() if self.chance.random() < 0.4]
                where = [self.database.where(each) for each in files]
                stack.enter_context(self.world.delayed(where))
                self._note("not ready", [each.name for each in files])
            yield

    @contextlib.contextmanager
    def _torn(self) -> Iterator[None]:
        """The database goes on between two directories of one scan."""
        original, left = Walk._partition, itertools.count(self.chance.randint(-3, 0))

        def meanwhile(walk: Walk, *rest: Any) -> None:
            if next(left) == 0:
                for _ in range(3):
                    what = ["write", "close", "inner", "cross", "cross", "delete"]
                    getattr(self, f"_{self.chance.choice(what)}")()
            original(walk, *rest)

        Walk._partition = meanwhile  # type: ignore[method-assign]
        try:
            yield
        finally:
            Walk._partition = original  # type: ignore[method-assign]

    def _dying_round(self) -> None:
        """The sender dies somewhere on the way."""
        passed: list[str] = []
        hook = self._deadly(passed, self.chance.randint(-120, 0))
        with contextlib.suppress(SimulatedCrash), crash.arm(hook):
            self.world.round()
        self._note("dying round", passed[-1:])
        self.world.host.rest()
        self.died = True
        self._weak()

    def _prove(self) -> None:
        """Proofs change no answer, and leave nothing that has one."""
        before = self.world.answer()
        self._note("prove", self.world.host.prove())
        view = self.world.view()
        if (now := view.answer()) != before:
            raise WrongAnswer("a proof changed an answer", difference(now, before))
        if self.world.mode != "never" and not self._is_rotten():
            self._all_is_proved(view)

    @staticmethod
    def _all_is_proved(view: CentreView) -> None:
        left = [row.path for row in view.visible if row.retired and view.is_given_above(row)]
        if left:
            raise WrongAnswer("a retired file with every point given above stays", left)

    # -- what must hold --------------------------------------------------------------------

    def _covered(self, key: Key, value: int, *, seen: set[int] | None = None) -> bool:
        """Whether a deletion took a point, among those that are seen if they are given."""
        return any(
            series in (key[0], ALL)
            and low <= key[1] <= high
            and value <= write
            and (seen is None or number in seen)
            for number, (series, low, high, write) in self.database.log.items()
        )

    def _weak(self) -> None:
        """After any round: nothing that was given is lost or older, unless the edge says so."""
        if self.world.mode == "all" and len(self.world.senders) > 1:
            self.world.host.prove()  # what was proved goes with what a mirror deletes, no more
        view, edge = self.world.view(), self.database.answer(ttl=False)
        now = view.answer()
        self._supersession(view)
        if self.accepting:
            self.ended |= now.keys()
        for key, value in self.before.items():
            if key[0] == ROW:
                continue  # nothing tells one writing of a row from another
            if self.world.mode == "all" and key not in edge:
                continue  # the mirror follows
            if (
                now.get(key, 0) < value
                and not self._covered(key, value)
                and edge.get(key) != now.get(key, -1)
            ):
                raise WrongAnswer("a point fell back", key, value, now.get(key))
        self.before = now

    def _supersession(self, view: CentreView | None = None) -> None:
        """What was proved is missed by nobody."""
        view = view or self.world.view()
        now, whole = view.answer(), view.answer(superseded=True)
        if now != whole:
            raise WrongAnswer("what is superseded would be missed", difference(now, whole))

    def _is_rotten(self) -> bool:
        """Whether the bytes of a file are others now, which nobody has noticed."""
        return False

    def _excused(self, view: CentreView) -> set[tuple[Key, int]]:
        """Points that need not be given, although the edge does not have them any more."""
        del view
        return set()

    def _strict(self) -> None:
        """After a whole round: the database's answer, and what it has no more."""
        self.checks += 1
        view = self.world.view()
        got = view.answer()
        self._once(view)
        if (
            self.checks % _READ == 0
            and not self._is_rotten()
            and (read := self.world.read())
            != (points := {key: value for key, value in got.items() if key[0] != ROW})
        ):
            raise WrongAnswer("the product's reader differs", difference(read, points))
        if self.world.mode == "all":
            edge = self.database.answer(ttl=False)
            # Its mirror's word does not reach those.
            older = view.of_others(self.world.edge.uuid, proved=not self.rotted)
            mirrored = {  # what a restored edge has no more is retired, in a mirror too
                key: got[key]
                for key in got
                if key in edge or ((key, got[key]) not in older and key not in self.ended)
            }
            if mirrored != edge:
                raise WrongAnswer("the mirror differs", difference(mirrored, edge))
            return
        wanted = self.database.answer()
        for key, value in wanted.items():
            if got.get(key) != value:
                raise WrongAnswer("not the database's answer", key, got.get(key), value)
        self.given.update({key: value for key, value in wanted.items() if key[0] != ROW})
        seen, excused = view.seen - self.unsure, self._excused(view)
        for key, value in self.given.items():
            if key in wanted:
                continue
            if self._covered(key, value, seen=seen):
                if got.get(key, value + 1) <= value:
                    raise WrongAnswer("a deleted point is given", key, got[key])
            elif (
                not self._covered(key, value)
                and got.get(key, 0) < value
                and (key, value) not in excused
            ):
                raise WrongAnswer("what the edge has no more is lost", key, got.get(key), value)
        self.given = {
            key: value
            for key, value in self.given.items()
            if key in wanted or not self._covered(key, value)
        }

    def _lists(self) -> None:
        """What is listed is what the edge has; last copies of a round that died end in the next."""
        if self.died and self._listed() - self._here():
            self.world.round()
        if self._listed() != self._here():
            raise WrongAnswer("the list differs", self._listed() ^ self._here())

    def _listed(self) -> set[tuple[str, str]]:
        live = (row for row in self.world.view().visible if not row.retired)
        return {(path, row.md5) for row in live for path in row.paths}

    def _here(self) -> set[tuple[str, str]]:
        return {(each.path(self.database.group), each.md5) for each in self.database.closed()}

    @staticmethod
    def _once(view: CentreView) -> None:
        contents = [row.md5 for row in view.visible if not row.retired and row.points]
        if len(set(contents)) < len(contents):
            raise WrongAnswer("a content is visible twice", contents)
