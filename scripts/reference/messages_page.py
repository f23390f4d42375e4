"""docs/reference/messages.md: what the programs say of errors, by code, with the way out."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.errors import TsferryError
from scripts.reference.errors_page import classes
from scripts.reference.markdown_text import headed, prose

__all__ = [
    "HOLE",
    "messages",
    "own_ways_out",
    "says_itself",
    "text",
    "way_of",
    "ways_by_pattern",
    "ways_out",
    "whatever_the_message",
]

_ROOT = Path(__file__).resolve().parent.parent.parent
_ENDS = ("common", "sender", "receiver")
_WORDS = 2
"""Words of its own that a message has at least: what has fewer is what another one says."""
HOLE = "..."


def text() -> str:
    """The page, behind its head."""
    kinds = {each.slug: each for each in reversed([TsferryError, *classes()])}
    found = messages()
    ways = ways_out()
    parts = (_section(kinds[slug], ways[slug], found.get(slug, {})) for slug in sorted(kinds))
    return "\n\n".join(parts) + "\n"


@functools.cache
def _file() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "ways_out.toml").read_text(encoding="utf-8"))


def ways_out() -> dict[str, str]:
    """Code of an error -> what somebody does about it."""
    return {code: way["out"] for way in _file()["way"] for code in way["codes"]}


def own_ways_out() -> dict[str, str]:
    """Message -> what somebody does about it, of those that are named one by one."""
    return {said: each["out"] for each in _file()["message"] for said in each["says"]}


def ways_by_pattern() -> dict[str, list[tuple[str, str]]]:
    """Code -> patterns of its messages, each with what somebody does; the first one counts."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for each in _file()["of"]:
        found[each["code"]] += [(pattern, each["out"]) for pattern in each["like"]]
    return found


def whatever_the_message() -> frozenset[str]:
    """Codes with several messages and one way out."""
    return frozenset(_file()["whatever"])


def says_itself(said: str) -> bool:
    """Whether a message has its way out in itself."""
    return any(re.search(each, said) for each in _file()["says_itself"])


def way_of(code: str, said: str) -> str | None:
    """What is done about a message; None where it says that itself, or its code says all."""
    if said in own_ways_out():
        return own_ways_out()[said]
    if code in whatever_the_message() or says_itself(said):
        return None
    ways = ways_by_pattern().get(code, [])
    return next((out for pattern, out in ways if re.search(pattern, said)), None)


@functools.cache
def messages() -> dict[str, dict[str, set[str]]]:
    """Code of an error -> message, with `...` for what differs -> who says it."""
    slugs = _slugs()
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for end in _ENDS:
        for path in sorted((_ROOT / end).rglob("*.py")):
            for name, said in _raised(ast.parse(path.read_text(encoding="utf-8")), slugs):
                found[slugs[name]][said].add(end)
    return found


def _slugs() -> dict[str, str]:
    """Class -> its code; a class without one of its own has its parent's."""
    waiting, found = [TsferryError], dict[str, str]()
    classes()  # imports them all
    while waiting:
        kind = waiting.pop()
        found[kind.__name__] = kind.slug
        waiting += kind.__subclasses__()
    return found


def _raised(tree: ast.AST, known: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, call in _calls(tree):
        if name in known and call.args:
            said = _said(call.args[0])
            if said is not None and len(said.replace(HOLE, " ").split()) >= _WORDS:
                yield name, " ".join(said.split())


def _calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Calls of classes by their name, and of a parent's constructor in a class of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                if (
                    isinstance(inner, ast.Call)
                    and isinstance(inner.func, ast.Attribute)
                    and inner.func.attr == "__init__"
                ):
                    yield node.name, inner


def _said(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_said(each) or HOLE for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_said(node.left) or HOLE) + (_said(node.right) or HOLE)
    return None


def _section(kind: type[TsferryError], way: str, found: dict[str, set[str]]) -> str:
    # Those of the part that both ends have may be said by either.
    lines = [_line(kind.slug, said, found[said]) for said in sorted(found)]
    always = ", whatever the message" if kind.slug in whatever_the_message() else ""
    return headed(
        "##",
        f"`{kind.slug}`",
        prose(inspect.cleandoc(kind.__doc__ or "-").partition("\n\n")[0])
        + f" Exit code {kind.exit_code}, HTTP {kind.http_status}.",
        f"*Way out*{always}: {way}",
        "\n".join(lines),
    )


def _line(code: str, said: str, ends: set[str]) -> str:
    way = way_of(code, said)
    return f"- {_code(said)} ({_who(ends)})" + (f": {way}" if way else "")


def _who(ends: set[str]) -> str:
    return "both" if "common" in ends or len(ends) > 1 else next(iter(ends))


def _code(said: str) -> str:
    if "`" not in said:
        return f"`{said}`"
    return f"`` {said} ``"
