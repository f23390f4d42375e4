"""Line logs that read back exactly what was whole.

UTF-8, one entry a line, newline-terminated. A last line without its newline never happened. What a
power cut can leave behind is a torn last line, or a tail of zeros or of garbage where the file grew
before its data came: reading stops at the first line that is not what this module writes, keeps
what was before it, and says where the good part ends.

Formats (version 1, they carry no header because the lines are the ones users know):

    sync.log    sync start <task id>
                sync deleted file names start
                <path> ...
                sync deleted file names end
                sync tsfile start
                <path> ...
                sync tsfile end
                sync end
    load.log    delete <path>
                load <path>
    last_local_files.txt, current_local_files.txt
                <path>, one a line
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from common.errors import NameRefusedError, ProtocolError
from common.names import FilePath, is_task_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.durable import AppendFile, Tree

__all__ = [
    "Lines",
    "LoadLog",
    "LoadState",
    "Phase",
    "SyncLog",
    "SyncState",
    "parse_lines",
    "parse_load",
    "parse_paths",
    "parse_sync",
]


_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f]")


class Lines(msgspec.Struct, frozen=True):
    """The whole lines of a log.

    Attributes:
        lines: without their newlines.
        good_bytes: where the last whole line ends.
        problem: what follows it, in words; None for a log that ends well.
    """

    lines: list[str]
    good_bytes: int
    problem: str | None


def parse_lines(data: bytes) -> Lines:
    """Cut a log into its whole lines; stops before the first that cannot be ours."""
    lines: list[str] = []
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        try:
            lines.append(_text(data[at:end]))
        except ValueError as error:
            return Lines(lines, at, f"line {len(lines) + 1} at byte {at} {error}")
        at = end + 1
    return Lines(lines, at, _rest(data, at))


def _text(line: bytes) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ValueError("is no UTF-8") from None
    if not (text.isascii() and text.isprintable()) and _CONTROL.search(text):
        raise ValueError("has control characters")
    return text


def _rest(data: bytes, at: int) -> str | None:
    return None if at == len(data) else f"{len(data) - at} bytes after byte {at} have no newline"


def _line(text: str) -> bytes:
    return f"{text}\n".encode()


# -- lists of paths ----------------------------------------------------------------------------


def parse_paths(data: bytes) -> tuple[list[FilePath], str | None]:
    """The paths of a list, and what is wrong with the rest of it (None if nothing)."""
    paths: list[FilePath] = []
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        try:
            paths.append(FilePath.parse(_text(data[at:end])))
        except NameRefusedError as error:
            return paths, f"line {len(paths) + 1}: {error}"
        except ValueError as error:
            return paths, f"line {len(paths) + 1} at byte {at} {error}"
        at = end + 1
    return paths, _rest(data, at)


# -- sync.log ----------------------------------------------------------------------------------


class Phase(Enum):
    """How far a task came."""

    NONE = 0
    STARTED = 1
    DELETING = 2
    DELETED = 3
    SENDING = 4
    SENT = 5
    ENDED = 6


_START = "sync start "
_MARKS = {
    "sync deleted file names start": (Phase.STARTED, Phase.DELETING),
    "sync deleted file names end": (Phase.DELETING, Phase.DELETED),
    "sync tsfile start": (Phase.DELETED, Phase.SENDING),
    "sync tsfile end": (Phase.SENDING, Phase.SENT),
    "sync end": (Phase.SENT, Phase.ENDED),
}
_MARK_OF = {after: text for text, (_, after) in _MARKS.items()}


@dataclass(slots=True)
class SyncState:
    """What a sync.log says.

    Attributes:
        task: id of the task, None if the log is empty.
        phase: the last mark that is whole.
        deleted: paths between the deletion marks, in order.
        files: paths between the tsfile marks, in order.
        good_bytes: where the last whole, sensible line ends.
        problem: what follows it, in words.
    """

    task: str | None = None
    phase: Phase = Phase.NONE
    deleted: list[FilePath] = field(default_factory=list)
    files: list[FilePath] = field(default_factory=list)
    good_bytes: int = 0
    problem: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the task's end is recorded."""
        return self.phase is Phase.ENDED

    def take(self, line: str) -> None:
        """Apply one line; `ValueError` says why it cannot follow what is there."""
        if line.startswith(_START) and self.phase is Phase.NONE:
            task = line.removeprefix(_START)
            if not is_task_id(task):
                raise ValueError(f"{task!r} is no task id")
            self.task, self.phase = task, Phase.STARTED
        elif line in _MARKS:
            before, after = _MARKS[line]
            if self.phase is not before:
                raise ValueError(f"{line!r} cannot follow {self.phase.name.lower()}")
            self.phase = after
        elif self.phase is Phase.DELETING:
            self.deleted.append(_path(line))
        elif self.phase is Phase.SENDING:
            self.files.append(_path(line))
        else:
            raise ValueError(f"{line!r} cannot follow {self.phase.name.lower()}")


def _path(line: str) -> FilePath:
    try:
        return FilePath.parse(line)
    except NameRefusedError as error:
        raise ValueError(str(error)) from error


def parse_sync(data: bytes) -> SyncState:
    """The valid prefix of a sync.log; never raises on content."""
    read = parse_lines(data)
    state = SyncState(good_bytes=read.good_bytes, problem=read.problem)
    at = 0
    for number, line in enumerate(read.lines, 1):
        try:
            state.take(line)
        except ValueError as error:
            state.good_bytes, state.problem = at, f"line {number}: {error}"
            break
        at += len(_line(line))
    return state


