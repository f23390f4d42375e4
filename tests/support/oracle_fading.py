"""Histories with few values at an edge that frees files, lets points expire, and loses mounts.

What the edge has no more is given as it was given last; the value that it had is what tells, for
none tells when it was written.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict

from tests.support.edge_shapes import ALL, ROW, Key, Points
from tests.support.oracle import Oracle
from tests.support.oracle_few_values import FEW_VALUES, FewValuesPlay
from tests.support.oracle_play import WrongAnswer

FADING = FEW_VALUES | {"free": 2.0, "expire": 1.5, "away": 1.5}
_WHILE_AWAY = ("write", "write", "close", "again", "load", "rename", "prove", "free", "look")
_MORE = ("inner", "cross", "delete")


class FadingPlay(FewValuesPlay):
    """Such a history.

    Attributes:
        answers: what the edge answered since the last whole round, after any round.
        covered: deletions that were made of a point behind the last such answer.
    """

    def __init__(self, world: Oracle, seed: int) -> None:
        super().__init__(world, seed, weights=FADING)
        self.answers: dict[Key, set[int]] = defaultdict(set)
        self.covered: dict[Key, set[int]] = defaultdict(set)

    # -- what happens ----------------------------------------------------------------------

    def _write(self) -> None:
        super()._write()
        self.head = max(self.head, self.database.floor)

    def _delete(self) -> None:
        before = set(self.database.log)
        super()._delete()
        for number in self.database.log.keys() - before:
            series, low, high, _ = self.database.log[number]
            for key in self.given.keys() | self.answers.keys():
                if series in (key[0], ALL) and low <= key[1] <= high:
                    self.covered[key].add(number)

    def _free(self) -> None:
        """As ever; of an edge whose last answer was given."""
        closed = self.database.closed()
        wanted = [f.path(self.database.group) for f in closed if self.chance.random() < 0.5]
        if not wanted:
            return
        before, edge = self.world.read(), self._edge()
        self.world.free(wanted)
        gone = self._noticed()
        self._note("free", [(f.partition, f.name) for f in gone])
        if gone and self.world.mode == "all":
            raise WrongAnswer("a mirror frees", gone)
        if self.world.read() != before:
            raise WrongAnswer("freeing changed the centre's answer")
        for key, value in self._edge().items():
            if edge[key] != value:
                raise WrongAnswer("the edge itself answers otherwise", key, value, edge[key])

    def _away(self) -> None:
        """A directory is away, or lies behind a link, for some rounds; the database goes on."""
        with contextlib.ExitStack() as stack:
            home = self.chance.randint(0, 1)
            if self.chance.random() < 0.5:
                stack.enter_context(self.world.unmarked(home))
                self._note("unmarked", home)
            else:
                late = self.chance.random() < 0.5
                stack.enter_context(self.world.linked(late, home))
                self._note("linked", late, home)
            self.partly = True
            for what in self.chance.choices((*_WHILE_AWAY, *_MORE), k=self.chance.randint(3, 12)):
                getattr(self, f"_{what}")()
        self._whole_round()

    def _look(self) -> None:
        """A round that reaches what is there."""
        report = self.world.round()
        self._note("look", report.sent, report.retired, report.already, report.held)
        if report.error is not None:
            raise WrongAnswer("a round failed", report.error)
        self._weak()

    # -- what must hold --------------------------------------------------------------------

    def _edge(self) -> Points:
        mirror = self.world.mode == "all"
        found = self.database.answer(ttl=not mirror)
        return {key: value for key, value in found.items() if key[0] != ROW}

    def _weak(self) -> None:
        super()._weak()
        for key, value in self._edge().items():
            self.answers[key].add(value)

    def _strict(self) -> None:
        """After a whole round: the database's answer, and the last one where it has none."""
        self.checks += 1
        edge, got = self._edge(), self.world.read()
        seen = self.world.view().seen - self.unsure
        for key, value in edge.items():
            if got.get(key) != value:
                raise WrongAnswer("not the database's answer", key, got.get(key), value)
        for key, value in got.items():
            if key in edge or (covered := self.covered[key]) - seen:
                continue
            if covered:
                raise WrongAnswer("a deleted point is given", key, value)
            if self.world.mode == "all":
                raise WrongAnswer("the mirror gives what its edge has no more", key, value)
            if value not in self.answers[key] | {self.given.get(key)}:
                raise WrongAnswer("what the edge has no more is another", key, value)
        if self.world.mode != "all":
            for key in self.given.keys() - edge.keys() - got.keys():
                if not self.covered[key]:
                    raise WrongAnswer("what the edge has no more is lost", key)
        for key in edge:
            self.covered.pop(key, None)
        self.given = edge | {key: got[key] for key in got if key not in edge}
        self.answers.clear()
