"""The engine's files are in the store behind its commits, and a directory is made of them again."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common import crash
from common.durable import Tree
from common.errors import ConflictError, NotFoundError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import FencedError
from receiver.metadata.sql.executing import execute
from receiver.storage.log_copies import metadata_restore
from receiver.storage.log_copies.log_shipping import LogShipper
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import next_incarnation, own_incarnation
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import StoreAwayError
from receiver.storage.stores.store_manifests import StoreManifest
from tests.support.schema_commits import series


def step(number: int) -> list[records.Op]:
    """A sender, and a series with tags."""
    return [
        records.SenderSeen(f"{number:032x}", "", f"x_{number:032x}"),
        *([records.StorageGroupSet("root.a")] if number == 0 else ()),
        series("root.a.d", f"s{number}", tags=[{"of": f"{number}"}]),
    ]


class Centre:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bucket").mkdir()
        self.store = DirectoryStore(root / "bucket")
        self.commits: list[tuple[int, int]] = []
        self.place = root / "schema"
        self.options = EngineOptions()
        self.start()
        self.uuid = self.engine.uuid

    def start(self) -> None:
        self.engine = Engine.open(self.place, options=self.options, background=False)
        self.home = Tree(self.place)
        self.owner = own_incarnation(self.store, self.home, self.engine.uuid)
        self.shipper = LogShipper(self.engine.published, self.home, self.store, self.owner)

    def stop(self) -> None:
        self.engine.close()
        self.home.close()

    def end(self) -> None:
        self.stop()
        self.store.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def restore(self, name: str, *, at: int | None = None) -> None:
        """Another machine takes over and goes on, with what a moment had."""
        self.stop()
        place = self.root / name
        restore_metadata(self.store, self.uuid, place, at=at, take_over=True)
        self.place = place
        self.commits = [each for each in self.commits if at is None or each[0] <= at]
        self.start()

    def commit(self, number: int) -> int:
        ts = self.engine.commit(step(number))
        self.commits.append((ts, number))
        return ts

    def restored(self, name: str, *, at: int | None = None) -> set[int]:
        """The senders that a restored directory knows."""
        place = self.root / name
        restore_metadata(self.store, self.uuid, place, at=at)
        with Engine.open(place, background=False) as engine, engine.reading() as state:
            assert state.uuid == self.uuid
            found = {int(sender, 16) for sender in state.senders}
            shown = "\n".join(map(str, execute(engine, "show timeseries root.a.**")))
            assert found == {int(each) for each in re.findall(r"of'?[:=] ?'?(\d+)", shown)}, shown
            return found


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    made = Centre(tmp_path)
    yield made
    made.end()


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
    found = StoreManifest.newest(centre.store, centre.uuid)
    assert found is not None
    assert found.number == 1


@pytest.mark.parametrize("tries", [1, 3])
def test_a_manifest_whose_answer_was_lost_holds_nothing_up(centre: Centre, tries: int) -> None:
    centre.commit(0)
    assert centre.shipper.ship()

    def away(name: str) -> None:
        if name == "storage.manifest.put":
            raise StoreAwayError("away")

    with crash.arm(away):
        for number in range(1, 1 + tries):
            centre.commit(number)
            with pytest.raises(StoreAwayError):
                centre.shipper.ship()
    while centre.shipper.ship():
        pass
    assert centre.restored("again") == set(range(1 + tries))


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


@pytest.mark.few(3)
@pytest.mark.parametrize("back", range(1, 9))
def test_a_restore_to_an_earlier_moment_is_a_history_of_its_own(centre: Centre, back: int) -> None:
    """What came behind the moment is in no copy of the one that goes on from there."""
    for number in range(8):
        centre.commit(number)
        if number % 3 == 1:
            centre.engine.checkpoint()
        if number != 6:
            centre.shipper.ship()
    centre.shipper.ship()
    ts, last = centre.commits[-back]
    centre.restore("earlier", at=ts)
    known = set(range(last + 1))
    assert centre.shipper.ship()
    assert centre.restored("at once") == known
    for number in range(20, 20 + 2 * back):
        centre.commit(number)
        known.add(number)
        centre.shipper.ship()
        assert centre.restored(f"later-{number}") == known
    for ts, number in centre.commits:
        if number >= 20:
            assert max(centre.restored(f"at-{number}", at=ts)) == number


def test_what_the_old_one_puts_too_late_is_no_part_of_the_history(centre: Centre) -> None:
    centre.commit(0)
    centre.shipper.ship()
    centre.commit(8)
    new = centre.root / "new"

    def overtake(name: str) -> None:
        if name == "storage.manifest.before":
            restore_metadata(centre.store, centre.uuid, new, take_over=True)

    known = centre.shipper.newest
    with crash.arm(overtake), pytest.raises(FencedError):
        centre.shipper.ship()
    assert centre.shipper.newest is known, "nobody is told that it is there"
    centre.stop()
    centre.place = new
    centre.start()
    centre.commit(9)
    centre.shipper.ship()
    assert centre.restored("again") == {0, 9}


def test_what_comes_while_another_takes_over_is_taken_over(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    centre.commit(0)
    centre.shipper.ship()
    centre.commit(1)
    take = metadata_restore.next_incarnation

    def late(*arguments: Any) -> Any:
        if centre.shipper.newest is not None and centre.shipper.newest.number == 1:
            centre.shipper.ship()
        return take(*arguments)

    monkeypatch.setattr(metadata_restore, "next_incarnation", late)
    restore_metadata(centre.store, centre.uuid, centre.root / "new", take_over=True)
    centre.stop()
    centre.place = centre.root / "new"
    centre.start()
    with centre.engine.reading() as state:
        assert len(state.senders) == 2


@pytest.mark.few(2)
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
                    found = StoreManifest.newest(centre.store, centre.uuid)
                    if found is not None and found.lsn == centre.engine.published().lsn:
                        shipped = set(range(number))
            centre.restart()
        if StoreManifest.newest(centre.store, centre.uuid) is not None:
            assert centre.restored(f"{step}") == shipped


def test_a_copy_that_is_not_what_was_put_is_refused(centre: Centre) -> None:
    centre.commit(0)
    centre.shipper.ship()
    found = StoreManifest.newest(centre.store, centre.uuid)
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
    restore_metadata(centre.store, centre.uuid, place, take_over=True)
    with Tree(place) as home:
        taken = own_incarnation(centre.store, home, centre.uuid)
        assert (taken.number, taken.parent) == (2, 1)
        with Engine.open(place, background=False) as engine:
            engine.commit(step(9))
            shipper = LogShipper(engine.published, home, centre.store, taken)
            assert shipper.ship()
    centre.commit(1)
    with pytest.raises(FencedError):
        centre.shipper.ship()
    assert centre.restored("again") == {0, 9}


@pytest.mark.parametrize("more", [0, 1, 3, 30])
@pytest.mark.parametrize("way", ["at", "copy"])
def test_another_past_of_the_same_engine_is_shipped_from_its_fork_on(
    centre: Centre, way: str, more: int
) -> None:
    """It was restored as of an earlier commit, or goes on from an old copy of the directory."""
    for number in range(3):
        centre.commit(number)
        centre.shipper.ship()
    fork = centre.commits[-1][0]
    centre.stop()
    shutil.copytree(centre.root / "schema", centre.root / "copy")
    shutil.rmtree(centre.root / "copy" / "storage")
    centre.start()
    for number in range(3, 8):
        centre.commit(number)
        centre.shipper.ship()
    place = centre.root / ("new" if way == "at" else "copy")
    if way == "at":
        restore_metadata(centre.store, centre.uuid, place, at=fork)
    expected = {0, 1, 2}
    with Tree(place) as home:
        taken = next_incarnation(centre.store, home, centre.uuid)
        with Engine.open(place, background=False) as engine:
            shipper = LogShipper(engine.published, home, centre.store, taken)
            shipper.ship()
            for number in range(100, 100 + more):
                engine.commit(step(number))
                expected.add(number)
                shipper.ship()
    restore_metadata(centre.store, centre.uuid, centre.root / "again")
    with (
        Engine.open(centre.root / "again", background=False) as engine,
        engine.reading() as state,
    ):
        assert {int(sender, 16) for sender in state.senders} == expected


def test_a_machine_that_was_turned_back_copies_nothing_until_it_is_said(centre: Centre) -> None:
    for number in range(3):
        centre.commit(number)
        centre.shipper.ship()
    centre.stop()
    shutil.copytree(centre.root / "schema", centre.root / "before")
    centre.start()
    centre.commit(3)
    centre.shipper.ship()
    centre.stop()
    shutil.rmtree(centre.root / "schema")
    (centre.root / "before").rename(centre.root / "schema")
    centre.start()
    with pytest.raises(ConflictError, match="older than the copies"):
        centre.shipper.ship()
    centre.commit(4)
    centre.commit(5)
    with pytest.raises(FencedError, match="turned back"):
        LogShipper(centre.engine.published, centre.home, centre.store, centre.owner)
    assert centre.restored("then") == {0, 1, 2, 3}
    next_incarnation(centre.store, centre.home, centre.uuid)
    centre.restart()
    assert centre.shipper.ship()
    assert centre.restored("now") == {0, 1, 2, 4, 5}


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
            engine.commit(step(9))
            shipper = LogShipper(engine.published, home, centre.store, taken)
            assert shipper.ship()
            assert not shipper.ship()
            engine.commit(step(10))
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
