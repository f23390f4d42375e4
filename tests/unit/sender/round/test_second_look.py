"""What is to be told as gone is looked for once more, just before it is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from common.durable import Tree
from sender.kept.seen_looks.looks import EdgeLook, Looks
from sender.plan.additions import Addition
from sender.plan.task_plan import TaskPlan, ToldDeletion
from sender.round.round_words.round_report import RoundReport
from sender.round.second_look import SecondLook
from tests.support.site import Site, path

P, Q, PRODUCT = path(), path("2-1-0.tsfile"), path("1-1-1.tsfile")
OTHER = path(partition=7)


@dataclass
class Source:
    site: Site
    asked: set | None = None

    def look_again(self, groups, entries):
        self.asked = set(groups)
        return self.site.scanner.scan(self.site.dirs, (entries,), only=groups)


@pytest.fixture
def second(tmp_path: Path) -> SecondLook:
    """P and a file of another partition are listed and gone, a product took the place of P."""
    site = Site(tmp_path)
    for each in (P, Q, OTHER):
        site.put(each)
    entries = {each: site.entry(file) for each, file in site.scan().files.items()}
    looks = Looks.open(Tree(site.schema_dir), "centre")
    looks.record(looks.take(1, site.scan(entries), entries))
    for each in (P, OTHER):
        site.remove(each)
    site.put(PRODUCT)
    look: EdgeLook = looks.take(2, site.scan(entries), entries)
    return SecondLook(Source(site), look, entries, RoundReport("centre"))  # type: ignore[arg-type]


def plan(second: SecondLook) -> TaskPlan:
    files = second.look.scan.files
    home = second.source.site.data_dirs[0]  # type: ignore[union-attr]
    return TaskPlan((Addition(files[PRODUCT]),), (ToldDeletion(P, home), ToldDeletion(OTHER, home)))


def test_what_is_gone_still_is_told(second: SecondLook) -> None:
    assert second.confirmed(plan(second)) == plan(second)
    assert second.source.asked == {P.group, OTHER.group}  # type: ignore[union-attr]
    assert second.report.held == []


def test_what_is_there_again_is_not_told(second: SecondLook) -> None:
    second.source.site.put(P)  # type: ignore[union-attr]
    left = second.confirmed(plan(second))
    assert [each.path for each in left.deletions] == [OTHER]
    assert left.additions == ()  # the product goes with the ends
    (held,) = second.report.held
    assert held.file == P.text
    assert "second look" in held.reason


def test_what_cannot_be_looked_at_is_not_told(second: SecondLook, tmp_path: Path) -> None:
    directory = second.source.site.data_dirs[0] / "sequence" / "root.a"  # type: ignore[union-attr]
    directory.rename(tmp_path / "elsewhere")
    directory.symlink_to(tmp_path / "elsewhere")
    assert second.confirmed(plan(second)) == TaskPlan()


def test_a_task_without_ends_is_not_looked_at_again(second: SecondLook) -> None:
    alone = TaskPlan(plan(second).additions)
    assert second.confirmed(alone) is alone
    assert second.source.asked is None  # type: ignore[union-attr]
