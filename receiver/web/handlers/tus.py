"""Uploads, `/sync/v1/files`: tus 1.0; an offset that is answered is on the disk.

Extensions: creation, creation-with-upload, checksum, termination, expiration.

A checksum of another algorithm than ours, a length that is not known yet (`Upload-Defer-Length`)
and concatenation are refused, not passed over: a client that asks for them relies on them.
"""

from __future__ import annotations

import base64
from functools import wraps
from typing import TYPE_CHECKING

from flask import Response

from common import wire
from common.digests import xxh3_64_of_128
from common.errors import DigestError, ProtocolError, TooLargeError
from receiver.web.call import Call, MediaTypeError, body_content
from receiver.web.handlers import tus_headers
from receiver.web.problems import problem_response
from receiver.web.routes import CODED, AnswerRow, Body, Handler, Parameter, Role, Routes

if TYPE_CHECKING:
    from flask import Request

    from receiver.transfer.receiving.register import UploadView
    from receiver.web.server import RequestHead

__all__ = ["FILES", "ROUTES", "checked_block", "method_of", "version_refused"]

FILES = f"{wire.BASE}/files"
ROUTES = Routes()
EXTENSIONS = "creation,creation-with-upload,checksum,termination,expiration"
_OVERRIDE = frozenset({"OPTIONS", "POST", "HEAD", "PATCH", "DELETE"})

_BYTES = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_OFFSET = Parameter("Upload-Offset", "header", _BYTES, "Bytes that are on the disk.", True)
_EXPIRES = Parameter("Upload-Expires", "header", _TEXT, "When the upload is dropped.")
_LENGTH = Parameter("Upload-Length", "header", _BYTES, "Bytes of the whole file.", True)
_RESUMABLE = Parameter("Tus-Resumable", "header", {"const": wire.TUS_VERSION}, "Version.", True)
_METADATA = Parameter(
    "Upload-Metadata",
    "header",
    _TEXT,
    "Pairs of a key and a base64 value: `path` (needed), `task`, `size`, `md5`.",
)
_CHECKSUM = Parameter(
    "Upload-Checksum",
    "header",
    _TEXT,
    f"Of this body: one of {', '.join(tus_headers.ALGORITHMS)}, a space, the digest in base64.",
)
_DIGEST = Parameter("Repr-Digest", "header", _TEXT, "`md5=:<base64>:` of the whole file.")
_HERE = Parameter("Upload-Offset", "header", _BYTES, "Where the body begins.", True)
_CAN = (
    Parameter("Tus-Version", "header", _TEXT, "Versions.", True),
    Parameter("Tus-Extension", "header", _TEXT, "Extensions.", True),
    Parameter("Tus-Max-Size", "header", _BYTES, "Bytes of a file.", True),
    Parameter("Tus-Checksum-Algorithm", "header", _TEXT, "Algorithms of Upload-Checksum.", True),
)
_ABILITIES = (AnswerRow(204, headers=_CAN),)
_WHAT = "What this server can do"
_LOCATION = Parameter("Location", "header", _TEXT, "Path of the upload.", True)


class VersionError(ProtocolError):
    """The client speaks another version of tus."""

    http_status = 412


class ChecksumError(DigestError):
    """The bytes of a block are not those of its checksum."""

    http_status = wire.CHECKSUM_MISMATCH


def method_of(head: RequestHead) -> str:
    """The method that a request means: tus clients behind odd proxies name it in a header."""
    wanted = head.header("X-HTTP-Method-Override")
    if wanted is None or not (head.path == FILES or head.path.startswith(FILES + "/")):
        return head.method
    wanted = wanted.strip().upper()
    return wanted if wanted in _OVERRIDE else head.method


def version_refused(request: Request) -> Response | None:
    """The answer to another version of tus, which says what is spoken here; None to ours."""
    version = request.headers.get("Tus-Resumable")
    if version == wire.TUS_VERSION:
        return None
    error = VersionError(
        f"the header Tus-Resumable is {'missing' if version is None else 'another'}: "
        f"expected {wire.TUS_VERSION}"
    )
    response = problem_response(wire.to_problem(error))
    response.headers["Tus-Version"] = wire.TUS_VERSION
    return response


def _tus(handler: Handler) -> Handler:
    """Refuse another version of tus, and say which is spoken here."""

    @wraps(handler)
    def checked(call: Call) -> Response:
        refused = version_refused(call.request)
        if refused is not None:
            return refused
        return handler(call)

    return checked


@ROUTES.call("OPTIONS", FILES, Role.PUBLIC, _WHAT, *_ABILITIES)
def options(call: Call) -> Response:
    """What this server can do."""
    return Response(
        status=204,
        headers={
            "Tus-Version": wire.TUS_VERSION,
            "Tus-Extension": EXTENSIONS,
            "Tus-Max-Size": str(call.site.config.limits.max_file_bytes),
            "Tus-Checksum-Algorithm": ",".join(tus_headers.ALGORITHMS),
        },
    )


