"""Pages of the manual, cut into what somebody who follows them does, in its order.

A page is for people; a test does as it says. Its blocks:

* ``console``: transcripts. `centre$ command` is typed at the machine `centre` (`#`: as root), a
  line that ends with a backslash goes on in the next one, and what stands below is what the command
  says, as far as it is shown: sizes, times and ids count as equal, `...` is anything.
* any behind `<!-- in: MACHINE FILE -->`: keys that an editor sets in a file (toml), or all of it.

Comments of HTML, which readers do not see, say the rest of the block below them:

* `<!-- not run: REASON -->`: no test can do this; why.
* `<!-- exit: 3 -->`: the exit code of its commands.
* `<!-- until -->`: its commands are said again until they say what is shown.
* `<!-- happens: WHAT -->` is no block's: something that the world does, such as a machine's loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Command", "Edit", "Event", "NotRun", "Step", "steps_of"]

_TYPED = ("console", "sh", "bash", "")
"""Kinds of blocks that somebody would type."""
_PROMPT = re.compile(r"(?P<machine>[a-z][a-z0-9-]*)[$#] (?P<typed>.+)")
_FENCE = re.compile(r"```(?P<kind>\w*)")
_COMMENT = re.compile(r"<!-- (?P<name>not run|exit|until|happens|in)(?:: (?P<value>.*?))? -->")


@dataclass(frozen=True)
class Command:
    """Something that is typed; `shown` are lines that it says."""

    line: int
    machine: str
    typed: str
    shown: tuple[str, ...]
    code: int = 0
    again: bool = False
    """Whether it is said again until it says what is shown."""


@dataclass(frozen=True)
class Edit:
    """A file that is written, or keys of one that are set (`kind` toml)."""

    line: int
    machine: str
    file: str
    kind: str
    text: str


@dataclass(frozen=True)
class Event:
    """What happens, and nobody types."""

    line: int
    what: str


@dataclass(frozen=True)
class NotRun:
    """A block that cannot be run, and why."""

    line: int
    reason: str
    text: str


Step = Command | Edit | Event | NotRun


@dataclass
class _Said:
    """What comments have said of the next block."""

    values: dict[str, str] = field(default_factory=dict)

    def take(self) -> dict[str, str]:
        taken, self.values = self.values, {}
        return taken


def steps_of(page: Path) -> list[Step]:
    """What a page has somebody do.

    Raises:
        ValueError: a block that is neither run nor has a reason, or a comment that belongs to none.
    """
    found: list[Step] = []
    said = _Said()
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    for number, line in lines:
        if comment := _COMMENT.fullmatch(line.strip()):
            if comment["name"] == "happens":
                found.append(Event(number, comment["value"]))
            else:
                said.values[comment["name"]] = comment["value"] or ""
        elif fence := _FENCE.match(line):
            block = list(_until_fence(lines))
            found += _steps(page, number, fence["kind"], block, said.take())
        elif said.values and line.strip():
            raise ValueError(f"{page.name}:{number}: a comment that belongs to no block")
    return found


def _until_fence(lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    for _, line in lines:
        if line.startswith("```"):
            return
        yield line


def _steps(
    page: Path, number: int, kind: str, block: list[str], said: dict[str, str]
) -> Iterator[Step]:
    text = "\n".join(block) + "\n"
    if reason := said.get("not run"):
        yield NotRun(number, reason, text)
    elif kind == "console":
        yield from _commands(page, number, block, said)
    elif place := said.get("in"):
        machine, file = place.split(" ", 1)
        yield Edit(number, machine, file, kind, text)
    elif kind in _TYPED:
        raise ValueError(f"{page.name}:{number}: a block of kind {kind!r} that is not run: say why")


def _commands(page: Path, number: int, block: list[str], said: dict[str, str]) -> Iterator[Command]:
    at, rest = 0, block[:]
    while rest:
        line = rest.pop(0)
        at += 1
        found = _PROMPT.fullmatch(line)
        if not found:
            raise ValueError(f"{page.name}:{number + at}: neither a prompt nor behind one: {line}")
        begin, typed = number + at, found["typed"]
        while typed.endswith("\\"):
            typed = typed[:-1].rstrip() + " " + rest.pop(0).strip()
            at += 1
        shown: list[str] = []
        while rest and not _PROMPT.fullmatch(rest[0]):
            shown.append(rest.pop(0))
            at += 1
        yield Command(
            begin, found["machine"], typed, tuple(shown), int(said.get("exit", 0)), "until" in said
        )
