"""What went with a master's disks, and nobody was told of, is asked for again; on evidence only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import UnreachableError
from common.wire import Result
from receiver.metadata.model import records
from receiver.metadata.state.placed_files import placement_of
from receiver.metadata.state.table_rows import FileState
from receiver.operator.untold_losses import UntoldLosses
from receiver.placement.copies_back import CopiesBack
from receiver.tablet_copies.copies_wire import FilePlace
from tests.support.losing_master import Losing
from tests.support.spark_world import NORTH

TASK = "7" * 32


class Scene(Losing):
    """A file that is on the master's disk alone, of a task that nobody was told of."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(root, patch)
        self.alone = self.centre.load()
        self.untold: str | None = TASK
        self.dirs_away: list[str] = []
        self.now = 0.0
        names = [self.row(each).path for each in (*self.files, self.alone)]
        outcomes = [records.FileOutcome(path=each, result=Result.LOADED) for each in names]
        self.centre.engine.commit([records.TaskDone(NORTH, TASK, outcomes)])
        self.back = CopiesBack(self.centre.engine, lambda: self.trees, self.perhaps)
        self.losses = UntoldLosses(
            self.centre.engine,
            SimpleNamespace(away=lambda: self.dirs_away, standing=lambda: self.trees),  # type: ignore[arg-type]
            self.back,
            self.centre.views,
            lambda _: self.untold,
            monotonic=lambda: self.now,
        )

    def perhaps(self, physical: str) -> list[FilePlace]:
        """All nodes of the tablet, whatever they have."""
        with self.centre.engine.reading() as state:
            found = placement_of(state, physical)
        assert found is not None
        return [
            FilePlace(url=node.view().url, ticket="t", tablet=found[0].id) for node in self.nodes
        ]

    def passes(self) -> list[str]:
        """Two looks, with time between; names of files that are not visible any more."""
        for _ in range(2):
            self.losses.run_once()
            self.now += 60.0
        every = (*self.files, self.alone)
        return [each for each in every if self.row(each).state is FileState.QUARANTINED]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(tmp_path, monkeypatch)
    yield made
    made.close()


def test_what_no_node_has_comes_again_from_its_sender_and_what_one_has_comes_back(
    scene: Scene,
) -> None:
    for each in (scene.files[0], scene.alone):
        (scene.data / each).unlink()
    assert scene.passes() == [scene.alone]
    assert (scene.data / scene.files[0]).read_bytes() == scene.contents[scene.files[0]]


def test_one_look_is_not_enough(scene: Scene) -> None:
    (scene.data / scene.alone).unlink()
    assert scene.losses.run_once() == 0
    scene.now += 5.0
    assert scene.losses.run_once() == 0
    scene.now += 60.0
    assert scene.losses.run_once() == 1


@pytest.mark.parametrize("why", ["it is here", "told", "disk away", "node away", "silent", "new"])
def test_without_evidence_nothing_is_asked_for(
    scene: Scene, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why != "it is here":
        (scene.data / scene.alone).unlink()
    if why == "told":
        scene.untold = None
    elif why == "new":  # of this life, whose disks are here
        scene.losses._begun = 0
    elif why == "disk away":
        scene.dirs_away = ["/disk2"]
    elif why == "node away":
        scene.nodes[1].is_silent = scene.nodes[1].is_hurt = True
    elif why == "silent":

        def content(url: str, query: object) -> bytes:
            raise UnreachableError("nobody answers")

        monkeypatch.setattr(scene, "content", content)
    assert scene.passes() == []
