"""Writes docs/json.md: what commands write with --json, from the types that they write.

python scripts/json_page.py
"""

from __future__ import annotations

import dataclasses
import re
import sys
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.hooks.hook_showing import HooksView  # noqa: E402
from common.json_form import ISO, is_moment, is_wide  # noqa: E402
from receiver.operator import views, wire  # noqa: E402
from receiver.operator.background_views import BackgroundTasksPage  # noqa: E402
from receiver.operator.retired_views import RetiredPage  # noqa: E402
from receiver.operator.table_views import TablesPage, TableStanding, TabletsPage  # noqa: E402
from receiver.operator.tree_views import TreePage  # noqa: E402
from sender.round.look import ReceiverStanding  # noqa: E402

PAGE = ROOT / "docs" / "json.md"
COMMANDS: dict[str, type] = {
    "tsferry-receiver status": views.StatusView,
    "tsferry-receiver senders list": wire.SendersAnswer,
    "tsferry-receiver files": views.FilesPage,
    "tsferry-receiver owners list": views.OwnersPage,
    "tsferry-receiver quarantine list": wire.QuarantineAnswer,
    "tsferry-receiver retired list": RetiredPage,
    "tsferry-receiver lost list": wire.LostFilesAnswer,
    "tsferry-receiver deletes list": wire.HeldDeletesAnswer,
    "tsferry-receiver token list": wire.TokensAnswer,
    "tsferry-receiver storage status": views.StorageView,
    "tsferry-receiver tree": TreePage,
    "tsferry-receiver tables": TablesPage,
    "tsferry-receiver tables show": TableStanding,
    "tsferry-receiver tablets": TabletsPage,
    "tsferry-receiver tasks list": BackgroundTasksPage,
    "tsferry-receiver hooks list": HooksView,
    "tsferry-sender status": ReceiverStanding,
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


def _tables() -> str:
    parts, named = list[str](), set[type]()
    for command, kind in COMMANDS.items():
        parts.append(f"## {command}\n\n{members(kind)}")
    waiting = list(COMMANDS.values())
    later: list[type] = []
    while waiting:
        for found in inside(waiting.pop(0)):
            if found not in named and found not in COMMANDS.values():
                named.add(found)
                later.append(found)
                waiting.append(found)
    parts.append("## Parts\n")
    for found in sorted(later, key=lambda each: each.__name__):
        said = (found.__doc__ or "").strip().split("\n")[0]
        parts.append(f"### {found.__name__}\n\n{said}\n\n{members(found)}")
    return "\n".join(parts)


def members(kind: type, *, raw: bool = False) -> str:
    """The table of the members of a type, as commands write them; `raw`, as calls and hooks do."""
    lines = ["| member | type | is |", "|---|---|---|"]
    meanings = _meanings(kind)
    for name, hint in _fields(kind):
        said = meanings.get(name) or (
            _COUNTED if (name, hint) in _COUNTS else COMMON.get(name, "-")
        )
        shown = _shown(hint, raw)
        if not raw and is_moment(name) and "number" in shown.split(" or "):
            shown += f"; `{name}{ISO}`: text" + (" or null" if "null" in shown else "")
        lines.append(f"| `{name}` | {shown} | {said} |")
    return "\n".join(lines) + "\n"


def _fields(kind: type) -> Iterator[tuple[str, Any]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    if dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind)]
    else:
        names = [each.encode_name for each in msgspec.structs.fields(kind)]
    for name in names:
        yield name, hints[name]


def _meanings(kind: type) -> dict[str, str]:
    """What stands of each member in the docstring of a type or its base, or in the line below."""
    found: dict[str, str] = {}
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] in ("common", "receiver", "sender"):
            found = _own_meanings(each) | found
    return found


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


def inside(kind: type) -> Iterator[type]:
    """The types that have members of their own in those of a type."""
    waiting = [hint for _, hint in _fields(kind)]
    while waiting:
        hint = waiting.pop(0)
        if isinstance(hint, type) and (
            issubclass(hint, msgspec.Struct) or dataclasses.is_dataclass(hint)
        ):
            yield hint
        waiting += typing.get_args(hint)


def _shown(hint: Any, raw: bool) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if not raw and is_wide(hint):
        return "whole number as text" + (" or null" if type(None) in inner else "")
    if origin is typing.Annotated:
        return _shown(inner[0], raw)
    if origin in (typing.Union, types.UnionType):
        shown = [_shown(each, raw) for each in inner if each not in (type(None), msgspec.UnsetType)]
        shown += ["null"] if type(None) in inner else []
        return " or ".join(dict.fromkeys(shown))
    if origin in (list, tuple):
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
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    if dataclasses.is_dataclass(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return "any" if hint is Any else "text"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
