"""What went with a master's disks, and nobody was told of, is asked for again; on evidence only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.durable import Tree
from common.errors import NotFoundError, ReadOnlyDiskError, UnreachableError
from common.wire import Result
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.state.placed_files import placement_of
from receiver.metadata.state.table_rows import FileState
from receiver.operator.edges.untold_losses import UntoldLosses
from receiver.placement.copies_there.copies_back import CopiesBack
from receiver.placement.placeable_nodes import PlaceableNode
from receiver.placement.staged_sources import StagedSources
from receiver.tablet_copies.copies_wire import FilePlace
from receiver.tablet_copies.upload_tickets import upload_id
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
        self.held: set[str] = set()
        self.mute: set[str] = set()
        self.now = 0.0
        self.is_unreadable = False
        names = [self.row(each).path for each in (*self.files, self.alone)]
        outcomes = [records.FileOutcome(path=each, result=Result.LOADED) for each in names]
        self.centre.engine.commit([records.TaskDone(NORTH, TASK, outcomes)])
        self.centre.engine.commit([records.EpochSet(NORTH, "1.a", None, TASK, confirmed=True)])
        self.uploads: dict[str, bytes | None] = {}
        """Ids of uploads at the second node -> bytes that have come, None where it does not say."""
        orders = SimpleNamespace(staged=self.staged)
        self.back = CopiesBack(
            self.centre.engine,
            lambda: self.trees,
            self.perhaps,
            staged=StagedSources(self.centre.views, orders),  # type: ignore[arg-type]
        )
        self.losses = UntoldLosses(
            self.centre.engine,
            SimpleNamespace(away=lambda: self.dirs_away, standing=lambda: self.trees),  # type: ignore[arg-type]
            self.back,
            self.centre.views,
            lambda _: self.untold,
            lacks=lambda _, row: row.physical not in self.held,
            has_told=lambda node: node not in self.mute,
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

    def staged(self, node: PlaceableNode, upload: str, begin: int, length: int) -> bytes:
        """As a node gives what an edge has sent there."""
        if node.uuid != self.nodes[1].uuid or upload not in self.uploads:
            raise NotFoundError("there is no such upload")
        content = self.uploads[upload]
        if content is None or (self.is_unreadable and begin == 0):
            raise UnreachableError("nobody answers")
        return content[begin : begin + length]

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


def test_what_an_edge_has_sent_to_a_node_comes_from_there_and_not_from_the_edge_again(
    scene: Scene,
) -> None:
    row, content = scene.row(scene.alone), (scene.data / scene.alone).read_bytes()
    (scene.data / scene.alone).unlink()
    upload = upload_id(row.sender, row.path, row.size, row.tail)
    scene.uploads[upload] = None
    assert scene.passes() == []  # it may be there
    scene.uploads[upload] = content
    assert scene.passes() == []
    assert (scene.data / scene.alone).read_bytes() == content


@pytest.mark.parametrize("what", ["half", "other bytes", "unreadable"])
def test_an_upload_that_is_not_the_file_keeps_nobody_from_being_asked(
    scene: Scene, what: str
) -> None:
    row, content = scene.row(scene.alone), (scene.data / scene.alone).read_bytes()
    (scene.data / scene.alone).unlink()
    upload = upload_id(row.sender, row.path, row.size, row.tail)
    half = content[: row.size // 2]
    scene.uploads[upload] = half if what == "half" else bytes(row.size)
    scene.is_unreadable = what == "unreadable"
    for _ in range(3):
        scene.passes()
    assert scene.passes() == [scene.alone]


def test_an_upload_that_no_disk_here_takes_is_at_its_node_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is read-only for minutes sent a file into quarantine, and its edge again."""
    row, content = scene.row(scene.alone), (scene.data / scene.alone).read_bytes()
    (scene.data / scene.alone).unlink()
    scene.uploads[upload_id(row.sender, row.path, row.size, row.tail)] = content

    def create(tree: Tree, rel: str) -> None:
        raise ReadOnlyDiskError("it is read-only")

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "create", create)
        for _ in range(5):
            assert scene.passes() == []
    assert scene.passes() == []
    assert (scene.data / scene.alone).read_bytes() == content


