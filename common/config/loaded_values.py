"""What a configuration is made of: values, where they come from, and what is wrong with them."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec.structs import asdict

from common.errors import ConfigError

__all__ = [
    "CheckedTable",
    "ConfigFinding",
    "ConfigProblem",
    "Flag",
    "Loaded",
    "Origin",
    "Secret",
    "config_error",
]

T_co = TypeVar("T_co", bound=msgspec.Struct, covariant=True)


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from.

    Attributes:
        kind: the layer.
        where: the flag, the variable, ``path:line`` of the file, or ``default``.
    """

    kind: Literal["flag", "environment", "file", "default"]
    where: str

    def __str__(self) -> str:
        return self.where if self.kind == "default" else f"{self.kind} {self.where}"


class Flag(msgspec.Struct, frozen=True):
    """The value of a command-line flag, with the name it had there."""

    value: object
    name: str


@dataclass(frozen=True)
class Loaded(Generic[T_co]):
    """A configuration that holds.

    Attributes:
        value: the schema, filled in and checked.
        origins: dotted key (``transfer.parallel``, ``receiver[0].url``) -> where it comes from.
        warnings: one line each: what works, but should not stay as it is.
        stand_ins: dotted keys that nobody set and that have no default: what stands in for them is
            no value to be shown.
    """

    value: T_co
    origins: Mapping[str, Origin]
    warnings: tuple[str, ...] = ()
    stand_ins: frozenset[str] = frozenset()


class ConfigProblem(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    Attributes:
        where: file with line, variable or flag; empty where nothing was given.
        key: dotted key; empty where the file as a whole is meant.
        value: as it may be shown (secrets are hidden); None where there is none.
        expected: what would have been right.
    """

    where: str
    key: str
    value: str | None
    expected: str

    def __str__(self) -> str:
        setting = self.key if self.value is None else f"{self.key} = {self.value}"
        if self.where == f"--set {self.key}" and self.value is None:
            setting = ""  # it is named already
        return ": ".join(part for part in (self.where, setting, self.expected) if part)


def config_error(problems: Iterable[ConfigProblem]) -> ConfigError:
    """One error for all that is wrong: a line each, and `extra["problems"]` for machines."""
    found = tuple(problems)
    message = "\n".join(str(problem) for problem in found)
    return ConfigError(message, extra={"problems": [asdict(problem) for problem in found]})


class ConfigFinding(msgspec.Struct, frozen=True):
    """What a schema's own `CheckedTable.check` has found.

    Attributes:
        key: relative to the table that was checked, such as ``url`` or ``receiver[1].name``.
        text: what is expected, or what is unwise.
        fatal: False for a warning.
    """

    key: str
    text: str
    fatal: bool = True


@runtime_checkable
class CheckedTable(Protocol):
    """A table with rules that no single key can hold."""

    def check(self) -> Iterable[ConfigFinding]:
        """Yield what is wrong or unwise."""
        ...


class Secret:
    """A token that no log, traceback or message shows by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The token itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)
