"""Two edges with databases of their own, whose devices go from one to the other and back.

Each writes what it owns, and now and then what it does not. A file with a device of the other edge
is refused as a whole, so what goes together with it in its partition waits: there the judge asks
for less until the operator of that database deletes the device and compacts, or gets it back.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import crash
from receiver.metadata.state.table_rows import FileRow, FileState
from sender.round.round_report import RoundReport
from tests.support.edge_database import DatabaseFile
from tests.support.edge_shapes import PLAIN, SERIES, SPAN, Key, Points, Shape
from tests.support.oracle import (
    NOW,
    CentreView,
    Oracle,
    Standing,
    difference,
    is_above,
    receiver_at,
    standing,
)
from tests.support.oracle_host import InProcess
from tests.support.oracle_play import WEIGHTS, Play, WrongAnswer

TRANSFERRED = WEIGHTS | {
    "inner": 3.0,
    "cross": 3.0,
    "hand_over": 2.5,
    "racing_round": 2.0,
    "clear": 1.5,
    "whole_round": 10.0,
}
_FOREIGN = 0.06
"""Of the writes, those to a device that the other edge owns."""


class Move(NamedTuple):
    """A commit that gave a device to another sender."""

    commit: int
    sender: str


class SharedView(CentreView):
    """What is committed of one sender, whose answers are those of all senders together.

    Attributes:
        every: what is committed of each sender, this one among them.
        moves: the transfers of each series' device.
        shape: of the databases.
    """

    def __init__(
        self, own: CentreView, every: Sequence[CentreView], moves: dict[str, list[Move]]
    ) -> None:
        super().__init__(own.rows, own.deletions, own.contents)
        self.every, self.moves = every, moves

    def standing_in(self, row: FileRow, series: str) -> Standing:
        """A file's place in a device: where it was transferred, its sender's files had ended."""
        whole = standing(row)
        first, last, end = whole.first, whole.last, NOW
        for move in self.moves.get(series, ()):
            if move.commit <= row.created:
                if move.sender == row.sender:  # it may have waited for the device
                    first = max(first, move.commit + 1)
                    last = max(last, first)
            elif move.sender != row.sender:
                end = min(end, move.commit)
            elif whole.last >= move.commit:
                first, end = max(first, move.commit + 1), NOW
        last = min(last, end)
        return whole._replace(first=min(first, last), last=last)

    def answer(self, *, superseded: bool = False) -> Points:
        shown = {FileState.LIVE, FileState.RETIRED, *[FileState.SUPERSEDED] * superseded}
        candidates: dict[Key, list[tuple[Standing, FileRow, int]]] = {}
        for view in self.every:
            for row in (row for row in view.rows if row.state in shown):
                for key, value in view.points(row).items():
                    stands = self.standing_in(row, key[0])
                    candidates.setdefault(key, []).append((stands, row, value))
        return {key: _highest(several) for key, several in candidates.items()}

    def is_given_above(self, row: FileRow) -> bool:
        given = {
            key
            for view in self.every
            for other in view.visible
            for key in view.points(other)
            if other is not row and _above(self._placed(other, key), self._placed(row, key))
        }
        return self.points(row).keys() <= given

    def _placed(self, row: FileRow, key: Key) -> tuple[Standing, FileRow]:
        return self.standing_in(row, key[0]), row


def _above(one: tuple[Standing, FileRow], other: tuple[Standing, FileRow]) -> bool:
    (a, of_a), (b, of_b) = one, other
    if (a.name, a.first) == (b.name, b.first):
        return (of_a.created, of_a.physical) > (of_b.created, of_b.physical)
    if a.name == b.name and a.first <= b.last and b.first <= a.last:
        return a.first > b.first
    return is_above(a, b)


def _highest(several: Sequence[tuple[Standing, FileRow, int]]) -> int:
    for stands, row, value in several:
        others = [(o, r) for o, r, _ in several if r is not row]
        if all(_above((stands, row), each) for each in others):
            return value
    return max(several, key=lambda each: (each[0].last, each[0].name, each[1].created))[2]


class SharedOracle(Oracle):
    """An edge at a centre that it shares.

    Attributes:
        together: all edges there.
        moves: the transfers of each series' device, one dictionary for all.
    """

    together: Sequence[SharedOracle]
    moves: dict[str, list[Move]]

    def view(self) -> SharedView:
        every = [CentreView.of(self.host, each.senders, each.database) for each in self.together]
        own = every[self.together.index(self)]
        return SharedView(own, every, self.moves)


class TransferPlay(Play):
    """The part of one edge in such a history.

    Attributes:
        life: the whole.
        stuck: partitions in which something waits for a device of the other edge.
    """

    def __init__(self, world: SharedOracle, life: TransferLife, seed: int) -> None:
        super().__init__(world, seed, weights=TRANSFERRED)
        self.life = life
        self.stuck: set[int] = set()

    def _note(self, *what: Any) -> None:
        self.life.events.append((self.life.plays.index(self), *what))

    # -- what happens ----------------------------------------------------------------------

    def _write(self) -> None:
        owned = [each for each in SERIES if self.life.owner(each) in (None, self)]
        if self.chance.random() < _FOREIGN:
            owned = list(SERIES)
        if not owned:
            return
        if self.chance.random() < 0.6:
            self.life.head += 1
            time = self.life.head
        else:
            low = max(self.database.floor, self.life.head - 7, 0)
            time = self.chance.randint(low, max(self.life.head, self.database.floor))
        self.head = self.life.head
        series = self.chance.choice(owned)
        value = self.database.write(series, time)
        self.life.authors[value] = self
        self._note("write", series, time, value)

    def _hand_over(self) -> None:
        """A device goes to the other edge; perhaps its database had it deleted here."""
        owned = [each for each in SERIES if self.life.owner(each) is self]
        if not owned:
            return
        series = self.chance.choice(owned)
        self.life.transfer(series, self.life.other(self))
        if self.chance.random() < 0.5:
            self._clear()

    def _clear(self) -> None:
        """The database deletes what is the other's, all of it, and compacts."""
        for series in SERIES:
            if self.life.owner(series) is self.life.other(self):
                number = self.database.delete(series, 0, self.life.head + SPAN)
                self._note("clear", series, number)
                if self.partly:
                    self.unsure.add(number)
        if self.chance.random() < 0.4:
            self._whole_round()
        for partition in {each.partition for each in self.database.closed()}:
            for late in (False, True):
                self.database.inner(partition, late)
            self.database.cross(partition)
        self.compacted = True

    def _racing_round(self) -> None:
        """A device goes, to this one or from it, in the middle of its round."""
        left, me = itertools.count(self.chance.randint(-60, 0)), threading.get_ident()

        def hook(name: str) -> None:
            if threading.get_ident() == me and next(left) == 0:
                series, heir = self.chance.choice(SERIES), self.chance.choice(self.life.plays)
                if self.life.owner(series) not in (None, heir):
                    self._note("meanwhile", name)
                    self.life.transfer(series, heir)

        with crash.arm(hook):
            report = self.world.round()
        self._note("racing round", report.sent, report.retired, report.already, report.held)
        if report.error is not None:
            raise WrongAnswer("a round failed", report.error)
        self._weak()

    # -- what must hold --------------------------------------------------------------------

    def judge(self, report: RoundReport) -> None:
        for _ in range(3):
            if report.held or report.pending_files:
                report = self.world.round()
        self._note("round", report.sent, report.retired, report.already, report.held)
        if report.error is not None:
            raise WrongAnswer("a round failed", report.error)
        files = {each.path(self.database.group): each for each in self.database.closed()}
        conflicts = [files[each.file] for each in report.conflicts if each.file in files]
        for each in conflicts:
            if not self._has_foreign(each):
                raise WrongAnswer("refused, and has no device of another", each.name)
        self.stuck = {each.partition for each in conflicts}
        if conflicts:
            self._note("stuck", [(each.partition, each.name) for each in conflicts])
        elif (report.held or report.pending_files) and not report.conflicts:
            raise WrongAnswer("a whole look left something", report)
        self._weak()
        self._strict()
        self._lists()
        self.compacted = bool(self.stuck) and self.compacted
        self.partly = self.died = self.accepting = False

    def _has_foreign(self, file: DatabaseFile) -> bool:
        owners = {self.life.owner(series) for series, _ in file.keys}
        return any(each not in (None, self) for each in owners)

    def _weak(self) -> None:
        self.life.weak(self)

    def _strict(self) -> None:
        """After a whole round the answer of the database is given in the devices that it owns."""
        self.checks += 1
        view = self.world.view()
        got = view.answer()
        self._once(view)
        if self.checks % 4 == 0 and (read := self.world.read()) != got:
            raise WrongAnswer("the product's reader differs", difference(read, got))
        mirror = self.world.mode == "all"
        wanted = self._mine(self.database.answer(ttl=not mirror))
        for key, value in wanted.items():
            if got.get(key) != value and not self.life.is_deleted(self, key, value):
                raise WrongAnswer("not its owner's answer", key, got.get(key), value)
        seen = view.seen - self.unsure
        for key, value in self._mine(got).items():
            if self.life.authors[value] is not self or key in wanted:
                continue
            if self._covered(key, value, seen=seen):
                raise WrongAnswer("a deleted point is given", key, value)
            if mirror and key[0] not in self.life.moves:
                raise WrongAnswer("the mirror gives what its edge has no more", key, value)

    def _mine(self, points: Points) -> Points:
        """Of devices that it owns, where nothing waits."""
        return {
            key: value
            for key, value in points.items()
            if self.life.owner(key[0]) is self and key[1] // SPAN not in self.stuck
        }

    def _lists(self) -> None:
        """What is listed is what the edge has, but for what has no device of its own any more."""
        if self.died and self._unstuck(self._listed()) - self._unstuck(self._here()):
            self.world.round()
        more, less = self._listed() - self._here(), self._here() - self._listed()
        lost = {
            (each.path(self.database.group), each.md5)
            for each in self.database.closed()
            if self not in {self.life.owner(series) for series, _ in each.keys}
        }
        if wrong := self._unstuck(more) | self._unstuck(less - lost):
            raise WrongAnswer("the list differs", wrong)

    def _unstuck(self, files: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of partitions in which nothing waits."""
        return {each for each in files if int(each[0].split("/")[3]) not in self.stuck}


class TransferLife:
    """A history of two edges at one centre.

    Attributes:
        authors: of each value that was ever written.
        moves: the transfers of each series' device.
        before: what was given.
    """

    def __init__(self, host: InProcess, worlds: Sequence[SharedOracle], seed: int) -> None:
        self.host, self.chance = host, random.Random(seed)
        self.moves: dict[str, list[Move]] = {}
        self.authors: dict[int, TransferPlay] = {}
        self.events: list[tuple[Any, ...]] = []
        self.before: Points = {}
        self.head = 0
        self.plays = [TransferPlay(each, self, seed * 100 + at) for at, each in enumerate(worlds)]
        first = worlds[0].database
        for at, each in enumerate(worlds):
            each.together, each.moves = worlds, self.moves
            each.database.contents = first.contents
            each.database.first_deletion = at * 400_000
            each.database.clock = at * 5_000  # two databases make no files at the very time
            each.round()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            play = self.chance.choice(self.plays)
            last = max(each.database.writes for each in self.plays)
            for each in self.plays:
                each.database.writes = last
            play.step()

    def other(self, play: TransferPlay) -> TransferPlay:
        return next(each for each in self.plays if each is not play)

    def owner(self, series: str) -> TransferPlay | None:
        """Whose device it is."""
        row = self._owners().get(series)
        return None if row is None else next(p for p in self.plays if p.world.edge.uuid == row)

    def _owners(self) -> dict[str, str]:
        shape = self.plays[0].database.shape
        with self.host.reading() as state:
            rows = {each: state.owners.get(str(shape.device(each))) for each in SERIES}
        return {each: row.sender for each, row in rows.items() if row is not None}

    def transfer(self, series: str, heir: TransferPlay) -> None:
        """A device goes to another edge; what that one lists stands above, and nothing is lost."""
        view = heir.world.view()
        before, device = view.answer(), str(heir.database.shape.device(series))
        uuid = heir.world.edge.uuid
        self.host.transfer(device, uuid)
        with self.host.reading() as state:
            commit = state.owners[device].changed
        self.moves.setdefault(series, []).append(Move(commit, uuid))
        self.events.append(("transfer", series, self.plays.index(heir), commit))
        view = heir.world.view()
        now = view.answer()
        for key in before.keys() | now.keys():
            was = before.get(key)
            if was == now.get(key) or (was and self.is_deleted(self.authors[was], key, was)):
                continue
            lists = {
                value
                for row in view.visible
                if not row.retired
                for other, value in view.points(row).items()
                if other == key
            }
            if key[0] != series or now.get(key) not in lists:
                raise WrongAnswer("a transfer changed", key, was, now.get(key))
        self.before = now

    def weak(self, play: TransferPlay) -> None:
        """Nothing that was given is lost or older, unless its edge or its owner says so."""
        view = play.world.view()
        now, mirror = view.answer(), play.world.mode == "all"
        whole = view.answer(superseded=True)
        if now != whole and not mirror:
            raise WrongAnswer("what is superseded would be missed", difference(now, whole))
        for key, value in self.before.items():
            given = now.get(key)
            author, owner = self.authors[value], self.owner(key[0])
            if (given or 0) >= value or self.is_deleted(author, key, value):
                continue
            if mirror and author.database.answer(ttl=False).get(key) != value:
                continue
            if given is None or author is owner or self.authors[given] is not owner:
                raise WrongAnswer("a point fell back", key, value, given)
        self.before = now

    def is_deleted(self, author: TransferPlay, key: Key, value: int) -> bool:
        """By the database that wrote it, or by one that took over all that it had."""
        others = (each for each in self.plays if each is not author)
        inherited = author.world.view().seen
        return author._covered(key, value) or any(
            each._covered(key, value, seen=inherited) for each in others
        )


@contextlib.contextmanager
def shared_centre(root: Path, mode: str, seed: int, shape: Shape = PLAIN) -> Iterator[TransferLife]:
    """Two edges at a receiver in this process."""
    with receiver_at(root) as host:
        worlds = [SharedOracle(root / name, mode, host, shape) for name in ("one", "two")]
        yield TransferLife(host, worlds, seed)