class SyncLog:
    """The progress of one running task, on disk before anybody acts on it.

    What would not read back (paths in a section that is closed, a second task) is refused before
    it is written. Calls of several threads are taken one after the other.
    """

    def __init__(self, file: AppendFile, state: SyncState) -> None:
        self._file = file
        self._lock = threading.RLock()
        self._deleted = set(state.deleted)
        self._files = set(state.files)
        self.state = state

    @classmethod
    def open(cls, tree: Tree, rel: str) -> SyncLog:
        """Open or make the log; a torn tail is cut off first."""
        file = tree.append_file(rel)
        try:
            state = parse_sync(tree.read(rel))
            _cut(file, state.good_bytes)
        except BaseException:
            file.close()
            raise
        return cls(file, state)

    def start(self, task: str) -> None:
        """Record `sync start`; a log that has it for the same task already is left alone.

        Raises:
            ProtocolError: this is another task's log, or no task id.
        """
        with self._lock:
            if not is_task_id(task):
                raise ProtocolError(f"{task!a} is no task id")
            if self.state.phase is Phase.NONE:
                self._mark([f"{_START}{task}"])
            elif self.state.task != task:
                raise ProtocolError(f"the log is of task {self.state.task}, not of {task}")

    def reach(self, phase: Phase) -> None:
        """Record every mark up to `phase` that is not there yet, in one write.

        Raises:
            ProtocolError: no task was started.
        """
        with self._lock:
            here = self.state.phase
            marks = [_MARK_OF[each] for each in _MARK_OF if here.value < each.value <= phase.value]
            if marks and here is Phase.NONE:
                raise ProtocolError(f"no task was started, so none can be {phase.name.lower()}")
            self._mark(marks)

    def with_deleted(self, paths: Iterable[FilePath]) -> int:
        """How many deletions it has once it has these as well."""
        with self._lock:
            return len(self._deleted) + len(set(paths) - self._deleted)

    def deleted(self, paths: Iterable[FilePath]) -> None:
        """Record deletions, in one write; those that are there are not repeated.

        Raises:
            ProtocolError: there are new ones although the deletions are over.
        """
        with self._lock:
            self._record(Phase.DELETING, self._deleted, paths)

    def files(self, paths: Iterable[FilePath]) -> None:
        """Record files, in one write; those that are there are not repeated.

        Raises:
            ProtocolError: there are new ones although the files are over.
        """
        with self._lock:
            self._record(Phase.SENDING, self._files, paths)

    def _record(self, section: Phase, known: set[FilePath], paths: Iterable[FilePath]) -> None:
        self.reach(section)
        listed = self.state.deleted if section is Phase.DELETING else self.state.files
        new = [path for path in dict.fromkeys(paths) if path not in known]
        if new and self.state.phase is not section:
            raise ProtocolError(
                f"{new[0]}: comes too late, the task is at {self.state.phase.name.lower()}"
            )
        self._append([path.text for path in new])
        listed += new
        known.update(new)

    def _mark(self, lines: list[str]) -> None:
        self._append(lines)
        for line in lines:
            self.state.take(line)

    def _append(self, lines: list[str]) -> None:
        if lines:
            content = b"".join(map(_line, lines))
            self._file.append(content)
            self.state.good_bytes += len(content)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _cut(file: AppendFile, good_bytes: int) -> None:
    if good_bytes != file.size:
        file.truncate(good_bytes)


# -- load.log ----------------------------------------------------------------------------------


@dataclass(slots=True)
class LoadState:
    """What a load.log says is done: deletions and loads, as sets of paths."""

    deleted: set[FilePath] = field(default_factory=set)
    loaded: set[FilePath] = field(default_factory=set)
    good_bytes: int = 0
    problem: str | None = None


def parse_load(data: bytes) -> LoadState:
    """The valid prefix of a load.log; never raises on content."""
    read = parse_lines(data)
    state = LoadState(good_bytes=read.good_bytes, problem=read.problem)
    at = 0
    for number, line in enumerate(read.lines, 1):
        verb, _, rest = line.partition(" ")
        try:
            path = _path(rest)
            {"delete": state.deleted, "load": state.loaded}[verb].add(path)
        except (ValueError, KeyError) as error:
            state.good_bytes, state.problem = at, f"line {number}: {error}"
            break
        at += len(_line(line))
    return state


class LoadLog:
    """The journal of what a load has done; read before it is ever written to."""

    def __init__(self, file: AppendFile, state: LoadState) -> None:
        self._file = file
        self.state = state

    @classmethod
    def open(cls, tree: Tree, rel: str) -> LoadLog:
        """Open or make the log; a torn tail is cut off first."""
        file = tree.append_file(rel)
        try:
            state = parse_load(tree.read(rel))
            _cut(file, state.good_bytes)
        except BaseException:
            file.close()
            raise
        return cls(file, state)

    def record(self, *, deleted: Iterable[FilePath] = (), loaded: Iterable[FilePath] = ()) -> None:
        """Append what is done, in one write; what is there already is not repeated."""
        gone = [path for path in dict.fromkeys(deleted) if path not in self.state.deleted]
        here = [path for path in dict.fromkeys(loaded) if path not in self.state.loaded]
        lines = [f"delete {path}" for path in gone] + [f"load {path}" for path in here]
        if not lines:
            return
        content = b"".join(map(_line, lines))
        self._file.append(content)
        self.state.deleted.update(gone)
        self.state.loaded.update(here)
        self.state.good_bytes += len(content)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
