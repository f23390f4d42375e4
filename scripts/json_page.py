"""Writes docs/json.md: what commands write with --json, from the types that they say they write.

python scripts/json_page.py
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.console.json_form import (  # noqa: E402
    ISO,
    LISTS,
    are_numbers,
    is_moment,
    is_record,
    is_wide,
    member_types,
)
from common.console.json_option import JsonForm, JsonOption, OpenForm  # noqa: E402
from receiver.cli.commands import cli as receiver_cli  # noqa: E402
from receiver.spark.verify.cli import cli as verify_cli  # noqa: E402
from sender.cli.commands import cli as sender_cli  # noqa: E402

PAGE = ROOT / "docs" / "json.md"
PROGRAMS: dict[str, click.Command] = {
    "tsferry-receiver": receiver_cli,
    "tsferry-sender": sender_cli,
    "tsferry-verify": verify_cli,
}
COMMON = {
    "commit": "commit timestamp.",
    "created": "commit timestamp of when it was made.",
    "created_at": "when that was.",
    "data_dir": "data directory that it lies in.",
    "device": "name of the device that this is about.",
    "devices": "each of them.",
    "engine": "uuid of the metadata engine.",
    "entries": "each of them.",
    "epoch": "of the sender, as it is committed (see Epochs in the protocol).",
    "expires": "when it ends; null for never.",
    "failed": "those that could not be, with the reason.",
    "files": "each of them.",
    "first": "first time of the data, in its unit.",
    "first_time": "first time of the data, in its unit.",
    "form": "of the deletion file: `mods` or `mods2`.",
    "id": "by which other calls name it.",
    "kind": "what it is.",
    "label": "what the edge calls itself.",
    "last": "last time of the data, in its unit.",
    "last_time": "last time of the data, in its unit.",
    "md5": "of the content, 32 hex digits.",
    "name": "as people call it.",
    "newest_commit": "newest commit timestamp.",
    "next": "`after` of the next page; null or empty on the last.",
    "note": "what was written beside it when it was made.",
    "op": "which record it is.",
    "offset": "bytes of it that are here for good.",
    "path": "of the file, below the data directory of its edge.",
    "paths": "of files, below the data directory of their edge.",
    "physical": "name of the file at the centre, below its data directory.",
    "physicals": "names of files at the centre, below their data directory.",
    "reason": "why, in words.",
    "resource": "its `.resource`: size and MD5; null for none.",
    "role": "of the token.",
    "scope": "patterns of the devices that it is for; empty for all.",
    "sender": "uuid of the sender.",
    "senders": "each of them.",
    "size": "bytes.",
    "task": "id of the task.",
    "version": "of the program.",
    "wanted": "files that are to be sent again, with the reason.",
}
"""What members of these names are where their type says nothing of its own."""
_COUNTS = {(name, int) for name in ("devices", "entries", "files", "senders")}
_COUNTED = "how many."
_MARK = "<!-- made by python scripts/json_page.py -->\n"
_MEMBER = re.compile(r"        (\w+): (.*(?:\n {12}.*)*)")


def written(page: str) -> str:
    """The page with its tables as they should be; what stands before the mark stays.

    Raises:
        ValueError: it has no mark.
    """
    head, mark, _ = page.partition(_MARK)
    if not mark:
        raise ValueError("the page does not say where its tables begin")
    return head + mark + "\n" + _tables()


def json_options() -> dict[str, click.Option]:
    """The option `--json` of each command that has one, by the command's words.

    Likewise `--jsonl`, which its words end with.
    """
    found = {}
    for program, top in PROGRAMS.items():
        for words, command in _below(program, top):
            for each in command.params:
                if isinstance(each, click.Option) and "--json" in each.opts:
                    found[words] = each
                elif isinstance(each, click.Option) and "--jsonl" in each.opts:
                    found[f"{words} --jsonl"] = each
    return found


def _below(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _below(f"{words} {name}", below)


def forms(option: click.Option) -> tuple[JsonForm, ...]:
    """What is written with an option `--json`.

    Raises:
        ValueError: it does not say.
    """
    if not isinstance(option, JsonOption) or not option.forms:
        raise ValueError("a command with --json says what it writes: common.console.json_option")
    return option.forms


def _tables() -> str:
    by_forms: dict[tuple[JsonForm, ...], list[str]] = {}
    for command, option in json_options().items():
        by_forms.setdefault(forms(option), []).append(command)
    kinds = [each.kind for several in by_forms for each in several]
    shared = {each for each in kinds if kinds.count(each) > 1 and each is not str}
    parts = [_command(words, several, shared) for several, words in by_forms.items()]
    named = dict.fromkeys(sorted(shared, key=lambda each: each.__name__))
    waiting = list(dict.fromkeys(kinds))
    while waiting:
        for found in inside(waiting.pop(0)):
            if found not in named:
                named[found] = None
                waiting.append(found)
    parts.append("## Parts\n")
    for found in sorted(named, key=lambda each: each.__name__):
        parts.append(f"### {found.__name__}\n\n{_headline(found)}\n\n{members(found)}")
    return "\n".join(parts)


def _command(words: list[str], several: tuple[JsonForm, ...], shared: set[type]) -> str:
    """The part of commands that write the same; what others write too stands among the parts."""
    lines = [f"## {', '.join(words)}\n"]
    for form in several:
        when = f"{form.when[0].upper()}{form.when[1:]}: " if form.when else ""
        kind = form.kind
        if issubclass(kind, OpenForm) or kind is str:
            said = "text" if kind is str else f"{_whole(kind)}{_of_each(kind)}"
            lines.append(f"{when}{_SHAPES[form.shape]}{said}\n")
        elif kind in shared:
            lines.append(f"{when}{_SHAPES[form.shape]}{_shown(kind, False)}\n")
        elif form.shape == "lines":
            lines.append(f"{when or 'An object a line.'}\n\n{members(kind)}")
        elif when or form.shape != "object":
            lines.append(f"{when}{_SHAPES[form.shape]}an object\n\n{members(kind)}")
        else:
            lines.append(members(kind))
    return "\n".join(lines)


_SHAPES = {
    "object": "",
    "list": "a list; each is ",
    "lines": "an object a line. ",
    "by receiver": "of one receiver; of several `receivers` (an object of these by name) and "
    "`exit_code`: ",
}


def _of_each(kind: type[OpenForm]) -> str:
    return "" if kind.member is Any else f" Each is {_shown(kind.member, False)}."


def _headline(kind: type) -> str:
    return (kind.__doc__ or "").strip().split("\n")[0]


def _whole(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def members(kind: type, *, raw: bool = False) -> str:
    """The table of the members of a type, as commands write them; `raw`, as calls and hooks do."""
    lines = ["| member | type | is |", "|---|---|---|"]
    meanings = _meanings(kind)
    for name, hint in member_types(kind).items():
        said = meanings.get(name) or (
            _COUNTED if (name, hint) in _COUNTS else COMMON.get(name, "-")
        )
        shown = _shown(hint, raw)
        if not raw and is_moment(name) and "number" in shown.split(" or "):
            shown += f"; `{name}{ISO}`: text" + (" or null" if "null" in shown else "")
        lines.append(f"| `{name}` | {shown} | {said} |")
    return "\n".join(lines) + "\n"


def _meanings(kind: type) -> dict[str, str]:
    """What stands of each member in the docstring of a type or its base, or in the line below."""
    found: dict[str, str] = {}
    for each in _kinds_of(kind):
        if each.__module__.partition(".")[0] in ("common", "receiver", "sender"):
            found = _own_meanings(each) | found
    return found


def _kinds_of(kind: type) -> Iterator[type]:
    """A type and its bases; those of a TypedDict stand in the source alone (before Python 3.12)."""
    if not typing.is_typeddict(kind):
        yield from kind.__mro__
        return
    yield kind
    (base,) = re.findall(r"class \w+\((\w+)", _source(kind))
    if base != "TypedDict":
        yield from _kinds_of(getattr(sys.modules[kind.__module__], base))


def _own_meanings(kind: type) -> dict[str, str]:
    _, _, listed = (kind.__doc__ or "").partition("Attributes:\n")
    found = {
        match[1]: " ".join(match[2].split())
        for match in _MEMBER.finditer("\n".join(f"    {line}" for line in _dedented(listed)))
    }
    below = r"    (\w+): [^\n]*\n    \"\"\"((?s:.*?))\"\"\""
    for match in re.finditer(below, _source(kind)):
        found.setdefault(match[1], " ".join(match[2].split()))
    return {name: text.replace("|", "\\|") for name, text in found.items()}


def _dedented(text: str) -> list[str]:
    lines = text.split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [" " * 4 + line[indent:] for line in lines]


def _source(kind: type) -> str:
    import inspect

    return inspect.getsource(kind)


def _open_or_members(kind: type) -> Iterable[Any]:
    if issubclass(kind, OpenForm):
        return (kind.member,)
    return () if kind is str else member_types(kind).values()


def is_object(hint: Any) -> bool:
    """Whether values of a type have members of their own."""
    is_struct = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
    return is_struct or is_record(hint) or typing.is_typeddict(hint)


def inside(kind: type) -> Iterator[type]:
    """The types that have members of their own in those of a type."""
    waiting = list(_open_or_members(kind))
    while waiting:
        hint = waiting.pop(0)
        if is_object(hint):
            yield hint
        waiting += typing.get_args(hint)


def _shown(hint: Any, raw: bool) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if not raw and is_wide(hint):
        return "whole number as text" + (" or null" if type(None) in inner else "")
    if not raw and are_numbers(hint):
        return "list of number"
    if origin is typing.Annotated:
        return _shown(inner[0], raw)
    if origin in (typing.Union, types.UnionType):
        shown = [_shown(each, raw) for each in inner if each not in (type(None), msgspec.UnsetType)]
        shown += ["null"] if type(None) in inner else []
        return " or ".join(dict.fromkeys(shown))
    if origin in LISTS:
        return f"list of {_shown(inner[0], raw)}"
    if origin is dict:
        return f"object of {_shown(inner[1], raw)}"
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return " or ".join(f"`{each.value}`" for each in hint)
    if origin is typing.Literal:
        return " or ".join(f"`{each}`" for each in inner)
    simple = {str: "text", int: "number", float: "number", bool: "true or false"}
    if hint in simple:
        return simple[hint]
    if is_object(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return "any" if hint is Any else "text"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
