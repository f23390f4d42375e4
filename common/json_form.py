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

import datetime
import functools
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from common.wire.base import WIDE

__all__ = ["ISO", "MOMENTS", "WIDE_NAMES", "is_moment", "is_wide", "json_form", "wide_members"]

ISO: Final = "_iso"
_EXACT: Final = 1 << 53
_MOMENT: Final = re.compile(r".*_(at|until)\Z")
MOMENTS: Final = frozenset({"at", "ended", "expires", "history_since", "since", "started", "time"})
"""Members with other names that are moments, where they are no whole numbers."""
WIDE_NAMES: Final = frozenset(
    {"commit", "complete_until", "created", "first_time", "last_time", "newest_commit"}
)
"""Members of objects without a type of their own that are commits or times of data."""


def json_form(value: Any) -> Any:
    """A value as commands write it: objects, lists, texts, numbers, true, false and null.

    Args:
        value: a struct, or anything that JSON has a form for.
    """
    if isinstance(value, msgspec.Struct):
        kind = type(value)
        return dict(_members(msgspec.structs.asdict(value), wide_members(kind), _floats(kind)))
    if isinstance(value, Mapping):
        return dict(_members(value, WIDE_NAMES, None))
    if isinstance(value, list | tuple):
        return [json_form(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    plain = msgspec.to_builtins(value)
    return json_form(plain) if isinstance(plain, dict | list) else plain


def _members(
    found: Mapping[Any, Any], wide: frozenset[str], floats: frozenset[str] | None
) -> Iterator[tuple[Any, Any]]:
    for name, value in found.items():
        if name in wide and isinstance(value, int):
            yield name, str(value)
            continue
        yield name, json_form(value)
        declared = isinstance(value, float) if floats is None else name in floats
        if isinstance(name, str) and is_moment(name) and declared:
            yield f"{name}{ISO}", None if value is None else _iso(value)


def is_moment(name: str) -> bool:
    """Whether a member of this name, if it is no whole number, is a moment."""
    return name in MOMENTS or (_MOMENT.match(name) is not None and name not in WIDE_NAMES)


@functools.cache
def wide_members(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Members of a struct that are written as text, whatever their size."""
    return frozenset(each.name for each in msgspec.structs.fields(kind) if is_wide(each.type))


@functools.cache
def _floats(kind: type[msgspec.Struct]) -> frozenset[str]:
    fields = msgspec.structs.fields(kind)
    return frozenset(each.name for each in fields if float in (each.type, *_parts(each.type)))


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
