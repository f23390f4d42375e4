"""What real databases did, replayed: after each stage readers at the centre get their own rows.

`tests/data/iotdb-lives/<version>.tar.gz` has `<scenario>/<stage>/` of `scripts/live record`, all
scenarios of trees but what docs/ranks.md lists as known differences: `openedbefore` below 2.0, and
those in which a compaction of 0.12.0 loses a series.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from receiver.metadata.state.table_rows import FileState
from sender.select.data_dirs import mark
from tests.live.recording import STAGES
from tests.support.oracle import Oracle, oracle, rows_read
from tests.support.previous_version import unpack

Cells: TypeAlias = dict[tuple[str, int], Any]


class Replay:
    """An edge whose files are those of a recorded stage, and the database's answer to it."""

    def __init__(self, scenarios: list[Path], data_dir: Path) -> None:
        self.scenarios, self.data_dir = scenarios, data_dir
        self._floors: dict[str, int] = {}
        self.answer: Cells = {}

    def show(self, stage: str) -> None:
        wanted = dict(self._files(stage))
        for path in self.data_dir.glob("*sequence/**/*"):
            name = str(path.relative_to(self.data_dir))
            if path.is_file() and (name not in wanted or path.read_bytes() != wanted[name]):
                path.unlink()
        for name, content in wanted.items():
            path = self.data_dir / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        self.answer = {}
        for scenario in self.scenarios:
            facts = json.loads((scenario / stage / "rows.json").read_text())
            self._floors[f"root.{scenario.name}"] = facts["floor"] or 0
            for series, found in facts["series"].items():
                self.answer |= {(series, at): value for at, value in found["points"]}

    def above(self, cells: Cells) -> Cells:
        """Without what a TTL hides from the database's own readers."""
        return {
            (series, at): value
            for (series, at), value in cells.items()
            if at >= self._floors[".".join(series.split(".")[:2])]
        }

    def _files(self, stage: str) -> Iterator[tuple[str, bytes]]:
        for scenario in self.scenarios:
            base = scenario / stage
            for path in base.glob("*sequence/**/*"):
                if path.is_file():
                    yield str(path.relative_to(base)), path.read_bytes()


def cells_read(world: Oracle) -> Cells:
    found: Cells = {}
    for row in rows_read(world.host.config.schema_dir):
        key = f"{row['device']}.{row['measurement']}", row["time"]
        assert key not in found, f"{key} is given twice"
        values = [value for name, value in row.items() if name.startswith("value_")]
        found[key] = next((each for each in values if each is not None), None)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("version", ["0.12.0", "1.0.1", "2.0.1-beta"])
def test_readers_get_the_rows_of_the_database_and_sources_are_superseded(
    version: str, tmp_path: Path
) -> None:
    recorded = unpack(tmp_path / "recorded", f"iotdb-lives/{version}")
    edge = tmp_path / "database"
    edge.mkdir()
    replay = Replay(sorted(recorded.iterdir()), edge)
    with oracle(tmp_path / "world") as world:
        mark(edge, world.edge.uuid)
        world.edge.with_settings(data_dirs=(edge,))
        for stage in STAGES:
            replay.show(stage)
            assert world.round().error is None
            assert replay.above(cells_read(world)) == replay.answer, stage
        before = cells_read(world)
        world.host.prove()
        assert cells_read(world) == before
        with world.host.reading() as state:
            states = [row.state for row in state.files.values()]
        assert FileState.RETIRED not in states
        assert FileState.SUPERSEDED in states
