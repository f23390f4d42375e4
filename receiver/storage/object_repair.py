"""Checks what is in the store against the catalogue, and puts right what is bad there.

An object that is not what was put is never replaced and never trusted: where the copy here is
whole it is put once more, under a key of its own, and a commit says so. Where the copy here is bad
too the file is quarantined, so that its sender is asked for it, as it is for one that is bad here.
What no row names is told of, with what its own metadata says, and left.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from common import crash
from common.names import FilePath
from common.step_progress import StepCounter, untold
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from receiver.storage.confirming import put_confirmed
from receiver.storage.digest_uploads import ReadContent, put_block_digests
from receiver.storage.file_restore import stands
from receiver.storage.incarnation import check_owner
from receiver.storage.object_adoption import untold_objects
from receiver.storage.object_check import ARCHIVED, CopiesReport, ObjectFinding, check_objects
from receiver.storage.object_content import ContentChangedError, FileContent
from receiver.storage.object_places import file_of
from receiver.storage.object_removal import objects_of
from receiver.storage.object_store import ObjectMissingError
from receiver.storage.store_manifests import StoreManifest
from receiver.storage.tree.tree_manifests import forget_tree, newest_tree
from receiver.storage.uploader import data_key, digests_text, resource_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from common.durable import Tree
    from common.step_progress import ToldProgress
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.incarnation import Incarnation
    from receiver.storage.object_store import ObjectStore, StoredObject

__all__ = ["examine_store", "may_be_needed", "repair_from_here", "repair_store"]

_TRIES = 100
_AGAIN = "put it there once more"
_WANTED = "quarantine it, so that its sender sends it again: the copy here is bad too"
_GIVEN = "forget it, since other files give its points: the copy here is bad too"
_ANEW = "have the tree made anew by the receiver"
_SEEN_OR_GIVEN = (FileState.LIVE, FileState.RETIRED, FileState.SUPERSEDED)
"""Files that readers see, or would see again if what gives their points left sight."""
_OURS = ("checkpoints", "data", "log", "manifests", "owners", "tags", "tree")


def examine_store(
    engine: Engine,
    store: ObjectStore,
    trees: Sequence[Tree],
    *,
    deep: bool,
    told: ToldProgress = untold,
) -> CopiesReport:
    """Look at everything, change nothing.

    Args:
        engine: open, for reading at least.
        store: where the objects are.
        trees: the data directories that are there.
        deep: read the bytes of each object.
        told: called with how far it is.

    Raises:
        StoreAwayError, StoreRefusedError: of the store.
    """
    with engine.reading() as state:
        commit = state.newest
        places = dict(state.uploaded_table.rows)
        rows = [row for row in state.files.values() if may_be_needed(state, row.physical)]
    by_name = {row.physical: row for row in rows}
    found = [
        replace(each, repair=_way_out(each, by_name[each.physical], trees))
        for each in check_objects(store, engine.uuid, rows, places, deep=deep, told=told)
    ]
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


def _way_out(found: ObjectFinding, row: FileRow, trees: Sequence[Tree]) -> str:
    if found.kind == ARCHIVED:
        return ""  # nothing is wrong with it: it has to be restored there, to be looked at
    if found.kind == "resource":
        return _AGAIN if _resource_here(row, trees) is not None else ""
    if _file_here(row, trees) is not None:
        return _AGAIN
    if found.kind == "blocks":
        return ""  # without them it is read whole
    return _GIVEN if row.state is FileState.SUPERSEDED else _WANTED


def _file_here(row: FileRow, trees: Sequence[Tree]) -> Tree | None:
    return next((each for each in trees if stands(each, row.physical, row.size, row.md5)), None)


def _resource_here(row: FileRow, trees: Sequence[Tree]) -> Tree | None:
    if row.resource is None:
        return None
    rel, known = FilePath.parse(row.physical).resource.text, row.resource
    return next((each for each in trees if stands(each, rel, known.size, known.md5)), None)


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
    told: ToldProgress = untold,
) -> CopiesReport:
    """Put right what a look has found.

    Args:
        engine: open for writing.
        store: where the objects are.
        owner: as whom they are put.
        trees: the data directories, all of them.
        report: of `examine_store`.
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
        (each for each in report.found if each.repair in (_AGAIN, _WANTED, _GIVEN)),
        key=lambda found: found.repair != _GIVEN,
    )
    counter = StepCounter("repairs", len(due), 0, told)
    for each in due:
        counter.done(0)
        if each.physical not in done:
            check_owner(store, owner)
            done[each.physical] = _repair(engine, store, owner, trees, each)
            crash.point("storage.repair.done")
    found = [replace(each, repaired=each.repaired or _is_done(each, done)) for each in report.found]
    return replace(report, found=found)


