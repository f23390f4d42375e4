"""Where in a store the objects of files are.

The catalogue says so, where a commit told it. A file whose commit the copy of the log lacks, or of
a backup, which makes no commits, is found by its name in the list: under a key that only its owner
could put, and its bytes are compared with the catalogue before they count.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.uploaded_rows import UploadedRow
from receiver.storage.stores.object_keys import data_key, resource_key

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.storage.stores.object_store import ObjectStore, StoredObject

__all__ = ["file_of", "is_beside", "list_objects", "place_objects"]

_KEY = re.compile(
    r"[0-9a-f]{32}/data/(?P<n>[0-9]{8})/(?P<name>.+\.tsfile)"
    r"(?:\.again-(?P<again>[1-9][0-9]*))?(?P<beside>\.[0-9a-f]{32}|\.blocks)?\Z"
)


def file_of(key: str) -> str | None:
    """Physical name of the file that an object is of, or lies beside; None if it is neither."""
    match = _KEY.match(key)
    return None if match is None else match["name"]


def is_beside(key: str) -> bool:
    """Whether an object is a resource, or the digests of a file's blocks."""
    match = _KEY.match(key)
    return match is not None and match["beside"] is not None


def list_objects(store: ObjectStore, engine: str) -> dict[str, StoredObject]:
    """By key, all objects of files that the store lists."""
    return {each.key: each for each in store.objects(f"{engine}/data/")}


def place_objects(store: ObjectStore, engine: Engine) -> dict[str, UploadedRow]:
    """By physical name, where the objects of an engine's files are, as far as they are anywhere."""
    listed = list_objects(store, engine.uuid)
    with engine.reading() as state:
        rows = {
            name: row
            for name, row in state.files.items()
            if row.visible or row.state is FileState.SUPERSEDED
        }
        told = {name: state.uploaded_table.rows.get(name) for name in rows}
    places = {}
    for name, place in told.items():
        if place is not None:
            places[name] = place
            if data_key(engine.uuid, place.incarnation, name, place.again) in listed:
                del rows[name]
    for key, found in listed.items():
        match = _KEY.match(key)
        row = None if match is None or match["beside"] else rows.get(match["name"])
        if match is None or row is None or found.size != row.size:
            continue
        resource = "" if row.resource is None else row.resource.md5
        places[row.physical] = UploadedRow(
            physical=row.physical,
            incarnation=int(match["n"]),
            again=int(match["again"] or 0),
            size=row.size,
            digests="",
            resource=resource if resource_key(key, resource) in listed else "",
            created=row.created,
            changed=row.changed,
        )
    return places
