"""Values of options, as Spark hands them over: texts. Each reader of one says what it expects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, cast

from common.config.units import parse_size
from receiver.storage.reading.several_addresses import addresses_in

__all__ = [
    "WrongValueError",
    "boolean",
    "byte_size",
    "is_json",
    "listed",
    "name_text",
    "names",
    "one_of",
    "receiver_url",
]

_QUOTED: Final = re.compile(r"`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|[^,`\"]+|.", re.DOTALL)


class WrongValueError(ValueError):
    """A value is not what was expected; the text says what was."""


def one_of(*values: str) -> Callable[[str], str]:
    """Takes one of these, in any case."""
    expected = f"expected {', '.join(values[:-1])} or {values[-1]}"

    def parse(text: str) -> str:
        if text.lower() not in values:
            raise WrongValueError(expected)
        return text.lower()

    return parse


def boolean(text: str) -> bool:
    """`true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise WrongValueError("expected true or false")
    return text.lower() == "true"


def name_text(text: str) -> str:
    """Any text but an empty one."""
    if not text.strip():
        raise WrongValueError("expected a name")
    return text


def receiver_url(text: str) -> str:
    """A URL without credentials, or several with commas between them, of which one leads."""
    for each in addresses_in(text) or ("",):
        if not each.startswith(("http://", "https://")) or "@" in each or "?" in each:
            raise WrongValueError("expected the URL of a receiver or a node, without credentials")
    return text


def names(text: str) -> tuple[str, ...]:
    """At least one text; see `listed`."""
    found = listed(text)
    if not found:
        raise WrongValueError("expected names with commas between them, or a JSON array of texts")
    return tuple(found)


def is_json(text: str) -> bool:
    """Whether it is meant as a JSON array."""
    return text.lstrip().startswith("[")


def listed(text: str) -> list[str]:
    """The texts of a JSON array, or those between commas that stand in no quotes."""
    if is_json(text):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise WrongValueError(f"expected a JSON array ({error})") from error
        if not all(isinstance(each, str) for each in found):
            raise WrongValueError("expected a JSON array of texts")
        return cast("list[str]", found)
    pieces = [""]
    for piece in _QUOTED.findall(text):
        if piece == ",":
            pieces.append("")
        else:
            pieces[-1] += piece
    return [each.strip() for each in pieces if each.strip()]


def byte_size(text: str) -> int:
    """A number of bytes, not too few."""
    expected = "expected a number of bytes from 64KiB on, such as 134217728 or 128MiB"
    try:
        size = parse_size(text)
    except ValueError as error:
        raise WrongValueError(expected) from error
    if size < 1 << 16:
        raise WrongValueError(expected)
    return size
