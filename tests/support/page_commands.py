"""Commands that stand on pages outside of the manual: one by one, as they would be typed there.

The manual's pages are followed from top to bottom (`manual_text`). What stands on the others are
commands by themselves, in blocks without a language or of a shell's, with or without a prompt, and
perhaps a word behind `#`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PageCommand", "commands_of"]

_KINDS = ("", "sh", "bash", "console")
_FENCE = re.compile(r" *```(?P<kind>\w*)")
_LINE = re.compile(r"(?:[$#] )?(?:sudo -u \w+ )?(?P<typed>tsferry-(?:receiver|sender|verify) \S.*)")
_SAID = re.compile(r"\s+# .*")


@dataclass(frozen=True)
class PageCommand:
    """A command of a page."""

    page: str
    line: int
    typed: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.typed}"


def commands_of(page: Path) -> Iterator[PageCommand]:
    """The commands of a page, in its order."""
    kind: str | None = None  # of the block that a line is in
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    for number, line in lines:
        if fence := _FENCE.match(line):
            kind = fence["kind"] if kind is None else None
        elif kind in _KINDS and (found := _LINE.fullmatch(line.strip())):
            typed = found["typed"]
            while typed.endswith("\\"):
                typed = f"{typed[:-1].rstrip()} {next(lines)[1].strip()}"
            yield PageCommand(page.name, number, _SAID.sub("", typed))
