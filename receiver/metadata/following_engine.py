"""An engine that commits nothing: its directory is a copy of another's, and grows as that one does.

Whoever fetches the files (`receiver.follower`) adds to the last segment of the log, or a new one
behind it, and says so; what came is applied as a start would apply it, while others read. The tlog
gets its entries from the log, as after a crash. A copy can be made anew at any time: what comes is
not flushed, and what is not as it should be is an error that has it made anew.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from common.durable import Tree
from common.errors import DamagedError, NotFoundError
from receiver.metadata.clock.machine_clock import MachineClock
from receiver.metadata.engine import Engine
from receiver.metadata.log.recovering import recover
from receiver.metadata.log.segments import (
    check_chain,
    open_segments,
    segment_name,
    segments,
)
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.tag_layout import layout
from receiver.metadata.state.history_window import Horizon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.metadata.log.frames import LogReader
    from receiver.metadata.model.records import Commit

__all__ = ["FollowingEngine"]

_BUDGET = 2000
"""Pieces of history that are collected while readers wait: about a millisecond."""


class FollowingEngine(Engine):
    """See the module; one thread at a time advances it, any number read.

    Attributes:
        damage: what was found to be damaged while somebody read; the copy has to be made anew.
    """

    damage: str | None = None
    _horizon: Horizon | None = None

    @classmethod
    def follow(
        cls,
        directory: Path,
        *,
        options: EngineOptions | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open a copy of an engine's directory; a torn tail of its log is cut.

        Args:
            directory: the copy; nobody else writes there.
            options: how far back questions may go, as `Engine.read_only`.
            clock: seconds since the epoch.

        Raises:
            NotFoundError: there is no log.
            DamagedError: what is there does not make a state.
            NewerLogError: a newer version of tsferry wrote a file.
        """
        given = options or EngineOptions()
        try:
            tree = Tree(directory)
        except FileNotFoundError as error:
            raise NotFoundError(f"{directory}: there is no such directory") from error
        with tree, ExitStack() as stack:
            opened = recover(tree, to_write=True)
            stack.callback(opened.tlog.close)
            last = opened.last
            if last.torn:
                with tree.open_write(segment_name(last.first_lsn)) as file:
                    file.truncate(last.good)
            engine = cls(str(tree.path), opened, given, MachineClock.of(clock))
            if options is not None:
                engine._horizon = Horizon(options, engine._state.clock, clock=clock)
                engine._window.move(engine._horizon.now(engine._window))
            stack.pop_all()
        return engine

    @property
    def directory(self) -> Path:
        """Of the copy."""
        return Path(self._what)

    def tags_of(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        """See `Engine`; nothing else looks at old entries, so who finds a damage says so."""
        try:
            return super().tags_of(offset)
        except DamagedError as error:
            self.damage = error.message
            raise

    def advance(self) -> int:
        """Apply what the files have gained; returns the number of commits.

        Raises:
            DamagedError: it does not go on from where this engine stands; what was before it is
                applied.
            ReadOnlyError: an earlier change was left half done.
        """
        before = self._window.lsn
        first, offset = self._log_end
        with Tree(self.directory) as tree:
            there = [each for each in segments(tree) if each.first_lsn >= first]
            with open_segments(tree, there) as readers:
                lsn = before + 1
                if there[0].first_lsn != first or not (
                    readers[0].go_to_end(lsn, offset) or readers[0].go_to(lsn, offset)
                ):
                    raise readers[0].damage(offset, "it does not go on there from what was read")
                for number, reader in enumerate(readers):
                    if number:
                        check_chain(readers[number - 1], reader)
                    self._apply(reader)
        return self._window.lsn - before

    def _apply(self, reader: LogReader) -> None:
        for at, frame in reader.frames():
            self._check(reader, at, frame)
            # The tlog first: who finds the disk full here has changed nothing that is seen.
            placed = [self._place_tags(commit) for commit in frame]
            try:
                with self._reading.writing() as state:
                    for commit, offsets in zip(frame, placed, strict=True):
                        state.apply(commit, offsets)
                        self._window.add(commit.ts)
                    self._newest = state.newest
            except (KeyError, IndexError, ValueError) as error:
                raise reader.damage(
                    at, f"commit {commit.ts} contradicts those before it: {error!r}"
                ) from error
        self._log_end = (reader.first_lsn, reader.good)
        with self._advanced:
            self._advanced.notify_all()

    def _place_tags(self, commit: Commit) -> Sequence[Sequence[int] | None] | None:
        laid = layout(commit.ops, commit.tags_at) if commit.tags_at >= 0 else None
        if laid is None:
            return None
        self._tlog.heal(commit.tags_at, laid.content)
        self._tags_end = commit.tags_at + len(laid.content)
        return laid.offsets

    def _check(self, reader: LogReader, at: int, frame: Sequence[Commit]) -> None:
        newest = self._newest
        for commit in frame:
            if commit.ts <= newest:
                raise reader.damage(at, f"commit {commit.ts} follows {newest}")
            newest = commit.ts

    def collect_history(self) -> None:
        """Let go of what is before the kept history; to be called once a minute or so."""
        if self._horizon is None:
            return
        with self._reading.writing():
            self._window.move(self._horizon.now(self._window))
        left = 1
        while left:
            with self._reading.writing() as state:
                at = self._window.oldest
                left = state.schema.collector.collect(at, _BUDGET) + state.keys.collect(at, _BUDGET)
