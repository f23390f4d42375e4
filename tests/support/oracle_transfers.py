"""Two edges with databases of their own, whose devices go from one to the other and back.

They go one by one, all at once (one box is taken for the heir of the other), or are released and
go to whoever comes first. Their databases may give their files the same names.

Each writes what it owns, and now and then what it does not. A file with a device of the other edge
is refused as a whole, so what goes together with it in its partition waits: there the judge asks
for less until the operator of that database deletes the device and compacts, or gets it back.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from common import crash
from receiver.metadata.state.table_rows import FileRow, FileState
from sender.round.round_words.round_report import RoundReport
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
    topmost,
)
from tests.support.oracle_host import InProcess
from tests.support.oracle_play import WEIGHTS, Play, WrongAnswer

TRANSFERRED = WEIGHTS | {
    "delete": 2.0,
    "expire": 0.4,
    "inner": 2.0,
    "cross": 2.0,
    "hand_over": 4.0,
    "adopt": 0.7,
    "release": 1.0,
    "reap": 1.0,
    "racing_round": 2.0,
    "clear": 0.6,
    "whole_round": 14.0,
}
_OVER = 0.5
"""Of the writes, those of points that the other one wrote, while such are given."""
_FOREIGN = 0.06
"""Of the writes, those to a device that the other edge owns."""


class Move(NamedTuple):
    """A commit that gave a device to another sender; `since` the one that released it, if so."""

    commit: int
    sender: str
    since: int = 0


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
            before = move.since or move.commit
            if move.commit <= row.created:
                if move.sender == row.sender:  # it may have waited for the device
                    first = max(first, before + 1)
                    last = max(last, first)
            elif move.sender != row.sender:
                end = min(end, before)
            elif whole.last >= before:
                first, end = max(first, before + 1), NOW
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
    several = topmost(several, lambda one, other: _above(one[:2], other[:2]))
    return max(several, key=lambda each: (each[0].last, each[0].name, each[1].created))[2]


class SharedOracle(Oracle):
    """An edge at a centre that it shares.

    Attributes:
        together: all edges there.
        moves: the transfers of each series' device, one dictionary for all.
        notice: sees who came first where a device was released.
    """

    together: Sequence[SharedOracle]
    moves: dict[str, list[Move]]
    notice: Callable[[], bool]

    def view(self) -> SharedView:
        self.notice()
        every = [CentreView.of(self.host, each.senders, each.database) for each in self.together]
        own = every[self.together.index(self)]
        return SharedView(own, every, self.moves)


class TransferPlay(Play):
    """The part of one edge in such a history.

    Attributes:
        life: the whole.
        stuck: partitions in which something waits for a device of the other edge.
        awaited: whether it got a device, and had no whole round since.
    """

    def __init__(self, world: SharedOracle, life: TransferLife, seed: int) -> None:
        super().__init__(world, seed, weights=TRANSFERRED)
        self.life = life
        self.stuck: set[int] = set()
        self.awaited = False

    def _note(self, *what: Any) -> None:
        self.life.events.append((self.life.plays.index(self), *what))

    # -- what happens ----------------------------------------------------------------------

    def _write(self) -> None:
        owned = [each for each in SERIES if self.life.owner(each) in (None, self)]
        if self.chance.random() < _FOREIGN:
            owned = list(SERIES)
        if not owned:
            return
        series, floor = self.chance.choice(owned), self.database.floor
        given = [
            time
            for (name, time), value in self.life.before.items()
            if name == series and time >= floor and self.life.authors[value] is not self
        ]
        if given and self.chance.random() < _OVER:
            time = self.chance.choice(given)
        elif self.chance.random() < 0.6:
            self.life.head += 1
            time = self.life.head
        else:
            low = max(floor, self.life.head - 7, 0)
            time = self.chance.randint(low, max(self.life.head, floor))
        self.head = self.life.head
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
        if self.chance.random() < 0.2:
            self._clear()

    def _adopt(self) -> None:
        """An operator takes this box for one that the other has replaced."""
        self.life.adopt(self, self.life.other(self))

    def _release(self) -> None:
        """A device is nobody's, until one of them brings a file with it."""
        if owned := [each for each in SERIES if self.life.owner(each) is self]:
            self.life.release(self.chance.choice(owned))

    def _reap(self) -> None:
        """What was superseded leaves the disk, and nothing of it is known any more."""
        self.life.reap()

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
                    if self.chance.random() < 0.2:
                        self.life.release(series)
                    else:
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
            came = self.life.notice()  # what it had of the device is asked for in the next round
            if came or report.held or report.pending_files:
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
        self.awaited = False
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
        view = self.world.view()
        got = view.answer()
        self._once(view)
        if (read := self.world.read()) != got:
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
        kind: of the part of one edge.
        authors: of each value that was ever written.
        moves: the transfers of each series' device.
        released: of series whose devices an operator has released, who had them until when.
        before: what was given.
    """

    kind: ClassVar[type[TransferPlay]] = TransferPlay

    def __init__(self, host: InProcess, worlds: Sequence[SharedOracle], seed: int) -> None:
        self.host, self.chance = host, random.Random(seed)
        self.moves: dict[str, list[Move]] = {}
        self.released: dict[str, tuple[str, int]] = {}
        self.authors: dict[int, TransferPlay] = {}
        self.events: list[tuple[Any, ...]] = []
        self.before: Points = {}
        self.head = 0
        self.plays = [self.kind(each, self, seed * 100 + at) for at, each in enumerate(worlds)]
        first, apart = worlds[0].database, self.chance.random() < 0.5
        for at, each in enumerate(worlds):
            each.together, each.moves, each.notice = worlds, self.moves, self.notice
            each.database.contents = first.contents
            each.database.first_deletion = at * 400_000
            each.database.clock = at * 5_000 * apart  # else both give their files the same names
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

    def _last_owner(self, series: str) -> TransferPlay | None:
        """Whose device it is, or was until it was released."""
        before, _ = self.released.get(series, (None, 0))
        last = (each for each in self.plays if each.world.edge.uuid == before)
        return self.owner(series) or next(last, None)

    def _owners(self) -> dict[str, str]:
        shape = self.plays[0].database.shape
        with self.host.reading() as state:
            rows = {each: state.owners.get(str(shape.device(each))) for each in SERIES}
        return {each: row.sender for each, row in rows.items() if row is not None}

    def notice(self) -> bool:
        """See who came first where a device was released; whether anybody did."""
        shape = self.plays[0].database.shape
        with self.host.reading() as state:
            rows = {each: state.owners.get(str(shape.device(each))) for each in self.released}
        found = False
        for series, row in rows.items():
            if row is not None:
                found = True
                before, since = self.released.pop(series)
                if row.sender != before:
                    move = Move(row.created, row.sender, since)
                    self.moves.setdefault(series, []).append(move)
                self.events.append(("came first", series, row.sender, row.created))
        return found

    def release(self, series: str) -> None:
        """A device is nobody's from now on, which changes no answer."""
        view = self.plays[0].world.view()
        before, device = view.answer(), str(self.plays[0].database.shape.device(series))
        with self.host.reading() as state:
            owner = state.owners[device].sender
        self.released[series] = owner, self.host.release(device)
        self.events.append(("release", series))
        if (now := self.plays[0].world.view().answer()) != before:
            raise WrongAnswer("a release changed an answer", difference(now, before))

    def reap(self) -> None:
        """What nobody needs leaves the disk, which changes no answer."""
        before = self.plays[0].world.view().answer()
        self.events.append(("reap", self.host.reap()))
        if (now := self.plays[0].world.view().answer()) != before:
            raise WrongAnswer("what left the disk was needed", difference(now, before))

    def transfer(self, series: str, heir: TransferPlay) -> None:
        """A device goes to another edge."""
        device, uuid = str(heir.database.shape.device(series)), heir.world.edge.uuid
        self._given([series], heir, lambda: self.host.transfer(device, uuid))

    def adopt(self, old: TransferPlay, heir: TransferPlay) -> None:
        """All that an edge owns is another's, and all that it had ends."""
        owned = [each for each in SERIES if self.owner(each) is old]
        uuids = old.world.edge.uuid, heir.world.edge.uuid
        self._given(owned, heir, lambda: self.host.adopt(*uuids))

    def _given(self, several: Sequence[str], heir: TransferPlay, act: Callable[[], None]) -> None:
        """Devices go to another edge; what that one lists stands above, and nothing is lost."""
        view = heir.world.view()
        before, shape = view.answer(), heir.database.shape
        uuid = heir.world.edge.uuid
        act()
        heir.awaited = True
        for series in several:
            with self.host.reading() as state:
                commit = state.owners[str(shape.device(series))].changed
            self.moves.setdefault(series, []).append(Move(commit, uuid))
        self.events.append(("transfer", several, self.plays.index(heir)))
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
            if key[0] not in several or now.get(key) not in lists:
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
            author, owner = self.authors[value], self._last_owner(key[0])
            if (given or 0) >= value or self.is_deleted(author, key, value):
                continue
            if mirror and author.database.answer(ttl=False).get(key) != value:
                continue
            if given is not None and owner is not None and owner.awaited:
                continue  # it has the device since, and has not listed again what ended meanwhile
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
def shared_centre(
    root: Path, mode: str, seed: int, shape: Shape = PLAIN, kind: type[TransferLife] = TransferLife
) -> Iterator[TransferLife]:
    """Two edges at a receiver in this process, which keeps nothing that is superseded."""
    with receiver_at(root, keeps=False) as host:
        worlds = [SharedOracle(root / name, mode, host, shape) for name in ("one", "two")]
        yield kind(host, worlds, seed)
