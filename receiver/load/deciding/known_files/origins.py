"""Where forwarded files come from, as the forwarder told it, and what their ends mean here.

A forwarder's word is about the copy that it has. So the end of a forwarded file retires it here,
whatever became of the copy; only what was deleted at the edge, or everywhere, is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from common.errors import NameRefusedError, ProtocolError
from common.names import FilePath, is_sender_uuid
from common.wire import EndMeaning, Propagate
from receiver.metadata.model.records import FileOrigin, OriginLooks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from common.wire import EndBelow, EndRequest, ManifestPage, OriginEntry
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["MOST_HOPS", "check_origins", "ended_origin", "has_ended", "is_deleted", "origin_of"]

MOST_HOPS: Final = 16
"""Centres between an edge and this one."""


def check_origins(request: EndRequest | ManifestPage) -> None:
    """See that what a forwarder says of origins can be committed.

    Raises:
        ProtocolError: it cannot.
    """
    told = [(each.path, each.origin) for each in request.manifest]
    told += [(each.path, each.origin) for each in request.below]
    for path, origin in told:
        if origin is None:
            continue
        if not is_sender_uuid(origin.sender) or not 0 < len(origin.below) <= MOST_HOPS:
            raise ProtocolError(f"{path!a}: its origin is no edge, or none is on the way")
        if not all(is_sender_uuid(each.engine) for each in origin.below):
            raise ProtocolError(f"{path!a}: a centre on its way is no engine")
        for name in (origin.path, *(each.physical for each in origin.below)):
            _check_path(name)
    for end in request.below:
        _check_path(end.path)


def _check_path(text: str) -> None:
    try:
        path = FilePath.parse(text)
    except NameRefusedError as error:
        raise ProtocolError(error.message) from error
    if path.is_resource:
        raise ProtocolError(f"{path}: a resource has no origin of its own")


def origin_of(entry: OriginEntry | None) -> FileOrigin | None:
    """An origin as it is committed."""
    if entry is None:
        return None
    below = [
        OriginLooks(each.engine, each.first, each.closed, each.last, each.loaded, each.physical)
        for each in entry.below
    ]
    return FileOrigin(entry.sender, entry.path, tuple(below))


def has_ended(origin: FileOrigin | None) -> bool:
    """Whether it is at its end at the centre that handed it up."""
    return origin is not None and origin.below[-1].last > 0


def ended_origin(row: FileRow, end: EndBelow) -> FileOrigin | None:
    """The origin of a file whose end is told; None of one that was never told to be forwarded."""
    told = origin_of(end.origin)
    if told is not None or row.origin is None:
        return told
    *before, nearest = row.origin.below
    last = max(end.last, nearest.first)
    nearest = msgspec.structs.replace(nearest, last=nearest.last or last)
    return msgspec.structs.replace(row.origin, below=(*before, nearest))


def is_deleted(path: str, ends: Mapping[str, EndBelow], propagate: Propagate) -> bool:
    """Whether what ends with a path is deleted here, as far as its sender's word goes."""
    end = ends.get(path)
    if end is None:
        return propagate is Propagate.ALL
    if end.meaning is EndMeaning.DELETED:
        return propagate is Propagate.ALL
    return end.meaning is EndMeaning.EVERYWHERE
