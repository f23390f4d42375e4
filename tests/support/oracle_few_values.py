"""Histories in which points get values that they had before, so that contents come again.

An edge whose points have few values has files with the very bytes of others: written again, loaded
once more, or made so by a compaction. Here no value tells when it was written; what is judged is
that readers get what the database answers after each whole round.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from sender.round.round_words.round_report import RoundReport
from tests.support.edge_database import DatabaseFile
from tests.support.edge_shapes import ALL, ROW, SERIES, Key
from tests.support.oracle import Oracle, difference
from tests.support.oracle_chain import OracleChain
from tests.support.oracle_play import Play, WrongAnswer

FEW_VALUES = {
    "write": 8.0,
    "close": 6.0,
    "again": 1.0,
    "load": 1.2,
    "inner": 2.0,
    "cross": 2.0,
    "delete": 1.0,
    "restart": 0.5,
    "rename": 0.7,
    "move": 0.5,
    "prove": 1.0,
    "round": 0.7,
    "dying_round": 0.5,
    "whole_round": 3.0,
}
EXCHANGED = FEW_VALUES | {"exchange": 0.3}
"""The same with other boxes that take over."""
FORWARDED = FEW_VALUES | {"forward": 1.5}
"""The same at a centre that forwards to another one."""
_VALUES = 2
_WINDOW = 3


class FewValuesPlay(Play):
    """A history with two values, a few times at a time, and files that are loaded once more.

    Attributes:
        copies: of files as they were when they were closed.
    """

    def __init__(self, world: Oracle, seed: int, *, weights: dict[str, float] | None = None):
        super().__init__(world, seed, weights=FEW_VALUES if weights is None else weights)
        self.copies: list[DatabaseFile] = []

    # -- what happens at the edge ----------------------------------------------------------

    def _write(self) -> None:
        self.head += self.chance.random() < 0.4
        time = self.chance.randint(max(0, self.head - _WINDOW), self.head)
        series, value = self.chance.choice(SERIES), self.chance.randint(1, _VALUES)
        self.database.write(series, time, value)
        self._note("write", series, time, value)

    def _close(self) -> None:
        if opened := self.database.opened():
            file = self.chance.choice(opened)
            self.database.close(file)
            self._note("close", file.partition, file.name, file.points)
            if file.chunks and self.chance.random() < 0.5:
                self.copies.append(copy.deepcopy(file))

    def _again(self) -> None:
        """What a file had is written once more, point for point."""
        if closed := self.database.closed():
            file = self.chance.choice(closed)
            for (series, time), value in sorted(file.points.items()):
                if series != ROW:
                    self.database.write(series, time, value)
            self._note("again", file.partition, file.name)

    def _load(self) -> None:
        """A file that was there before is loaded under another name."""
        if self.copies:
            kept = self.chance.choice(self.copies)
            file = self.database.load(kept)
            self._note("load", file.partition, kept.name, file.name, file.points)

    def _exchange(self) -> None:
        """Another box goes on with the database."""
        for file in self.database.opened():
            self.database.close(file)
        self._whole_round()
        old = self.world.exchange()
        report = self.world.round()
        self._note("exchanged", report.sent, report.error)
        self.world.host.adopt(old, self.world.edge.uuid)
        self._whole_round()

    def _forward(self) -> None:
        """After it readers of the centre above get what those of the one in the middle get."""
        assert isinstance(self.world, OracleChain)
        for _ in range(3):
            report = self.world.forward()
            self._note("forward", report.sent, report.retired, report.deleted, report.already)
        wanted, given = self.world.read(), self.world.read_above()
        if wanted != given:
            raise WrongAnswer("above is not as below", difference(given, wanted))

    # -- what must hold --------------------------------------------------------------------

    def judge(self, report: RoundReport) -> None:
        """As ever; a content that was not sent, for it seemed to be there, comes a round later.

        It does where deletions of the one that was there come with its other name.
        """
        if report.failed:
            self._note("round", report.sent, [(each.file, each.reason) for each in report.failed])
            report = self.world.round()
        super().judge(report)

    def _weak(self) -> None:
        """After any round: no point is lost that the edge has, unless it was deleted once."""
        now, edge = self.world.read(), self.database.answer(ttl=False)
        lost = [key for key in self.before if key in edge and key not in now]
        if lost := [key for key in lost if not _is_in(key, self.database.log.values())]:
            raise WrongAnswer("points are lost", lost)
        self.before = now

    def _strict(self) -> None:
        """After a whole round: the database's answer, and nothing that it has no more."""
        self.checks += 1
        seen = self.world.view().seen - self.unsure
        unseen = [what for number, what in self.database.log.items() if number not in seen]
        edge = {key: value for key, value in self.database.answer().items() if key[0] != ROW}
        given = {
            key: value
            for key, value in self.world.read().items()
            if key in edge or not _is_in(key, unseen)
        }
        if given != edge:
            raise WrongAnswer("not the database's answer", difference(given, edge))


def _is_in(key: Key, deletions: Iterable[tuple[str, int, int, int]]) -> bool:
    return any(s in (key[0], ALL) and low <= key[1] <= high for s, low, high, _ in deletions)
