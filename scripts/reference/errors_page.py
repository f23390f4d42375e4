"""docs/reference/errors.md: exit codes, the tree of errors, and what becomes of paths."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from common.console.cli import Program
from common.errors import Integrity, Permanent, Transient, TsferryError
from common.wire import Result
from scripts.reference.commands_page import PROGRAMS
from scripts.reference.markdown_text import code, headed, prose, table

__all__ = ["classes", "exit_codes", "text"]

_ROOT = Path(__file__).resolve().parent.parent.parent
_PACKAGES = ("common", "sender", "receiver")
_CLASS = re.compile(r"^class (\w+)\((.+)\):$", re.MULTILINE)
_BRANCHES: tuple[tuple[type[TsferryError], str], ...] = (
    (Permanent, "The same call will fail again until somebody changes something."),
    (Transient, "The same call may succeed later; both ends try again by themselves."),
    (Integrity, "Bytes are not what they should be; they have to be sent afresh."),
)


def text() -> str:
    """The page, behind its head."""
    return "\n\n".join([exit_codes(), _tree(), _results()]) + "\n"


def exit_codes() -> str:
    """The exit codes of all programs, in one table."""
    programs = [program for program, _ in PROGRAMS]
    numbers = sorted({number for program in programs for number in program.exit_codes})
    rows = [
        (str(number), *(prose(each.exit_codes.get(number, "-")) for each in programs))
        for number in numbers
    ]
    heads = ("code", *(code(each.name) for each in programs))
    return headed("##", "Exit codes", table(heads, rows), *map(_order, programs))


def _order(program: Program) -> str:
    if not program.first_codes:
        return ""
    order = ", ".join(map(str, program.first_codes))
    return f"Where several apply to {code(program.name)}, the first of {order} is the one."


def classes() -> list[type[TsferryError]]:
    """Every class of error that has a name of its own for the other side, below the root."""
    _import_all()
    return [each for each in _below(TsferryError) if "slug" in vars(each)]


def _below(root: type[TsferryError]) -> Iterator[type[TsferryError]]:
    for each in root.__subclasses__():
        if each.__module__.partition(".")[0] in _PACKAGES:
            yield each
            yield from _below(each)


def _import_all() -> None:
    """Import each module that defines a class of the tree: others are found by the text alone."""
    places, parents = dict[str, str](), defaultdict[str, set[str]](set)
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            for name, bases in _CLASS.findall(path.read_text(encoding="utf-8")):
                places[name] = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
                for base in re.findall(r"\w+", bases):
                    parents[base].add(name)
    waiting = [TsferryError.__name__]
    while waiting:
        for name in parents[waiting.pop()]:
            importlib.import_module(places[name])
            waiting.append(name)


def _tree() -> str:
    found = dict.fromkeys(classes())
    parts = [
        headed("###", f"{branch.__name__} errors", said, _table(branch, found))
        for branch, said in _BRANCHES
    ]
    return headed("##", "Errors", *parts)


def _table(branch: type[TsferryError], found: dict[type[TsferryError], None]) -> str:
    kinds = {each.slug: each for each in reversed(found) if issubclass(each, branch)}
    rows = [
        (
            code(slug),
            str(kind.http_status),
            str(kind.exit_code),
            code(kind.__name__),
            prose(inspect.cleandoc(kind.__doc__ or "-").partition("\n\n")[0]),
        )
        for slug, kind in sorted(kinds.items(), key=lambda each: (_place(each[1]), each[0]))
    ]
    return table(("code", "HTTP", "exit", "class", "is"), rows)


def _place(kind: type[TsferryError]) -> int:
    return ("common", "sender", "receiver").index(kind.__module__.partition(".")[0])


def _results() -> str:
    said = _comments(Result)
    rows = [(code(each.value), prose(said[each.name])) for each in Result]
    return headed(
        "##",
        "What becomes of a path",
        "A task tells of each of its paths one of these, in its outcomes (`sync --json`, "
        "`GET /sync/v1/tasks/{task}`).",
        table(("result", "is"), rows),
    )


def _comments(kind: type) -> dict[str, str]:
    """The text below each member."""
    found = re.findall(r'    (\w+) = [^\n]*\n    """((?s:.*?))"""', inspect.getsource(kind))
    return {name: " ".join(said.split()) for name, said in found}
