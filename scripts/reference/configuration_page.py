"""docs/reference/configuration.md: each key of both programs, from the structs that hold them."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import FieldInfo

from common.config import keys
from common.config.keys import ArrayNode, LeafNode
from common.config.kinds import Duration, SecretUrl, Size, Url, kind_of
from common.config.loaded_values import Secret
from common.config.networks import AllowList
from common.config.timetable import Hours, Timetable
from common.config.upload_rules import UploadRules
from common.console.cli import Program
from receiver.cli.commands import PROGRAM as RECEIVER
from scripts.reference.markdown_text import code, headed, prose, table
from sender.cli.program import PROGRAM as SENDER

__all__ = ["PROGRAMS", "meanings", "text"]

PROGRAMS: tuple[Program, ...] = (SENDER, RECEIVER)
_NAMES: tuple[tuple[Any, str], ...] = (
    (Duration, "[duration](#durations)"),
    (Size, "[size](#sizes)"),
    (Url, "[address](#addresses)"),
    (SecretUrl, "[address](#addresses)"),
    (Timetable, "[timetable](#timetables)"),
    (Hours, "[hours](#hours)"),
    (UploadRules, "[upload rules](#upload-rules)"),
    (AllowList, "list of networks and hosts"),
    (Secret, "secret"),
    (Path, "path"),
    (bool, "true or false"),
    (int, "whole number"),
    (float, "number"),
    (str, "text"),
)
_ATTRIBUTE = re.compile(r"    (\w+): (.*(?:\n {8}.*)*)")


def text() -> str:
    """The page, behind its head."""
    return "\n\n".join(map(_program, PROGRAMS)) + "\n"


def meanings(schema: type[msgspec.Struct]) -> dict[str, str]:
    """What the docstring of a table says of each field."""
    _, _, listed = inspect.cleandoc(schema.__doc__ or "").partition("Attributes:\n")
    return {found[1]: " ".join(found[2].split()) for found in _ATTRIBUTE.finditer(listed)}


def _program(program: Program) -> str:
    file = program.default_file.name
    parts = [_table(program, schema, key) for key, schema in _tables(program.schema, "")]
    return headed("##", code(file), *parts)


def _tables(schema: type[msgspec.Struct], key: str) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    yield key, schema
    for field, node in keys.fields(schema):
        if not isinstance(node, LeafNode):
            below = keys.join_key(key, field.encode_name)
            yield from _tables(node.schema, below + ("[]" if isinstance(node, ArrayNode) else ""))


def _table(program: Program, schema: type[msgspec.Struct], key: str) -> str:
    listed = meanings(schema)
    rows = [
        (
            code(field.encode_name),
            _type(field.type),
            _default(field, node),
            _sentence(listed.get(field.name, "-")),
        )
        for field, node in keys.fields(schema)
        if isinstance(node, LeafNode)
    ]
    owner = program.default_file.stem
    if not key:
        title, said = f"Top of `{owner}.toml`", "What stands before the first table."
    else:
        shown = f"[[{key.removesuffix('[]')}]]" if key.endswith("[]") else f"[{key}]"
        title, said = f"`{shown}` of the {owner}", prose(_headline(schema))
    return headed("###", title, said, table(("key", "value", "default", "is"), rows))


def _sentence(said: str) -> str:
    return prose(said if said[0] in "`*" else f"{said[0].upper()}{said[1:]}")


def _headline(schema: type[msgspec.Struct]) -> str:
    """What the docstring of a table says of it, its name left out."""
    before = inspect.cleandoc(schema.__doc__ or "").partition("\n\nAttributes:")[0]
    said = re.sub(r"^(?:A )?``\[+[\w.]+\]+``: ", "", " ".join(before.split()))
    return f"{said[0].upper()}{said[1:]}"


def _default(field: FieldInfo, node: LeafNode) -> str:
    if field.required:
        return "must be set"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None:
        return "none"
    plain = node.kind.to_plain(value)
    if isinstance(plain, bool):
        return code(str(plain).lower())
    return code(msgspec.json.encode(plain).decode())


def _type(annotation: Any) -> str:
    """What may stand there: the kind, and its bounds."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _type(next(each for each in inner if each is not type(None)))
    named = next((name for kind, name in _NAMES if kind == annotation), "")
    if named:
        return named
    if origin is typing.Literal:
        return "one of " + ", ".join(code(f'"{each}"') for each in inner)
    if origin is tuple:
        return f"list, each {_type(inner[0])}"
    if origin is typing.Annotated:
        meta = [each for each in annotation.__metadata__ if isinstance(each, msgspec.Meta)]
        base = _base(annotation)
        return _type(base) + "".join(_bounds(base, each) for each in meta)
    raise TypeError(f"the page has no name for {annotation!r}")


def _base(annotation: Any) -> Any:
    """Without the bounds: typing makes one list of what is annotated twice."""
    marks = [each for each in annotation.__metadata__ if not isinstance(each, msgspec.Meta)]
    return typing.Annotated[annotation.__origin__, *marks] if marks else annotation.__origin__


def _bounds(base: Any, meta: msgspec.Meta) -> str:
    plain = kind_of(base).to_plain
    shown: Mapping[str, Any] = {
        "from": meta.ge,
        "more than": meta.gt,
        "to": meta.le,
        "less than": meta.lt,
    }
    bounds = [f"{word} {plain(value)}" for word, value in shown.items() if value is not None]
    if len(bounds) == 2:
        bounds = [" ".join(bounds)]
    if meta.min_length is not None:
        bounds.append("not empty")
    if meta.max_length is not None:
        bounds.append(f"up to {meta.max_length} characters")
    return "".join(f", {each}" for each in bounds)
