"""Checks everything the receiver has on its disks; with `repair`, puts right what can be.

Only looking works beside a running server and on a stopped one. Repairing needs the engine's lock,
so the server must be down. Nothing is ever deleted: a bad or lost file is quarantined, which makes
its sender send it again, unless the object store or storage nodes are to have it whole; a file that
no row names is moved to `stray/` in its data directory; a torn log is cut where its sound part
ends; the journal of owners is brought up to the engine.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from common.console.step_progress import StepCounter, ToldProgress, untold
from common.console.terminal import counted
from common.durable import Tree
from common.errors import DamagedError, TsferryError
from common.formats.linelog import parse_load, parse_sync
from receiver.datadirs.disks import Disks
from receiver.load.folder import json_lines
from receiver.load.folder.current_task import LOAD_LOG, PLAN_LOG, SYNC_END, SYNC_LOG, Planned
from receiver.load.folder.manifests import damages, kept_tasks, tables_path
from receiver.load.folder.sender_folder import VERIFIED_LOG, Folders
from receiver.load.upkeep.asked_again import must_be_confirmed, what_is_asked
from receiver.load.upkeep.fsck_findings import STRAY, Found, Report
from receiver.load.upkeep.fsck_repair import put_right
from receiver.load.upkeep.loaded_file_checks import check_file, check_merged, is_to_be_there
from receiver.load.upkeep.resting_files import left_at_nodes
from receiver.load.upkeep.strays import find_strays, folders_in
from receiver.metadata import repair as log_repair
from receiver.metadata.engine import Engine
from receiver.metadata.log.journal import JOURNAL, parse_journal
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.metadata.state.placed_files import holding_nodes, placed_nodes
from receiver.open_engine import open_engine, read_told

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from receiver.config import ReceiverConfig
    from receiver.datadirs.disks import Away
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.metadata.model.true_times import TrueTimes

__all__ = ["examine", "fsck"]

_SHOWN = 20
"""Series that a finding names."""


def fsck(
    config: ReceiverConfig,
    *,
    repair: bool = False,
    cut_log: bool = False,
    without_nodes: bool = False,
    confirm: bool = False,
    told: ToldProgress = untold,
) -> Report:
    """Check the directories of a configuration.

    Args:
        config: of the receiver.
        repair: put right what can be.
        cut_log: cut a log of the engine that is damaged in the middle first.
        without_nodes: what only storage nodes could have is quarantined.
        confirm: however much is quarantined.
        told: hears how far it is.

    Raises:
        NotFoundError: there is no receiver in them.
        LockedError: a repair was asked for, and the server is running.
        UsageError: it would ask senders for more than a disk loses that fails.
        DamagedError: the log has nothing sound to keep.
    """
    cut = log_repair.cut(config.schema_dir) if cut_log else None
    try:
        engine = open_engine(config) if repair else read_told(config)
    except DamagedError as error:
        return Report(engine="", commit=0, found=[_damaged_engine(config.schema_dir, error)])
    with engine, ExitStack() as stack:
        disks = stack.enter_context(Disks.look(config, engine))
        trees = disks.trees
        schema = stack.enter_context(Tree(config.schema_dir))
        report = examine(
            engine, trees, schema, away=disks.away(), without_nodes=without_nodes, told=told
        )
        if repair and trees:
            if not confirm:
                asked = what_is_asked(engine, report, without_nodes=without_nodes)
                must_be_confirmed(asked, cut)
            report = put_right(engine, trees, config.schema_dir, report)
    return report


def _damaged_engine(directory: Path, error: DamagedError) -> Found:
    """What a damaged log still holds, so that a human can choose."""
    where = str(directory)
    try:
        log = log_repair.report(directory)
    except TsferryError:
        return Found(kind="engine", path=where, detail=error.message)
    if log.problem is None:
        return Found(kind="engine", path=where, detail=error.message)
    totals, times = log.state.file_table.totals(), log.state.clock.times
    where_it_is = f"{log.file} is damaged at offset {log.offset}"
    detail = log.problem if log.offset is None else where_it_is
    detail += (
        f"; {counted(log.commits, 'commit is', 'commits are')} sound "
        f"(to {_moment(log.newest, times)}: {counted(totals.files, 'file')}), "
        f"{len(log.behind)} frames behind the damage cannot be used without what is missing"
    )
    if log.behind:
        first, last = log.behind[0][1], log.behind[-1][2]
        detail += f" ({_moment(first, times)} to {_moment(last, times)})"
    detail += (
        "; restore the file from a copy, or with the server down `fsck --repair --cut-log` keeps "
        "the commits before the damage and puts the rest aside: senders bring their files again; "
        "tokens, owners and attributes that are gone are to be set again"
    )
    return Found(kind="engine", path=where, detail=detail)


def _moment(ts: int, times: TrueTimes) -> str:
    return datetime.fromtimestamp(times.seconds(ts), UTC).isoformat(sep=" ", timespec="seconds")


def examine(
    engine: Engine,
    trees: Sequence[Tree],
    schema: Tree,
    *,
    away: Sequence[Away] = (),
    without_nodes: bool = False,
    told: ToldProgress = untold,
) -> Report:
    """Look at everything, change nothing.

    Args:
        engine: open, for reading at least.
        trees: the data directories.
        schema: the schema directory.
        away: data directories that do not count.
        without_nodes: storage nodes do not count.
        told: hears how far it is.
    """
    found = [
        Found(kind="folder", path=str(each.path), detail=f"the directory is away: {each.reason}")
        for each in away
    ]
    with engine.reading() as state:
        rows = [row for row in state.files.values() if is_to_be_there(row)]
        compactions = list(state.compacted_table.holding())
        stored = [state.uploaded_table.parts(row) for row in rows]
        nodes = [not without_nodes and bool(placed_nodes(state, row.physical)) for row in rows]
        released = {
            row.physical
            for row in rows
            if row.physical in state.released_table.rows
            and holding_nodes(state, row.physical, proved=without_nodes)
        }
        commit = state.newest
    remote = 0
    counter = StepCounter("checking files", len(rows), sum(row.size for row in rows), told)
    for row, in_store, at_nodes in zip(rows, stored, nodes, strict=True):
        tree = next((each for each in trees if each.exists(row.physical)), None)
        if tree is None and (in_store.file or row.physical in released):
            remote += 1
        else:
            found += check_file(row, tree, in_store, at_nodes=at_nodes, all_here=not away)
        counter.done(row.size)
    if without_nodes:
        found = left_at_nodes(engine, found)
    for each in compactions:
        found += check_merged(each, trees, all_here=not away)
    found += find_strays(engine, trees)
    for tree in trees:
        found += [
            Found(kind="folder", path=path, detail=detail)
            for path, detail in Folders([tree]).misplaced().items()
        ]
        for folder in folders_in(tree):
            if not folder.misplaced():
                found += _check_folder(folder)
            found += _check_tables(folder, engine)
    found += _check_quarantine(engine, trees)
    found += _check_journal(engine, schema)
    found += _check_metadata(engine, schema)
    return Report(
        engine=engine.uuid,
        commit=commit,
        files=len(rows),
        bytes=sum(row.size for row in rows),
        remote=remote,
        found=found,
    )


# -- folders, logs, journal ----------------------------------------------------------------------


def _check_folder(folder: SenderFolder) -> Iterator[Found]:
    tree = folder.tree
    for name, parse in ((SYNC_LOG, parse_sync), (LOAD_LOG, parse_load)):
        rel = folder.at(name)
        if tree.exists(rel):
            data = tree.read(rel)
            state = parse(data)
            if state.problem is not None:
                yield _torn(folder, rel, state.problem, state.good_bytes)
    for name, kind in ((PLAN_LOG, Planned), (VERIFIED_LOG, msgspec.Raw)):
        rel = folder.at(name)
        if tree.exists(rel):
            data = tree.read(rel)
            good = json_lines.parse(data, kind)[1]
            if good != len(data):
                detail = f"{len(data) - good} bytes after byte {good} are no whole line"
                yield _torn(folder, rel, detail, good)
    if not tree.exists(folder.at(SYNC_LOG)):
        for name in (LOAD_LOG, SYNC_END):
            if tree.exists(folder.at(name)):
                detail = "stale: there is no sync.log"
                yield Found(kind="log", path=folder.at(name), detail=detail, sender=folder.uuid)


def _check_tables(folder: SenderFolder, engine: Engine) -> Iterator[Found]:
    """What the sender says of series; a bad one costs only the names in a verification's report."""
    kept = kept_tasks(folder)
    roots: dict[str, dict[str, str]] = {task: {} for task in kept}
    with engine.reading() as state:
        for row in state.files.of({folder.uuid}) if kept else ():
            if row.task in roots and row.manifest is not None:
                roots[row.task][row.path] = row.manifest.root
    for task in kept:
        rel = tables_path(folder.directory, task)
        for detail in damages(folder, task, roots[task]):
            repair = f"move it to {STRAY}/{rel}"
            yield Found(kind="manifest", path=rel, detail=detail, repair=repair, sender=folder.uuid)


