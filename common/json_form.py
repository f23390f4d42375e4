"""The one form in which commands write JSON.

No number in it is one that a reader would round, and times for people stand beside those that
programs reckon with:

* A commit timestamp and a time of data are text, whatever their size: they take up to 64 bits, and
  readers of JSON keep 53 of a number. So is any other integer beyond those.
* Beside each moment, a number of seconds since the epoch, stands `<name>_iso`: ISO 8601 in UTC, to
  the millisecond.
* Every member of a struct is written, one that has its default too.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from common.wire.base import WIDE

__all__ = [
    "ISO",
    "MOMENTS",
    "WIDE_NAMES",
    "is_moment",
    "is_record",
    "is_wide",
    "json_form",
    "member_types",
]

ISO: Final = "_iso"
_EXACT: Final = 1 << 53
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
        names = value.__struct_fields__ if isinstance(value, msgspec.Struct) else _fields(value)
        return dict(_members([(each, getattr(value, each)) for each in names], type(value)))
    kind = _alternative(kind)
    if isinstance(value, Mapping):
        if typing.get_origin(kind) is dict:
            return {name: json_form(each, typing.get_args(kind)[1]) for name, each in value.items()}
        return dict(_members(value.items(), kind if typing.is_typeddict(kind) else None))
    if isinstance(value, list | tuple):
        of = typing.get_args(kind)[0] if typing.get_origin(kind) in (list, tuple) else None
        return [json_form(each, of) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    plain = msgspec.to_builtins(value)
    return json_form(plain) if isinstance(plain, dict | list) else plain


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
        return {each.encode_name: hints[each.name] for each in msgspec.structs.fields(kind)}
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
    metas = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, msgspec.Meta)]
    return any((each.extra or {}).get(WIDE) for each in metas) or any(map(is_wide, _parts(hint)))


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
