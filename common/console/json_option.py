"""The option `--json` of a command, which says what is written: `docs/json.md` is made of it.

A form is named by its type, or, where a command imports that only when it runs, by
`module:Name`. A test holds that each command with `--json` has one, and that what it writes is
that.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import click

__all__ = ["FormShape", "JsonForm", "JsonOption", "OpenForm", "json_option"]

F = TypeVar("F", bound=Callable[..., Any])
FormShape = Literal["object", "list", "lines", "by receiver"]
"""`by receiver`: the object of one receiver; of several `receivers` (name: object) and
`exit_code`."""


class OpenForm:
    """An object whose members depend on what was asked for; its docstring says which they are.

    Attributes:
        member: type of each.
    """

    member: Any = Any


@dataclass(frozen=True)
class JsonForm:
    """What a command writes.

    Attributes:
        of: the type of an object, or where it is (`module:Name`).
        when: the command writes this; empty for always, or for all other cases.
        shape: how many there are of it.
    """

    of: type | str
    when: str = ""
    shape: FormShape = "object"

    @property
    def kind(self) -> type:
        """The type.

        Raises:
            AttributeError, ImportError: there is none of that name.
        """
        found: type = pkgutil.resolve_name(self.of) if isinstance(self.of, str) else self.of
        return found


class JsonOption(click.Option):
    """`--json` or `--jsonl`, with what is written.

    Attributes:
        forms: of it.
    """

    forms: tuple[JsonForm, ...] = ()


def json_option(
    *forms: type | str | JsonForm,
    name: str = "as_json",
    text: str = "Write JSON.",
    flag: str = "--json",
    **more: Any,
) -> Callable[[F], F]:
    """The option, for a command that writes one of these forms.

    Args:
        forms: the first is that of most calls.
        name: of the command's argument.
        text: of the help.
        flag: what is typed; `--jsonl` of a command that has both.
        more: of `click.option`, in place of a flag.
    """

    class Declared(JsonOption):
        pass

    Declared.forms = tuple(each if isinstance(each, JsonForm) else JsonForm(each) for each in forms)
    return click.option(flag, name, cls=Declared, **(more or {"is_flag": True}), help=text)
