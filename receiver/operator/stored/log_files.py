"""The files of the engine, for nodes that follow it: what is there, and the bytes that count.

The files only grow, or are never changed, so they are served as they are, up to what is committed.
"""

from __future__ import annotations

import os
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from common.durable import Tree
from common.errors import NotFoundError, UsageError
from receiver.metadata.log.checkpoints import checkpoints
from receiver.metadata.log.segments import Segment, segment_name, segments
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.operator.views.log_file_views import (
    CheckpointFile,
    LogFilesView,
    LogOrigin,
    SegmentFile,
)

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine, Published
    from receiver.operator.directories import ReceiverDirectories

__all__ = ["log_files", "read_log_file"]

_NAME = re.compile(r"(mlog|mtree\.snapshot)-[1-9][0-9]{0,18}\.tsf\Z")
_MOST = 8 << 20


def log_files(
    there: ReceiverDirectories,
    lsn: int,
    ts: int,
    incarnation: int | None = None,
    origin: LogOrigin | None = None,
) -> LogFilesView:
    """What is there.

    Args:
        there: a receiver that commits, or a node with its copy.
        lsn: of a commit that is known; 0 for none.
        ts: its timestamp.
        incarnation: of the owner whose log a node has.
        origin: of a node's copy.
    """
    from receiver.storage.stores.incarnation import known_incarnation

    engine = there.engine
    with Tree(there.config.schema_dir) as tree:
        now = engine.published()
        if incarnation is None:
            incarnation = known_incarnation(tree, engine.uuid)
        found = [each for each in segments(tree) if each.first_lsn <= now.segment]
        several = [each for each in checkpoints(tree) if each.lsn <= now.lsn]
        return LogFilesView(
            engine=engine.uuid,
            incarnation=incarnation,
            lsn=now.lsn,
            ts=now.ts,
            checkpoints=[
                CheckpointFile(each.lsn, _size(tree, each.name)) for each in reversed(several)
            ],
            segments=_segments(tree, found, now),
            tags_end=now.tags_end,
            goes_on=_goes_on(engine, now, lsn, ts),
            origin=origin,
        )


def _segments(tree: Tree, found: list[Segment], now: Published) -> list[SegmentFile]:
    closed = [
        SegmentFile(each.first_lsn, following.first_lsn, _size(tree, each.name))
        for each, following in pairwise(found)
    ]
    return [*closed, SegmentFile(now.segment, now.lsn + 1, now.log_end)]


def _goes_on(engine: Engine, now: Published, lsn: int, ts: int) -> bool | None:
    """Whether a commit is in this log; None if it is too old to tell."""
    if not lsn:
        return None
    if lsn > now.lsn:
        return False
    found = engine.timestamp_of(lsn)
    return None if found is None else found == ts


def _size(tree: Tree, name: str) -> int:
    found = tree.stat(name)
    return 0 if found is None else found.st_size


def read_log_file(there: ReceiverDirectories, name: str, begin: int) -> bytes:
    """Bytes of one of the files from an offset on, at most 8 MiB; none at the end of what counts.

    Raises:
        UsageError: it is no such file.
        NotFoundError: it is gone.
    """
    if name != TLOG_NAME and not _NAME.match(name):
        raise UsageError(f"{name}: expected the name of a segment, of a checkpoint or of the tlog")
    now = there.engine.published()
    most = {segment_name(now.segment): now.log_end, TLOG_NAME: now.tags_end}.get(name)
    length = _MOST if most is None else max(0, min(_MOST, most - begin))
    try:
        with Tree(there.config.schema_dir) as tree:
            fd = tree.open_read(name)
            try:
                return os.pread(fd, length, begin)
            finally:
                os.close(fd)
    except FileNotFoundError:
        raise NotFoundError(f"{name} is gone; look again what is there") from None
