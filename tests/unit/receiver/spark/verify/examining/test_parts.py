from __future__ import annotations

from receiver.spark.verify.examining.parts import (
    PART_BYTES,
    Expected,
    group_parts,
    pack,
    split,
    unpack,
)

DEVICES = tuple(f"root.sg.d{n}" for n in range(1000))


def test_a_large_file_is_cut_so_that_no_task_has_it_alone() -> None:
    parts = split(3, Expected("f"), 10 * PART_BYTES + 1)
    assert [part.part for part in parts] == list(range(12))
    assert {part.parts for part in parts} == {11}
    assert max(part.weight for part in parts[1:]) <= PART_BYTES


def test_a_small_file_is_one_part() -> None:
    (only,) = split(3, Expected("f"), PART_BYTES)
    assert (only.part, only.parts) == (0, 0)


def test_every_part_is_dealt_out_once_and_the_groups_are_about_as_heavy() -> None:
    sizes = [1000 + 977 * n % 5000 << 12 for n in range(200)]
    parts = [part for at, size in enumerate(sizes) for part in split(at, Expected(str(at)), size)]
    groups = group_parts(parts, cores=4)
    assert len(groups) == 12
    assert sorted(part.file for group in groups for part in group) == list(range(200))
    loads = [sum(part.weight for part in group) for group in groups]
    assert max(loads) < 1.2 * min(loads)


def test_a_group_travels_small_when_its_files_have_the_same_devices() -> None:
    group = [split(n, Expected(f"f{n}", devices=DEVICES), 1)[0] for n in range(300)]
    assert len(pack(group)) < 20_000
    assert unpack(pack(group)) == group


def test_nothing_to_do_is_no_group() -> None:
    assert group_parts([], cores=4) == []
