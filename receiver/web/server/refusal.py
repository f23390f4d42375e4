"""Answers that the server gives itself, without asking the application: problem+json, then close.

They are for requests that broke HTTP, and for those that the gate refused before their body was
read (`receiver.web.server.request_parser`).
"""

from __future__ import annotations

from http import HTTPStatus

from waitress.task import ErrorTask

from common import wire
from common.errors import TsferryError, UnauthorizedError

__all__ = ["RefusalTask", "ServerRefusal", "problem_headers"]

_SLUGS = {413: "too-large", 431: "too-large", 500: "internal"}
CHALLENGE = 'Bearer realm="tsferry"'


def problem_headers(problem: wire.Problem) -> list[tuple[str, str]]:
    """The headers that go with a problem document."""
    headers = [("Content-Type", wire.PROBLEM_TYPE), ("Cache-Control", "no-store")]
    if problem.retry_after is not None:
        headers.append(("Retry-After", str(max(1, round(problem.retry_after)))))
    if problem.status == UnauthorizedError.http_status:
        headers.append(("WWW-Authenticate", CHALLENGE))
    return headers


class ServerRefusal:
    """The `error` of a request, in the shape that waitress' error task expects."""

    def __init__(self, problem: wire.Problem) -> None:
        self.problem = problem

    @classmethod
    def of(cls, error: TsferryError) -> ServerRefusal:
        """The refusal that an error of ours stands for."""
        return cls(wire.to_problem(error))

    @classmethod
    def of_status(cls, status: int, detail: str) -> ServerRefusal:
        """A refusal for what the HTTP parser found."""
        slug = _SLUGS.get(status, "protocol")
        kind = f"urn:tsferry:{slug}"
        title = slug.replace("-", " ")
        return cls(wire.Problem(type=kind, title=title, status=status, detail=detail))

    def to_response(self, ident: str | None = None) -> tuple[str, list[tuple[str, str]], bytes]:
        """Status line, headers and body (`ident` is waitress' server name, not shown)."""
        status = self.problem.status
        return (
            f"{status} {reason(status)}",
            problem_headers(self.problem),
            wire.encode(self.problem),
        )


class RefusalTask(ErrorTask):  # type: ignore[misc]  # waitress is untyped
    """Writes a refusal; errors of waitress' own parser become problem documents as well."""

    def execute(self) -> None:
        """Answer and close."""
        error = self.request.error
        if not isinstance(error, ServerRefusal):
            error = ServerRefusal.of_status(error.code, error.body)
        status, headers, body = error.to_response()
        self.channel.unread = True
        self.status = status
        self.response_headers.extend(headers)
        self.response_headers.extend(self.channel.server.options.refusal_headers)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(b"" if getattr(self.request, "command", "") == "HEAD" else body)


def reason(status: int) -> str:
    """The phrase behind a status number."""
    if status == wire.CHECKSUM_MISMATCH:
        return "Checksum Mismatch"
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
