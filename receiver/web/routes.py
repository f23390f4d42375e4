"""The table of calls: what Flask routes, what the gate judges and what OpenAPI describes.

Each module of calls has its `Routes`, and each handler brings its row along by decoration; nothing
is routed that does not stand in one, and the document at `/openapi.json` is made from the same rows
in the same order (`receiver.web.openapi`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flask import Response

from common import wire, zstd
from receiver.web.call import Call

__all__ = [
    "CODED",
    "EMPTY",
    "JSON",
    "OF_SENDER",
    "PAGE_AFTER",
    "PAGE_LIMIT",
    "AnswerRow",
    "Body",
    "Handler",
    "Parameter",
    "Role",
    "Route",
    "Routes",
]

JSON = "application/json"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
Handler = Callable[[Call], Response]
"""Makes the answer of a call."""
_RULE_ARGUMENT = re.compile(r"<(?:[a-z]+:)?(?P<name>[a-z_]+)>")


class Role(Enum):
    """Who may make a call."""

    PUBLIC = "anybody who may connect"
    PAGE = "a person: the page asks for a token itself"
    SENDER = "a sender's token"
    READER = "a reader's, a worker's or an operator's token"
    WORKER = "a worker's or an operator's token"
    WRITER = "a writer's or an operator's token"
    NODE = "a storage node's token"
    SQL = "an operator's token, or a reader's to show and count"
    OPERATOR = "an operator's token"


class Body(Enum):
    """How long the body of a request may be."""

    NONE = "none"
    SMALL = "small"
    LARGE = "large"
    """Pages, manifests and batches: `listen.max_request_bytes`."""
    BLOCK = "block"
    """A block of a file: `limits.max_chunk_bytes`."""


@dataclass(frozen=True)
class Parameter:
    """A header or a member of the query.

    Attributes:
        name: as it is sent.
        place: `query`, `header`, or for answers `header`.
        schema: JSON Schema of its value.
        meaning: in a sentence.
        required: whether the call is refused without it.
    """

    name: str
    place: str
    schema: Mapping[str, Any]
    meaning: str
    required: bool = False


CODED = (
    Parameter(
        "Content-Encoding",
        "header",
        {"enum": [zstd.ZSTD]},
        "Of this body, as `Limits.encodings` has it in the answer to the check; checksum and "
        "offsets are of what it becomes.",
    ),
    Parameter(
        wire.SIZE_HEADER,
        "header",
        {"type": "integer", "minimum": 1},
        "What this body becomes, if it has a coding.",
    ),
)
OF_SENDER = Parameter("sender", "query", {"type": "string"}, "Only of the sender with this uuid.")
PAGE_AFTER = Parameter("after", "query", {"type": "string"}, "`next` of the page before.")
PAGE_LIMIT = Parameter("limit", "query", {"type": "integer", "minimum": 1}, "Entries of a page.")


@dataclass(frozen=True)
class AnswerRow:
    """What a call answers when all goes well.

    Attributes:
        status: HTTP status.
        kind: the struct that its JSON is; None for no body, `Any` for JSON of another kind.
        headers: that come with it.
        meaning: in a few words.
        raw: the type of a body that is no JSON.
    """

    status: int
    kind: Any = None
    headers: tuple[Parameter, ...] = ()
    meaning: str = "done"
    raw: str = ""


EMPTY = AnswerRow(204)


@dataclass(frozen=True)
class Route:
    """One call.

    Attributes:
        method: HTTP method.
        path: the whole rule, as Flask writes it.
        handler: makes the answer.
        role: who may call.
        summary: what it does, in a line.
        answers: when all goes well; every call may answer with a problem document instead.
        takes: the struct that the request's JSON is, if it is JSON.
        media: of the request's body; empty for no body.
        body: how long it may be.
        parameters: in the query and in headers, those of all calls of the role left out.
        task: whether `Tsferry-Epoch` belongs to the call.
        reads: whether a node that only reads makes it, too; all others are refused there.
        displaced: whether a master answers, too, in whose place another may be at work by now: what
            it tells is of the process itself, or bytes that never change. That there is none of
            something it does not tell.
    """

    method: str
    path: str
    handler: Handler
    role: Role
    summary: str
    answers: tuple[AnswerRow, ...]
    takes: Any = None
    media: str = ""
    body: Body = Body.NONE
    parameters: tuple[Parameter, ...] = ()
    task: bool = False
    reads: bool = False
    displaced: bool = False
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.handler.__name__)
        if self.takes is not None:
            object.__setattr__(self, "media", JSON)
            if self.body is Body.NONE:
                object.__setattr__(self, "body", Body.SMALL)

    @property
    def changes(self) -> bool:
        """Whether an operator or a writer changes something by it: the audit log has each."""
        return self.role in (Role.OPERATOR, Role.WRITER) and self.method not in _SAFE

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it, with `{id}`."""
        return _RULE_ARGUMENT.sub(r"{\g<name>}", self.path)

    @property
    def arguments(self) -> list[str]:
        """Names of the variable parts of the path."""
        return [found["name"] for found in _RULE_ARGUMENT.finditer(self.path)]


class Routes(list[Route]):
    """The rows of a module, in the order in which its handlers stand."""

    def call(
        self,
        method: str,
        path: str,
        role: Role,
        summary: str,
        *answers: AnswerRow,
        takes: Any = None,
        media: str = "",
        body: Body = Body.NONE,
        parameters: tuple[Parameter, ...] = (),
        task: bool = False,
        reads: bool = False,
        displaced: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Decorate the handler of a call with its row; see `Route`."""

        def enter(handler: Handler) -> Handler:
            self.append(
                Route(
                    method,
                    path,
                    handler,
                    role,
                    summary,
                    answers,
                    takes=takes,
                    media=media,
                    body=body,
                    parameters=parameters,
                    task=task,
                    reads=reads,
                    displaced=displaced,
                )
            )
            return handler

        return enter