@ROUTES.call("OPTIONS", f"{FILES}/<upload>", Role.PUBLIC, _WHAT, *_ABILITIES)
def options_of_upload(call: Call) -> Response:
    """The same."""
    return options(call)


@ROUTES.call(
    "POST",
    FILES,
    Role.SENDER,
    "Announce a file; its first bytes may come with it",
    AnswerRow(201, headers=(_LOCATION, _OFFSET, _EXPIRES), meaning="announced"),
    media=wire.OFFSET_TYPE,
    body=Body.BLOCK,
    parameters=(_RESUMABLE, _LENGTH, _METADATA, _CHECKSUM, _DIGEST, *CODED),
    displaced=True,
)
@_tus
def create_upload(call: Call) -> Response:
    """Announce a file; its first bytes may come with it."""
    headers = call.request.headers
    for name in ("Upload-Defer-Length", "Upload-Concat"):
        if name in headers:
            raise ProtocolError(f"{name} is not supported: say Upload-Length, one file an upload")
    length = tus_headers.number(headers.get("Upload-Length"), "Upload-Length")
    most = call.site.config.limits.max_file_bytes
    if length > most:
        raise TooLargeError(f"Upload-Length is {length}, at most {most} bytes are taken")
    given = tus_headers.checksum(headers.get("Upload-Checksum"))
    block = checked_block(call.request, given) if given or call.request.content_length else b""
    view = call.node.uploads.create(
        call.who,
        call.sender,
        length,
        tus_headers.metadata(headers.get("Upload-Metadata")),
        block,
        at_once=given is not None,
        repr_md5=tus_headers.repr_md5(headers.get("Repr-Digest")),
    )
    response = _where(view, 201)
    # A path, so that it holds behind TLS and proxies too.
    response.headers["Location"] = f"{FILES}/{view.id}"
    return response


@ROUTES.call(
    "HEAD",
    f"{FILES}/<upload>",
    Role.SENDER,
    "Where an upload stands",
    AnswerRow(200, headers=(_OFFSET, _LENGTH, _EXPIRES)),
    parameters=(_RESUMABLE,),
    displaced=True,
)
@_tus
def head_upload(call: Call) -> Response:
    """Where an upload stands."""
    view = call.node.uploads.head(call.who, call.arguments["upload"])
    response = _where(view, 200)
    response.headers["Upload-Length"] = str(view.length)
    told = {"path": view.path, "size": str(view.length), "md5": view.md5, "task": view.task}
    if view.path:
        response.headers["Upload-Metadata"] = tus_headers.format_metadata(told)
    return response


@ROUTES.call(
    "PATCH",
    f"{FILES}/<upload>",
    Role.SENDER,
    "The next bytes of a file; with the last the file is verified",
    AnswerRow(204, headers=(_OFFSET, _EXPIRES)),
    media=wire.OFFSET_TYPE,
    body=Body.BLOCK,
    parameters=(_RESUMABLE, _HERE, _CHECKSUM, _DIGEST, *CODED),
    displaced=True,
)
@_tus
def patch_upload(call: Call) -> Response:
    """The next block of a file."""
    headers = call.request.headers
    offset = tus_headers.number(headers.get("Upload-Offset"), "Upload-Offset")
    given = tus_headers.checksum(headers.get("Upload-Checksum"))
    block = checked_block(call.request, given)
    xxh3 = None
    if given is not None and given[0] == "xxh3_128":
        xxh3 = xxh3_64_of_128(given[1], len(block))
    view = call.node.uploads.patch(
        call.who,
        call.arguments["upload"],
        offset,
        block,
        at_once=given is not None,
        xxh3=xxh3,
        repr_md5=tus_headers.repr_md5(headers.get("Repr-Digest")),
    )
    return _where(view, 204)


@ROUTES.call(
    "DELETE",
    f"{FILES}/<upload>",
    Role.SENDER,
    "Give up an upload",
    AnswerRow(204),
    parameters=(_RESUMABLE,),
    displaced=True,
)
@_tus
def drop_upload(call: Call) -> Response:
    """Give up an upload, and what came of it."""
    call.node.uploads.terminate(call.who, call.arguments["upload"])
    return Response(status=204)


def checked_block(request: Request, checksum: tuple[str, bytes] | None) -> memoryview:
    """The body; one that is not what its checksum says goes no further.

    Raises:
        ChecksumError: only tus tells a bad block (460) from a bad file (422), so it is told here.
    """
    if request.mimetype != wire.OFFSET_TYPE:
        raise MediaTypeError(f"expected Content-Type: {wire.OFFSET_TYPE}")
    block = body_content(request)
    if checksum is not None:
        name, said = checksum
        found = tus_headers.ALGORITHMS[name](block)
        if found != said:
            raise ChecksumError(
                f"the block's {name} is {base64.b64encode(found).decode()}, "
                f"{base64.b64encode(said).decode()} was said; nothing of it counts"
            )
    return block


def _where(view: UploadView, status: int) -> Response:
    response = Response(status=status)
    response.headers["Upload-Offset"] = str(view.offset)
    if not view.complete:
        response.headers["Upload-Expires"] = tus_headers.expires(view.expires)
    return response
