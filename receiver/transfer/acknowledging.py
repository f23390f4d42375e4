"""When a task that is committed may be told to be loaded.

At once; or, with `storage.before_ack`, when its files and its commit are in the object store too;
with `nodes.before_ack`, when as many storage nodes have its files.
Until then it is *loading*, to its sender and to every round after: a sender has one task at a time,
so the newest is the only one that may be untold, after a restart as well. The centre itself may
have several: one waits, and the next is loaded.

What is in the store stays there, and what nodes have is made up for when one is lost, so what was
found of a task's files is not looked at again. What of them is in quarantine by then, as a restore
finds what had not come to the store, is told to be missing: its bytes are nowhere, and its sender
may not count on them for one moment.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.errors import BusyError
from common.wire import Result
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from receiver.load.folder.staged import Verified
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.records import FileOutcome
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow, TaskRow

__all__ = ["Acknowledging", "ToldContent"]

_HERE = (Result.LOADED, Result.ALREADY)
_GOOD = (FileState.LIVE, FileState.RETIRED, FileState.SUPERSEDED)
_AT_ONCE = 1000
"""Files that are looked at without a pause: an adoption may have millions."""
_MOST_OPEN = 32
"""Tasks of one source that are looked after at once: loads at the centre are fewer."""
_PAUSE = 10.0
"""Seconds until a sender asks again that found too few nodes."""
_NOWHERE = "it is in quarantine since: once more"


class ToldContent(NamedTuple):
    """What somebody is told to be here who may remove it elsewhere then.

    Attributes:
        staged: size and digests of it.
        sender: whose file it has to be; None for anybody's.
    """

    staged: Verified
    sender: str | None = None


class Acknowledging:
    """The judge of all calls that tell what became of a task; any thread may ask."""

    def __init__(
        self,
        engine: Engine,
        *,
        shipped: Callable[[], int] | None = None,
        hurry: Callable[[Sequence[str]], None] = lambda _: None,
        lacks_copies: Callable[[State, FileRow | None], bool] | None = None,
        busy: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            shipped: the newest commit whose log is in the store; None: nothing is waited for.
            hurry: has the copies go on now, with files of these physical names first.
            lacks_copies: whether too few nodes have a file; None: no node is waited for.
            busy: why nothing could be told that is taken now.
        """
        self._engine = engine
        self._shipped = shipped
        self._hurry = hurry
        self._lacks_copies = lacks_copies
        self._busy = busy
        self._waits = shipped is not None or lacks_copies is not None
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], _Task] = {}
        self._told: dict[str, str] = {}

    def must_take(self) -> None:
        """See that a task that is begun now can come to be told.

        Raises:
            BusyError: it cannot, for now.
        """
        why = self._busy()
        if why is not None:
            raise BusyError(why, retry_after=_PAUSE)

    def may_tell(self, row: TaskRow) -> bool:
        """Whether a task that is done may be told to be."""
        if not self._waits or self._told.get(row.sender) == row.task:
            return True
        with self._lock:
            task = self._open.get((row.sender, row.task))
            if task is None:
                self._forget(row.sender)
                task = self._open[row.sender, row.task] = _Task(row, self._lacks)
            is_kept = task.is_kept(self._engine)
            if is_kept and (self._shipped is None or self._shipped() >= task.needed):
                self._told[row.sender] = row.task
                del self._open[row.sender, row.task]
                return True
            first = task.not_asked(self._engine)
        self._hurry(first)
        return False

    def _forget(self, sender: str) -> None:
        """Let go of what nobody may ask for any more; who does so is told the same, later."""
        open_ones = [each for each in self._open if each[0] == sender]
        for each in open_ones[: 1 - _MOST_OPEN]:
            del self._open[each]

    def watch(self, contents: Iterable[ToldContent]) -> Callable[[], bool]:
        """What says, as often as it is called, whether all of some content may be told to be here.

        For files that no task of whoever asks has: they came before, by whichever task.

        Args:
            contents: are visible by now; of one that several files have, one of these is enough.
        """
        if not self._waits:
            return lambda: True
        files = _Contents(self._engine, contents, self._lacks)

        def may_tell() -> bool:
            is_kept = files.is_kept(self._engine)
            if is_kept and (self._shipped is None or self._shipped() >= files.needed):
                return True
            self._hurry(files.not_asked())
            return False

        return may_tell

    def why_missing(self, content: ToldContent) -> str | None:
        """Why some content that may be told is not to be relied on; None if it is here.

        What is bad may have been found so since it came: nobody may remove the original then.
        """
        if not self._waits:
            return None
        with self._engine.reading() as state:
            states = {row.state for row in _rows_of(state, content)}
        is_bad = FileState.QUARANTINED in states and states.isdisjoint(_GOOD)
        return _NOWHERE if is_bad else None

    def _lacks(self, state: State, row: FileRow | None) -> bool:
        if self._shipped is not None and state.uploaded_table.lacks(row):
            return True
        return self._lacks_copies is not None and self._lacks_copies(state, row)

    def outcomes(self, row: TaskRow) -> list[FileOutcome]:
        """What is told of a task that may be told."""
        if not self._waits:
            return list(row.outcomes)
        with self._engine.reading() as state:
            held = {
                each.path: state.file_table.held(row.sender, each.path)
                for each in row.outcomes
                if each.result in _HERE
            }
        nowhere = {
            path
            for path, file in held.items()
            if file is not None and file.state is FileState.QUARANTINED
        }
        return [
            msgspec.structs.replace(each, result=Result.MISSING, reason=_NOWHERE)
            if each.path in nowhere
            else each
            for each in row.outcomes
        ]

    def untold(self, sender: str) -> str | None:
        """The task of a sender that is committed, and may not be told yet."""
        if not self._waits:
            return None
        with self._engine.reading() as state:
            known = state.senders.get(sender)
            task = None if known is None else known.epoch_task
            row = None if task is None else state.task_table.get(sender, task)
        return None if row is None or self.may_tell(row) else row.task


