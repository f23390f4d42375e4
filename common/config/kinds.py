"""Kinds of values: how a leaf of a schema is read, shown, and named in an error.

A schema says the kind by the type of the field: ``bool``, ``int``, ``float``, ``str``, ``Path``,
`Secret`, `Timetable`, `Hours`, `UploadRules`, `AllowList`, a ``Literal``, one of the aliases below,
``tuple[X, ...]``, ``X | None``; ``msgspec.Meta`` adds bounds.
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from common.config import units
from common.config.loaded_values import Secret
from common.config.networks import AllowList
from common.config.timetable import Hours, Timetable
from common.config.upload_rules import UploadRules
from common.console.terminal import printable

__all__ = ["Duration", "SecretUrl", "Size", "Url", "ValueKind", "kind_of"]

_LONGEST_SHOWN = 80
_WORDS_FOR_NONE = ("none", "unlimited")


def _same(value: Any) -> Any:
    return value


def _quoted(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return printable(text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "...")


def _hidden(_value: object) -> str:
    return "(hidden)"


class ValueKind(msgspec.Struct, frozen=True):
    """How values of a kind are treated.

    Attributes:
        expected: completes "expected ...".
        parse: the value as TOML has it -> the value of the field; raises ValueError, whose message
            may add to `expected`.
        to_plain: the reverse, for TOML and JSON.
        from_text: the text of a variable or flag -> the value as TOML would have it.
        quote: a value, right or wrong, as an error may show it.
        secret: never shown.
        hidden: `to_plain` leaves something out, and means another value where it does.
    """

    expected: str
    parse: Callable[[Any], Any]
    to_plain: Callable[[Any], Any] = _same
    from_text: Callable[[str], Any] = _same
    quote: Callable[[Any], str] = _quoted
    secret: bool = False
    hidden: bool = False


def kind_of(annotation: Any) -> ValueKind:
    """The kind that a field's type stands for.

    Raises:
        TypeError: the schema uses a type that is none of ours.
    """
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        if len(inner) == 1:
            return _optional(kind_of(inner[0]))
    if origin is Literal:
        return _choice(arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _many(kind_of(arguments[0]))
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    raise TypeError(f"no kind for {annotation!r}")


def _annotated(base: Any, metadata: tuple[Any, ...]) -> ValueKind:
    own = [mark for mark in metadata if isinstance(mark, ValueKind)]
    kind = own[0] if own else kind_of(base)
    for mark in metadata:
        if isinstance(mark, msgspec.Meta):
            kind = _bounded(kind, mark)
    return kind


def _bounded(kind: ValueKind, meta: msgspec.Meta) -> ValueKind:
    low, high, least, most = meta.ge, meta.le, meta.min_length, meta.max_length
    bounds = ""
    if low is not None and high is not None:
        bounds = f", from {kind.to_plain(low)} to {kind.to_plain(high)}"
    elif low is not None:
        bounds = f", at least {kind.to_plain(low)}"
    elif meta.gt is not None:
        above = f", more than {kind.to_plain(meta.gt)}"
        bounds = above if high is None else f"{above}, to {kind.to_plain(high)}"
    elif least is not None:
        bounds = f", at least {least}"
    elif most is not None:
        bounds = f", at most {most} characters"

    def parse(raw: Any) -> Any:
        value = kind.parse(raw)
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError
        if meta.gt is not None and value <= meta.gt:
            raise ValueError
        if least is not None and len(value) < least:
            raise ValueError
        if most is not None and len(value) > most:
            raise ValueError
        return value

    return replace(kind, expected=kind.expected + bounds, parse=parse)


def _optional(kind: ValueKind) -> ValueKind:
    def parse(raw: Any) -> Any:
        none = isinstance(raw, str) and raw.strip().lower() in _WORDS_FOR_NONE
        return None if none else kind.parse(raw)

    def to_plain(value: Any) -> Any:
        return None if value is None else kind.to_plain(value)

    def from_text(text: str) -> Any:
        return text if text.strip().lower() in _WORDS_FOR_NONE else kind.from_text(text)

    expected = f'{kind.expected}, or "none"'
    return replace(kind, expected=expected, parse=parse, to_plain=to_plain, from_text=from_text)


def _choice(words: tuple[Any, ...]) -> ValueKind:
    def parse(raw: Any) -> Any:
        if not isinstance(raw, str) or raw not in words:
            raise ValueError
        return raw

    return ValueKind("one of " + ", ".join(f'"{word}"' for word in words), parse)


def _many(kind: ValueKind) -> ValueKind:
    def parse(raw: Any) -> Any:
        if not isinstance(raw, list | tuple):
            raise ValueError("not a list")
        return tuple(kind.parse(item) for item in raw)

    def to_plain(values: Any) -> Any:
        return [kind.to_plain(value) for value in values]

    def from_text(text: str) -> Any:
        items = _list_from_text(text)
        if isinstance(items, list):
            return [kind.from_text(item) if isinstance(item, str) else item for item in items]
        return items

    return ValueKind(f"a list, each {kind.expected}", parse, to_plain, from_text, kind.quote)


def _list_from_text(text: str) -> Any:
    """A JSON list, or items between commas."""
    if text.lstrip().startswith("["):
        return _json(text)
    return [item.strip() for item in text.split(",") if item.strip()]


def _json(text: str) -> Any:
    """The JSON value, or the text itself, which the parser then refuses by its kind."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _bool(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError
    return raw


