"""A plan of many new files holds bytes, and is the plan that it would be of objects."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from common.wire import Propagate
from sender.plan import plan as planning
from sender.plan.additions import Addition, Additions, NewFiles, in_little_memory
from sender.plan.plan import plan
from sender.plan.plan_options import PlanOptions
from sender.select.entry import Entry
from sender.select.found import LOCAL_FILES, LocalDeletions, LocalFile, ResourceStat, Scan
from sender.select.listed_table import LISTED_FILES
from sender.select.path_table import PathTable
from tests.support.site import FakeFacts, path

DIRS = (Path("/d0"), Path("/d1"))


def a_file(number: int, partition: int = 0, data_dir: Path = DIRS[0], level: int = 0) -> LocalFile:
    # Names that sort otherwise than the files are old.
    at = path(f"{1000 - number}-{number}-{level}.tsfile", partition=partition)
    resource = ResourceStat(number, 2, 3) if number % 2 else None
    return LocalFile(at, data_dir, "", 10 + number, 1, number, resource)


def world(seed: int) -> tuple[list[LocalFile], list[Entry], list[LocalDeletions]]:
    """New files, products, replaced and listed ones, and some that are gone."""
    chance = random.Random(seed)
    files, entries, deletions = [], [], []
    for number in range(700):
        dice = chance.random()
        level = 1 if dice > 0.9 and seed % 2 else 0
        file = a_file(number, chance.randrange(4), chance.choice(DIRS), level)
        if dice > 0.05:
            files.append(file)
        if 0.02 < dice < 0.3:
            size = file.size + (dice < 0.1)
            entries.append(Entry(file.path, file.data_dir, size, 1, file.inode, "a" * 32, 0, 9))
        if dice > 0.97 and seed > 1:
            rel = f"{file.rel}.mods"
            deletions.append(
                LocalDeletions(file.path, file.data_dir, rel, "mods", (5, 5, 5), number)
            )
    files += [a_file(number, 9, DIRS[number % 2]) for number in range(700, 860)]
    return files, entries, deletions


def told(found):
    return [
        (tuple(task.additions), task.deletions, task.deletion_files, task.bytes)
        for task in found.tasks
    ], found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [90, 10_000])
@pytest.mark.parametrize("mode", [Propagate.REPLACED, Propagate.ALL])
def test_a_plan_of_bytes_is_the_plan_of_objects(monkeypatch, seed, most, mode):
    files, entries, deletions = world(seed)
    moving = {files[0].path.group: "a compaction is under way"}
    table = PathTable.of(LOCAL_FILES, files)
    scan = Scan(table, deletions=tuple(deletions), mounted=DIRS, changing=moving)
    listed = PathTable.of(LISTED_FILES, entries)
    options = PlanOptions(mode, task_max_files=most, accept_source=True)

    def planned():
        return told(plan(scan, listed, {}, options, FakeFacts(), tells=True))

    tasks, found = planned()
    monkeypatch.setattr(planning, "_depends_on_nothing", lambda *_: False)
    objects, as_objects = planned()
    assert tasks == objects
    assert (found.held, found.skipped, found.unchanged) == (
        as_objects.held,
        as_objects.skipped,
        as_objects.unchanged,
    )
    assert any(isinstance(task.additions, Additions) for task in found.tasks)
    assert sum(len(task.additions) for task in found.tasks) == found.files


def test_new_files_of_a_new_directory_are_the_bytes_of_the_scan():
    files = PathTable.of(LOCAL_FILES, [a_file(number) for number in range(100)])
    new = NewFiles(lambda directory: files.directories()[directory])
    for each in files.values():
        new.add(each)
    ((made,),) = new.by_group().values()
    assert made is next(files.blocks())


def test_what_is_no_plain_new_file_keeps_its_marks():
    many = [Addition(a_file(number)) for number in range(100)]
    assert isinstance(in_little_memory(many), Additions)
    assert in_little_memory(many[:10]) == tuple(many[:10])
    marked = [*many, Addition(a_file(100), replaces=True)]
    assert in_little_memory(marked) == tuple(marked)


def test_additions_are_a_sequence():
    young_first = sorted(
        (Addition(a_file(n)) for n in range(100)), key=lambda a: a.path.stem.created
    )
    found = Additions.joined([in_little_memory(young_first), (Addition(a_file(500)),)])
    assert list(found) == [*young_first, Addition(a_file(500))]
    assert (found[0], found[-1], found[1:3]) == (
        young_first[0],
        found[100],
        tuple(young_first[1:3]),
    )
    assert len(found) == 101
    assert found.bytes == sum(each.file.size for each in found)
    assert Additions.joined([(young_first[0],), ()]) == (young_first[0],)
