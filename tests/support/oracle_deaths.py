"""Histories in which programs are killed and bytes rot, on a receiver that can die."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from common import crash
from common.errors import CloneError
from receiver.metadata.state.table_rows import FileRow, FileState
from sender.round.round_words.round_report import RoundReport
from tests.support.edge import Edge
from tests.support.edge_shapes import Key
from tests.support.oracle import CentreView, Oracle, difference
from tests.support.oracle_host import Countdown, Killable, in_child
from tests.support.oracle_play import WEIGHTS, Play, WrongAnswer

DEADLY = WEIGHTS | {
    "dying_round": 0.0,
    "kill": 1.0,
    "deadly_round": 4.0,
    "killed_round": 3.0,
    "deadly_proof": 2.0,
    "rot": 1.5,
    "find_rot": 1.5,
    "copy_box": 0.5,
    "clone_comes": 1.0,
    "exchange": 0.5,
}
_KEPT = (FileState.LIVE, FileState.RETIRED, FileState.SUPERSEDED, FileState.QUARANTINED)


class DeadlyPlay(Play):
    """A history in which either program can be killed anywhere, and files rot at the centre.

    Attributes:
        rotten: physical names of files whose bytes are others now, which nobody has noticed.
        deaths: how often a program was killed.
        beside: the other histories at this centre.
        clone: a copy of the edge, and the epoch that it was made at.
    """

    def __init__(self, world: Oracle, host: Killable, seed: int) -> None:
        super().__init__(world, seed, weights=DEADLY)
        self.host = host
        self.rotten: set[str] = set()
        self.deaths = 0
        self.beside: list[DeadlyPlay] = []
        self.clone: tuple[Edge, str | None] | None = None

    # -- deaths ----------------------------------------------------------------------------

    def _revive(self) -> None:
        """Start the receiver anew; it may die a few times while it recovers."""
        self.deaths += 1
        while self.chance.random() < 0.4:
            points = self.chance.randint(1, 40)
            came_up = self.host.start(dies_at=points)
            self._note("started, to die at", points, came_up)
            if came_up:
                return
            self.deaths += 1
        assert self.host.start()

    def _kill(self) -> None:
        """Between rounds."""
        self.host.kill()
        self._note("kill")
        self._revive()
        self._weak()

    def _deadly_round(self) -> None:
        """The receiver dies somewhere in a round."""
        points = self.chance.randint(1, 150)
        self.host.dies_in(points)
        report = self.world.round()
        died = not self.host.outlives()
        self._note("deadly round", points, died, report.error)
        if died:
            self._revive()
        self.died = True
        self._weak()

    def _killed_round(self) -> None:
        """The sender is killed somewhere in a round."""
        points = self.chance.randint(1, 250)

        def run() -> None:
            with crash.arm(Countdown(points)):
                self.world.round()

        _, status = os.waitpid(in_child(run), 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        self._note("killed round", points, killed)
        if not killed and status:
            raise WrongAnswer("a round failed", status)
        self.deaths += killed
        self.died = True
        self._weak()

    def _deadly_proof(self) -> None:
        """The receiver dies while it proves, or behind it."""
        before = self.world.answer()
        points = self.chance.randint(1, 15)
        self.host.dies_in(points)
        self._note("deadly proof", points, self.host.prove())
        if not self.host.outlives():
            self._revive()
        if self.world.answer() != before:
            raise WrongAnswer("a proof that was cut off changed an answer")
        self._prove()

    # -- other boxes -----------------------------------------------------------------------

    def _epochs(self) -> tuple[str | None, str | None]:
        with self.host.reading() as state:
            row = state.senders.get(self.world.edge.uuid)
        return (row.epoch, row.previous) if row else (None, None)

    def _copy_box(self) -> None:
        self.clone = self.world.clone(), self._epochs()[0]
        self._note("clone")

    def _clone_comes(self) -> None:
        """A copy that was left behind by two tasks is refused, and changes nothing."""
        if self.clone is None or self.clone[1] in (None, *self._epochs()):
            return
        edge, _ = self.clone
        before, self.clone = self.world.answer(), None
        report = edge.round()
        self._note("the clone comes", report.error)
        if not isinstance(report.error, CloneError):
            raise WrongAnswer("a clone is let in", report.error)
        if self.world.answer() != before:
            raise WrongAnswer("a clone changes something", difference(self.world.answer(), before))
        shutil.rmtree(edge.root)

    def _exchange(self) -> None:
        """Another box goes on with the database."""
        self.clone = None
        for file in self.database.opened():
            self.database.close(file)
        if self.beside or not self.world.view().rows:
            return
        self.unsure |= self.database.log.keys() - self.world.view().seen
        old = self.world.exchange()
        report = self.world.round()
        self._note("exchanged", report.sent, report.error)
        self._weak()
        self.host.adopt(old, self.world.edge.uuid)
        # All that the new box lists stands above what ended before: older values above newer ones.
        still = self.database.answer()
        self.given = {key: value for key, value in self.given.items() if key in still}
        self._weak()
        self._whole_round()

    # -- the end ---------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything come to rest at this centre, and look at the disk."""
        together = (self, *self.beside)
        if self._is_rotten():
            self._fsck()
        for each in together:
            for _ in range(3):
                each._whole_round()
            while self.host.prove():
                pass
            each._prove()
        self.host.with_no_history()
        self.host.reap()
        for each in together:
            each.on_disk()
            each._strict()
        if report := self._fsck():
            raise WrongAnswer("fsck finds something in the end", report)

    def on_disk(self) -> None:
        """What is on the disk is there for a reason."""
        view, top = self.world.view(), self.host.config.data_dirs[0]
        with self.host.reading() as state:
            rows = dict(state.files.items())
            holding = list(state.compacted_table.holding())
        merged = {each.physical for row in holding for each in row.outputs}
        here = {
            str(each.relative_to(top))
            for kind in ("sequence", "unsequence")
            for each in top.glob(f"{kind}/**/*.tsfile")
        }
        for physical in here - merged:
            row = rows.get(physical)
            if row is None or row.state in (FileState.SUPERSEDED, FileState.DELETED):
                raise WrongAnswer("bytes that nobody needs stay on the disk", physical, row)
            mine = row.sender in self.world.senders and row in view.rows
            ended = row.state is FileState.RETIRED and mine and self.world.mode != "never"
            if ended and view.is_given_above(row):
                raise WrongAnswer("a superseded file is on the disk", row)
        if gone := ({row.physical for row in view.visible} | merged) - here:
            raise WrongAnswer("bytes are gone", gone)

    # -- rot -------------------------------------------------------------------------------

    def _place(self, physical: str) -> Path:
        return self.host.config.data_dirs[0] / physical

    def _rot(self) -> None:
        rows = [row for row in self.world.view().rows if row.state in _KEPT[:3]]
        if rows:
            self.rot(self.chance.choice(rows))

    def rot(self, row: FileRow) -> None:
        """A byte turns into another one, and nothing tells of it."""
        where = self._place(row.physical)
        there = where.stat()
        content = bytearray(where.read_bytes())
        content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
        where.write_bytes(content)
        os.utime(where, ns=(there.st_atime_ns, there.st_mtime_ns))
        self.rotten.add(row.physical)
        self.rotted = True  # what cannot be read is not proved
        self._note("rot", row.path, row.state)

    def _find_rot(self) -> None:
        self.find_rot(by_verification=self.chance.random() < 0.5)

    def find_rot(self, *, by_verification: bool) -> None:
        """A verification finds some of it, or fsck finds all."""
        if by_verification:
            rows = self.world.view().visible
            for row in [row for row in rows if row.physical in self.rotten][:1]:
                self.host.condemn(row.physical, row.md5, "it rots")
                self.rotten.discard(row.physical)
                self._note("condemned", row.path, row.state)
        else:
            self._fsck()
        self._supersession()
        self.before = self.world.answer()  # older values show until it is sent again

    def _fsck(self) -> list[tuple[str, str]]:
        """All that rots is found, and nothing else; returns what was found."""
        with self.host.reading() as state:
            rows = dict(state.files.items())
        known = set().union(*(each.rotten for each in (self, *self.beside)))
        rotten = {each for each in known if self._is_bad(rows.get(each))}
        report = self.host.examine()
        kinds = [(each.kind, each.path) for each in report.found]
        self._note("fsck", kinds)
        found = {path for kind, path in kinds if kind in ("md5", "structure")}
        if found != rotten:
            raise WrongAnswer("fsck does not find what rots", rotten, kinds)
        for each in (self, *self.beside):
            each.rotten.clear()
            each.before = each.world.answer()
        return kinds

    def _is_rotten(self) -> bool:
        return any(each.rotten for each in (self, *self.beside))

    @staticmethod
    def _is_bad(row: FileRow | None) -> bool:
        return row is not None and row.state in _KEPT[:3]

    def _excused(self, view: CentreView) -> set[tuple[Key, int]]:
        """Points of files in quarantine, or that went with their bytes."""
        bad = [row for row in view.rows if row.state is FileState.QUARANTINED]
        return {
            point for row in bad for _, chunk in view.contents[row.md5] for point in chunk.items()
        }


class Fleet:
    """Histories of several edges, or of several databases of an edge, at one centre."""

    def __init__(self, host: Killable, worlds: Sequence[Oracle], seed: int) -> None:
        self.chance = random.Random(seed)
        self.plays = [DeadlyPlay(world, host, seed * 100 + at) for at, world in enumerate(worlds)]
        for each in self.plays:
            each.beside = [other for other in self.plays if other is not each]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.chance.random() < 0.05:
                self._together()
                continue
            play = self.chance.choice(self.plays)
            play.step()
            for each in play.beside:
                if each.world.edge is play.world.edge:
                    each.partly, each.died = each.partly or play.partly, each.died or play.died

    def _together(self) -> None:
        """All edges have a round at the same time."""
        edges = {id(each.world.edge): each.world.edge for each in self.plays}
        reports: dict[int, RoundReport] = {}

        def run(edge: Edge) -> None:
            reports[id(edge)] = edge.round()

        threads = [threading.Thread(target=run, args=(each,)) for each in edges.values()]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for play in self.plays:
            play.judge(reports[id(play.world.edge)])

    def settle(self) -> None:
        """All come to rest."""
        self.plays[0].settle()