class _Task:
    """How far the files of a task are known to be where they have to be.

    Attributes:
        needed: the newest commit that has to be there with them.
    """

    def __init__(self, row: TaskRow, lacks: Callable[[State, FileRow | None], bool]) -> None:
        self.row = row
        self._lacks = lacks
        self.needed = row.commit
        self._paths = [each.path for each in row.outcomes if each.result in _HERE]
        self._is_asked = False

    def is_kept(self, engine: Engine) -> bool:
        with engine.reading() as state:
            files = state.file_table
            while self._paths:
                row = files.held(self.row.sender, self._paths[-1])
                if self._lacks(state, row):
                    return False
                if row is not None:
                    self.needed = max(self.needed, _commit_of(state, row))
                self._paths.pop()
        return True

    def not_asked(self, engine: Engine) -> list[str]:
        """Its files that are not known to be in the store, once."""
        if self._is_asked:
            return []
        self._is_asked = True
        with engine.reading() as state:
            held = [state.file_table.held(self.row.sender, each) for each in self._paths]
        return [row.physical for row in held if row is not None]


class _Contents:
    """How far content is known to be where it has to be, whatever task brought it.

    Attributes:
        needed: the newest commit that has to be there with it.
    """

    def __init__(
        self,
        engine: Engine,
        contents: Iterable[ToldContent],
        lacks: Callable[[State, FileRow | None], bool],
    ) -> None:
        self.needed = 0
        self._lacks = lacks
        self._files: list[list[str]] = []
        every = list(contents)
        for begin in range(0, len(every), _AT_ONCE):  # commits go on in between
            with engine.reading() as state:
                for each in every[begin : begin + _AT_ONCE]:
                    rows = [row.physical for row in _rows_of(state, each) if row.visible]
                    self._files += [rows] if rows else []
        self._is_asked = False

    def is_kept(self, engine: Engine) -> bool:
        while self._files:
            with engine.reading() as state:
                for several in self._files[: -_AT_ONCE - 1 : -1]:
                    rows = [state.files.get(each) for each in several]
                    kept = [row for row in rows if not self._lacks(state, row)]
                    if not kept:
                        return False
                    commits = [_commit_of(state, row) for row in kept if row is not None]
                    self.needed = max(self.needed, min(commits, default=0))
                    self._files.pop()
        return True

    def not_asked(self) -> list[str]:
        """Those of which nothing is known to be there, once."""
        if self._is_asked:
            return []
        self._is_asked = True
        return [each for several in self._files for each in several]


def _rows_of(state: State, content: ToldContent) -> Iterator[FileRow]:
    staged = content.staged
    for row in state.file_table.of_tail(staged.tail):
        is_same = (row.size, row.md5) == (staged.size, staged.md5)
        if is_same and content.sender in (None, row.sender):
            yield row


def _commit_of(state: State, row: FileRow) -> int:
    """The commit that says that a file is in the store; or that it was found bad."""
    there = state.uploaded_table.rows.get(row.physical)
    return row.changed if there is None else there.changed  # bad: wanted again, from there as well
