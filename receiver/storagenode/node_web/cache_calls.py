"""The call by which others read what a cache node keeps of the object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flask import Response

from common.errors import ForbiddenError, NotFoundError, UsageError
from receiver.storagenode.node_web.node_calls import NodeCall, NodeCallRole, NodeRoutes
from receiver.storagenode.node_web.tablet_calls import range_of
from receiver.tablet_copies.cached_files import CACHED_AT_NODE, SLOTS_HEADER, cached_file_of
from receiver.tablet_copies.read_tickets import READ_TICKET

if TYPE_CHECKING:
    from receiver.storagenode.bucket_cache import BucketCache
    from receiver.tablet_copies.cached_files import CachedFile

__all__ = ["CACHE_ROUTES"]

CACHE_ROUTES = NodeRoutes()
_BYTES: Final = "application/octet-stream"


@CACHE_ROUTES.call("GET", CACHED_AT_NODE, NodeCallRole.TICKET)
def cached_content(call: NodeCall) -> Response:
    """Bytes of a file of the store; with length 0 the digests of its blocks.

    With `kept` only what is on the disk here. Whatever version of the slots the ticket is of, the
    bytes are those of the file; the answer says which version is known here.
    """
    cache, file = _let_in(call)
    begin, length = range_of(call)
    if begin >= file.size:
        raise UsageError(f"begin: no byte of {file.size} is asked for")
    content: bytes | None
    if "kept" in call.request.args:
        content = cache.kept(file, begin, length)
        if content is None:
            raise NotFoundError(f"{file.key}: it is not kept here")
    else:
        content = cache.read(file, begin, length) if length else cache.digests(file)
    headers = {"ETag": f'"{file.md5}"', SLOTS_HEADER: str(call.node.slots)}
    return Response(content, 200, headers, mimetype=_BYTES)


def _let_in(call: NodeCall) -> tuple[BucketCache, CachedFile]:
    """What is kept here, and the file that a ticket is for.

    Raises:
        ForbiddenError: there is no ticket, or it is none.
        NotFoundError: nothing is kept here for others.
    """
    ticket = call.request.headers.get(READ_TICKET)
    if ticket is None:
        raise ForbiddenError(f"the header {READ_TICKET} is missing: the master gives tickets")
    file = cached_file_of(call.node.tickets.check_cached(ticket))
    if call.node.cache is None:
        raise NotFoundError("this node keeps nothing for others")
    return call.node.cache, file
