"""The page of other tools: no cell is empty, each link leads somewhere, our own column is held."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.support.architecture import ROOT

PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
SAID = "## What holds what is said of tsferry"


def tables(text: str) -> list[list[list[str]]]:
    """Its tables, each as rows of cells, the head first."""
    found: list[list[list[str]]] = []
    lines = text.splitlines()
    for before, line in pairwise(["", *lines]):
        if not line.startswith("|"):
            continue
        if not before.startswith("|"):
            found.append([])
        cells = [each.strip() for each in line.strip("|").split("|")]
        if set("".join(cells)) != {"-"}:
            found[-1].append(cells)
    return found


TOOLS, HELD = tables(PAGE.partition(SAID)[0]), tables(PAGE.partition(SAID)[2])
ROWS = [row for table in TOOLS for row in table[1:]]


def test_no_cell_is_empty() -> None:
    assert len(TOOLS) == 4
    for table in TOOLS:
        assert [row[0] for row in table if len(row) != 8 or not all(row[1:])] == []


def test_no_cell_leaves_open_what_a_tool_does() -> None:
    vague = re.compile("not (said|known|documented)|unknown|\\?")
    assert [row[0] for row in ROWS if any(vague.search(cell) for cell in row[1:])] == []


def test_what_is_said_of_another_tool_has_its_source() -> None:
    named = set(re.findall(r"\]\[([\w-]+)\]", PAGE))
    given = dict(re.findall(r"(?m)^\[([\w-]+)\]: (https://\S+)$", PAGE))
    assert named == set(given)


@pytest.mark.parametrize("row", [row[0] for row in HELD[0][1:]])
def test_what_is_said_of_tsferry_is_held_by_a_test_that_there_is(row: str) -> None:
    ((_, file, name),) = [each for each in HELD[0][1:] if each[0] == row]
    text = (ROOT / "tests" / file.strip("`")).read_text(encoding="utf-8")
    assert f"def {name.strip('`')}(" in text
    assert row in {each[0] for each in ROWS}


def test_each_row_in_which_tsferry_does_something_is_held() -> None:
    does = {row[0] for row in ROWS if not re.match(r"no\b(?!: (SQL|one receiver))", row[1])}
    assert does - {row[0] for row in HELD[0]} == {"runs on"}