def _torn(folder: SenderFolder, rel: str, problem: str, good: int) -> Found:
    return Found(
        kind="log",
        path=rel,
        detail=problem,
        repair=f"cut it after byte {good}",
        sender=folder.uuid,
    )


def _check_quarantine(engine: Engine, trees: Sequence[Tree]) -> Iterator[Found]:
    with engine.reading() as state:
        kept = [row for row in state.quarantine.values() if row.kept is not None]
    for row in kept:
        if row.kept is not None and not any(tree.exists(row.kept) for tree in trees):
            yield Found(
                kind="quarantine",
                path=row.kept,
                detail=f"the bytes kept of {row.path} are gone",
                sender=row.sender,
            )


def _check_journal(engine: Engine, schema: Tree) -> Iterator[Found]:
    with engine.reading() as state:
        owners = {device: row.sender for device, row in state.owners.items()}
    data = schema.read(JOURNAL) if schema.exists(JOURNAL) else b""
    written, good = parse_journal(data)
    if good == len(data) and written == owners:
        return
    detail = (
        f"{len(data) - good} bytes after byte {good} are no whole line"
        if good != len(data)
        else "it does not say what the engine says"
    )
    repair = "bring it up to the engine"
    yield Found(kind="journal", path=JOURNAL, detail=detail, repair=repair)


def _check_metadata(engine: Engine, schema: Tree) -> Iterator[Found]:
    """Files of the engine that its start does not look at, and every entry of the tlog."""
    for each in log_repair.report(schema.path).damages:
        yield Found(kind="metadata", path=each.name, detail=each.problem, repair=each.remedy)
    bad = list(log_repair.bad_tags(engine))
    if bad:
        some = ", ".join(bad[:_SHOWN]) + (", ..." if len(bad) > _SHOWN else "")
        detail = f"tags and attributes of {len(bad)} series cannot be read: {some}"
        repair = "give them the tags that the index knows; their attributes are lost"
        yield Found(kind="tags", path=TLOG_NAME, detail=detail, repair=repair)
