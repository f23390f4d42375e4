"""What belongs to files that were freed, once they are gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.durable import Tree
from sender.round.freed_files.removing import FreeBatch, Removal
from sender.select.found import Scan, stat_identity


@pytest.fixture
def sync(tmp_path):
    with Tree(tmp_path / "sync", create=True) as tree:
        yield tree


def left_by_a_death(sync: Tree, *data_dirs: Path) -> list[Path]:
    """A file of each is gone, and its resource is not."""
    resources = []
    files = []
    for data_dir in data_dirs:
        data_dir.mkdir()
        resource = data_dir / "a.tsfile.resource"
        resource.write_bytes(b"resource")
        resources.append(resource)
        beside = [[resource.name, stat_identity(resource.stat())]]
        files.append([str(data_dir), "a.tsfile", beside])
    content = {"version": 1, "files": files}
    sync.write_atomic("free.begun", json.dumps(content).encode())
    return resources


def test_what_is_left_in_a_data_directory_that_is_away_goes_once_it_is_back(sync, tmp_path):
    here, away = tmp_path / "here", tmp_path / "away"
    first, second = left_by_a_death(sync, here, away)
    with Tree(here) as mounted:
        removal = Removal(sync, {here: mounted})
        removal.finish()
        assert [first.exists(), second.exists()] == [False, True]
        removal.run(FreeBatch([], Scan(files={}), [""], removal.names([""]), {}), lambda file: True)
    assert sync.exists("free.begun")
    with Tree(here) as mounted, Tree(away) as back:
        Removal(sync, {here: mounted, away: back}).finish()
    assert not second.exists()
    assert not sync.exists("free.begun")
