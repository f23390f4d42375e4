"""Bytes of loaded files, by ranges, for readers that have no other way to them."""

from __future__ import annotations

from flask import Response

from common import wire
from common.errors import TooLargeError, UsageError
from receiver.operator.centre.loaded_content import MOST_CONTENT
from receiver.web.call import Call
from receiver.web.routes import AnswerRow, Parameter, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()
_BYTES = "application/octet-stream"
_PATH = Parameter("path", "query", {"type": "string"}, "Physical, as the catalogue has it.", True)
_RANGE = Parameter("Range", "header", {"type": "string"}, "One range of bytes; all, if left out.")
_WHERE = Parameter("Content-Range", "header", {"type": "string"}, "What was given.", True)
_ETAG = Parameter("ETag", "header", {"type": "string"}, "The MD5 of the whole file.", True)


class RangeError(UsageError):
    """No byte of the file is in the range."""

    http_status = 416


@ROUTES.call(
    "GET",
    f"{wire.BASE}/catalogue/content",
    Role.READER,
    "Bytes of a loaded file, at most 8 MiB: of a longer range the first of them",
    AnswerRow(200, raw=_BYTES, headers=(_ETAG,), meaning="the whole file"),
    AnswerRow(206, raw=_BYTES, headers=(_ETAG, _WHERE), meaning="a range of it"),
    parameters=(_PATH, _RANGE),
    reads=True,
    displaced=True,
)
def catalogue_content(call: Call) -> Response:
    """Bytes of a loaded file."""
    content = call.answering.content
    row = content.find(call.who, _path(call))
    headers = {"ETag": f'"{row.md5}"', "Accept-Ranges": "bytes"}
    asked = call.request.range
    if asked is None or asked.units != "bytes" or len(asked.ranges) != 1:
        if row.size > MOST_CONTENT:
            raise TooLargeError(
                f"{row.size} bytes, at most {MOST_CONTENT} are given at once: ask by a Range"
            )
        return Response(content.read(row, 0, row.size), 200, headers, mimetype=_BYTES)
    within = asked.range_for_length(row.size)
    if within is None:
        raise RangeError(f"no byte of the range is in the file, which has {row.size}")
    begin, end = within
    end = min(end, begin + MOST_CONTENT)
    headers["Content-Range"] = f"bytes {begin}-{end - 1}/{row.size}"
    return Response(content.read(row, begin, end - begin), 206, headers, mimetype=_BYTES)


@ROUTES.call(
    "GET",
    f"{wire.BASE}/catalogue/digests",
    Role.READER,
    "Digests of the blocks of a loaded file, by which ranges of it are checked",
    AnswerRow(200, raw=_BYTES, meaning="as docs/formats.md has them"),
    parameters=(_PATH,),
    reads=True,
    displaced=True,
)
def catalogue_digests(call: Call) -> Response:
    """Digests of the blocks of a loaded file."""
    content = call.answering.content
    return Response(content.digests(content.find(call.who, _path(call))), mimetype=_BYTES)


def _path(call: Call) -> str:
    path = call.query("path")
    if path is None:
        raise UsageError("path: missing; expected the physical path of a file")
    return path
