"""What is wrong with an engine's log, and the way back that a human may choose.

`report` changes nothing and works beside a running server. `cut` drops everything from the first
damage on, and keeps those bytes in a file of their own beside the log. What is lost by that is what
the report lists; senders notice (`history: rewound`) and bring the files again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.digests import read_blocks
from common.durable import Tree
from common.errors import DamagedError, NotFoundError
from receiver.metadata.log import LOG_NAME, LogReader
from receiver.metadata.replay import Replay

if TYPE_CHECKING:
    from pathlib import Path

    from receiver.metadata.state import State

__all__ = ["LogReport", "cut", "report"]

LOCK_NAME = "engine.lock"


@dataclass(slots=True)
class LogReport:
    """The state of a log.

    Attributes:
        file: its path.
        size: its bytes.
        good: bytes up to the end of the last sound frame before any damage.
        commits: number of commits in them.
        newest: timestamp of the last of these.
        torn: bytes of a torn tail, which the next start cuts by itself.
        problem: what is damaged, None if nothing is.
        offset: where the damage begins.
        behind: (offset, first and last timestamp) of sound frames behind the damage: they cannot
            be used without what is missing before them.
        state: as the sound commits make it.
    """

    file: str
    size: int
    good: int
    commits: int
    newest: int
    torn: int
    problem: str | None
    offset: int | None
    state: State
    behind: list[tuple[int, int, int]] = field(default_factory=list)


def report(directory: Path) -> LogReport:
    """Read a log as far as it can be read.

    Raises:
        NotFoundError: there is none.
        DamagedError: not even its head can be read.
        NewerLogError: a newer version of tsferry wrote it.
    """
    with Tree(directory) as tree:
        return _report(tree)


def _report(tree: Tree) -> LogReport:
    if not tree.exists(LOG_NAME):
        raise NotFoundError(f"{tree.path}: no metadata engine has been here")
    fd = tree.open_read(LOG_NAME)
    try:
        reader = LogReader(fd, str(tree.path / LOG_NAME))
        replay = Replay()
        problem: DamagedError | None = None
        try:
            replay.run(reader)
        except DamagedError as error:
            problem = error
        return LogReport(
            file=reader.what,
            size=os.fstat(fd).st_size,
            good=reader.good,
            commits=len(replay.commits),
            newest=replay.state.newest,
            torn=0 if problem else reader.torn,
            problem=None if problem is None else problem.message,
            offset=reader.good if problem else None,
            behind=[
                (at, commits[0].ts, commits[-1].ts)
                for at, commits in (reader.frames_behind_damage() if problem else ())
                if commits
            ],
            state=replay.state,
        )
    finally:
        os.close(fd)


def cut(directory: Path) -> str | None:
    """Cut a damaged log where the damage begins; returns the name of the file with the rest.

    None if nothing is damaged. A log without a sound first commit cannot be cut.

    Raises:
        LockedError: a server runs on the directory.
        DamagedError: there is nothing sound to keep.
    """
    with Tree(directory) as tree:
        lock = tree.lock(LOCK_NAME)
        try:
            found = _report(tree)
            if found.problem is None:
                return None
            if not found.commits:
                raise DamagedError(f"{found.file}: there is nothing sound to keep")
            kept = f"{LOG_NAME}.cut-{found.good}"
            _keep(tree, kept, found.good)
            file = tree.append_file(LOG_NAME)
            try:
                file.truncate(found.good)
            finally:
                file.close()
            return kept
        finally:
            lock.release()


def _keep(tree: Tree, name: str, begin: int) -> None:
    """Put the log's bytes from `begin` on into a file of their own; a half-made one is replaced."""
    tree.unlink(name)
    fd = tree.open_read(LOG_NAME)
    try:
        with tree.create(name, mode=0o640) as file:
            for block in read_blocks(fd, start=begin):
                file.write(block)
            file.sync()
    finally:
        os.close(fd)
    tree.sync_dir()
