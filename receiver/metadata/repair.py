"""What is wrong with the files of an engine, and the way back that a human may choose.

`report` changes nothing and works beside a running server. What the next start does by itself (cut
a torn tail, pass over a damaged checkpoint) needs no repair; `put_aside` does the same for files
that it does not look at. `cut` does what loses something: it drops the log from the first damage
on, puts a segment that is beyond reading aside, and fills the place of tags that are gone; all that
it takes away is kept beside. What is lost by that is what the report lists; senders notice
(`history: rewound`) and bring their files again. `mend_tags` then gives series whose tags cannot be
read those that the index knows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.digests import read_blocks
from common.durable import Tree
from common.errors import DamagedError, NotFoundError
from receiver.metadata.log.checkpoints import checkpoints, open_checkpoint
from receiver.metadata.log.frames import LOCK_NAME, LogReader, create_log
from receiver.metadata.log.freeze import thaw
from receiver.metadata.log.replay import Replay
from receiver.metadata.log.segments import (
    Segment,
    behind,
    missing,
    segment_gone,
    segment_name,
    segments,
)
from receiver.metadata.log.tlog import FIRST_OFFSET, TLOG_NAME, Tlog
from receiver.metadata.model import records
from receiver.metadata.model.paths import format_path, parse_pattern, parse_stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from receiver.metadata.engine import Engine
    from receiver.metadata.log.freeze import Thawed
    from receiver.metadata.state.state import State

__all__ = ["Damage", "LogReport", "bad_tags", "cut", "mend_tags", "put_aside", "report"]

_PAGE = 10_000
_LOOKS = 5
"""Times that it begins anew when files vanish under it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it should be.

    Attributes:
        name: of the file.
        problem: what is wrong, with the offset where there is one.
        remedy: that `put_aside` helps, and what stands in; empty where a human has to decide.
    """

    name: str
    problem: str
    remedy: str = ""


@dataclass(slots=True)
class LogReport:
    """The state of the files of an engine.

    Attributes:
        file: path of the segment that is damaged, or of the last one.
        size: its bytes.
        good: bytes of it up to the end of the last sound frame before any damage.
        commits: number of sound commits, those of the checkpoint included.
        newest: timestamp of the last of these.
        torn: bytes of a torn tail, which the next start cuts by itself.
        problem: what keeps the engine from starting, None if nothing does.
        offset: where the damage begins.
        behind: (offset, first and last timestamp) of sound frames behind the damage: they cannot
            be used without what is missing before them.
        state: as the checkpoint and the sound commits make it.
        damages: of all files, whether the next start minds or not.
        tags_end: bytes that the tlog should have at least.
        next_lsn: of the log, as far as it is sound; below `commits` + 1 the checkpoint has more.
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
    damages: list[Damage] = field(default_factory=list)
    tags_end: int = FIRST_OFFSET
    next_lsn: int = 0


def report(directory: Path) -> LogReport:
    """Read the files of an engine as far as they can be read.

    Raises:
        NotFoundError: there are none.
        DamagedError: nothing sound is left to begin with.
        NewerLogError: a newer version of tsferry wrote one.
    """
    with Tree(directory) as tree:
        for left in reversed(range(_LOOKS)):
            try:
                return _report(tree)
            except FileNotFoundError:  # a running server has just taken a checkpoint
                if not left:
                    raise
    raise AssertionError


def _report(tree: Tree) -> LogReport:
    there = segments(tree)
    if not there and not checkpoints(tree):
        raise NotFoundError(f"{tree.path}: no metadata engine has been here")
    damages: list[Damage] = []
    base = _base(tree, damages)
    replay = Replay() if base is None else Replay(base.state, lsn=base.lsn, commits=base.commits)
    lsn = replay.lsn
    wanted = behind(there, lsn) if there else []
    for each in there[: len(there) - len(wanted)]:
        damages += _look_through(tree, each)
    last = _Read(str(tree.path / segment_name(lsn + 1)))
    if not wanted or wanted[0].first_lsn > lsn + 1:
        last.problem = _too_late(tree, wanted, lsn + 1)
    elif base is not None and wanted[-1].first_lsn < base.segment:
        last.problem = segment_gone(tree, base.segment)
    else:
        for each in wanted:
            last = _read(tree, each, replay, last.next_lsn)
            if last.problem is not None:
                damages.append(Damage(each.name, last.problem.message))
                break
    tags_end = FIRST_OFFSET if base is None else base.tags_end
    return _put_together(tree, replay, last, damages, tags_end)


