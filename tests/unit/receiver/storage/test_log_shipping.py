"""The engine's files are in the store behind its commits, and a directory is made of them again."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import crash
from common.durable import Tree
from common.errors import ConflictError, NotFoundError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import FencedError
from receiver.storage.directory_store import DirectoryStore
from receiver.storage.incarnation import next_incarnation, own_incarnation
from receiver.storage.log_shipping import LogShipper
from receiver.storage.metadata_restore import restore_metadata
from receiver.storage.object_content import ContentChangedError
from receiver.storage.store_manifests import newest_manifest


class Centre:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bucket").mkdir()
        self.store = DirectoryStore(root / "bucket")
        self.commits: list[tuple[int, int]] = []
        self.options = EngineOptions()
        self.start()
        self.uuid = self.engine.uuid

    def start(self) -> None:
        self.engine = Engine.open(self.root / "schema", options=self.options, background=False)
        self.home = Tree(self.root / "schema")
        self.owner = own_incarnation(self.store, self.home, self.engine.uuid)
        self.shipper = LogShipper(self.engine.published, self.home, self.store, self.owner)

    def stop(self) -> None:
        self.engine.close()
        self.home.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def commit(self, number: int) -> int:
        """A sender, and a series with tags."""
        ts = self.engine.commit(
            [
                records.SenderSeen(f"{number:032x}", "", f"x_{number:032x}"),
                *([records.StorageGroupSet("root.a")] if number == 0 else ()),
            ]
        )
        self.commits.append((ts, number))
        return ts

    def restored(self, name: str, *, at: int | None = None) -> set[int]:
        """The senders that a restored directory knows."""
        place = self.root / name
        restore_metadata(self.store, self.uuid, place, at=at)
        with Engine.open(place, background=False) as engine, engine.reading() as state:
            assert state.uuid == self.uuid
            return {int(sender, 16) for sender in state.senders}


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    made = Centre(tmp_path)
    yield made
    made.stop()


def test_what_was_shipped_is_restored_and_nothing_later(centre: Centre) -> None:
    centre.commit(0)
    centre.commit(1)
    assert centre.shipper.ship()
    centre.commit(2)
    assert centre.restored("again") == {0, 1}


def test_nothing_new_is_no_manifest(centre: Centre) -> None:
    centre.commit(0)
    assert centre.shipper.ship()
    assert not centre.shipper.ship()
    found = newest_manifest(centre.store, centre.uuid)
    assert found is not None
    assert found.number == 1


def test_each_moment_of_the_log_can_be_restored(centre: Centre) -> None:
    for number in range(12):
        centre.commit(number)
        if number % 5 == 3:
            centre.engine.checkpoint()
        if number % 3 == 0:
            centre.shipper.ship()
    centre.shipper.ship()
    for ts, number in centre.commits:
        assert centre.restored(f"at-{number}", at=ts) == set(range(number + 1))


def test_a_moment_before_all_copies_is_refused(centre: Centre) -> None:
    first = centre.commit(0)
    for number in range(1, 8):
        centre.commit(number)
        centre.engine.checkpoint()
    with Tree(centre.root / "schema") as tree:
        kept = sorted(name for name, _ in tree.listing() if name.startswith("mlog"))
    centre.shipper.ship()
    if kept[0] == "mlog-1.tsf":
        assert centre.restored("x", at=first) == {0}
    else:
        with pytest.raises(NotFoundError):
            centre.restored("x", at=first)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_cut_off_the_newest_manifest_restores_what_it_says(
    centre: Centre, seed: int
) -> None:
    """Random commits, checkpoints, restarts, kills while shipping; restored after each step."""
    play = random.Random(seed)
    shipped: set[int] = set()
    number = 0
    for step in range(40):
        what = play.choice(("commit", "commit", "ship", "ship", "checkpoint", "restart", "kill"))
        if what == "commit":
            centre.commit(number)
            number += 1
        elif what == "ship":
            centre.shipper.ship()
            shipped = set(range(number))
        elif what == "checkpoint":
            centre.engine.checkpoint()
        elif what == "restart":
            centre.restart()
        else:
            target = play.randrange(1, 12)
            passed = [0]

            def die(name: str, target: int = target, passed: list[int] = passed) -> None:
                passed[0] += name.startswith(("storage.", "durable."))
                if passed[0] == target:
                    raise crash.SimulatedCrash

            with crash.arm(die):
                try:
                    centre.shipper.ship()
                    shipped = set(range(number))
                except crash.SimulatedCrash:
                    found = newest_manifest(centre.store, centre.uuid)
                    if found is not None and found.lsn == centre.engine.published().lsn:
                        shipped = set(range(number))
            centre.restart()
        if newest_manifest(centre.store, centre.uuid) is not None:
            assert centre.restored(f"{step}") == shipped


def test_a_copy_that_is_not_what_was_put_is_refused(centre: Centre) -> None:
    centre.commit(0)
    centre.shipper.ship()
    found = newest_manifest(centre.store, centre.uuid)
    assert found is not None
    place = centre.root / "bucket" / found.segments[0].pieces[0].key
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(content)
    with pytest.raises(ContentChangedError):
        centre.restored("x")
    assert not (centre.root / "x").exists()


def test_a_restore_replaces_nothing(centre: Centre) -> None:
    centre.commit(0)
    centre.shipper.ship()
    (centre.root / "x").mkdir()
    (centre.root / "x" / "mine").write_bytes(b"")
    with pytest.raises(ConflictError):
        centre.restored("x")


def test_the_restored_one_goes_on_and_the_old_one_is_fenced(centre: Centre) -> None:
    centre.commit(0)
    centre.shipper.ship()
    place = centre.root / "new"
    restore_metadata(centre.store, centre.uuid, place)
    with Tree(place) as home:
        taken = next_incarnation(centre.store, home, centre.uuid)
        with Engine.open(place, background=False) as engine:
            engine.commit([records.SenderSeen(f"{9:032x}", "", f"x_{9:032x}")])
            shipper = LogShipper(engine.published, home, centre.store, taken)
            assert shipper.ship()
    centre.commit(1)
    with pytest.raises(FencedError):
        centre.shipper.ship()
    assert centre.restored("again") == {0, 9}


def test_what_was_given_up_by_a_restore_to_a_moment_does_not_come_back(centre: Centre) -> None:
    """The copies have gone on behind the moment, by segments and checkpoints."""
    for number in range(6):
        moment = centre.commit(number)
        centre.engine.checkpoint()
        centre.shipper.ship()
        if number == 3:
            wanted = moment
    place = centre.root / "new"
    restore_metadata(centre.store, centre.uuid, place, at=wanted)
    with Tree(place) as home:
        taken = next_incarnation(centre.store, home, centre.uuid)
        with Engine.open(place, background=False) as engine:
            engine.commit([records.SenderSeen(f"{9:032x}", "", f"x_{9:032x}")])
            shipper = LogShipper(engine.published, home, centre.store, taken)
            assert shipper.ship()
            assert not shipper.ship()
            engine.commit([records.SenderSeen(f"{10:032x}", "", f"x_{10:032x}")])
            assert shipper.ship()
    assert centre.restored("again") == {0, 1, 2, 3, 9, 10}


def test_a_directory_that_is_older_than_the_copies_adds_nothing_to_them(centre: Centre) -> None:
    centre.commit(0)
    centre.stop()
    shutil.copytree(centre.root / "schema", centre.root / "kept")
    centre.start()
    centre.commit(1)
    centre.shipper.ship()
    centre.stop()
    shutil.rmtree(centre.root / "schema")
    (centre.root / "kept").rename(centre.root / "schema")
    centre.start()
    with pytest.raises(ConflictError, match="older than the copies"):
        centre.shipper.ship()
    assert centre.restored("again") == {0, 1}


def test_a_checkpoint_that_is_behind_the_history_is_not_copied_again_and_again(
    centre: Centre,
) -> None:
    centre.options = EngineOptions(history=0.001)
    centre.restart()
    for number in range(4):
        centre.commit(number)
        centre.engine.checkpoint()
    time.sleep(0.01)
    centre.engine.collect()
    centre.shipper.ship()
    assert not centre.shipper.ship()
