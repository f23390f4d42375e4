"""What commands write with --json, against the types that they say they write.

The schema is strict: each member is there, none beside them, and none is longer than a reader of
JSON keeps.
"""

from __future__ import annotations

import functools
import json
import types
import typing
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import jsonschema
import msgspec

from common.console.json_form import (
    ISO,
    LISTS,
    OP,
    are_numbers,
    is_logged,
    is_moment,
    is_wide,
    member_types,
)
from common.console.json_option import JsonForm, OpenForm
from scripts import json_page

__all__ = ["check_output", "filled", "schema_of"]

_options = functools.cache(json_page.json_options)
_EXACT = 1 << 53
_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": -_EXACT, "maximum": _EXACT},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
_ISO = {"type": "string", "pattern": r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z"}
_NULL = {"type": "null"}
_WIDE = {"type": "string", "pattern": r"\A-?\d+\Z"}
LARGE = 467_000_000_000_000_001


def schema_of(hint: Any) -> dict[str, Any]:
    """The JSON Schema of what commands write of a type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if are_numbers(hint):
        return {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}
    if origin is typing.Annotated:
        return _WIDE if is_wide(hint) else schema_of(inner[0])
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(each) for each in inner if each is not msgspec.UnsetType]}
    if origin in LISTS:
        return {"type": "array", "items": schema_of(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if json_page.is_object(hint):
        return _object(hint)
    if isinstance(hint, type) and issubclass(hint, OpenForm):
        return {"type": "object", "additionalProperties": schema_of(hint.member)}
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {"enum": [each.value for each in hint]}
    return {}


def _object(kind: type) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, hint in member_types(kind).items():
        parts = typing.get_args(hint) or (hint,)
        can_be_null = type(None) in parts
        if is_wide(hint):
            members[name] = {"anyOf": [_WIDE, _NULL]} if can_be_null else _WIDE
            continue
        members[name] = schema_of(hint)
        if is_moment(name) and float in parts:
            members[name + ISO] = {"anyOf": [_ISO, _NULL]} if can_be_null else _ISO
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def check_output(words: str, text: str, when: str = "", *, by_name: bool = False) -> Any:
    """What a command wrote, once it is what its option --json says.

    Args:
        words: the command.
        text: that it wrote.
        when: which of its forms is meant.
        by_name: it is of several receivers.

    Raises:
        AssertionError: it is not; says what is.
    """
    forms = json_page.forms(_options()[words])
    (form,) = [each for each in forms if each.when == when]
    lines = text.splitlines() if form.shape == "lines" else [text]
    found = [json.loads(line) for line in lines]
    schema = _shaped(form, by_name)
    for each in found:
        errors = list(jsonschema.Draft202012Validator(schema).iter_errors(each))
        told = [f"{error.json_path}: {error.message[:300]}" for error in errors]
        assert not told, f"{words}: {told}"
    return found if form.shape == "lines" else found[0]


def _shaped(form: JsonForm, by_name: bool) -> dict[str, Any]:
    schema = schema_of(form.kind)
    if form.shape == "list":
        return {"type": "array", "items": schema}
    if by_name:
        several = {"type": "object", "additionalProperties": schema, "minProperties": 2}
        return {
            "type": "object",
            "properties": {"receivers": several, "exit_code": {"type": "integer"}},
            "required": ["receivers", "exit_code"],
            "additionalProperties": False,
        }
    return schema


def filled(hint: Any) -> Any:
    """A value of a type with the largest of everything, and nothing that comes after it."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        members = {name: filled(each) for name, each in member_types(hint).items()}
        if is_logged(hint):
            del members[OP]
        return hint(**members | ({"next": None} if "next" in members else {}))
    if are_numbers(hint):
        return b"\x01\x02"
    if origin is typing.Annotated:
        return LARGE if is_wide(hint) else filled(inner[0])
    if origin is typing.Literal:
        return inner[0]
    if origin is Sequence:
        return [filled(inner[0])]
    if origin is tuple:
        return tuple(filled(each) for each in inner if each is not ...)
    if origin in LISTS:
        return origin([filled(inner[0])])
    if origin is dict:
        return {filled(inner[0]): filled(inner[1])}
    if inner:
        return filled(next(each for each in inner if each is not type(None)))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return next(iter(hint))
    return {int: 1 << 40, float: 1_800_000_000.25, str: "x", bool: True, bytes: b"x"}.get(hint, "x")
