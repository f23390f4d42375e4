"""`status --check`: one line as monitoring plugins have it (Nagios, Icinga, Checkmk, Sensu).

`TSFERRY WARNING - 1 of 3 edges is late | edges=3 late=1;0 ...`, with exit code 0 (OK), 1 (WARNING)
or 2 (CRITICAL). Where the check itself does not come through, as with a wrong configuration, it is
3 (UNKNOWN) and says why: of a plugin the first line of standard output is all that is read. Behind
the bar stand figures for graphs:
`name=value[unit][;warn[;critical]]`, where a value above a limit is what is warned of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import click

from common.console.terminal import counted, printable
from common.errors import TsferryError
from common.system_errors import impossible_place, system_error

__all__ = ["CheckLevel", "CheckLine", "run_check"]


class CheckLevel(IntEnum):
    """How bad it is: the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass
class CheckLine:
    """What is found, the worst first.

    Attributes:
        fine: what is said where nothing is wrong.
        found: what is wrong.
        figures: as they stand behind the bar.
    """

    fine: str
    found: list[tuple[CheckLevel, str]] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)

    def say(self, level: CheckLevel, text: str) -> None:
        """Something is wrong."""
        self.found.append((level, text))

    def count(
        self,
        name: str,
        value: int,
        one: str = "",
        many: str = "",
        level: CheckLevel | None = None,
    ) -> None:
        """A number of things; more than none is wrong, where a level says how bad that is.

        Args:
            name: of the figure.
            value: the number.
            one: what is said of a single one, behind the number.
            many: and of more.
            level: how bad it is; None for a figure that is never wrong.
        """
        limits = {CheckLevel.WARNING: ";0", CheckLevel.CRITICAL: ";;0"}
        self.figures.append(f"{name}={value}{limits.get(level or CheckLevel.OK, '')}")
        if level is not None and value > 0:
            self.say(level, counted(value, one, many))

    def measure(self, name: str, value: float, unit: str) -> None:
        """A figure with a unit: `B` for bytes, `s` for seconds."""
        shown = f"{value:.0f}" if unit == "B" else f"{value:.3f}"
        self.figures.append(f"{name}={shown}{unit}")

    @property
    def level(self) -> CheckLevel:
        """The worst of what was found."""
        return max((level for level, _ in self.found), default=CheckLevel.OK)

    def text(self) -> str:
        """The line; a bar in a text would begin the figures."""
        worst_first = sorted(self.found, key=lambda each: -each[0])
        said = "; ".join(text for _, text in worst_first) or self.fine
        line = f"TSFERRY {self.level.name} - {printable(said).replace('|', '/')}"
        return f"{line} | {' '.join(self.figures)}" if self.figures else line


def run_check(look: Callable[[], CheckLine]) -> int:
    """Write the line of a check to standard output; its exit code.

    Args:
        look: finds out how things stand; whatever it raises makes the line UNKNOWN.
    """
    try:
        line = look()
    except Exception as error:  # a plugin that writes no line says nothing to anybody
        line = CheckLine("")
        line.say(CheckLevel.UNKNOWN, "; ".join(_reason(error).splitlines()))
    click.echo(line.text())
    return int(line.level)


def _reason(error: Exception) -> str:
    if isinstance(error, TsferryError):
        return error.message
    known = None
    if isinstance(error, OSError):
        known = system_error(error) or impossible_place(error)
    return f"{type(error).__name__}: {error}" if known is None else known.message
