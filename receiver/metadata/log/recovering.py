"""From a schema directory to the state it stands for: the newest good checkpoint, then the log.

A damaged checkpoint is passed over, with a warning, for the one before; without any the log has to
be whole from its first commit. What cannot be made good this way is an error that names the file:
an empty tree in place of a damaged one would lose everything that hangs on it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common import crash
from common.errors import DamagedError, NotFoundError
from receiver.metadata.log.checkpoints import checkpoints, open_checkpoint
from receiver.metadata.log.frames import LOG_NAME, VERSION, LogWriter
from receiver.metadata.log.freeze import thaw
from receiver.metadata.log.journal import JOURNAL
from receiver.metadata.log.replay import Replay
from receiver.metadata.log.segments import (
    Segment,
    behind,
    missing,
    open_segments,
    raise_version,
    segment_gone,
    segments,
)
from receiver.metadata.log.tlog import FIRST_OFFSET, TLOG_NAME, Tlog

if TYPE_CHECKING:
    from common.durable import Tree
    from receiver.metadata.log.checkpoints import Checkpoint
    from receiver.metadata.log.frames import LogReader
    from receiver.metadata.log.freeze import Thawed

__all__ = ["Opened", "is_empty", "open_for_writing", "recover"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Opened:
    """What was found in a directory.

    Attributes:
        replay: the state, and where it stands.
        tlog: open as it was asked for.
        last: reader of the last segment, at its end.
        base: LSN of the checkpoint that it began with, 0 for none.
        oldest: the oldest time that can be asked about.
        damaged: checkpoints that were passed over, and why.
    """

    replay: Replay
    tlog: Tlog
    last: LogReader
    base: int
    oldest: int
    damaged: list[tuple[Checkpoint, DamagedError]] = field(default_factory=list)


def is_empty(tree: Tree) -> bool:
    """Whether no engine has been in a directory.

    Raises:
        DamagedError: one has been, and its log is gone.
    """
    if segments(tree):
        return False
    left = [JOURNAL, TLOG_NAME, *(each.name for each in checkpoints(tree))]
    left = [name for name in left if tree.exists(name)]
    if left:
        raise DamagedError(
            f"{tree.path / LOG_NAME} is gone, although {', '.join(left)} shows that an engine was "
            "here; restore it, or move what is in the directory away to begin anew",
            extra={"file": str(tree.path / LOG_NAME), "offset": 0},
        )
    return True


def recover(tree: Tree, *, to_write: bool = False) -> Opened:
    """Read the state of a directory; its tlog is open when this returns.

    Args:
        tree: the schema directory.
        to_write: forget what only the kernel's memory holds, and heal the tlog on the disk.

    Raises:
        NotFoundError: no engine has been here.
        DamagedError: see the module.
        NewerLogError: a newer version of tsferry wrote a file.
        FileNotFoundError: a file has just been removed by a running engine; look again.
    """
    if is_empty(tree):
        raise NotFoundError(f"{tree.path}: no metadata engine has been here")
    tlog = _open_tlog(tree, to_write=to_write)
    try:
        return _recover(tree, tlog, to_write=to_write)
    except BaseException:
        tlog.close()
        raise


def _open_tlog(tree: Tree, *, to_write: bool) -> Tlog:
    if not to_write:
        return Tlog.read_only(tree)
    if not tree.exists(TLOG_NAME):
        Tlog.make(tree)
    return Tlog.open(tree)


def _recover(tree: Tree, tlog: Tlog, *, to_write: bool) -> Opened:
    base, damaged = _newest_good(tree, tlog)
    # Behind the checkpoints: a running engine begins a segment before it makes a checkpoint that
    # knows it, and lets go of none that the two newest checkpoints need.
    there = segments(tree)
    wanted = _wanted(tree, there, base, damaged)
    if base is None:
        replay = Replay(tlog=tlog)
    else:
        tlog.end = base.tags_end
        replay = Replay(base.state, lsn=base.lsn, commits=base.commits, tlog=tlog)
    if to_write:
        # What the last process wrote and did not live to flush is flushed before anybody is told
        # of it. What a failed flush left in memory alone is forgotten: pages that are dropped now
        # are read from the disk, and show what is truly there.
        for each in wanted:
            tree.sync_file(each.name)
        crash.point("mlog.open.flushed")
    with open_segments(tree, wanted, from_disk=to_write) as readers:
        replay.run_all(readers)
        last = readers[-1]
    return Opened(
        replay,
        tlog,
        last,
        base=0 if base is None else base.lsn,
        oldest=0 if base is None else base.oldest,
        damaged=damaged,
    )


def _newest_good(
    tree: Tree, tlog: Tlog
) -> tuple[Thawed | None, list[tuple[Checkpoint, DamagedError]]]:
    damaged: list[tuple[Checkpoint, DamagedError]] = []
    for each in checkpoints(tree):
        try:
            with open_checkpoint(tree, each) as sections:
                found = thaw(sections)
            _check_tlog(tlog, found)
        except DamagedError as error:
            message = error.message
            if each.name not in message:
                message = f"{tree.path / each.name}: {message}"
            _log.warning("a checkpoint is passed over", extra={"reason": message})
            damaged.append((each, DamagedError(message, extra=error.extra)))
            continue
        return found, damaged
    return None, damaged


def _check_tlog(tlog: Tlog, found: Thawed) -> None:
    """The tlog holds at least what the checkpoint let go from the log."""
    if found.tags_end > max(tlog.size, FIRST_OFFSET):
        raise DamagedError(
            f"{tlog.what} has {tlog.size} bytes, the checkpoint of LSN {found.lsn} relies on "
            f"{found.tags_end}",
            extra={"file": tlog.what, "offset": tlog.size},
        )


def _wanted(
    tree: Tree,
    there: list[Segment],
    base: Thawed | None,
    damaged: list[tuple[Checkpoint, DamagedError]],
) -> list[Segment]:
    """The segments from the checkpoint on; `DamagedError` if some are missing."""
    lsn = 0 if base is None else base.lsn
    wanted = behind(there, lsn)
    if base is not None and wanted[-1].first_lsn < base.segment:
        raise segment_gone(tree, base.segment)
    if wanted[0].first_lsn <= lsn + 1:
        return wanted
    if not damaged:
        raise missing(str(tree.path / there[0].name), there[0].first_lsn, lsn + 1)
    reasons = "; ".join(error.message for _, error in damaged)
    raise DamagedError(
        f"{reasons}; and the log that could stand in for it is not whole: it begins with LSN "
        f"{wanted[0].first_lsn}, {lsn + 1} is needed; `tsferry-receiver fsck` shows what can be "
        "saved",
        extra={"file": str(tree.path / damaged[0][0].name), **damaged[0][1].extra},
    )


def open_for_writing(tree: Tree) -> tuple[Opened, LogWriter]:
    """Recover a directory, put right what is torn, and go on where it ends.

    Raises:
        DamagedError: as `recover`, with all the others.
    """
    opened = recover(tree, to_write=True)
    try:
        return opened, _write_on(tree, opened)
    except BaseException:
        opened.tlog.close()
        raise


def _write_on(tree: Tree, opened: Opened) -> LogWriter:
    name = opened.last.what.rpartition("/")[2]
    for each, _ in opened.damaged:  # or it would count as one of those that are kept
        tree.rename(each.name, f"{each.name}.damaged")
    if opened.last.version < VERSION:
        raise_version(tree, opened.last, name)
    opened.tlog.cut()
    file = tree.append_file(name)
    try:
        if opened.last.torn:
            _log.warning(
                "cut a torn tail off the log",
                extra={
                    "file": opened.last.what,
                    "offset": opened.last.good,
                    "bytes": opened.last.torn,
                },
            )
            crash.point("mlog.cut.before")
            file.truncate(opened.last.good)
            crash.point("mlog.cut.after")
    except BaseException:
        file.close()
        raise
    return LogWriter(file, opened.last.salt, opened.last.next_lsn, first_lsn=opened.last.first_lsn)
