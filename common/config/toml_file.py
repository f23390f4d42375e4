"""Reading a TOML file, with the line of each key: `tomllib` tells values and not where they stand.

The lines serve messages only. `key_lines` therefore takes text that `tomllib` has accepted, and a
key that it does not find is reported with the line of the table around it.
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from common.config.loaded_values import ConfigProblem, config_error
from common.errors import ConfigError
from common.system_errors import system_error

__all__ = [
    "Document",
    "drop_in_directory",
    "drop_ins",
    "key_lines",
    "read_secret",
    "read_toml",
    "readable_by_others",
]

_LARGEST_FILE = 1 << 20
_LARGEST_SECRET = 1 << 16

_BARE_OR_QUOTED = r'[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
_KEY_PART = re.compile(_BARE_OR_QUOTED)
_DOTTED = rf"(?:{_BARE_OR_QUOTED})(?:[ \t]*\.[ \t]*(?:{_BARE_OR_QUOTED}))*"
_STATEMENT = re.compile(
    rf"[ \t]*(?:(?P<tables>\[\[[ \t]*(?P<array>{_DOTTED})[ \t]*\]\])"
    rf"|\[[ \t]*(?P<table>{_DOTTED})[ \t]*\]|(?P<key>{_DOTTED})[ \t]*=)"
)
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
    r"|#[^\n]*|[\[\]{}]|\n|[^\"'#\[\]{}\n]+",
    re.DOTALL,
)
_SYNTAX_PLACE = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)$")


class Document(msgspec.Struct, frozen=True):
    """A TOML file.

    Attributes:
        path: where it was read.
        tree: its tables.
        lines: dotted key (``receiver[0].url``) -> line, counted from 1.
    """

    path: Path
    tree: Mapping[str, Any]
    lines: Mapping[str, int]

    def where(self, key: str) -> str:
        """``path:line`` of a key, or of the nearest table around it that is known."""
        while key:
            if key in self.lines:
                return f"{self.path}:{self.lines[key]}"
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return str(self.path)


def drop_in_directory(path: Path) -> Path:
    """Where the drop-ins of a configuration file are: beside it, with ``.d`` for ``.toml``."""
    return path.with_suffix(".d")


def drop_ins(path: Path) -> list[Path]:
    """The drop-ins of a configuration file, in the order in which they are read: by name.

    Those that end in .toml and are not hidden: what editors and packages leave there is none.

    Raises:
        ConfigError: the directory cannot be listed.
    """
    directory = drop_in_directory(path)
    if directory == path:
        return []
    try:
        names = sorted(each.name for each in directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        refused = system_error(error)
        if refused is not None:
            raise ConfigError(refused.message) from None
        raise _unusable(
            str(directory),
            f"expected a directory of TOML files, or nothing ({error.strerror or error})",
        ) from None
    return [directory / each for each in names if each.endswith(".toml") and each[0] != "."]


def read_toml(path: Path) -> Document:
    """Read a configuration file.

    Raises:
        ConfigError: unreadable, a directory, too large, not UTF-8, or not TOML.
    """
    try:
        blob = _read(path, _LARGEST_FILE)
    except OSError as error:
        refused = system_error(error)
        if refused is not None:
            raise ConfigError(refused.message) from None
        raise _unusable(
            str(path), f"cannot be read: expected a TOML file ({error.strerror or error})"
        ) from None
    except ValueError as error:  # too large, or a path that holds a NUL
        raise _unusable(str(path), f"cannot be read: expected a TOML file ({error})") from None
    try:
        text = blob.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = blob.count(b"\n", 0, error.start) + 1
        raise _unusable(f"{path}:{line}", f"not UTF-8: expected TOML ({error.reason})") from None
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise _unusable(str(path), "nested too deeply: expected TOML") from None
    except ValueError as error:  # TOMLDecodeError, and an integer of too many digits
        place = _SYNTAX_PLACE.search(str(error))
        line_of = f":{place[1]}" if place and place[1] else ""
        raise _unusable(f"{path}{line_of}", f"not valid TOML: {error}") from None
    return Document(path, tree, key_lines(text))


def read_secret(path: Path) -> str:
    """The token that a file holds, without white space around it.

    Raises:
        ValueError: the file cannot be read, or is too large for a token.
    """
    try:
        blob = _read(path, _LARGEST_SECRET)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    return blob.decode("ascii", "replace").strip()


def readable_by_others(path: Path) -> bool:
    """Whether the permissions let others than the owner read a file (False where it is gone)."""
    try:
        return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    except OSError:
        return False


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as stream:
        blob = stream.read(limit + 1)
    if len(blob) > limit:
        raise ValueError(f"larger than {limit} bytes")
    return blob


def _unusable(where: str, expected: str) -> ConfigError:
    return config_error([ConfigProblem(where, "", None, expected)])


def key_lines(text: str) -> dict[str, int]:
    """Dotted key -> line of tables, arrays of tables and keys, in TOML that is valid."""
    lines: dict[str, int] = {}
    elements: dict[str, int] = {}
    table = ""
    at = counted = 0
    line = 1
    while at < len(text):
        line, counted = line + text.count("\n", counted, at), at
        found = _STATEMENT.match(text, at)
        if not found:  # an empty line, or a comment
            at = _after_statement(text, at)
            continue
        name = found["array"] or found["table"] or found["key"]
        key = _placed(name, table if found["key"] else "", elements, last=not found["array"])
        if found["array"]:
            elements[key] = elements.get(key, -1) + 1
            lines.setdefault(key, line)
            key = f"{key}[{elements[key]}]"
        if not found["key"]:
            table = key
        lines.setdefault(key, line)
        at = _after_statement(text, found.end())
    return lines


def _placed(name: str, table: str, elements: Mapping[str, int], *, last: bool) -> str:
    """The dotted key under a table, each array of tables on the way at its newest element."""
    parts = [part[1:-1] if part[0] in "\"'" else part for part in _KEY_PART.findall(name)]
    key = table
    for number, part in enumerate(parts, start=1):
        key = f"{key}.{part}" if key else part
        if key in elements and (last or number < len(parts)):
            key = f"{key}[{elements[key]}]"
    return key


def _after_statement(text: str, at: int) -> int:
    """Where the next line begins that is not inside a value of several lines."""
    depth = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if not token:
            return len(text)
        at = token.end()
        depth += (token[0] in ("[", "{")) - (token[0] in ("]", "}"))
        if token[0] == "\n" and depth <= 0:
            break
    return at
