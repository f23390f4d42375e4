"""Whether files have a point in common: by series and time, or by the rows of a table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from receiver.shared_points.common_points import compare
from receiver.shared_points.compare_asked import (
    CompareAsked,
    ComparedDevice,
    ComparedFile,
    SharedPoint,
)
from receiver.shared_points.compare_process import CompareProcess
from tests.support import tiers
from tests.support.tsfile_bytes import build

DEVICE = "root.sg.d1"


def asked(
    root: Path,
    contents: list[tuple[bytes, bool]],
    *,
    device: str = DEVICE,
    group: str = "root.sg",
    span: tuple[int, int] = (0, 1000),
    among_new: bool = False,
) -> CompareAsked:
    files = []
    for number, (content, is_new) in enumerate(contents):
        place = root / f"{number}.tsfile"
        place.write_bytes(content)
        files.append(ComparedFile(str(place), f"f{number}", group, is_new))
    devices = [ComparedDevice(device, list(range(len(files))), *span)]
    return CompareAsked(files, devices, among_new)


def tree(times: dict[str, list[int]], **more: Any) -> bytes:
    return build({DEVICE: {name: [(t, t) for t in each] for name, each in times.items()}}, **more)


@pytest.mark.parametrize("aligned", [(), (DEVICE,)])
def test_times_between_each_other_share_nothing_and_one_time_is_named(
    tmp_path: Path, aligned: tuple[str, ...]
) -> None:
    there = tree({"s1": [1, 3, 5], "s2": [2, 4]}, aligned=aligned)
    beside = tree({"s1": [2, 4, 6], "s2": [1, 3]}, aligned=aligned)
    assert compare(asked(tmp_path, [(there, False), (beside, True)])).shared is None
    twice = tree({"s1": [2, 5], "s2": [1]}, aligned=aligned)
    found = compare(asked(tmp_path, [(twice, True), (there, False)])).shared
    assert found == SharedPoint(DEVICE, "s1", 5, 0, 1)
    assert compare(asked(tmp_path, [(twice, True), (there, False)], span=(0, 4))).shared is None


def test_what_two_that_are_there_share_is_no_matter(tmp_path: Path) -> None:
    one, other = tree({"s1": [1, 2]}), tree({"s1": [2, 3]})
    assert compare(asked(tmp_path, [(one, False), (other, False)])).shared is None
    assert compare(asked(tmp_path, [(one, True), (other, True)])).shared is None
    found = compare(asked(tmp_path, [(one, True), (other, True)], among_new=True)).shared
    assert found == SharedPoint(DEVICE, "s1", 2, 1, 0)


def test_rows_of_a_table_are_compared_whatever_columns_they_have(tmp_path: Path) -> None:
    one = build({("plant", "p1"): {"a": [(1, 1)], "b": [(2, 2)]}})
    other = build({("plant", "p1"): {"a": [(2, 1), (3, 1)]}})
    given = {"device": "/db/plant:p1", "group": "db"}
    found = compare(asked(tmp_path, [(one, False), (other, True)], **given)).shared
    assert found is not None
    assert (found.measurement, found.time) == ("", 2)
    third = build({("plant", "p1"): {"a": [(5, 1)]}})
    assert compare(asked(tmp_path, [(one, False), (third, True)], **given)).shared is None


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    whole = tree({"s1": [1, 2]})
    question = asked(tmp_path, [(whole, False), (whole[:-30], True)])
    assert compare(question).unread
    Path(question.files[0].path).unlink()
    assert "No such file" in compare(question).unread


def test_it_finds_what_the_lists_of_times_have_in_common(tmp_path: Path) -> None:
    chance = random.Random(tiers.seed())
    for _ in range(tiers.examples(30)):
        lists = [
            {name: sorted(chance.sample(range(60), chance.randint(1, 6))) for name in "ab"}
            for _ in range(chance.randint(2, 4))
        ]
        new = [chance.random() < 0.5 for _ in lists]
        among = chance.random() < 0.5
        aligned = (DEVICE,) if chance.random() < 0.5 else ()
        expected = any(
            set(one[name]) & set(other[name])
            for at, one in enumerate(lists)
            for by, other in enumerate(lists[:at])
            for name in "ab"
            if (new[at] or new[by]) and (among or not (new[at] and new[by]))
        )
        contents = [
            (tree(each, aligned=aligned), is_new) for each, is_new in zip(lists, new, strict=True)
        ]
        found = compare(asked(tmp_path, contents, among_new=among)).shared
        assert (found is not None) == expected
        if found is not None:
            assert found.time in lists[found.new][found.measurement]
            assert found.time in lists[found.other][found.measurement]
            assert new[found.new]


def test_a_process_compares_and_one_that_dies_says_so(tmp_path: Path) -> None:
    question = asked(tmp_path, [(tree({"s1": [1, 2]}), False), (tree({"s1": [2]}), True)])
    process = CompareProcess(memory=1 << 30)
    assert process.ask(question, lambda: False).shared == SharedPoint(DEVICE, "s1", 2, 1, 0)
    said = CompareProcess(memory=1 << 20).ask(question, lambda: False).unread
    assert "died" in said or "memory" in said, "by where it meets the limit"
