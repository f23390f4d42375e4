from __future__ import annotations

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.durable import Tree
from sender.kept.freed import FreedFile, FreedList, changing_freed

HERE = "dc1_5555"


@pytest.fixture
def sync(tmp_path):
    with Tree(tmp_path) as tree:
        yield tree


def a_file(number: int, commit: int = 1) -> FreedFile:
    path = f"sequence/root.a/0/0/{1581324718762 + number}-{number}-0-0.tsfile"
    return FreedFile(path, f"{number:032x}", 1000 + number, number, None, 1_700_000_000, commit)


def add(sync, *files: FreedFile) -> None:
    with changing_freed(sync, HERE) as freed:
        freed.add(files)


def listed(sync) -> list[FreedFile]:
    return sorted(FreedList(sync, HERE), key=lambda each: each.path)


def test_what_was_freed_is_on_the_list_until_it_is_settled(sync):
    assert FreedList(sync, HERE).is_empty
    add(sync, a_file(1), a_file(2))
    add(sync, a_file(3))
    assert listed(sync) == [a_file(1), a_file(2), a_file(3)]
    assert not FreedList(sync, HERE).is_empty
    with changing_freed(sync, HERE) as freed:
        assert freed.drop(lambda each: each.size != 1002) == 2
        assert freed.drop(lambda each: False) == 0
    assert listed(sync) == [a_file(2)]
    with changing_freed(sync, HERE) as freed:
        freed.drop(lambda each: True)
    assert FreedList(sync, HERE).is_empty


def test_a_file_that_was_freed_twice_is_one_line_as_of_the_last_time(sync):
    add(sync, a_file(1, commit=9))
    add(sync, a_file(1, commit=7))
    assert listed(sync) == [a_file(1, commit=9)]


def test_small_parts_are_put_together(sync):
    for number in range(100):
        add(sync, a_file(number))
    assert len(list((sync.path / HERE).glob("freed-*.state"))) < 20
    assert len(listed(sync)) == 100


def dies(sync, point: str, change) -> None:
    def hook(name: str) -> None:
        if name == point:
            raise SimulatedCrash(name)

    with pytest.raises(SimulatedCrash), crash.arm(hook), changing_freed(sync, HERE) as freed:
        change(freed)


@pytest.mark.parametrize("point", ["freed.added", "freed.joined"])
def test_a_death_while_files_are_put_on_the_list_loses_no_line(sync, point):
    for number in range(15):
        add(sync, a_file(number))
    dies(sync, point, lambda freed: freed.add([a_file(15)]))
    assert listed(sync) == [a_file(number) for number in range(16)]
    add(sync, a_file(16))
    assert listed(sync) == [a_file(number) for number in range(17)]


@pytest.mark.parametrize("point", ["freed.dropped", "freed.renewed"])
def test_a_death_while_the_list_is_changed_loses_no_line_that_is_needed(sync, point):
    for number in range(9):
        add(sync, a_file(number))

    def change(freed: FreedList) -> None:
        freed.renew(5)
        freed.drop(lambda each: each.size < 1004)

    dies(sync, point, change)
    assert {each.path for each in listed(sync)} >= {a_file(n).path for n in range(4, 9)}
    with changing_freed(sync, HERE) as freed:
        change(freed)
    assert listed(sync) == [a_file(number, commit=5) for number in range(4, 9)]


def test_a_damaged_part_is_said_and_the_others_are_read(sync):
    add(sync, a_file(1))
    add(sync, a_file(2))
    first = min((sync.path / HERE).glob("freed-*.state"))
    first.write_bytes(b"\x00" + first.read_bytes()[1:])
    found = FreedList(sync, HERE)
    assert list(found) == [a_file(2)]
    assert "damaged" in found.problems[0]
    add(sync, a_file(3))
    assert first.exists()


def test_from_another_past_of_the_receiver_all_lines_are_as_of_now(sync):
    add(sync, a_file(1, commit=900), a_file(2, commit=1000))
    with changing_freed(sync, HERE) as freed:
        freed.renew(30)
    assert {each.commit for each in listed(sync)} == {30}


def test_a_million_lines_are_few_bytes(sync):
    files = [a_file(number) for number in range(100_000)]
    for begin in range(0, len(files), 1000):
        add(sync, *files[begin : begin + 1000])
    size = sum(each.stat().st_size for each in (sync.path / HERE).glob("freed-*.state"))
    assert size < 45 * len(files)
    assert len(listed(sync)) == len(files)
