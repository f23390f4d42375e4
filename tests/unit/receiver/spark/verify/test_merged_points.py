"""What a run knows of the points that readers get, and when it says that it does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from receiver.spark.report.results import Duplicates, Judgement
from receiver.spark.report.summary import summarise
from receiver.spark.report.summary_text import text
from receiver.spark.verify.verifying import merged_points
from tests.support import verifications

FILES = [verifications.file("sequence/a", points=100), verifications.file("unsequence/b", points=7)]


def both(points: int | None) -> Duplicates:
    return Duplicates("root.sg.d1", "s", "sequence/a", "unsequence/b", points, None, None)


def known(*duplicates: Duplicates, **changed: Any) -> int | None:
    said = {"overlapping": False, "unlooked": 0, "passed_over": 0, "is_hidden": False} | changed
    job = SimpleNamespace(
        duplicates=duplicates, overlapping=said["overlapping"], unlooked=said["unlooked"]
    )
    catalogue = SimpleNamespace(passed_over=said["passed_over"], is_hidden=said["is_hidden"])
    files = said.get("files", FILES)
    return merged_points(job, files, catalogue)  # type: ignore[arg-type]


def test_what_is_in_both_kinds_counts_once() -> None:
    assert known() == 107
    assert known(both(3), both(1)) == 103


@pytest.mark.parametrize(
    "changed",
    [
        {"overlapping": True},
        {"unlooked": 1},
        {"passed_over": 1},
        {"is_hidden": True},
        {"files": [*FILES, verifications.file("sequence/c", verdict=Judgement.UNPROVED)]},
    ],
)
def test_what_takes_more_than_was_read_is_not_known(changed: dict[str, Any]) -> None:
    assert known(**changed) is None


def test_what_was_not_counted_is_not_known() -> None:
    assert known(both(3), both(None)) is None


def test_the_text_says_it_where_it_is_known() -> None:
    run = verifications.run(FILES, merged_points=1_103)
    assert "1,103 points for readers" in text(summarise(run))
    assert "for readers" not in text(summarise(verifications.run(FILES)))
    assert summarise(run).merged_points == 1_103
