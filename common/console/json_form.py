"""The one form in which commands write JSON.

No number in it is one that a reader would round, and times for people stand beside those that
programs reckon with:

* A commit timestamp and a time of data are text, whatever their size: they take up to 64 bits, and
  readers of JSON keep 53 of a number. So is any other integer beyond those.
* Beside each moment, a number of seconds since the epoch, stands `<name>_iso`: ISO 8601 in UTC, to
  the millisecond.
* A record of the engine's log says in `op` which one it is.
* Every member of a struct is written, one that has its default too.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from common.wire.base import AS_NUMBERS, WIDE

__all__ = [
    "ISO",
    "LISTS",
    "MOMENTS",
    "OP",
    "WIDE_NAMES",
    "are_numbers",
    "is_logged",
    "is_moment",
    "is_record",
    "is_wide",
    "json_form",
    "member_types",
]

ISO: Final = "_iso"
OP: Final = "op"
"""Member of a record of the log: its name."""
_EXACT: Final = 1 << 53
LISTS: Final = (list, tuple, Sequence)
"""Origins of types whose values are lists of one type."""
_MOMENT: Final = re.compile(r".*_(at|until)\Z")
MOMENTS: Final = frozenset(
    {"at", "ended", "expires", "failing_since", "history_since", "scrubbed", "since", "started"}
    | {"time"}
)
"""Members with other names that are moments, where they are no whole numbers."""
WIDE_NAMES: Final = frozenset(
    {"commit", "complete_until", "created", "first_time", "last_time", "newest_commit"}
)
"""Members of objects that are no structs, and are commits or times of data."""


def json_form(value: Any, kind: Any = None) -> Any:
    """A value as commands write it: objects, lists, texts, numbers, true, false and null.

    Args:
        value: a struct, a dataclass, or anything that JSON has a form for.
        kind: its type, where it does not say that itself: a `TypedDict`, a list of those.
    """
    if isinstance(value, msgspec.Struct) or is_record(type(value)):
        return dict(_members(_named(value), type(value)))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if is_wide(kind) or abs(value) > _EXACT else msgspec.to_builtins(value)
    if isinstance(value, bytes) and are_numbers(kind):
        return list(value)
    kind = _alternative(kind)
    if isinstance(value, Mapping):
        if typing.get_origin(kind) is dict:
            return {name: json_form(each, typing.get_args(kind)[1]) for name, each in value.items()}
        return dict(_members(value.items(), kind if typing.is_typeddict(kind) else None))
    if isinstance(value, list | tuple):
        of = typing.get_args(kind)[0] if typing.get_origin(kind) in LISTS else None
        return [json_form(each, of) for each in value]
    plain = msgspec.to_builtins(value)
    return json_form(plain) if isinstance(plain, dict | list) else plain


def _named(value: Any) -> Iterator[tuple[str, Any]]:
    """The members of a struct, or a dataclass."""
    if is_logged(type(value)):
        yield OP, type(value).__name__
    names = value.__struct_fields__ if isinstance(value, msgspec.Struct) else _fields(value)
    for name in names:
        yield name, getattr(value, name)


def _members(found: Iterable[tuple[Any, Any]], kind: type | None) -> Iterator[tuple[Any, Any]]:
    """Of an object of this type; None for one without."""
    hints = {} if kind is None else member_types(kind)
    by_name = kind is None or not issubclass(kind, msgspec.Struct)
    for name, value in found:
        hint = hints.get(name)
        is_text = is_wide(hint) or (by_name and name in WIDE_NAMES)
        if is_text and isinstance(value, int):
            yield name, str(value)
            continue
        yield name, json_form(value, hint)
        is_float = isinstance(value, float) if hint is None else float in (hint, *_parts(hint))
        if isinstance(name, str) and is_moment(name) and is_float:
            yield f"{name}{ISO}", None if value is None else _iso(value)


def is_logged(kind: Any) -> bool:
    """Whether values of a type are records of the log: structs with numbers for names there."""
    config = getattr(kind, "__struct_config__", None)
    return config is not None and isinstance(config.tag, int)


def is_record(kind: Any) -> bool:
    """Whether values of a type are objects, in the way of dataclasses."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _fields(value: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(value)]


@functools.cache
def member_types(kind: type) -> Mapping[str, Any]:
    """The members of an object of a type, in their order, and their types."""
    hints = typing.get_type_hints(kind, include_extras=True)
    if issubclass(kind, msgspec.Struct):
        told = {OP: Literal[kind.__name__]} if is_logged(kind) else {}
        return told | {each.encode_name: hints[each.name] for each in msgspec.structs.fields(kind)}
    if dataclasses.is_dataclass(kind):
        return {each.name: hints[each.name] for each in dataclasses.fields(kind)}
    return hints


def _alternative(kind: Any) -> Any:
    """Of `X | None` X; of other alternatives none, for a value says itself which it is."""
    parts = [each for each in _parts(kind) if each is not type(None)]
    if typing.get_origin(kind) is typing.Annotated:
        return _alternative(typing.get_args(kind)[0])
    return parts[0] if len(parts) == 1 else None if parts else kind


def is_moment(name: str) -> bool:
    """Whether a member of this name, if it is no whole number, is a moment."""
    return name in MOMENTS or (_MOMENT.match(name) is not None and name not in WIDE_NAMES)


def is_wide(hint: Any) -> bool:
    """Whether a member of this type is written as text, whatever its size."""
    return _is_said_to_be(WIDE, hint)


def are_numbers(hint: Any) -> bool:
    """Whether bytes of this type are written as a list of numbers."""
    return _is_said_to_be(AS_NUMBERS, hint)


def _is_said_to_be(what: str, hint: Any) -> bool:
    metas = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, msgspec.Meta)]
    if any((each.extra or {}).get(what) for each in metas):
        return True
    return any(_is_said_to_be(what, each) for each in _parts(hint))


def _parts(hint: Any) -> tuple[Any, ...]:
    """Of `float | None` its parts; of a list none, whose elements are no members."""
    origin = typing.get_origin(hint)
    is_union = origin is typing.Union or type(hint).__name__ == "UnionType"
    return typing.get_args(hint) if is_union else ()


def _iso(seconds: float) -> str | None:
    try:
        at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