def repair_from_here(
    engine: Engine,
    store: ObjectStore,
    owner: Incarnation,
    trees: Sequence[Tree],
    found: Sequence[ObjectFinding],
) -> set[str]:
    """Put once more what the copies here can put right; nothing is concluded of others.

    Returns:
        Physical names of the files of which all is in the store now.

    Raises:
        FencedError: another receiver has taken over.
        StoreAwayError, StoreRefusedError: of the store.
    """
    with engine.reading() as state:
        rows = {each.physical: state.files.get(each.physical) for each in found}
    ways = [
        replace(each, repair=_way_out(each, row, trees))
        for each in found
        if (row := rows[each.physical]) is not None
    ]
    due = [each for each in ways if each.repair == _AGAIN]
    done = repair_store(engine, store, owner, trees, CopiesReport(engine=engine.uuid, found=due))
    return {each.physical for each in done.found if each.repaired}


def _is_done(found: ObjectFinding, done: Mapping[str, bool]) -> bool:
    return found.repair in (_AGAIN, _WANTED, _GIVEN, _ANEW) and done.get(found.physical, False)


def _repair(
    engine: Engine,
    store: ObjectStore,
    owner: Incarnation,
    trees: Sequence[Tree],
    found: ObjectFinding,
) -> bool:
    with engine.reading() as state:
        row = state.files.get(found.physical)
        there = state.uploaded_table.rows.get(found.physical)
    if row is None or there is None or row.state not in _SEEN_OR_GIVEN:
        return True
    tree = _file_here(row, trees)
    if tree is None:
        if found.repair not in (_WANTED, _GIVEN):
            return False  # its resource alone is bad
        if row.state is FileState.SUPERSEDED:
            engine.commit([records.FileDeleted(row.physical, "superseded")])
            return True
        reason = f"its object in the store is {found.kind}, and the copy here is bad too"
        engine.commit([records.FileQuarantined(row.physical, reason)])
        return True
    again, digests = _put_again(store, owner, tree, row, there)
    key = data_key(owner.engine, owner.number, row.physical, again)
    resource = _put_resource(store, key, row, trees)
    crash.point("storage.repair.put")
    engine.commit(
        [
            records.FileUploaded(
                row.physical, owner.number, row.size, digests_text(digests), resource, again
            )
        ]
    )
    return True


def _put_again(
    store: ObjectStore, owner: Incarnation, tree: Tree, row: FileRow, there: UploadedRow
) -> tuple[int, Mapping[str, str]]:
    """Put a file under the first number that is free, or has it already; with its digests."""
    about = {"sender": row.sender, "path": row.path, "md5": row.md5}
    begin = there.again + 1 if there.incarnation == owner.number else 1
    fd = tree.open_read(row.physical)
    try:
        for again in range(begin, begin + _TRIES):
            key = data_key(owner.engine, owner.number, row.physical, again)
            content = ReadContent(FileContent(fd, row.size, row.md5))
            try:
                found = put_confirmed(store, key, content, about)
                return again, {**found.digests, **put_block_digests(store, key, content)}
            except ContentChangedError:
                if not stands(tree, row.physical, row.size, row.md5):
                    raise
    finally:
        os.close(fd)
    raise ContentChangedError(f"{store.url}: {row.physical} was damaged there {_TRIES} times")


def _put_resource(store: ObjectStore, key: str, row: FileRow, trees: Sequence[Tree]) -> str:
    """Put the resource beside it, if it is whole here; its MD5, empty for none."""
    tree = _resource_here(row, trees)
    if tree is None or row.resource is None:
        return ""
    fd = tree.open_read(FilePath.parse(row.physical).resource.text)
    try:
        content = FileContent(fd, row.resource.size, row.resource.md5)
        put_confirmed(store, resource_key(key, row.resource.md5), content, {})
    finally:
        os.close(fd)
    return row.resource.md5
