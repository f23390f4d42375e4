"""Histories of what stands outside: operators at both ends, disks, mounts, copies that come back.

The judge knows contents and nothing else: which were ever seen at the centre, which an operator
deleted there, which lie on the edge's disk, and which `free` took from it.

* What an operator deleted is not there again, whatever the edge forgot, until somebody says so.
* No content is listed twice.
* What was seen is there for good, or, where a centre was restored from a copy, is sent again or
  told as lost.
* What `free` takes is at the centre, byte by byte, in that moment.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from receiver.metadata.state.table_rows import FileRow, FileState
from sender.kept.receiver_state import changing_troubles
from sender.round.freed_files.removing import Removal
from tests.support.edge_database import DatabaseFile
from tests.support.oracle import EdgeBackup, Oracle
from tests.support.oracle_host import Killable
from tests.support.oracle_play import Play, WrongAnswer

__all__ = ["OUTSIDE", "THERE", "OutsidePlay"]

OUTSIDE = {
    "write": 30.0, "flush": 3.0, "close": 14.0, "delete": 3.0, "inner": 3.0, "cross": 2.0,
    "restart": 1.0, "move": 1.0, "rename": 1.5, "whole_round": 8.0, "round": 3.0,
    "dying_round": 3.0, "free": 4.0, "free_in_trouble": 4.0, "give_up": 4.0, "reap": 2.0,
    "bring_back": 1.0, "forget": 2.0, "backup": 1.5, "restore": 1.5, "exchange": 0.7,
    "centre_backup": 1.5, "centre_restore": 1.5,
}  # fmt: skip
_MEMORY = (
    "**/sync-sender/*/last_local_files.txt",
    "**/sync-sender/*/local_files.state",
    "schema/sync/*/looks.state",
    "schema/sync/*/troubles.json",
    "schema/sync/*/receiver.json",
)
_TROUBLES = ("replaced", "grown", "linked", "unmarked", "unlisted", "hard link", "restored")
THERE = (FileState.LIVE, FileState.RETIRED, FileState.SUPERSEDED)


class OutsidePlay(Play):
    """One history; contents are known by their MD5.

    Attributes:
        seen: that were ever at the centre, and that nobody may have forgotten.
        given_up: that an operator deleted there.
        freed: that were taken from the edge's disk, and that its sender remembers.
    """

    def __init__(self, world: Oracle, host: Killable, seed: int) -> None:
        super().__init__(world, seed, weights=OUTSIDE)
        self.host = host
        self.seen: set[str] = set()
        self.given_up: set[str] = set()
        self.freed: set[str] = set()
        self.kept: tuple[EdgeBackup, set[str]] | None = None
        self.copy: tuple[Path, set[str]] | None = None
        self.falls_back = False
        self.untold = False
        """Whether the centre was restored, and no round has compared all with it since."""

    def step(self) -> None:
        super().step()
        self.look()

    # -- what must hold --------------------------------------------------------------------

    def look(self) -> list[FileRow]:
        """After each step: nothing is back, nothing is there twice."""
        rows = self.world.view().rows
        there = [row for row in rows if row.state in THERE]
        if back := [row.path for row in there if self.contents([row]) & self.given_up]:
            raise WrongAnswer("what an operator deleted is back", back)
        self._once(self.world.view())
        self.seen |= self.contents([row for row in there if row.points])
        return there

    def contents(self, rows: Sequence[FileRow]) -> set[str]:
        """What some files at the centre are, or are made of."""
        return {row.md5 for row in rows}

    def listed(self, visible: Sequence[FileRow]) -> set[str]:
        """Contents that the edge need not send, of what is visible."""
        return self.contents([row for row in visible if not row.retired])

    def lost(self) -> set[str]:
        """Contents that the centre says are lost, to whoever asks or has asked."""
        with self.host.reading() as state:
            return {key[2] for key in state.lost_table.rows}

    def on_disk(self) -> set[str]:
        """What lies at the edge, closed."""
        return {each.md5 for each in self.database.closed()}

    def judge(self, report: Any) -> None:
        """After a round that could reach everything."""
        for number in range(6):
            self._note("round", report.sent, report.retired, len(report.expired), report.error)
            if report.error is not None:
                self.host.accept(self.world.edge.uuid)  # a copy came back, or was half forgotten
            elif not (report.sent or report.held or report.retired):
                break
            # What lies behind a mount that nobody remembers an operator has to tell, at last.
            resync = number > 2 and any("gone for good" in each.reason for each in report.held)
            report = self.world.edge.round(forget=resync)
        if report.error is not None:
            raise WrongAnswer("a round failed", report.error)
        self.untold = False
        there = self.contents(self.look())
        listed = self.listed(self.world.view().visible)
        if left := self.on_disk() - listed - self.given_up:
            raise WrongAnswer("a whole look left something", left, report)
        lost = self.lost()
        if gone := self.seen - there - self.given_up - lost:
            raise WrongAnswer("what was there is gone, and nobody says so", gone)

    def _weak(self) -> None:
        """Contents are looked at after each step."""

    def _whole_round(self) -> None:
        self.judge(self.world.round())

    def _round(self) -> None:
        with self._hindered(self.chance.choice(["late", "linked", "unmarked", "torn"])):
            report = self.world.round()
        self._note("hindered round", report.sent, report.retired, report.error)

    # -- freeing ---------------------------------------------------------------------------

    def _free(self) -> None:
        self._freed(contextlib.nullcontext())

    def _free_in_trouble(self) -> None:
        trouble = self.chance.choice(_TROUBLES)
        self._note("trouble", trouble)
        self._freed(self._between(trouble))

    def _freed(self, meanwhile: contextlib.AbstractContextManager[None]) -> None:
        """Some are freed; what is gone behind it must lie at the centre."""
        if not (closed := self.database.closed()):
            return
        wanted = [each.path(self.database.group) for each in closed if self.chance.random() < 0.6]
        before = {self.database.where(each): each for each in closed}
        with meanwhile, contextlib.suppress(OSError):
            report = self._free_some(wanted)
            self._note("free", len(report.freed) if report else "refused")
        for where, file in before.items():
            if not where.exists():
                self._taken(file)
        self.database.notice_freed()
        if self.falls_back:
            self.falls_back = False
            self._centre_restore()

    def _free_some(self, wanted: Sequence[str]) -> Any:
        from common.errors import TsferryError

        try:
            return self.world.free(wanted)
        except TsferryError as error:
            self._note("free", str(error))
            return None

    def _taken(self, file: DatabaseFile) -> None:
        self._note("taken", file.partition, file.name)
        top = self.host.config.data_dirs[0]
        for row in self.world.view().visible:
            where = top / row.physical
            here = file.md5 in self.contents([row]) and where.exists()
            if here and hashlib.md5(where.read_bytes()).hexdigest() == row.md5:
                self.freed.add(file.md5)
                return
        if file.md5 not in self.given_up:
            raise WrongAnswer("taken from the edge, and not at the centre", file.name)

    @contextlib.contextmanager
    def _between(self, trouble: str) -> Iterator[None]:
        """Between a judgement and a removal something happens to a file, or to its directory."""
        file = self.chance.choice(self.database.closed())
        where, left = self.database.where(file), itertools.count(self.chance.randint(-4, 0))
        original = Removal.names
        with contextlib.ExitStack() as stack:

            def names(removal: Removal, directories: Any) -> Any:
                if next(left) == 0 and where.exists():
                    self._note("happens", trouble, file.partition, file.name)
                    getattr(self, f"_is_{trouble.replace(' ', '_')}")(stack, file, where)
                return original(removal, directories)

            Removal.names = names  # type: ignore[method-assign]
            stack.callback(setattr, Removal, "names", original)
            yield

    def _is_replaced(self, stack: contextlib.ExitStack, file: DatabaseFile, where: Path) -> None:
        """Another file of the same name, size and time takes its place."""
        there, content = where.stat(), where.read_bytes()
        beside = where.with_name(f"{where.name}.settle")
        beside.write_bytes(bytes(len(content)))
        os.utime(beside, ns=(there.st_atime_ns, there.st_mtime_ns))
        beside.rename(where)
        stack.callback(self._put_back, where, content, "another one")

    def _is_grown(self, stack: contextlib.ExitStack, file: DatabaseFile, where: Path) -> None:
        content = where.read_bytes()
        with where.open("ab") as out:
            out.write(b"more")
        stack.callback(self._put_back, where, content, "a longer one")

    def _put_back(self, where: Path, content: bytes, what: str) -> None:
        if not where.exists():
            raise WrongAnswer(f"{what} was taken in the place of what was judged", where)
        beside = where.with_name(f"{where.name}.settle")
        beside.write_bytes(content)
        beside.rename(where)

    def _is_linked(self, stack: contextlib.ExitStack, file: DatabaseFile, where: Path) -> None:
        stack.enter_context(self.world.linked(file.late, file.home))

    def _is_unmarked(self, stack: contextlib.ExitStack, file: DatabaseFile, where: Path) -> None:
        stack.enter_context(self.world.unmarked(file.home))

    def _is_hard_link(self, stack: contextlib.ExitStack, file: DatabaseFile, where: Path) -> None:
        other = self.world.root / "linked"
        os.link(where, other)
        stack.callback(other.unlink)

    def _is_unlisted(self, stack: contextlib.ExitStack, file: DatabaseFile, where: Path) -> None:
        """From now on the disk gives half of a listing, and then an error."""
        real = os.scandir

        def broken(*given: Any) -> Any:
            with real(*given) as entries:
                next(entries, None)
            raise OSError(errno.EIO, "Input/output error")

        os.scandir = broken
        stack.callback(setattr, os, "scandir", real)

    def _is_restored(self, stack: contextlib.ExitStack, file: DatabaseFile, where: Path) -> None:
        """The centre is what it was, as soon as the removal is done that it gave its word for."""
        self.falls_back = True

    # -- operators -------------------------------------------------------------------------

    def _give_up(self) -> None:
        every = self.world.view().rows
        bad = {row.md5 for row in every if row.state is FileState.QUARANTINED}
        rows = [row for row in every if row.state in THERE and row.points]
        # Of a content that is wanted again for another file nothing is given up.
        rows = [row for row in rows if not self.contents([row]) & bad]
        if not rows:
            return
        going = self.chance.sample(rows, self.chance.randint(1, min(3, len(rows))))
        contents: set[str] = set()
        while len(contents) < len(contents := self.contents(going)):
            going = [row for row in rows if self.contents([row]) & contents]
        self.host.give_up([row.physical for row in going])
        self.given_up |= contents
        self.freed -= contents  # its sender need not remember them
        self._note("given up", [row.path for row in going])

    def _reap(self) -> None:
        """What was deleted is forgotten."""
        self._note("reap", self.host.reap())

    def _bring_back(self) -> None:
        """An operator says that deleted files are to come once more."""
        edge = self.world.edge
        (remote := edge.remote()).close()
        with remote.sync_tree() as sync, changing_troubles(sync, remote.directory) as troubles:
            paths = {each.path for each in troubles.retry_deleted()}
        back = {f.md5 for f in self.database.closed() if f.path(self.database.group) in paths}
        self.given_up -= back
        self._note("brought back", paths)
        self._whole_round()  # while they have these names

    # -- what is forgotten, and comes back ---------------------------------------------------

    def _forget(self) -> None:
        """The sender loses some of what it remembers."""
        if self.untold:
            return  # who forgets what a restored centre lacks cannot tell that it is lost
        lost = [each for each in _MEMORY if self.chance.random() < 0.5]
        for pattern in lost:
            for found in self.world.edge.root.glob(pattern):
                found.unlink()
        self._note("forgotten", lost)

    def _backup(self) -> None:
        self.kept = self.world.backup(), set(self.freed)
        self._note("backup")

    def _restore(self) -> None:
        if self.kept is None or self.untold:
            return
        (kept, self.freed), self.kept = self.kept, None
        self.world.restore(kept, accept=False)
        self.host.accept(self.world.edge.uuid)
        self._note("restore")

    def _exchange(self) -> None:
        """Another box goes on with the disk, and knows nothing."""
        if self.untold or not self.world.view().rows:
            return
        for file in self.database.opened():
            self.database.close(file)
        old = self.world.exchange()
        self.kept, self.freed = None, set()
        self._note("exchanged", self.world.round().error)
        self.host.adopt(old, self.world.edge.uuid)

    def _centre_backup(self) -> None:
        where = self.world.root / "centre copy"
        self.host.rest()
        self.host.copy_to(where)
        self.copy = where, set(self.given_up)
        self._note("centre backup")

    def _centre_restore(self) -> None:
        """What nobody can tell of any more need not be told of: it went from the edge for good."""
        if self.copy is None:
            return
        self.host.restore_from(self.copy[0])
        self.given_up = set(self.copy[1])
        there = self.contents([row for row in self.world.view().rows if row.state in THERE])
        self.seen &= there | self.freed  # what lies at the edge comes, or what it was made into
        self.untold = True
        self._note("centre restore")
        *before, now = self.world.senders
        with self.host.reading() as state:
            known = [each for each in (*before, now) if each in state.senders]
        if before and now not in known:
            self._note("met", self.world.round().error)
        for old in before:
            if old in known:
                self.host.adopt(old, now)
