"""Checks what is in the store against the catalogue, and puts right what is bad there.

An object that is not what was put is never replaced and never trusted: where the copy here is
whole it is put once more, under a key of its own, and a commit says so. Where the copy here is bad
too the file is quarantined, so that its sender is asked for it, as it is for one that is bad here.
What storage nodes are to have is left to a server, which asks them: with none no node is asked.
What no row names is told of, with what its own metadata says, and left.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from common import crash
from common.console.step_progress import StepCounter, untold
from receiver.metadata.model import records
from receiver.metadata.state.placed_files import holding_nodes, is_left_to_nodes, placed_nodes
from receiver.metadata.state.table_rows import FileState
from receiver.storage.cache.file_restore import stands
from receiver.storage.objects.object_adoption import untold_objects
from receiver.storage.objects.object_check import (
    ARCHIVED,
    CopiesReport,
    ObjectFinding,
    check_objects,
)
from receiver.storage.objects.object_places import file_of
from receiver.storage.objects.object_removal import objects_of
from receiver.storage.objects.objects_again import put_once_more, resource_here
from receiver.storage.stores.incarnation import check_owner
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import ObjectMissingError
from receiver.storage.stores.store_manifests import StoreManifest
from receiver.storage.tree.tree_manifests import forget_tree, newest_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from common.console.step_progress import ToldProgress
    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore, StoredObject
    from receiver.storage.uploading.pulled_files import PulledFiles

__all__ = ["OF_NODES", "examine_store", "may_be_needed", "repair_from_here", "repair_store"]

log = logging.getLogger(__name__)

_AGAIN = "put it there once more"
_WANTED = "quarantine it, so that its sender sends it again: the copy here is bad too"
_GIVEN = "forget it, since other files give its points: the copy here is bad too"
OF_NODES = (
    "with the server up, put it there once more from a storage node: the copy here is bad too"
)
_ANEW = "have the tree made anew by the receiver"
_DONE_HERE = (_AGAIN, OF_NODES, _WANTED, _GIVEN)
_SEEN_OR_GIVEN = (FileState.LIVE, FileState.RETIRED, FileState.SUPERSEDED)
"""Files that readers see, or would see again if what gives their points left sight."""
_OURS = ("checkpoints", "data", "log", "manifests", "owners", "tags", "tree")


def examine_store(
    engine: Engine,
    store: ObjectStore,
    trees: Sequence[Tree],
    *,
    deep: bool,
    without_nodes: bool = False,
    told: ToldProgress = untold,
) -> CopiesReport:
    """Look at everything, change nothing.

    Args:
        engine: open, for reading at least.
        store: where the objects are.
        trees: the data directories that are there.
        deep: read the bytes of each object.
        without_nodes: storage nodes do not count, but for what is left where all else is given up.
        told: called with how far it is.

    Raises:
        StoreAwayError, StoreRefusedError: of the store.
    """
    with engine.reading() as state:
        commit = state.newest
        places = dict(state.uploaded_table.rows)
        rows = [row for row in state.files.values() if may_be_needed(state, row.physical)]
    found = _with_ways_out(
        engine,
        check_objects(store, engine.uuid, rows, places, deep=deep, told=told),
        trees,
        without_nodes=without_nodes,
    )
    found += untold_objects(engine, store, trees)
    found += _log(engine, store)
    found += _tree(engine, store)
    found += _strangers(engine, store)
    return CopiesReport(
        engine=engine.uuid,
        commit=commit,
        files=len(rows),
        bytes=sum(row.size for row in rows),
        sizes_only=not (deep or store.knows_digests),
        found=found,
    )


def may_be_needed(state: State, physical: str) -> bool:
    """Whether a file is one that should have an object in the store, and that somebody may read."""
    row = state.files.get(physical)
    return row is not None and row.state in _SEEN_OR_GIVEN and physical in state.uploaded_table.rows


def _with_ways_out(
    engine: Engine, found: Sequence[ObjectFinding], trees: Sequence[Tree], *, without_nodes: bool
) -> list[ObjectFinding]:
    with engine.reading() as state:
        rows = {each.physical: state.files.get(each.physical) for each in found}
        nodes = {
            name
            for name in rows
            if not without_nodes and (placed_nodes(state, name) or holding_nodes(state, name))
        }
    told = [
        replace(each, repair=_way_out(each, row, trees, at_nodes=each.physical in nodes))
        for each in found
        if (row := rows[each.physical]) is not None
    ]
    hidden = {each.physical for each in told if each.repair == _WANTED}
    with engine.reading() as state:
        return [
            replace(each, repair=OF_NODES)
            if each.repair == _GIVEN and is_left_to_nodes(state, each.physical, hidden)
            else each
            for each in told
        ]


def _way_out(found: ObjectFinding, row: FileRow, trees: Sequence[Tree], *, at_nodes: bool) -> str:
    if found.kind == ARCHIVED:
        return ""  # nothing is wrong with it: it has to be restored there, to be looked at
    if found.kind == "resource":
        return _AGAIN if resource_here(row, trees) is not None else ""
    if _file_here(row, trees) is not None:
        return _AGAIN
    if found.kind == "blocks":
        return ""  # without them it is read whole
    if at_nodes:
        return OF_NODES
    return _GIVEN if row.state is FileState.SUPERSEDED else _WANTED


def _file_here(row: FileRow, trees: Sequence[Tree]) -> Tree | None:
    return next((each for each in trees if stands(each, row.physical, row.size, row.md5)), None)


def _log(engine: Engine, store: ObjectStore) -> Iterator[ObjectFinding]:
    """Whether what the newest manifest names is there; `restore --check` reads it."""
    newest = StoreManifest.newest(store, engine.uuid)
    for piece in [] if newest is None else newest.pieces:
        try:
            size = store.head(piece.key).size
        except ObjectMissingError:
            yield ObjectFinding(kind="log", key=piece.key, detail="there is no such object")
            continue
        if size != piece.size:
            detail = f"{size} bytes, {piece.size} were put"
            yield ObjectFinding(kind="log", key=piece.key, detail=detail)


def _tree(engine: Engine, store: ObjectStore) -> Iterator[ObjectFinding]:
    """Whether the tables of the newest tree are there."""
    newest = newest_tree(store, engine.uuid)
    for each in [] if newest is None else newest.tables:
        try:
            size = store.head(each.key).size
        except ObjectMissingError:
            detail = "there is no such object"
        else:
            if size == each.size:
                continue
            detail = f"{size} bytes, {each.size} were put"
        yield ObjectFinding(kind="tree", key=each.key, detail=detail, repair=_ANEW)


def _strangers(engine: Engine, store: ObjectStore) -> Iterator[ObjectFinding]:
    """Objects that no row names, and those that are none of ours."""
    listed = list(store.objects(""))
    with engine.reading() as state:  # after the listing: what came meanwhile has its row
        rows = state.uploaded_table.rows
        known = {key for row in rows.values() for key in objects_of(engine.uuid, row)}
        lacks, files = state.uploaded_table.lacks, state.files
        to_come = {name for name, row in files.items() if lacks(row)}
    for each in listed:
        owner, _, rest = each.key.partition("/")
        room = rest.partition("/")[0]
        if each.key == "centre" or owner == "check":
            continue
        if owner != engine.uuid or room not in _OURS:
            yield ObjectFinding(kind="foreign", key=each.key, detail=_said(store, each))
        elif room == "data" and each.key not in known and file_of(each.key) not in to_come:
            yield ObjectFinding(
                kind="orphan",
                key=each.key,
                detail=_said(store, each),
                physical=file_of(each.key) or "",
            )


def _said(store: ObjectStore, each: StoredObject) -> str:
    """What an object says of itself."""
    try:
        about = store.head(each.key).about
    except ObjectMissingError:
        about = {}
    said = ", ".join(f"{word} {about[word]}" for word in sorted(about))
    return f"{each.size} bytes; it says {said or 'nothing'} of itself"


# -- repairing -----------------------------------------------------------------------------------


def repair_store(
    engine: Engine,
    store: ObjectStore,
    owner: Incarnation,
    trees: Sequence[Tree],
    report: CopiesReport,
    *,
    pulled: PulledFiles | None = None,
    told: ToldProgress = untold,
) -> CopiesReport:
    """Put right what a look has found.

    Args:
        engine: open for writing.
        store: where the objects are.
        owner: as whom they are put.
        trees: the data directories, all of them.
        report: of `examine_store`.
        pulled: gives what storage nodes have; None where none is asked, and that is left.
        told: called with each object that was put right, or not.

    Raises:
        FencedError: another receiver has taken over.
        StoreAwayError, StoreRefusedError: of the store.
    """
    done: dict[str, bool] = {}
    if any(each.repair == _ANEW for each in report.found):
        check_owner(store, owner)
        forget_tree(store, owner)
        done[""] = True
    # First what is forgotten: it would come back without bytes if what gives its points went first.
    due = sorted(
        (each for each in report.found if each.repair in _DONE_HERE),
        key=lambda found: found.repair != _GIVEN,
    )
    counter = StepCounter("repairs", len(due), 0, told)
    for each in due:
        counter.done(0)
        if each.physical not in done:
            check_owner(store, owner)
            done[each.physical] = _repair(engine, store, owner, trees, each, pulled)
            crash.point("storage.repair.done")
    found = [replace(each, repaired=each.repaired or _is_done(each, done)) for each in report.found]
    return replace(report, found=found)


def repair_from_here(
    engine: Engine,
    store: ObjectStore,
    owner: Incarnation,
    trees: Sequence[Tree],
    found: Sequence[ObjectFinding],
    pulled: PulledFiles | None = None,
) -> set[str]:
    """Put once more what the copies here, or at nodes, can put right; of others nothing follows.

    Returns:
        Physical names of the files of which all is in the store now.

    Raises:
        FencedError: another receiver has taken over.
        StoreAwayError, StoreRefusedError: of the store.
    """
    ways = _with_ways_out(engine, found, trees, without_nodes=pulled is None)
    due = [each for each in ways if each.repair in (_AGAIN, OF_NODES)]
    report = CopiesReport(engine=engine.uuid, found=due)
    done = repair_store(engine, store, owner, trees, report, pulled=pulled)
    return {each.physical for each in done.found if each.repaired}


def _is_done(found: ObjectFinding, done: Mapping[str, bool]) -> bool:
    return found.repair in (*_DONE_HERE, _ANEW) and done.get(found.physical, False)


def _repair(
    engine: Engine,
    store: ObjectStore,
    owner: Incarnation,
    trees: Sequence[Tree],
    found: ObjectFinding,
    pulled: PulledFiles | None,
) -> bool:
    with engine.reading() as state:
        row = state.files.get(found.physical)
        there = state.uploaded_table.rows.get(found.physical)
    if row is None or there is None or row.state not in _SEEN_OR_GIVEN:
        return True
    tree = _file_here(row, trees)
    if tree is None and found.repair == OF_NODES:
        return pulled is not None and _put_of_nodes(engine, store, owner, trees, row, there, pulled)
    if tree is None:
        if found.repair not in (_WANTED, _GIVEN):
            return False  # its resource alone is bad
        if row.state is FileState.SUPERSEDED:
            engine.commit([records.FileDeleted(row.physical, "superseded")])
            return True
        reason = f"its object in the store is {found.kind}, and the copy here is bad too"
        engine.commit([records.FileQuarantined(row.physical, reason)])
        return True
    fd = tree.open_read(row.physical)
    try:
        put_once_more(engine, store, owner, trees, row, there, fd)
    finally:
        os.close(fd)
    return True


def _put_of_nodes(
    engine: Engine,
    store: ObjectStore,
    owner: Incarnation,
    trees: Sequence[Tree],
    row: FileRow,
    there: UploadedRow,
    pulled: PulledFiles,
) -> bool:
    """Put a file once more that a node gives; whether one did."""
    try:
        with pulled.opened(row) as fd:
            put_once_more(engine, store, owner, trees, row, there, fd)
    except ContentChangedError as error:
        log.info("an object is not put right", extra={"file": row.physical, "error": str(error)})
        return False
    return True
