"""A schema directory as the cache of a remote log: brought up to it before it is opened.

What is behind is caught up. What is of another engine, or has other commits, is set aside
(`aside-<number>/`), and the directory made anew: the newest remote checkpoint, then the frames
behind it. A remote log that lacks the newest commits of the directory, an empty one for example,
is given them: nothing that was acknowledged is dropped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from common import crash
from common.durable import temporary_name
from common.errors import ConflictError, DamagedError, NotFoundError
from receiver.metadata.log.checkpoints import checkpoint_name, checkpoints
from receiver.metadata.log.frames import create_log
from receiver.metadata.log.recovering import open_for_writing, recover
from receiver.metadata.log.segments import behind, open_segments, segment_name, segments
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.metadata.model.records import decode_commits

if TYPE_CHECKING:
    from common.durable import Tree
    from receiver.metadata.log.frames import LogWriter
    from receiver.metadata.log.recovering import Opened
    from receiver.metadata.model.remote_log import RemoteLog

__all__ = ["follow", "hand_in"]

_log = logging.getLogger(__name__)


def follow(tree: Tree, remote: RemoteLog) -> None:
    """Bring a directory up to a remote log that holds an engine; nothing to do for an empty one.

    Raises:
        DamagedError: frames of the remote log are gone or damaged.
        UnreachableError: it does not answer.
    """
    uuid = remote.uuid
    if uuid is None or not remote.newest():
        return
    there = _local(tree, uuid)
    if there is None or not _agrees(tree, there, remote):
        _set_aside(tree)
        _rebuild(tree, remote)
    _catch_up(tree, remote)


def hand_in(tree: Tree, remote: RemoteLog, opened: Opened) -> None:
    """Let a remote log have the commits of a directory that it lacks; `follow` went before.

    Where the directory's log begins behind a checkpoint, an empty remote one begins so, too.

    Raises:
        ConflictError: the directory's log does not reach back that far.
    """
    begin = remote.newest() + 1
    if begin > opened.replay.lsn:
        return
    if begin == 1:
        begin = _begin(tree, remote, opened)
    found = behind(segments(tree), begin - 1)
    if found[0].first_lsn > begin:
        raise ConflictError(
            f"{tree.path}: the log begins with LSN {found[0].first_lsn}, the remote log needs "
            f"{begin}; move the directory away, and it is made anew from there"
        )
    with open_segments(tree, found) as readers:
        for reader in readers:
            for lsn, commits, payload in reader.payloads():
                if lsn >= begin:
                    remote.append(lsn, commits, payload)
                    crash.point("remote.handed_in.frame")


def _begin(tree: Tree, remote: RemoteLog, opened: Opened) -> int:
    """Begin an empty remote log; the LSN of the first frame that is to go there."""
    uuid, lsn = opened.replay.state.uuid, opened.base
    if segments(tree)[0].first_lsn == 1:
        remote.begin(uuid)
        return 1
    # By the last commit of a checkpoint a directory is compared with the remote log.
    first = lsn + 1
    with open_segments(tree, behind(segments(tree), lsn - 1)) as readers:
        for reader in readers:
            first = next((at for at, n, _ in reader.payloads() if at <= lsn < at + n), first)
    names = [each for each in (checkpoint_name(lsn), TLOG_NAME) if tree.exists(each)]
    remote.put_checkpoint(lsn, {name: tree.path / name for name in names})
    crash.point("remote.handed_in.checkpoint")
    remote.begin(uuid, first - 1)
    return first


def _local(tree: Tree, uuid: str) -> Opened | None:
    """What the directory holds; None if that is of no use."""
    try:
        opened = recover(tree)
    except NotFoundError:
        return None
    except DamagedError as error:
        _log.warning("the local log is of no use", extra={"reason": error.message})
        return None
    opened.tlog.close()
    if opened.replay.state.uuid != uuid:
        found = opened.replay.state.uuid
        _log.warning("the local log is of another engine", extra={"engine": found})
        return None
    return opened


def _agrees(tree: Tree, there: Opened, remote: RemoteLog) -> bool:
    """Whether one of the two logs goes on from the other."""
    lsn = min(there.replay.lsn, remote.newest())
    if lsn < remote.oldest():
        return False  # it cannot be told, and would have to be made anew from the checkpoint anyway
    if lsn == there.replay.lsn:
        ts: int | None = there.replay.state.newest
    else:
        ts = _local_commit(tree, lsn)
    first, payload = next(iter(remote.frames(lsn)))
    if decode_commits(payload)[lsn - first].ts == ts:
        return True
    _log.warning("the local log has other commits than the remote one", extra={"lsn": lsn})
    return False


def _local_commit(tree: Tree, lsn: int) -> int | None:
    """Timestamp of a commit in the local log, None if the log begins later."""
    with open_segments(tree, behind(segments(tree), lsn - 1)) as readers:
        for reader in readers:
            for _, commits in reader.frames():
                if 0 <= lsn - reader.next_lsn < len(commits):
                    return commits[lsn - reader.next_lsn].ts
    return None


def _set_aside(tree: Tree) -> None:
    names = [each.name for each in segments(tree)]
    names += [each.name for each in checkpoints(tree)]
    names += [TLOG_NAME] if tree.exists(TLOG_NAME) else []
    if not names:
        return
    number = 1
    while tree.exists(f"aside-{number}"):
        number += 1
    target = f"aside-{number}"
    tree.make_dirs(target)
    # The log last: until it is gone, this is begun again after a crash.
    for name in reversed(names):
        tree.rename(name, f"{target}/{name}")
        crash.point("remote.aside.moved")
    _log.warning("the local files of the engine were set aside", extra={"directory": target})


def _rebuild(tree: Tree, remote: RemoteLog) -> None:
    """Make the directory anew as far as the checkpoint goes; `_catch_up` does the rest."""
    found = remote.checkpoint()
    lsn = 0 if found is None else found.lsn
    if found is not None:
        for name in sorted(found.files, key=lambda name: name == checkpoint_name(lsn)):
            if name not in (TLOG_NAME, checkpoint_name(lsn)):
                continue
            temporary = temporary_name()
            with tree.create(temporary, mode=0o640) as file:
                for piece in found.read(name):
                    file.write(piece)
                file.sync()
            tree.rename(temporary, name)
            crash.point("remote.rebuild.file")
    first, payload = next(iter(remote.frames(lsn + 1)), (0, b""))
    if lsn and (not payload or first != lsn + 1):
        create_log(tree, segment_name(lsn + 1), lsn + 1)
    else:
        create_log(tree, segment_name(first), first, payload)
    crash.point("remote.rebuild.log")


def _catch_up(tree: Tree, remote: RemoteLog) -> None:
    opened, log = open_for_writing(tree)
    try:
        if log.next_lsn <= remote.newest():
            _append_frames(log, remote)
    finally:
        log.close()
        opened.tlog.close()


def _append_frames(log: LogWriter, remote: RemoteLog) -> None:
    for first, payload in remote.frames(log.next_lsn):
        commits = decode_commits(payload)
        if first != log.next_lsn:
            raise DamagedError(
                f"the remote log has a frame from LSN {first}, {log.next_lsn} is needed"
            )
        log.append(payload, len(commits))
        crash.point("remote.caught_up.frame")
