"""`status --check`: one line as monitoring plugins have it (Nagios, Icinga, Checkmk, Sensu).

`TSFERRY WARNING - 1 of 3 edges is late | edges=3 late=1;0 ...`, with exit code 0 (OK), 1 (WARNING)
or 2 (CRITICAL); what cannot be found out is critical. Behind the bar stand figures for graphs:
`name=value[unit][;warn[;critical]]`, where a value above a limit is what is warned of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from common.terminal import printable

__all__ = ["CheckLevel", "CheckLine"]


class CheckLevel(IntEnum):
    """How bad it is: the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


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

    def count(self, name: str, value: int, text: str = "", level: CheckLevel | None = None) -> None:
        """A number of things; more than none is wrong, where a level says how bad that is.

        Args:
            name: of the figure.
            value: the number.
            text: what is said of it, behind the number.
            level: how bad it is; None for a figure that is never wrong.
        """
        limits = {CheckLevel.WARNING: ";0", CheckLevel.CRITICAL: ";;0"}
        self.figures.append(f"{name}={value}{limits.get(level or CheckLevel.OK, '')}")
        if level is not None and value > 0:
            self.say(level, f"{value} {text}")

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
