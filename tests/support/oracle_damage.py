"""Histories in which deletion files are damaged for a while, and come in many small pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.edge_database import DatabaseFile
from tests.support.oracle import Oracle
from tests.support.oracle_play import WEIGHTS, Play, WrongAnswer

DAMAGED = WEIGHTS | {"delete": 8.0, "damage": 5.0, "rename": 1.5}
_UNREADABLE = ("nul behind", "nul", "link")
_SHORTER = ("empty", "cut", "torn", "away")
"""What a look can read without knowing that it is less than was there."""


class DamagedPlay(Play):
    """A history whose deletion files are truncated, torn, or hold what is no record, for a while.

    A look that saw one so has not seen what is deleted in it; it is whole again before a look that
    has to have brought everything.
    """

    def __init__(self, world: Oracle, seed: int) -> None:
        super().__init__(world, seed, weights=DAMAGED)

    def _damage(self) -> None:
        if self.chance.random() < 0.6:
            self._delete()
        files = [each for each in self.database.closed() if each.deletions]
        damaged = self.chance.sample(files, min(len(files), self.chance.randint(1, 3)))
        if not damaged:
            return
        told, shorter = self._told(), False
        for file in damaged:
            numbers = {each.line.number for each in file.deletions}
            whole = numbers <= told.get(file.path(self.database.group), set())
            kind = self.chance.choice((*_UNREADABLE, *_SHORTER) if whole else _UNREADABLE)
            shorter |= kind in _SHORTER
            spoil(self.database.beside(file), kind, self.chance.random())
            self._note("damage", file.partition, file.name, kind)
        before = self.world.view().seen
        for _ in range(self.chance.randint(1, 2)):
            report = self.world.round()
            self._note("round", report.sent, report.retired, report.waiting, report.held)
            if report.error is not None:
                raise WrongAnswer("a round failed", report.error)
            self._weak()
            self._goes_on(deletes=not shorter)
        if lost := self._still_hiding(before):
            raise WrongAnswer("a damaged file takes back what it told", lost)
        self._mend(damaged)
        self.partly = True
        if self.chance.random() < 0.7:
            self._whole_round()

    def _told(self) -> dict[str, set[int]]:
        """Deletions that the centre knows of each file, by the path that it has."""
        view = self.world.view()
        paths = {row.physical: row.paths for row in view.visible}
        found: dict[str, set[int]] = {}
        for physical, record in view.deletions:
            for path in paths.get(physical or "", ()):
                found.setdefault(path, set()).add(record.line.number)
        return found

    def _goes_on(self, *, deletes: bool) -> None:
        """The database works on; what it appends to a shorter file would be another's record."""
        self.partly = True
        what = ["write", "flush", "close", "move", *["delete"] * deletes]
        for each in self.chance.choices(what, k=3):
            getattr(self, f"_{each}")()

    def _still_hiding(self, before: set[int]) -> set[int]:
        """Of the deletions that were known, those that are known no more."""
        return before - self.world.view().seen

    def _mend(self, damaged: list[DatabaseFile]) -> None:
        for file in damaged:
            if file in self.database.files:
                self.database.mend_deletions(file)


def spoil(where: Path, kind: str, share: float) -> None:
    """Do to a deletion file what crashes, disks and people do to it.

    Args:
        where: it.
        kind: one of what there is.
        share: where in it, of 1.
    """
    content = where.read_bytes()
    at = int(share * len(content))
    lines = content.splitlines(keepends=True)
    spoilt: dict[str, Any] = {
        "empty": b"",
        "cut": b"".join(lines[: int(share * len(lines))]),
        "torn": content[:at],
        "nul behind": content[:at] + bytes(len(content) - at),
        "nul": bytes(len(content)),
    }
    if kind in spoilt:
        where.write_bytes(spoilt[kind])
        return
    where.unlink()
    if kind == "link":
        where.symlink_to(where.with_name("nowhere"))