def _bool_from_text(text: str) -> Any:
    words = {"true": True, "yes": True, "on": True, "1": True}
    words |= {"false": False, "no": False, "off": False, "0": False}
    return words.get(text.strip().lower(), text)


def _int(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or abs(raw) >= 2**63:
        raise ValueError
    return raw


def _float(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise ValueError
    if not abs(raw) < 2**63:  # false for nan too
        raise ValueError
    return float(raw)


def _number_from_text(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    def from_text(text: str) -> Any:
        try:
            return convert(text)
        except ValueError:
            return text

    return from_text


def _str(raw: Any) -> str:
    if not isinstance(raw, str) or not raw or raw != printable(raw):
        raise ValueError
    return raw


def _path(raw: Any) -> Path:
    if isinstance(raw, os.PathLike):
        raw = os.fspath(raw)
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise ValueError
    try:
        return Path(raw).expanduser()
    except RuntimeError as error:  # a home directory that cannot be found
        raise ValueError(str(error)) from None


def _secret(raw: Any) -> Secret:
    # It travels in an HTTP header: no space, no line break, nothing beyond ASCII.
    if not isinstance(raw, str) or not raw or not all("!" <= c <= "~" for c in raw):
        raise ValueError
    return Secret(raw)


def _parsed_timetable(raw: Any) -> Timetable:
    if isinstance(raw, bool):
        raise ValueError
    return Timetable.parse(raw)


def _hours(raw: Any) -> Hours:
    if isinstance(raw, bool):
        raise ValueError
    return Hours.parse(raw)


def _upload_rules(raw: Any) -> UploadRules:
    if isinstance(raw, bool):
        raise ValueError
    return UploadRules.parse(raw)


def _rules_from_text(text: str) -> Any:
    return _json(text) if text.lstrip()[:1] in ("[", "{") else text


def _allow_list(raw: Any) -> AllowList:
    if not isinstance(raw, list | tuple) or not raw:
        raise ValueError
    return AllowList.parse(raw)


def _url(raw: Any) -> str:
    if not isinstance(raw, str) or raw != printable(raw) or " " in raw:
        raise ValueError
    parts = urlsplit(raw)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it begins with https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong in an address: use token or token_file")
    if parts.query or parts.fragment:
        raise ValueError("it has no ? and no #")
    if parts.port == 0:  # the property itself refuses what is no port
        raise ValueError("port 0 cannot be called")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def _url_with_query(raw: Any) -> str:
    if not isinstance(raw, str) or raw != printable(raw) or " " in raw:
        raise ValueError
    before, _, query = raw.partition("?")
    if "#" in query:
        raise ValueError("it has no #")
    url = _url(before)
    if not query:
        return url
    path = urlsplit(before).path  # a slash at its end is of account here
    return f"{url.removesuffix(path.rstrip('/'))}{path or '/'}?{query}"


def _without_path(url: str) -> str:
    scheme, _, rest = url.partition("://")
    host, slash, _ = rest.partition("/")
    return f"{scheme}://{host}{'/...' if slash else ''}"


def _quoted_url(raw: Any) -> str:
    return _hidden(raw) if "@" in str(raw) else _quoted(raw)


_PLAIN: Mapping[Any, ValueKind] = {
    bool: ValueKind("true or false", _bool, from_text=_bool_from_text),
    int: ValueKind("a whole number", _int, from_text=_number_from_text(int)),
    float: ValueKind("a number", _float, from_text=_number_from_text(float)),
    str: ValueKind("a text without control characters, not empty", _str),
    Path: ValueKind("a path", _path, to_plain=str),
    Secret: ValueKind(
        "a token (printable ASCII without spaces)",
        _secret,
        to_plain=lambda _: "***",
        quote=_hidden,
        secret=True,
        hidden=True,
    ),
    Timetable: ValueKind(
        'a rate such as "10MiB/s", "none", or a list of windows such as '
        '{from="08:00", to="18:00", days=["mon"], limit="1MiB/s"}',
        _parsed_timetable,
        Timetable.to_plain,
        _rules_from_text,
    ),
    Hours: ValueKind(
        '"always", or a list of windows such as {from="22:00", to="06:00", days=["mon"]}',
        _hours,
        Hours.to_plain,
        _rules_from_text,
    ),
    UploadRules: ValueKind(
        '"at once", "never", a duration such as "30d", or a list of rules such as '
        '{group="root.raw", upload="never"}',
        _upload_rules,
        UploadRules.to_plain,
        _rules_from_text,
    ),
    AllowList: ValueKind(
        'a list of networks or hosts such as ["10.0.0.0/8", "::1"], not empty',
        _allow_list,
        AllowList.to_plain,
        _list_from_text,
    ),
}

Size = Annotated[
    int,
    ValueKind('a size such as 4096 or "4MiB"', units.parse_size, units.format_size),
]
"""Bytes."""
Duration = Annotated[
    float,
    ValueKind(
        'a duration such as "30s", "5m", "1h30m", "7d" or seconds',
        units.parse_duration,
        units.format_duration,
    ),
]
"""Seconds."""
Url = Annotated[
    str,
    ValueKind("an address such as https://host:port", _url, quote=_quoted_url),
]
"""Scheme, host (lower case), port where one was given, path without a slash at its end."""
SecretUrl = Annotated[
    str,
    ValueKind(
        "an address such as https://host/path?key=value",
        _url_with_query,
        to_plain=_without_path,
        quote=_hidden,
        hidden=True,
    ),
]
"""The same, and perhaps a query; nothing behind the host is shown: for many services that is a
secret."""
