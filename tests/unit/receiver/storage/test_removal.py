"""Objects go when no restore can need them, and nothing goes that the engine does not know."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import crash
from common.durable import Tree, temporary_name
from common.errors import DamagedError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import FencedError
from receiver.storage.cache.file_restore import restore_files
from receiver.storage.log_copies.log_removal import LogRemover
from receiver.storage.log_copies.log_shipping import LogShipper
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.objects.object_removal import ObjectRemover
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.stores.object_keys import data_key
from receiver.storage.stores.object_store import StoreAwayError, StoreRefusedError
from receiver.storage.stores.store_manifests import StoreManifest
from tests.support.uploading import Centre

DAY = 86_400.0
HISTORY, GRACE = 7 * DAY, 2 * DAY


class Keeper(Centre):
    """The same with a clock that a test moves, its log copied, and what removes."""

    def start(self) -> None:
        self.time = getattr(self, "time", time.time())
        self.clock = lambda: self.time
        super().start()
        self.shipper = LogShipper(self.engine.published, self.home, self.store, self.owner)
        self.files_remover = ObjectRemover(
            self.engine,
            self.store,
            self.owner,
            grace=GRACE,
            newest=lambda: self.shipper.newest,
            clock=lambda: self.time,
        )
        self.log_remover = LogRemover(
            self.engine,
            self.store,
            self.owner,
            grace=GRACE,
            newest=lambda: self.shipper.newest,
        )

    def forget(self, physical: str) -> None:
        self.engine.commit([records.FileDeleted(physical, "operator")])
        self.engine.commit([records.FileForgotten(physical)])

    def pass_by(self, seconds: float) -> None:
        """Time passes; the engine lets its history go, and the log is copied."""
        self.time += seconds
        self.engine.commit([records.SenderSeen("0" * 32, "", "x")])
        self.engine.collect()
        self.shipper.ship()

    def all_objects(self) -> set[str]:
        return {each.key for each in self.store.objects("")}

    def restore(self, name: str, *, at: int | None = None) -> set[str]:
        """What a receiver that is made of the store knows; all of its bytes have to be there."""
        place = self.root / name
        restore_metadata(self.store, self.engine.uuid, place / "schema", at=at)
        with (
            Engine.open(place / "schema", clock=self.clock, background=False) as engine,
            Tree(place / "data", create=True) as data,
        ):
            assert restore_files(self.store, engine, [data]).lacking == []
            with engine.reading() as state:
                return set(state.files)


def key_of(centre: Centre, physical: str) -> str:
    return data_key(centre.owner.engine, centre.owner.number, physical)


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Keeper]:
    (tmp_path / "bucket").mkdir()
    made = Keeper(tmp_path, DirectoryStore(tmp_path / "bucket"))
    yield made
    made.end()


def test_the_objects_of_a_file_go_when_it_is_forgotten_for_history_and_grace(
    centre: Keeper,
) -> None:
    one, two = centre.load(1, resource=b"one"), centre.load(2, resource=b"two")
    centre.uploader.run_once()
    centre.note_resource(one, b"anew")
    centre.write_resource(one, b"anew")
    centre.uploader.run_once()
    assert len(centre.objects()) == 5
    centre.pass_by(0)
    centre.forget(one)
    centre.pass_by(HISTORY + GRACE - 60)
    assert centre.files_remover.run_once() == 0
    assert len(centre.objects()) == 5
    centre.pass_by(120)
    assert centre.files_remover.run_once() == 1
    assert {each[: len(key_of(centre, two))] for each in centre.objects()} == {key_of(centre, two)}
    assert len(centre.objects()) == 2
    assert centre.uploaded() == {two}
    centre.engine.checkpoint()
    centre.restart()
    assert centre.uploaded() == {two}


def test_each_moment_of_the_history_has_its_files(centre: Keeper) -> None:
    """A file is loaded and forgotten each day; every moment that may be asked for is restored."""
    moments: list[tuple[float, int, set[str]]] = []
    names = list[str]()
    for number in range(14):
        names.append(centre.load(number))
        centre.uploader.run_once()
        if number >= 2:
            centre.forget(names[number - 2])
        if number % 3 == 0:
            centre.engine.checkpoint()
        moments.append((centre.time, centre.engine.newest_commit, set(names[-2:])))
        centre.pass_by(DAY)
        centre.files_remover.run_once()
        centre.log_remover.run_once()
    centre.engine.checkpoint()
    centre.pass_by(0)
    centre.log_remover.run_once()
    centre.files_remover.run_once()
    assert centre.uploaded() < set(names), "nothing has gone"
    assert centre.restore("newest") == set(names[-2:])
    for when, ts, files in moments:
        if when >= centre.time - HISTORY + 1:
            assert centre.restore(f"at-{ts}", at=ts) == files
        if when < centre.time - HISTORY - GRACE - DAY and len(files) == 2:
            assert not files <= centre.uploaded()


def test_what_the_log_in_the_store_does_not_tell_of_stays(centre: Keeper) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    centre.pass_by(0)
    centre.forget(one)
    centre.time += 2 * (HISTORY + GRACE)
    centre.engine.commit([records.SenderSeen("0" * 32, "", "x")])
    centre.engine.collect()
    assert centre.files_remover.run_once() == 0
    assert centre.restore("again") == {one}
    centre.pass_by(0)
    assert centre.files_remover.run_once() == 1


@pytest.mark.parametrize("point", ["storage.remove.removed", "storage.remove.committed"])
def test_a_kill_between_object_and_commit_ends_with_neither(centre: Keeper, point: str) -> None:
    one, two = centre.load(1, resource=b"one"), centre.load(2)
    centre.uploader.run_once()
    centre.forget(one)
    centre.pass_by(HISTORY + GRACE + 60)

    def die(name: str) -> None:
        if name == point:
            raise crash.SimulatedCrash

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        centre.files_remover.run_once()
    assert centre.objects() == [key_of(centre, two)]
    told = point.endswith("committed")
    assert centre.uploaded() == ({two} if told else {one, two})
    centre.restart()
    assert centre.files_remover.run_once() == (0 if told else 1)
    assert centre.uploaded() == {two}


def test_what_is_in_the_bucket_and_in_no_row_is_never_removed(centre: Keeper) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    centre.forget(one)
    uuid = centre.engine.uuid
    foreign = {
        f"{uuid}/data/00000001/sequence/root.sg/0/0/9-9-0-0.{9:016x}.tsfile",
        f"{key_of(centre, one)}.{'0' * 32}",
        f"{uuid}/log/00000001/mlog-1.tsf.0000000000000000.{'0' * 32}",
        f"{uuid}/checkpoints/00000001/mine",
        "other/data/00000001/x",
        "mine",
    }
    for key in foreign:
        centre.store.put(key, b"foreign")
    for _ in range(4):
        centre.pass_by(HISTORY + GRACE)
        centre.engine.checkpoint()
        centre.files_remover.run_once()
        centre.log_remover.run_once()
    assert centre.uploaded() == set()
    assert foreign <= centre.all_objects()


def test_a_refusal_holds_up_nothing_else_and_is_tried_again_after_hours(
    centre: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = centre.load(1), centre.load(2)
    centre.uploader.run_once()
    centre.forget(one)
    centre.forget(two)
    centre.pass_by(HISTORY + GRACE + 60)
    tried = list[str]()
    remove = centre.store.remove

    def locked(key: str) -> None:
        if one in key:
            tried.append(key)
            raise StoreRefusedError("AccessDenied: object is WORM protected")
        remove(key)

    with monkeypatch.context() as patch:
        patch.setattr(centre.store, "remove", locked)
        assert centre.files_remover.run_once() == 1
        assert centre.uploaded() == {one}
        assert "WORM" in str(centre.files_remover.problem)
        centre.files_remover.run_once()
        assert len(tried) == 1
        assert "WORM" in str(centre.files_remover.problem)
        centre.time += DAY
        centre.files_remover.run_once()
        assert len(tried) == 2
    centre.time += DAY
    assert centre.files_remover.run_once() == 1
    assert centre.files_remover.problem is None


def test_what_went_before_the_store_was_away_is_told_of(
    centre: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = centre.load(1), centre.load(2)
    centre.uploader.run_once()
    centre.forget(one)
    centre.forget(two)
    centre.pass_by(HISTORY + GRACE + 60)
    remove = centre.store.remove

    def away(key: str) -> None:
        if two in key:
            raise StoreAwayError("slow down")
        remove(key)

    with monkeypatch.context() as patch:
        patch.setattr(centre.store, "remove", away)
        with pytest.raises(StoreAwayError):
            centre.files_remover.run_once()
    assert centre.uploaded() == {two}


def test_who_was_replaced_removes_nothing(centre: Keeper, tmp_path: Path) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    centre.forget(one)
    for _ in range(3):
        centre.pass_by(HISTORY + GRACE)
        centre.engine.checkpoint()
    centre.pass_by(0)
    with Tree(tmp_path / "other", create=True) as home:
        next_incarnation(centre.store, home, centre.engine.uuid)
    before = centre.all_objects()
    with pytest.raises(FencedError):
        centre.files_remover.run_once()
    with pytest.raises(FencedError):
        centre.log_remover.run_once()
    assert centre.all_objects() == before


def test_old_copies_of_the_log_go_and_what_stays_is_whole(centre: Keeper) -> None:
    for number in range(30):
        centre.load(number)
        if number % 4 == 1:
            centre.engine.checkpoint()
        centre.pass_by(DAY)
        centre.log_remover.run_once()
        found = [each.key for each in StoreManifest.listed(centre.store, centre.engine.uuid)]
        assert min(number + 1, 3) <= len(found) <= 5, "those of the grace, and the newest"
        newest = StoreManifest.newest(centre.store, centre.engine.uuid)
        assert newest is not None
        assert {each.key for each in newest.pieces} <= centre.all_objects()
    named = {each.key for each in newest.pieces}
    log = {each for each in centre.all_objects() if "/log/" in each or "/checkpoints/" in each}
    assert len(log) < len(named) + 12
    centre.restart()
    with centre.engine.reading() as state:
        known = set(state.files)
    restore_metadata(centre.store, centre.engine.uuid, centre.root / "again")
    with Engine.read_only(centre.root / "again") as engine, engine.reading() as state:
        assert set(state.files) == known


def test_old_checkpoints_stay_while_no_newer_one_is_good(centre: Keeper) -> None:
    for number in range(3):
        centre.load(number)
        centre.engine.checkpoint()
        centre.pass_by(HISTORY + GRACE)
    newest = centre.shipper.newest
    assert newest is not None
    for each in newest.checkpoints:
        place = centre.root / "bucket" / each.piece.key
        place.write_bytes(b"?" + place.read_bytes()[1:])
    before = {each for each in centre.all_objects() if "/checkpoints/" in each}
    with pytest.raises(DamagedError, match="no checkpoint that is good"):
        centre.log_remover.run_once()
    assert {each for each in centre.all_objects() if "/checkpoints/" in each} == before


def test_own_attempts_of_what_is_not_to_come_are_dropped_after_a_day(centre: Keeper) -> None:
    one = centre.load(1)
    own = centre.root / "bucket" / key_of(centre, one)
    table, another = (
        centre.root / "bucket" / f"{centre.engine.uuid}/tree/tables/{number}/x"
        for number in ("00000001", "00000002")
    )
    other = centre.root / "bucket" / "other" / "x"
    for each in (own, table, another, other):
        each.parent.mkdir(parents=True)
        each.with_name(temporary_name()).write_bytes(b"half")
    assert len(list(centre.store.unfinished(""))) == 4
    assert centre.files_remover.abandon_attempts() == 0
    centre.time += DAY + 60
    assert centre.files_remover.abandon_attempts() == 2
    left = {each.ident.rpartition("/")[0] for each in centre.store.unfinished("")}
    assert left == {"other", f"{centre.engine.uuid}/tree/tables/00000002"}


def test_what_was_forgotten_first_goes_first_after_a_start_too(centre: Keeper) -> None:
    one, two = centre.load(1), centre.load(2)
    centre.uploader.run_once()
    centre.forget(two)
    centre.pass_by(HISTORY + GRACE + 60)
    centre.forget(one)
    centre.engine.checkpoint()
    centre.restart()
    centre.shipper.ship()
    assert centre.files_remover.run_once() == 1
    assert centre.uploaded() == {one}
