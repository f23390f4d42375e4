"""Puts right what a check of the disks has found, with the server down. Nothing is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.durable import Tree
from common.formats.linelog import parse_load, parse_sync
from receiver.load.folder import json_lines
from receiver.load.folder.current_task import LOAD_LOG, PLAN_LOG, SYNC_END, SYNC_LOG, Planned
from receiver.load.upkeep.fsck_findings import STRAY, Found, Report
from receiver.metadata import repair as log_repair
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["put_right"]


def put_right(engine: Engine, trees: Sequence[Tree], schema: Path, report: Report) -> Report:
    """Put right what can be, and say of each finding whether it was."""
    with engine.reading() as state:
        superseded = {
            row.physical for row in state.files.values() if row.state is FileState.SUPERSEDED
        }
    done: list[Found] = []
    # Those first: they would come back, without bytes, with what they rest on in quarantine.
    for each in sorted(report.found, key=lambda found: found.path not in superseded):
        repaired = False
        if each.is_bad_file and each.elsewhere:
            # What is missing then is fetched by whoever reads it, and checked.
            repaired = _set_aside(trees, each.path) and each.elsewhere == "store"
        elif each.is_bad_file:
            repaired = _quarantine(engine, each)
        elif each.kind == "merged":
            repaired = _dissolve(engine, each)
        elif each.kind in ("stray", "manifest"):
            repaired = _set_aside(trees, each.path)
        elif each.kind == "log":
            repaired = all(_put_log_right(tree, each.path) for tree in trees)
        elif each.kind == "journal":
            repaired = True  # opening the engine for writing has done it
        elif each.kind == "metadata" and each.repair:
            repaired = log_repair.put_aside(schema, each.path)
        elif each.kind == "tags":
            repaired = bool(log_repair.mend_tags(engine))
        crash.point("fsck.repaired")
        done.append(msgspec.structs.replace(each, repaired=repaired))
    return msgspec.structs.replace(report, found=done)


def _quarantine(engine: Engine, found: Found) -> bool:
    with engine.reading() as state:
        row = state.files.get(found.path)
    if row is None or row.state in (FileState.QUARANTINED, FileState.DELETED):
        return True  # a merged file goes with another one of its merge that is bad
    if row.state is FileState.SUPERSEDED:
        engine.commit([records.FileDeleted(found.path, "superseded")])
    else:
        engine.commit([records.FileQuarantined(found.path, f"{found.kind}: {found.detail}")])
    return True


def _dissolve(engine: Engine, found: Found) -> bool:
    with engine.reading() as state:
        rows = [
            row
            for row in state.compacted_table.holding()
            if any(each.physical == found.path for each in row.outputs)
        ]
    for row in rows:  # none, where another output of it was found first
        engine.commit([records.CompactionDissolved(row.id, f"{found.path}: {found.detail}")])
    return True


def _set_aside(trees: Sequence[Tree], rel: str) -> bool:
    moved = False
    for tree in trees:
        if tree.exists(rel):
            target = f"{STRAY}/{rel}"
            tree.make_dirs(target.rpartition("/")[0])
            tree.rename(rel, target)
            moved = True
    return moved


def _put_log_right(tree: Tree, rel: str) -> bool:
    """Cut a torn log; take a stale one away."""
    if not tree.exists(rel):
        return True
    data = tree.read(rel)
    name = rel.rpartition("/")[2]
    if name in (LOAD_LOG, SYNC_END) and not tree.exists(f"{rel[: -len(name)]}{SYNC_LOG}"):
        return tree.unlink(rel)
    if name == SYNC_LOG:
        good = parse_sync(data).good_bytes
    elif name == LOAD_LOG:
        good = parse_load(data).good_bytes
    else:
        kind = Planned if name == PLAN_LOG else msgspec.Raw
        good = json_lines.parse(data, kind)[1]
    with tree.append_file(rel) as file:
        file.truncate(good)
    return True
