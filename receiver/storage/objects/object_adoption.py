"""Objects of files that the catalogue knows and does not know to be in the store.

A schema directory that was turned back to a copy of before an upload lacks its commit. Where the
bytes here have made room since, the file is in the store only, and nothing here says so; or it is a
newer `.resource` of it that nothing tells of. Its object is known by its key, which only an owner
of this engine could put, and by what it says of itself; all of its bytes are compared with the
catalogue before a commit says that it is there, and the digests of its blocks are made of the same
reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from common import crash
from common.console.step_progress import StepCounter
from receiver.metadata.model import records
from receiver.storage.objects.object_check import ObjectFinding
from receiver.storage.objects.object_places import is_beside, list_objects, place_objects
from receiver.storage.stores.confirming import read_through
from receiver.storage.stores.incarnation import check_owner
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_keys import digests_text, resource_key, stored_key
from receiver.storage.stores.object_store import ObjectMissingError
from receiver.storage.uploading.digest_uploads import digest_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from common.console.step_progress import ToldProgress
    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.objects.object_check import CopiesReport
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["adopt_objects", "untold_objects"]

_UNTOLD = "untold"
_ADOPT = "take it back: --adopt"


def untold_objects(
    engine: Engine, store: ObjectStore, trees: Sequence[Tree]
) -> Iterator[ObjectFinding]:
    """Those of files that are in none of the data directories, either."""
    places = place_objects(store, engine)
    with engine.reading() as state:
        untold = [
            (state.files[name], place)
            for name, place in places.items()
            if name in state.files and name not in state.uploaded_table.rows
        ]
    for row, place in untold:
        if not any(tree.exists(row.physical) for tree in trees):
            yield ObjectFinding(
                kind=_UNTOLD,
                key=stored_key(engine.uuid, place),
                detail="its file is not here, and no commit says that it is there",
                physical=row.physical,
                sender=row.sender,
                path=row.path,
                repair=_ADOPT,
            )
    yield from _untold_resources(engine, store, trees)


def _untold_resources(
    engine: Engine, store: ObjectStore, trees: Sequence[Tree]
) -> Iterator[ObjectFinding]:
    """Those of files that a commit tells of with the resource that they had before."""
    with engine.reading() as state:
        due = [
            (row, resource_key(stored_key(engine.uuid, told), row.resource.md5))
            for name, told in state.uploaded_table.rows.items()
            if (row := state.files.get(name)) is not None
            and state.uploaded_table.lacks(row)
            and row.resource is not None
        ]
    away = [
        (row, key)
        for row, key in due
        if not any(tree.exists(row.parsed.resource.text) for tree in trees)
    ]
    listed = list_objects(store, engine.uuid) if away else {}
    for row, key in away:
        if key in listed:
            yield ObjectFinding(
                kind=_UNTOLD,
                key=key,
                detail="its file's resource is not here, and no commit says that it is there",
                physical=row.physical,
                sender=row.sender,
                path=row.path,
                repair=_ADOPT,
            )


def adopt_objects(
    engine: Engine,
    store: ObjectStore,
    owner: Incarnation,
    report: CopiesReport,
    told: ToldProgress,
) -> CopiesReport:
    """Have a commit say of each untold object that it is there, if all of its bytes are.

    Of a file that is told of, and its resource is not, this one is read.

    Args:
        engine: open for writing.
        store: where the objects are.
        owner: of what is there.
        report: of `examine_store`.
        told: called with each object that was read.

    Raises:
        FencedError: another receiver has taken over.
        StoreAwayError, StoreRefusedError: of the store.
    """
    places = place_objects(store, engine)
    with engine.reading() as state:
        rows = {each.physical: state.files.get(each.physical) for each in report.found}
    due = [each for each in report.found if each.kind == _UNTOLD]
    sizes = [row.size for each in due if (row := rows[each.physical]) is not None]
    counter = StepCounter("objects to be taken back", len(due), sum(sizes), told)
    found = []
    for each in report.found:
        row, place = rows[each.physical], places.get(each.physical)
        if each.kind != _UNTOLD or row is None or place is None:
            found.append(each)
            continue
        check_owner(store, owner)
        adopt = _adopt_resource if is_beside(each.key) else _adopt
        found.append(adopt(engine, store, each, row, place))
        counter.done(row.size)
    return replace(report, found=found)


def _adopt(
    engine: Engine, store: ObjectStore, found: ObjectFinding, row: FileRow, place: UploadedRow
) -> ObjectFinding:
    try:
        digests = dict(store.head(found.key).digests)
        digests |= digest_object(store, found.key, row.size, row.md5)
    except (ObjectMissingError, ContentChangedError):
        return replace(found, detail="it has other bytes than were loaded", repair="")
    resource = place.resource if _has_resource(store, found.key, row, place) else ""
    engine.commit(
        [
            records.FileUploaded(
                row.physical,
                place.incarnation,
                row.size,
                digests_text(digests),
                resource,
                place.again,
            )
        ]
    )
    crash.point("storage.adopted")
    return replace(found, repaired=True)


def _adopt_resource(
    engine: Engine, store: ObjectStore, found: ObjectFinding, row: FileRow, place: UploadedRow
) -> ObjectFinding:
    known = row.resource
    try:
        is_whole = known is not None and read_through(store, found.key, known.size, known.md5)
    except ObjectMissingError:
        is_whole = False
    if known is None or not is_whole:
        return replace(found, detail="it has other bytes than were told of", repair="")
    told = records.FileUploaded(
        row.physical, place.incarnation, row.size, place.digests, known.md5, place.again
    )
    engine.commit([told])
    crash.point("storage.adopted")
    return replace(found, repaired=True)


def _has_resource(store: ObjectStore, key: str, row: FileRow, place: UploadedRow) -> bool:
    if row.resource is None or not place.resource:
        return False
    beside = resource_key(key, place.resource)
    try:
        return read_through(store, beside, row.resource.size, row.resource.md5)
    except ObjectMissingError:
        return False