def _put_together(
    tree: Tree, replay: Replay, last: _Read, damages: list[Damage], tags_end: int
) -> LogReport:
    problem = last.problem
    tags = _tlog_damage(tree, tags_end)
    if tags is not None:
        damages.append(tags)
        if problem is None and not tags.remedy:
            problem = DamagedError(tags.problem, extra={"file": str(tree.path / TLOG_NAME)})
    return LogReport(
        file=last.what,
        size=last.size,
        good=last.good,
        commits=replay.lsn,
        newest=replay.state.newest,
        torn=0 if last.problem else last.torn,
        problem=None if problem is None else problem.message,
        offset=last.good if last.problem else None,
        state=replay.state,
        behind=last.behind,
        damages=damages,
        tags_end=tags_end,
        next_lsn=last.next_lsn,
    )


def _base(tree: Tree, damages: list[Damage]) -> Thawed | None:
    """The newest checkpoint that can be read; whether its tags are there is another question."""
    newest: Thawed | None = None
    for each in checkpoints(tree):
        try:
            with open_checkpoint(tree, each) as sections:
                found = thaw(sections)
        except DamagedError as error:
            remedy = "put it aside; another checkpoint, or the log, stands in for it if it is sound"
            damages.append(Damage(each.name, error.message, remedy))
        else:
            newest = newest or found
    return newest


def _too_late(tree: Tree, wanted: list[Segment], lsn: int) -> DamagedError:
    name = wanted[0].name if wanted else segment_name(lsn)
    return missing(str(tree.path / name), wanted[0].first_lsn if wanted else 0, lsn)


@dataclass(slots=True)
class _Read:
    """How far a segment could be read."""

    what: str
    size: int = 0
    good: int = 0
    torn: int = 0
    next_lsn: int = 0
    problem: DamagedError | None = None
    behind: list[tuple[int, int, int]] = field(default_factory=list)


def _read(tree: Tree, segment: Segment, replay: Replay, follows: int) -> _Read:
    found = _Read(str(tree.path / segment.name))
    fd = tree.open_read(segment.name)
    try:
        found.size = os.fstat(fd).st_size
        reader = LogReader(fd, found.what)
        try:
            if follows not in (0, reader.first_lsn):
                raise reader.damage(0, f"it begins with LSN {reader.first_lsn}, not {follows}")
            replay.run(reader)
        except DamagedError as error:
            found.problem = error
            found.behind = [
                (at, commits[0].ts, commits[-1].ts)
                for at, commits in reader.frames_behind_damage()
                if commits
            ]
        found.good, found.torn, found.next_lsn = reader.good, reader.torn, reader.next_lsn
    except DamagedError as error:  # the head
        found.problem = error
    finally:
        os.close(fd)
    return found


def _look_through(tree: Tree, segment: Segment) -> list[Damage]:
    """A segment that the checkpoint stands for: only the history of the log needs it."""
    fd = tree.open_read(segment.name)
    try:
        for _ in LogReader(fd, str(tree.path / segment.name)).frames():
            pass
    except DamagedError as error:
        remedy = "put it aside; the checkpoint stands for it, who follows the log gets the whole"
        return [Damage(segment.name, error.message, remedy)]
    finally:
        os.close(fd)
    return []


def _tlog_damage(tree: Tree, tags_end: int) -> Damage | None:
    """What keeps the tlog from being opened; single entries are looked at by `bad_tags`."""
    try:
        with Tlog.read_only(tree) as tlog:
            size, what = tlog.size, tlog.what
    except DamagedError as error:
        return Damage(TLOG_NAME, error.message)
    if tags_end <= max(size, FIRST_OFFSET):
        return None
    problem = f"{what} has {size} bytes, the checkpoint relies on {tags_end}"
    return Damage(TLOG_NAME, problem)