def test_one_look_is_not_enough(scene: Scene) -> None:
    (scene.data / scene.alone).unlink()
    assert scene.losses.run_once() == 0
    scene.now += 5.0
    assert scene.losses.run_once() == 0
    scene.now += 60.0
    assert scene.losses.run_once() == 1


@pytest.mark.parametrize(
    "why", ["it is here", "told", "disk away", "node away", "silent", "new", "mute"]
)
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
    elif why == "mute":  # it is heard, and what it has is not known yet
        scene.mute = {scene.nodes[1].uuid}
    elif why == "silent":

        def content(url: str, query: object) -> bytes:
            raise UnreachableError("nobody answers")

        monkeypatch.setattr(scene, "content", content)
    assert scene.passes() == []


def _of_own(scene: Scene, sender: str, task: str, physical: str, more: int = 0) -> None:
    """A file is of a task of its own, of a source that is in no round."""
    path = scene.row(physical).path
    outcomes = [records.FileOutcome(path=path, result=Result.LOADED)]
    outcomes += [records.FileOutcome(f"{each}", Result.REFUSED, reason="x") for each in range(more)]
    scene.centre.engine.commit([records.TaskDone(sender, task, outcomes)])
    scene.losses._begun = scene.centre.engine.newest_commit


def test_what_several_loads_of_the_centre_brought_is_looked_for_and_not_of_the_newest_alone(
    scene: Scene,
) -> None:
    """Its source is in no round: none of its tasks is that of an epoch."""
    engine = scene.centre.engine
    source = centre_uuid(engine.uuid)
    engine.commit([records.SenderSeen(source, "centre", "centre")])
    scene.centre.load(group="root.sun", sender=source)
    scene.centre.settle()
    names = [scene.centre.load(group="root.sun", sender=source) for _ in range(3)]
    for number, each in enumerate(names):
        _of_own(scene, source, f"{number:032x}", each, more=number + 1)
    for each in names:
        (scene.data / each).unlink()
    scene.untold, scene.held = None, {names[2]}
    scene.passes()
    states = [scene.row(each).state for each in names]
    assert states == [FileState.QUARANTINED, FileState.QUARANTINED, FileState.LIVE]


@pytest.mark.parametrize("has_round", [True, False])
def test_an_upload_without_a_task_is_looked_for_and_what_a_round_before_has_told_is_not(
    scene: Scene, has_round: bool
) -> None:
    if not has_round:  # or an operator has accepted the sender anew
        scene.centre.engine.commit(
            [records.EpochSet(NORTH, "2.accept", None, None, confirmed=True)]
        )
    single, scene.untold = scene.centre.load(), None
    _of_own(scene, NORTH, "8" * 32, single)
    for each in (single, scene.alone):
        (scene.data / each).unlink()
    assert scene.passes() == []
    assert scene.row(single).state is FileState.QUARANTINED


def test_files_that_are_asked_for_in_vain_again_and_again_keep_no_other_from_its_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass has an end; the next one goes on behind it."""
    names = sorted([*scene.files, scene.alone])
    for each in names:
        (scene.data / each).unlink()
    asked: list[str] = []

    def has_it(physical: str) -> dict[str, bool | None]:
        asked.append(physical)
        scene.now += 15.0
        return {}

    monkeypatch.setattr(scene.back, "has_it", has_it)
    for _ in range(4):
        scene.losses.run_once()
    assert asked == [*names, *names]


def test_a_file_that_is_forgotten_meanwhile_ends_no_pass(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_it(physical: str) -> dict[str, bool | None]:
        raise NotFoundError("it is no file of the catalogue")

    (scene.data / scene.alone).unlink()
    monkeypatch.setattr(scene.back, "has_it", has_it)
    assert scene.passes() == []
