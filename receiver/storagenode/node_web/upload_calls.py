"""Uploads of edges at a node, as at a receiver (tus 1.0), and what the master reads of them.

What opens a call of an edge is a ticket in the place of a token. Each block has its checksum.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Final

from flask import Response

from common import wire
from common.digests import xxh3_64_of_128
from common.errors import ProtocolError, UsageError
from receiver.placement.node_orders import STAGED_AT_NODE
from receiver.storagenode.node_web.node_calls import (
    BLOCK_BODY,
    NodeCall,
    NodeCallRole,
    NodeRoutes,
)
from receiver.storagenode.node_web.tablet_calls import range_of
from receiver.web.handlers import tus_headers
from receiver.web.handlers.tus import FILES, checked_block, version_refused

if TYPE_CHECKING:
    from receiver.storagenode.node_web.node_calls import NodeHandler
    from receiver.storagenode.staged_uploads import StagedView
    from receiver.tablet_copies.upload_tickets import SentFile

__all__ = ["UPLOAD_ROUTES"]

UPLOAD_ROUTES = NodeRoutes()
_ONE: Final = f"{FILES}/<upload>"
_BYTES: Final = "application/octet-stream"
_TICKET: Final = NodeCallRole.TICKET


def _tus(handler: NodeHandler) -> NodeHandler:
    @wraps(handler)
    def checked(call: NodeCall) -> Response:
        refused = version_refused(call.request)
        return handler(call) if refused is None else refused

    return checked


@UPLOAD_ROUTES.call("POST", FILES, _TICKET)
@_tus
def begin_upload(call: NodeCall) -> Response:
    """Begin the upload that a ticket is for, or go on with it: the answer says from where."""
    headers = call.request.headers
    file = call.node.door.opens(headers.get(wire.TICKET_HEADER), headers.get(wire.SENDER_HEADER))
    length = tus_headers.number(headers.get("Upload-Length"), "Upload-Length")
    metadata = tus_headers.metadata(headers.get("Upload-Metadata"))
    if length != file.size or metadata.get("path", file.path) != file.path:
        raise ProtocolError(f"the ticket is for {file.path!a} of {file.size} bytes")
    call.node.uploads.expire_now_and_then()
    view = call.node.uploads.begin(file)
    response = _where(view, 201)
    response.headers["Location"] = f"{FILES}/{view.id}"
    return response


@UPLOAD_ROUTES.call("HEAD", _ONE, _TICKET)
@_tus
def staged_upload_stands(call: NodeCall) -> Response:
    """Where an upload stands."""
    view = call.node.uploads.head(_file(call))
    response = _where(view, 200)
    response.headers["Upload-Length"] = str(view.length)
    return response


@UPLOAD_ROUTES.call("PATCH", _ONE, _TICKET, most=BLOCK_BODY)
@_tus
def patch_staged_upload(call: NodeCall) -> Response:
    """The next block; with the last the file is verified."""
    headers = call.request.headers
    file = _file(call)
    offset = tus_headers.number(headers.get("Upload-Offset"), "Upload-Offset")
    given = tus_headers.checksum(headers.get("Upload-Checksum"))
    if given is None:
        raise ProtocolError("the header Upload-Checksum is missing")
    block = checked_block(call.request, given)
    xxh3 = xxh3_64_of_128(given[1], len(block)) if given[0] == "xxh3_128" else None
    repr_md5 = tus_headers.repr_md5(headers.get("Repr-Digest"))
    view = call.node.uploads.patch(file, offset, block, xxh3=xxh3, repr_md5=repr_md5)
    return _where(view, 204)


@UPLOAD_ROUTES.call("DELETE", _ONE, _TICKET)
@_tus
def drop_staged_upload(call: NodeCall) -> Response:
    """Give an upload up."""
    call.node.uploads.drop(_file(call))
    return Response(status=204)


@UPLOAD_ROUTES.call("GET", STAGED_AT_NODE, NodeCallRole.MASTER)
def staged_content(call: NodeCall) -> Response:
    """Bytes of an upload that count, for the master: perhaps none, if no more are here yet."""
    begin, length = range_of(call)
    upload = call.request.args.get("upload", "")
    if not upload:
        raise UsageError("upload: expected the id of one")
    piece = call.node.uploads.read(upload, begin, length)
    headers = {"Upload-Offset": str(piece.offset)}
    if piece.md5 is not None:
        headers["ETag"] = f'"{piece.md5}"'
    return Response(piece.content, 200, headers, mimetype=_BYTES)


def _file(call: NodeCall) -> SentFile:
    headers = call.request.headers
    ticket, sender = headers.get(wire.TICKET_HEADER), headers.get(wire.SENDER_HEADER)
    return call.node.door.goes_on(ticket, sender, call.arguments["upload"])


def _where(view: StagedView, status: int) -> Response:
    response = Response(status=status)
    response.headers["Upload-Offset"] = str(view.offset)
    if view.offset < view.length:
        response.headers["Upload-Expires"] = tus_headers.expires(view.expires)
    return response