def put_aside(directory: Path, name: str) -> bool:
    """Give a damaged file that something stands in for another name; whether it was there.

    Of segments the older ones go along: without it they lead nowhere.
    """
    with Tree(directory) as tree:
        there = segments(tree)
        damaged = next((each.first_lsn for each in there if each.name == name), 0)
        names = [each.name for each in there if each.first_lsn <= damaged] or [name]
        if not tree.exists(name):
            return False
        for each in names:
            tree.rename(each, f"{each}.damaged")
    return True


# -- tags ----------------------------------------------------------------------------------------


def bad_tags(engine: Engine) -> Iterator[str]:
    """Paths of the series whose tags and attributes cannot be read."""
    for row, tags_at in _tagged(engine):
        try:
            engine.tags_of(tags_at)
        except DamagedError:
            with engine.reading() as state:
                yield format_path(state.schema.tree.nodes(row))


def _tagged(engine: Engine) -> Iterator[tuple[int, int]]:
    """(row, place of its tags) of every series that has some."""
    pattern, after = parse_pattern("root.**"), None
    while True:
        with engine.reading() as state:
            rows = list(state.schema.series.match(pattern, after=after, limit=_PAGE))
            found = [(row, state.schema.series.describe(row).tags_at) for row in rows]
            after = state.schema.tree.nodes(rows[-1]) if rows else None
        yield from ((row, tags_at) for row, tags_at in found if tags_at >= 0)
        if len(rows) < _PAGE:
            return


def mend_tags(engine: Engine) -> list[str]:
    """Give each series whose tags cannot be read the tags that the index knows, by commits.

    Its attributes are lost. Returns the paths.
    """
    paths = list(bad_tags(engine))
    for path in paths:
        with engine.reading() as state:
            row = state.schema.series.find(parse_stored(path))
            tags = state.schema.index.tags(row)
        engine.commit([records.TagsSet(path, tags, {})])
    return paths


# -- cutting -------------------------------------------------------------------------------------


def cut(directory: Path) -> str | None:
    """Cut a damaged log where the damage begins; returns the name of a file with what it held.

    None if nothing keeps the engine from starting. Segments behind the damage, or with a head that
    cannot be read, are put aside (`.aside`); where the tlog is too short for the checkpoint, its
    place is filled, so that `mend_tags` finds what is gone.

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
            kept = _cut_log(tree, found) if found.offset is not None else None
            return _fill_tlog(tree, found.tags_end) or kept
        finally:
            lock.release()


def _cut_log(tree: Tree, found: LogReport) -> str:
    there = segments(tree)
    name = found.file.rpartition("/")[2]
    at = next((each.first_lsn for each in there if each.name == name), found.commits + 1)
    for each in reversed(there):  # the newest first: what is left is a run without a gap
        if each.first_lsn > max(at, found.commits) or (each.name == name and not found.good):
            tree.rename(each.name, f"{each.name}.aside")
    kept = f"{name}.cut-{found.good}" if found.good else f"{name}.aside"
    if found.good:
        _keep(tree, name, kept, found.good)
        file = tree.append_file(name)
        try:
            file.truncate(found.good)
        finally:
            file.close()
    if not found.good or found.next_lsn <= found.commits:
        create_log(tree, segment_name(found.commits + 1), found.commits + 1)
    return kept


def _fill_tlog(tree: Tree, tags_end: int) -> str | None:
    """Make the tlog as long as the checkpoint says; what was there is kept in a copy."""
    if _tlog_damage(tree, tags_end) is None:
        return None
    kept: str | None = None
    if tree.exists(TLOG_NAME):
        kept = f"{TLOG_NAME}.cut-{tags_end}"
        _keep(tree, TLOG_NAME, kept, 0)
    Tlog.fill(tree, tags_end)
    return kept


def _keep(tree: Tree, name: str, kept: str, begin: int) -> None:
    """Put a file's bytes from `begin` on into a file of their own; a half-made one is replaced."""
    tree.unlink(kept)
    fd = tree.open_read(name)
    try:
        with tree.create(kept, mode=0o640) as file:
            for block in read_blocks(fd, start=begin):
                file.write(block)
            file.sync()
    finally:
        os.close(fd)
    tree.sync_dir()
