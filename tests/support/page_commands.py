"""Commands that stand on pages outside of the manual: one by one, as they would be typed there.

The manual's pages are followed from top to bottom (`manual_text`). What stands on the others are
commands by themselves, in blocks without a language or of a shell's, with or without a prompt, and
perhaps a word behind `#`. Behind a prompt stands what the command prints, as it was once: numbers,
sizes, paths and names differ, words, their order and the form of times do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PageCommand", "commands_of", "differing"]

_KINDS = ("", "sh", "bash", "console")
_FENCE = re.compile(r" *```(?P<kind>\w*)")
_LINE = re.compile(r"(?:[$#] )?(?:sudo -u \w+ )?(?P<typed>tsferry-(?:receiver|sender|verify) \S.*)")
_SAID = re.compile(r"\s+# .*")
_PROMPT = re.compile(r"[$#] .*")
_DIFFERS = re.compile(
    r"(?P<any>\.\.\.)|(?P<time>\d{4}-\d\d-\d\d[T ][\d:.+]+)|[\d.,]+ [KMGT]?i?B\b"
    r"|[a-z0-9]*://[^\s,;]+|/[^\s:,;]+|\broot(?:\.\w+)*(?:/\d+)*|[^\s=,;:/(]*\d[^\s=,;:)]*"
)
"""What is another one each time: sizes, times, addresses, paths, names, and words with a digit."""


@dataclass(frozen=True)
class PageCommand:
    """A command of a page."""

    page: str
    line: int
    typed: str
    shown: tuple[str, ...] = ()
    """Lines that it prints, where the page shows some."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.typed}"


def commands_of(page: Path) -> Iterator[PageCommand]:
    """The commands of a page, in its order."""
    kind: str | None = None  # of the block that a line is in
    whole = page.read_text(encoding="utf-8").splitlines()
    lines = enumerate(whole, 1)
    for number, line in lines:
        if fence := _FENCE.match(line):
            kind = fence["kind"] if kind is None else None
        elif kind in _KINDS and (found := _LINE.fullmatch(line.strip())):
            typed, end = found["typed"], number
            while typed.endswith("\\"):
                end, more = next(lines)
                typed = f"{typed[:-1].rstrip()} {more.strip()}"
            shown = tuple(_printed(whole[end:])) if _PROMPT.fullmatch(line.strip()) else ()
            yield PageCommand(page.name, number, _SAID.sub("", typed), shown)


def _printed(behind: list[str]) -> Iterator[str]:
    """What a command prints, of the lines behind it."""
    for line in behind:
        if _FENCE.match(line) or _PROMPT.fullmatch(line.strip()):
            return
        if line.strip():
            yield line.strip()


def differing(shown: Sequence[str], output: str) -> list[str]:
    """Lines of a page that a command does not print in this order, and those that it has beside.

    The latter with a plus sign before them; none where the page has only parts of it (`...`), or
    shows nothing.
    """
    printed = [each.strip() for each in output.splitlines() if each.strip()]
    at, missing, more = 0, list[str](), list[str]()
    for line in shown:
        pattern = _pattern(line)
        found = next((n for n in range(at, len(printed)) if pattern.fullmatch(printed[n])), None)
        if found is None:
            missing.append(line)
        else:
            more += printed[at:found]
            at = found + 1
    if any(each.endswith("...") for each in shown) or not shown:
        return missing
    return missing + [f"+ {each}" for each in [*more, *printed[at:]]]


def _pattern(line: str) -> re.Pattern[str]:
    """What is printed in the place of a line: its words, with anything where they differ."""
    parts, at = [], 0
    for found in _DIFFERS.finditer(line):
        if found["time"]:
            value = re.sub(r"\d", r"\\d", re.escape(found["time"]))
        else:
            value = ".*" if found["any"] else ".+?"
        parts += [_words(line[at : found.start()]), value]
        at = found.end()
    return re.compile("".join([*parts, _words(line[at:])]))


def _words(text: str) -> str:
    """Words, however far from each other: columns are as wide as what stands in them.

    What is counted by a number that differs may be one, or more.
    """
    noun = re.match(r" [a-z]{3,}?(?=s?(?:[ ,;:)]|$))", text)
    behind = text[noun.end() :].removeprefix("s") if noun else text
    begin = f"{re.escape(noun[0])}s?" if noun else ""
    return re.sub(r"(?:\\ )+", r"\\s+", begin + re.escape(behind))
