"""The resource of a file is what its own server has beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.tsfile import read_tail
from common.tsfile.resource import parse_resource
from receiver.writing.resource_bytes import resource_of
from tests.support.expected_rows import real_files

# 0.12 counts plans where later servers have the widest range; deletions leave times behind.
PATHS = sorted(
    {
        path
        for real in real_files()
        if not real.deletions
        for path in real.paths
        if path.with_name(path.name + ".resource").exists() and "deletions" not in path.name
    }
)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_says_what_the_real_one_says(path: Path):
    real = path.with_name(path.name + ".resource").read_bytes()
    tail = read_tail(path)
    ours = resource_of(tail)
    found, known = parse_resource(ours), parse_resource(real)
    assert not found.opaque
    assert {each.name for each in found.devices} <= {each.name for each in known.devices}
    if "compacted" not in path.name and path.parent.name != "iotdb-0.12.0":
        assert set(found.devices) == set(known.devices)
        if len(tail.devices) == 1:
            assert real.startswith(ours)
    assert ours[:2] == real[:2]


def test_there_are_some_of_each_server():
    assert {path.parent.name for path in PATHS} == {
        "iotdb-0.12.0", "iotdb-1.0.1", "iotdb-2.0.1-beta"
    }  # fmt: skip
