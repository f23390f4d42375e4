"""Whether partitions have a file: asked of the orders, and of all rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    yield world
    world.engine.close()


def test_partitions_are_empty_when_no_file_in_whatever_state_is_in_them(world: World):
    places = [
        ("sequence", "root.wind", 0, 3),
        ("unsequence", "root.wind", 10, 13),
        ("sequence", "root.wind", 9, 30),
        ("sequence", "root.windy", 0, 4),
        ("unsequence", "root.wind", 1, -3),
    ]
    engine = world.engine
    for number, (kind, group, region, partition) in enumerate(places, 1):
        path = f"{kind}/{group}/{region}/{partition}/{number}-{number}-0-0.tsfile"
        content = build({f"{group}.d{number}": {"s1": [(number, 1)]}})
        physical = str(world.load(NORTH, path, content).relative_to(world.data))
        if number % 3 == 1:
            engine.commit([records.FileDeleted(physical, "operator")])
        elif number % 3 == 2:
            engine.commit([records.FileQuarantined(physical, "damaged")])
    with engine.reading() as state:
        states = {row.state for row in state.files.values()}
        assert states == {FileState.DELETED, FileState.QUARANTINED, FileState.LIVE}
        for group in ("root.wind", "root.windy", "root.win"):
            for begin in range(-5, 32):
                for end in (begin + 1, begin + 4):
                    found = any(
                        group == name and begin <= partition < end
                        for _, name, _, partition in places
                    )
                    told = state.file_table.is_empty(group, begin, end)
                    assert told is not found, (group, begin, end)
