"""A disk that fills up under an engine: commits are refused, nothing is lost, room heals it."""

from __future__ import annotations

import os
import subprocess

import pytest

from common.errors import NoSpaceError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from tests.support.asking import column
from tests.support.schema_commits import everything, series
from tests.system.test_full_disks import fill, tmpfs

OPTIONS = EngineOptions(history=0.0, history_commits=50)


def tagged(number):
    tags = [{"number": str(number), "x": "x" * 200}, {"number": str(number)}]
    return series(f"root.t.d{number}", "s1", "s2", tags=tags, attributes=[{"a": "y" * 300}, {}])


def fill_up(engine, first=0, every=10**9):
    """Create series until the disk is full; the number of the one that was refused."""
    number = first
    while True:
        try:
            engine.commit([tagged(number)])
        except NoSpaceError:
            return number
        number += 1
        if number % every == 0:
            try:
                engine.collect()
                engine.checkpoint()
            except NoSpaceError:
                pass  # commits go on as long as they fit


def numbers(engine):
    found = set(column(engine, "show tag values with key = number", "tag value"))
    for number in found:
        with engine.reading() as state:
            row = state.schema.series.find(("root", "t", f"d{number}", "s1"))
            at = state.schema.series.describe(row).tags_at
        assert engine.tags_of(at)[0]["number"] == number
    return {int(each) for each in found}


def give_room(where):
    subprocess.run(["mount", "-o", "remount,size=16m", str(where)], check=True)


@pytest.mark.few(1)
@pytest.mark.parametrize(("size", "every"), [(1, 10**9), (1, 150), (2, 300)])
def test_a_disk_that_fills_up_refuses_commits_and_loses_none(tmp_path, size, every):
    with tmpfs(tmp_path / "schema", f"size={size}m") as home:
        with Engine.open(home, options=OPTIONS, background=False) as engine:
            engine.commit([records.StorageGroupSet("root.t")])
            refused = fill_up(engine, every=every)
            assert refused > 100
            assert engine.failed is None
            with pytest.raises(NoSpaceError):
                engine.commit([tagged(refused)])
            with pytest.raises(NoSpaceError):
                engine.checkpoint()
            assert numbers(engine) == set(range(refused))
            expected = everything(engine)
        with Engine.read_only(home, options=OPTIONS) as engine:
            assert everything(engine) == expected
        with Engine.open(home, options=OPTIONS, background=False) as engine:
            assert everything(engine) == expected, "it starts on a full disk"
            give_room(home)
            engine.commit([tagged(refused)])
            engine.checkpoint()
            assert numbers(engine) == set(range(refused + 1))
            expected = everything(engine)
        with Engine.open(home, options=OPTIONS, background=False) as engine:
            assert everything(engine) == expected


def test_a_checkpoint_that_finds_no_room_leaves_commits_going_on(tmp_path):
    with tmpfs(tmp_path / "schema", "size=4m") as home:
        with Engine.open(home, options=OPTIONS, background=False) as engine:
            engine.commit([records.StorageGroupSet("root.t")])
            for number in range(1000):
                engine.commit([tagged(number)])
            filler = fill(home, leave=100_000)
            for number in range(1000, 1020):
                with pytest.raises(NoSpaceError):
                    engine.checkpoint()
                engine.commit([tagged(number)])
            assert not list(home.glob(".*.tmp"))
            filler.unlink()
            engine.checkpoint()
            assert engine.entries_since_checkpoint == 0
            expected = everything(engine)
        with Engine.open(home, options=OPTIONS, background=False) as engine:
            assert everything(engine) == expected
            assert numbers(engine) == set(range(1020))


def test_a_disk_without_inodes_refuses_checkpoints_alone(tmp_path):
    with (
        tmpfs(tmp_path / "schema", "size=4m,nr_inodes=7") as home,
        Engine.open(home, options=OPTIONS, background=False) as engine,
    ):
        engine.commit([records.StorageGroupSet("root.t")])
        while os.statvfs(home).f_favail:
            (home / f"filler-{os.statvfs(home).f_favail}").touch()
        for number in range(5):
            with pytest.raises(NoSpaceError):
                engine.checkpoint()
            engine.commit([tagged(number)])
        for each in home.glob("filler-*"):
            each.unlink()
        subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(home)], check=True)
        engine.checkpoint()
        assert numbers(engine) == set(range(5))
