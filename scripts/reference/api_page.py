"""docs/reference/api.md and api_bodies.md: the calls of /openapi.json, and their JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from common import wire
from receiver.web.app import ROUTES
from receiver.web.openapi import document
from receiver.web.routes import Role
from scripts import json_page
from scripts.reference.markdown_text import anchor, code, headed, prose, table

__all__ = ["BODIES", "bodies_text", "text"]

BODIES = "api_bodies.md"
_ROLES: tuple[tuple[Role, str], ...] = (
    (Role.PUBLIC, "Calls of everybody"),
    (Role.READER, "Calls of readers"),
    (Role.SQL, "SQL and transactions"),
    (Role.WRITER, "Calls of writers"),
    (Role.WORKER, "Calls of workers"),
    (Role.OPERATOR, "Calls of operators"),
    (Role.SENDER, "Calls of senders"),
    (Role.NODE, "Calls of storage nodes"),
)
_REF = "#/components/schemas/"


def text() -> str:
    """The page of calls, behind its head."""
    by_tag = defaultdict(list)
    for path, methods in document(ROUTES)["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append((f"{method.upper()} {path}", operation))
    return (
        "\n\n".join(_role(role, title, by_tag[role.name.lower()]) for role, title in _ROLES) + "\n"
    )


def _role(role: Role, title: str, operations: Iterable[tuple[str, dict[str, Any]]]) -> str:
    calls = [headed("###", code(name), *_call(operation)) for name, operation in operations]
    return headed("##", title, f"For {role.value}.", *calls)


def _call(operation: dict[str, Any]) -> Iterator[str]:
    yield f"{prose(operation['summary'])}."
    rows = [
        (code(each["name"]), _place(each), f"{_said(each)}{_values(each['schema'])}")
        for each in operation["parameters"]
    ]
    if rows:
        yield table(("parameter", "in", "is"), rows)
    lines = []
    if body := operation.get("requestBody"):
        lines.append(f"Body: {_content(body['content'])}")
    for status, answer in operation["responses"].items():
        if status != "default":
            lines.append(f"{status}: {_answer(answer)}")
    yield "\n".join(f"- {line}" for line in lines)


def _place(parameter: dict[str, Any]) -> str:
    return f"{parameter['in']}{', must be given' if parameter['required'] else ''}"


def _said(parameter: dict[str, Any]) -> str:
    return prose(parameter["description"])


def _values(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return f" One of {', '.join(code(str(each)) for each in schema['enum'])}."
    return ""


def _content(content: dict[str, Any]) -> str:
    (media, described), *_ = content.items()
    name = described.get("schema", {}).get("$ref", "").removeprefix(_REF)
    if name:
        return f"[{name}]({BODIES}#{anchor(name)})"
    return "a JSON object" if media == "application/json" else f"{code(media)}"


def _answer(answer: dict[str, Any]) -> str:
    parts = [_content(answer["content"])] if "content" in answer else []
    if answer["description"] != "done":
        parts.append(prose(answer["description"]))
    if answer.get("headers"):
        parts.append("with " + ", ".join(map(code, answer["headers"])))
    return ", ".join(parts) or "no body"


def bodies_text() -> str:
    """The page of their JSON, behind its head."""
    kinds = dict.fromkeys(_kinds())
    waiting = list(kinds)
    while waiting:
        for found in json_page.inside(waiting.pop()):
            if found not in kinds:
                kinds[found] = None
                waiting.append(found)
    parts = (
        headed("##", each.__name__, _headline(each), json_page.members(each, raw=True))
        for each in sorted(kinds, key=lambda each: each.__name__)
    )
    return "\n\n".join(parts) + "\n"


def _kinds() -> Iterator[type]:
    yield wire.Problem
    for row in ROUTES:
        yield from (each.kind for each in row.answers if each.kind not in (None, Any))
        if row.takes is not None:
            yield row.takes


def _headline(kind: type) -> str:
    said = (kind.__doc__ or "").strip().split("\n\n")[0].split("\n    Attributes:")[0]
    return prose(said)
