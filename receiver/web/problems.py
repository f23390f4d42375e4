"""Every error as problem+json; what nobody foresaw gets a number, and its details only the log."""

from __future__ import annotations

import logging
import secrets

from flask import Flask, Response, g
from werkzeug.exceptions import HTTPException

from common import wire
from common.durable.flushing import meaning
from common.errors import TsferryError
from receiver.web.server.refusal import problem_headers

__all__ = ["problem_response", "register"]

log = logging.getLogger(__name__)

_SLUGS = {404: "not-found", 413: "too-large", 500: "internal"}
_DETAILS = {404: "there is no such call here", 405: "the call is not made with this method"}


def problem_response(problem: wire.Problem) -> Response:
    """A problem document as the answer."""
    response = Response(wire.encode(problem), problem.status)
    for name, value in problem_headers(problem):
        response.headers[name] = value
    return response


def register(app: Flask) -> None:
    """Answer all errors of this application with problem documents."""
    app.register_error_handler(TsferryError, _ours)
    app.register_error_handler(HTTPException, _of_http)
    app.register_error_handler(OSError, _of_disk)
    app.register_error_handler(Exception, _unforeseen)


def _ours(error: TsferryError) -> Response:
    if error.http_status >= 500:
        log.warning("answered %d: %s", error.http_status, error.message, extra={"slug": error.slug})
    g.refused = error.message
    return problem_response(wire.to_problem(error))


def _of_http(error: HTTPException) -> Response:
    status = error.code or 500
    if status < 400:
        return Response(status=status)
    slug = _SLUGS.get(status, "protocol")
    problem = wire.Problem(
        type=f"urn:tsferry:{slug}",
        title=slug.replace("-", " "),
        status=status,
        detail=_DETAILS.get(status) or error.description or error.name,
    )
    response = problem_response(problem)
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _of_disk(error: OSError) -> Response:
    """Not only writes fail on a dying disk: a read that does is answered as they are."""
    try:
        with meaning(str(error.filename or "a file")):
            raise error
    except TsferryError as known:
        return _ours(known)
    except OSError:
        return _unforeseen(error)


def _unforeseen(error: Exception) -> Response:
    number = secrets.token_hex(4)
    log.error("error %s", number, exc_info=error)
    return problem_response(
        wire.Problem(
            type="urn:tsferry:internal",
            title="internal",
            status=500,
            detail=f"an error that was not foreseen; the receiver's log has it as {number}",
        )
    )
