from __future__ import annotations

from pathlib import Path

import pytest

from common.durable import Tree
from sender.kept.handed import Handed

B, C = "b" * 32, "c" * 32


@pytest.fixture
def sync(tmp_path: Path):
    with Tree(tmp_path) as tree:
        yield tree


def reopened(sync: Tree) -> Handed:
    return Handed.open(sync, "up_1")


def test_names_and_the_mark_are_read_again(sync: Tree) -> None:
    handed = reopened(sync)
    handed.add(B, ["one", "two"])
    assert [reopened(sync).has(B, name) for name in ("one", "two", "three")] == [True, True, False]
    reopened(sync).settle(B, 7, ["two"])
    again = reopened(sync)
    assert (again.mark, again.has(B, "two"), again.has(B, "one")) == (7, True, False)
    assert [again.has(B, "anything", changed) for changed in (7, 8, 0)] == [True, False, False]


def test_commits_of_another_engine_mean_nothing(sync: Tree) -> None:
    handed = reopened(sync)
    handed.add(B, ["one"])
    handed.settle(B, 7, ["one"])
    assert not handed.has(C, "one", 1)
    handed.add(C, [])
    assert handed.mark == 7, "nothing was told"
    handed.add(C, ["one"])
    assert (handed.mark, handed.has(C, "one"), handed.has(B, "one")) == (0, True, False)


def test_a_receiver_with_another_past_is_told_all_again(sync: Tree) -> None:
    handed = reopened(sync)
    handed.add(B, ["one"])
    handed.settle(B, 7, ["one"])
    handed.clear()
    assert not reopened(sync).has(B, "one", 1)


@pytest.mark.parametrize("content", [b"", b"TSFH", b"TSFH\x02" + bytes(32), b"TSFH\x01" + b"x" * 9])
def test_what_is_no_such_file_remembers_nothing(sync: Tree, content: bytes) -> None:
    sync.make_dirs("up_1")
    sync.write_atomic("up_1/handed.state", content)
    handed = reopened(sync)
    assert (handed.mark, handed.has(B, "one", 1)) == (0, False)
