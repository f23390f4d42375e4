"""Histories whose rounds are cut into many small tasks, between which the database goes on."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from common import crash
from sender.kept.seen_looks import looks
from sender.round.round_words.round_report import RoundReport
from sender.send.sent_bytes import deletion_parts
from tests.support.edge_database import DatabaseFile
from tests.support.oracle import Oracle
from tests.support.oracle_play import WEIGHTS, Play, WrongAnswer

IN_PIECES = WEIGHTS | {
    "write": 34.0,
    "delete": 9.0,
    "rewrite": 1.5,
    "keep": 1.0,
    "resource": 5.0,
    "dying_round": 6.0,
    "busy_round": 6.0,
    "limit": 2.0,
}
_BETWEEN = ("write", "flush", "close", "delete", "delete", "inner", "cross", "resource", "rename")


class PiecesPlay(Play):
    """A history in which a task has few files, a page few items, and a part few records.

    Deletion files that grew, resources that were written anew, files and ends come in tasks of
    their own, which the sender may die between, or the database work on.
    """

    def __init__(
        self, world: Oracle, seed: int, *, weights: dict[str, float] | None = None
    ) -> None:
        super().__init__(world, seed, weights=IN_PIECES if weights is None else weights)
        self.anew = 0
        self._limit()

    # -- limits ----------------------------------------------------------------------------

    def _limit(self) -> None:
        """Operators of either end choose others."""
        files, page, most = (
            self.chance.choice(several) for several in ((1, 2, 3), (1, 2, 1000), (3, 6, 500_000))
        )
        self.world.edge.with_settings(task_max_files=files)
        self._at_the_centre(max_page_items=page, max_task_items=most)
        self._note("limits", files, page, most)

    def _at_the_centre(self, **limits: int) -> None:
        for name, value in limits.items():
            msgspec.structs.force_setattr(self.world.host.config.limits, name, value)

    def judge(self, report: RoundReport) -> None:
        """As ever; what no task has room for comes once there is room."""
        if report.held or report.pending_files:
            self._note("no room", report.sent, report.held)
            self._weak()
            self._at_the_centre(max_task_items=500_000)
            report = self.world.round()
        super().judge(report)
        self._resources()

    # -- resources -------------------------------------------------------------------------

    def _resource(self) -> None:
        """The database writes the resource of a file anew; the file stays what it is."""
        if closed := self.database.closed():
            file = self.chance.choice(closed)
            self.anew += 1
            beside = self.database.resource(file)
            new = beside.with_name(f"{beside.name}.temp")
            new.write_bytes(b"resource %d" % self.anew)
            new.rename(beside)
            self._note("resource", file.partition, file.name, self.anew)

    def _resources(self) -> None:
        """After a few whole rounds each is committed as it is: a round tells but some of them."""
        for _ in range(50):
            if not self._untold():
                return
            if self.world.round().resources == 0:
                break
        if untold := self._untold():
            raise WrongAnswer("a resource is not committed as it is", untold)

    def _untold(self) -> list[str]:
        rows = {path: row for row in self.world.view().visible for path in row.paths}
        return [
            path
            for each in self.database.closed()
            if (row := rows.get(path := each.path(self.database.group))) is not None
            and len(row.paths) == 1  # of two names the last one told
            and (row.resource is None or row.resource.md5 != self._resource_md5(each))
        ]

    def _resource_md5(self, file: DatabaseFile) -> str:
        return hashlib.md5(self.database.resource(file).read_bytes()).hexdigest()

    # -- between two tasks -----------------------------------------------------------------

    def _busy_round(self) -> None:
        """The database works on in the middle of a round."""
        left, me = itertools.count(self.chance.randint(-60, 0)), threading.get_ident()

        def hook(name: str) -> None:
            if threading.get_ident() == me and next(left) == 0:
                self._note("meanwhile", name)
                for what in self.chance.choices(_BETWEEN, k=3):
                    getattr(self, f"_{what}")()

        with crash.arm(hook):
            report = self.world.round()
        self._note("busy round", report.sent, report.retired, report.already, report.held)
        if report.error is not None:
            raise WrongAnswer("a round failed", report.error)
        self._weak()


@contextlib.contextmanager
def short_parts(most: int = 90) -> Iterator[None]:
    """A part of a deletion file has a record or two."""
    modules: tuple[Any, ...] = (deletion_parts, looks)  # one cuts, the other counts
    before = deletion_parts.LONGEST_PART
    for each in modules:
        each.LONGEST_PART = most
    try:
        yield
    finally:
        for each in modules:
            each.LONGEST_PART = before
