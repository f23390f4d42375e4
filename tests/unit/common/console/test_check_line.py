from __future__ import annotations

import errno

import pytest

from common.console.check_line import CheckLevel, CheckLine, run_check
from common.errors import UsageError


def test_where_nothing_is_wrong_the_line_says_what_is_there() -> None:
    line = CheckLine("3 edges")
    line.count("edges", 3)
    line.count("lost", 0, "file is lost", "files are lost", CheckLevel.CRITICAL)
    line.measure("free", 2.5e12, "B")
    line.measure("age", 1.5, "s")
    assert line.text() == (
        "TSFERRY OK - 3 edges | edges=3 lost=0;;0 free=2500000000000B age=1.500s"
    )
    assert line.level == 0


def test_the_worst_comes_first_and_decides() -> None:
    line = CheckLine("3 edges")
    line.count("late", 2, "edge is late", "edges are late", CheckLevel.WARNING)
    line.count("lost", 1, "file is lost", "files are lost", CheckLevel.CRITICAL)
    assert line.text() == (
        "TSFERRY CRITICAL - 1 file is lost; 2 edges are late | late=2;0 lost=1;;0"
    )
    assert line.level == 2


def test_nothing_from_outside_begins_the_figures_or_another_line() -> None:
    line = CheckLine("fine")
    line.say(CheckLevel.WARNING, "edge a|b=1\nOK")
    assert line.text().count("|") == 0
    assert "\n" not in line.text()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UsageError("a.toml:3: no such key\nb.toml: neither"), "no such key; b.toml: neither"),
        (PermissionError(errno.EACCES, "Permission denied", "/etc/x.toml"), "/etc/x.toml"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_a_check_that_does_not_come_through_says_so_in_its_one_line(
    error: Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def look() -> CheckLine:
        raise error

    assert run_check(look) == 3
    out = capsys.readouterr().out
    assert out.startswith("TSFERRY UNKNOWN - ")
    assert said in out
    assert out.count("\n") == 1
