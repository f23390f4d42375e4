"""The data directories as a cache: what may leave them, what comes back, what a kill leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common import crash
from common.durable import Tree
from common.errors import NoSpaceError, NotFoundError, StoppedError
from receiver.metadata.model import records
from receiver.metadata.model.errors import FencedError
from receiver.metadata.state.table_rows import FileRow
from receiver.storage.cache.cache_books import CacheBooks
from receiver.storage.cache.disk_cache import DiskCache
from receiver.storage.cache.evicting import Evictor
from receiver.storage.cache.file_fetching import FileFetcher
from receiver.storage.cache.object_fetching import sweep_fetched
from receiver.storage.cache.store_place import StorePlace, StoreSource
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_keys import resource_key
from receiver.storage.stores.object_store import StoreAwayError
from tests.support.followed import wait_for
from tests.support.uploading import Centre

BLOCK = 4096
"""What each of the files takes here, and each resource."""


class CountedStore(DirectoryStore):
    """A store that counts, waits and refuses as it is told."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_away = False

    def head(self, key: str):  # type: ignore[no-untyped-def]
        if self.is_away:
            raise StoreAwayError("away")
        return super().head(key)

    def read(self, key: str, offset: int, length: int) -> bytes:
        if self.is_away:
            raise StoreAwayError("away")
        if "/data/" in key:
            self.reads.append(key)
        self.gate.wait(60)
        return super().read(key, offset, length)


class Cached(Centre):
    """The same with a cache of ten files; marks at nine and eight."""

    store: CountedStore

    def __init__(self, root: Path) -> None:
        self.shipped: int | None = None
        (root / "bucket").mkdir()
        super().__init__(root, CountedStore(root / "bucket"))

    def start(self) -> None:
        super().start()
        sweep_fetched(self.tree)
        self.cache = DiskCache(10 * BLOCK)
        self.books = CacheBooks(
            self.engine,
            lambda: [self.tree],
            self.cache,
        )
        self.place = StorePlace(
            self.engine,
            self.store,
            self.owner,
            lambda: self.engine.newest_commit if self.shipped is None else self.shipped,
        )
        source = StoreSource(self.engine, self.store)
        self.fetcher = FileFetcher(
            self.engine, [source], lambda: [self.tree], self.cache, pin_wait=0.0
        )
        self.evictor = Evictor(
            self.engine,
            [self.place],
            lambda: [self.tree],
            self.cache,
            self.books,
        )

    def stop(self) -> None:
        self.store.gate.set()
        self.fetcher.close()
        super().stop()

    def filled(self, count: int = 10) -> list[str]:
        loaded = [self.load(number) for number in range(count)]
        self.uploader.run_once()
        return loaded

    def here(self) -> set[str]:
        return {rel for rel, _ in self.tree.files("sequence")}

    def row(self, physical: str) -> FileRow:
        with self.engine.reading() as state:
            return state.files[physical]

    def whole(self, physical: str) -> bytes:
        return (self.root / "data" / physical).read_bytes()

    def fetch(self, *physicals: str, used: bool = False) -> None:
        with self.fetcher.pinned([self.row(each) for each in physicals], used=used):
            assert set(physicals) <= self.here()

    def evict_all(self) -> None:
        self.cache.capacity = 1
        self.evictor.run_once()
        self.cache.capacity = 10 * BLOCK


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Cached]:
    made = Cached(tmp_path)
    yield made
    made.end()


# -- what goes ---------------------------------------------------------------------------------


def test_above_the_upper_mark_the_oldest_go_down_to_the_lower_one(centre: Cached) -> None:
    loaded = centre.filled(9)
    assert centre.evictor.run_once() == 0
    loaded.append(centre.load(9))
    assert centre.evictor.run_once() == 2
    assert centre.here() == set(loaded[2:])
    assert centre.cache.usage == 8 * BLOCK


def test_what_is_not_in_the_store_never_goes(centre: Cached) -> None:
    loaded = [centre.load(number) for number in range(12)]
    assert centre.evictor.run_once() == 0
    assert centre.here() == set(loaded)
    assert centre.cache.room() == 0
    centre.uploader.run_once()
    assert centre.evictor.run_once() == 4
    assert centre.cache.room() == 2 * BLOCK


def test_only_what_is_there_as_it_is_goes(centre: Cached) -> None:
    loaded = centre.filled()
    resource, quarantined, deleted, unshipped, free = loaded[:5]
    centre.note_resource(resource, b"new")
    centre.engine.commit([records.FileQuarantined(quarantined, "bad")])
    centre.engine.commit([records.FileDeleted(deleted, "operator")])
    with centre.engine.reading() as state:
        rows = state.uploaded_table.rows
        centre.shipped = max(row.changed for row in rows.values())
    late = centre.load(11)
    centre.uploader.run_once()
    centre.cache.capacity = 1
    centre.evictor.run_once()
    assert centre.here() == {resource, quarantined, late}, "a deleted one is kept there"
    assert free not in centre.here()
    assert unshipped not in centre.here()


@pytest.mark.parametrize("damage", ["lost", "cut", "other bytes"])
def test_what_the_store_has_no_more_as_it_was_put_stays(centre: Cached, damage: str) -> None:
    loaded = centre.filled()
    place = centre.root / "bucket" / centre.key(loaded[0])
    content = place.read_bytes()
    place.unlink()
    if damage != "lost":
        place.write_bytes(content[:-1] + (b"" if damage == "cut" else b"?"))
    centre.evictor.run_once()
    assert loaded[0] in centre.here()
    assert centre.evictor.doubtful == 1


def test_an_object_that_rots_after_its_file_went_once_keeps_it_the_next_time(
    centre: Cached,
) -> None:
    """A directory tells no digest: the last copy goes only on what was read just before."""
    (one,) = centre.filled(1)
    centre.evict_all()
    centre.fetch(one)
    place = centre.root / "bucket" / centre.key(one)
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    centre.evict_all()
    assert one in centre.here()
    assert centre.evictor.doubtful == 1


def test_a_resource_that_the_store_lost_keeps_its_file_here(centre: Cached) -> None:
    one = centre.load(77, resource=b"res")
    centre.filled(9)
    centre.store.remove(resource_key(centre.key(one), centre.resources()[one]))
    centre.evict_all()
    assert centre.here() == {one, f"{one}.resource"}


def test_a_file_that_cannot_be_taken_away_holds_up_no_other(
    centre: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = centre.filled()
    unlink = centre.tree.unlink

    def refuse(rel: str, **more: bool) -> bool:
        if rel == loaded[0]:
            raise PermissionError(13, "not yours", rel)
        return unlink(rel, **more)

    monkeypatch.setattr(centre.tree, "unlink", refuse)
    assert centre.evictor.run_once() == 1
    assert centre.evictor.run_once() == 0
    centre.cache.want(3 * BLOCK)
    assert centre.evictor.run_once() == 2
    assert centre.here() == {loaded[0], *loaded[4:]}
    assert centre.evictor.doubtful == 0


def test_while_the_store_is_away_nothing_goes(centre: Cached) -> None:
    loaded = centre.filled()
    centre.store.is_away = True
    with pytest.raises(StoreAwayError):
        centre.evictor.run_once()
    assert centre.here() == set(loaded)


def test_who_was_replaced_evicts_nothing(centre: Cached, tmp_path: Path) -> None:
    loaded = centre.filled()
    with Tree(tmp_path / "other", create=True) as home:
        next_incarnation(centre.store, home, centre.engine.uuid)
    with pytest.raises(FencedError):
        centre.evictor.run_once()
    assert centre.here() == set(loaded)


def test_without_a_capacity_everything_stays(centre: Cached) -> None:
    loaded = centre.filled()
    centre.cache.capacity = None
    assert centre.evictor.run_once() == 0
    assert (centre.here(), centre.cache.room()) == (set(loaded), None)


def test_a_resource_that_is_told_of_in_between_keeps_its_file(centre: Cached) -> None:
    one = centre.load(77, resource=b"old")
    centre.filled(9)

    def tell(name: str) -> None:
        if name == "storage.evict.before" and centre.row(one).resource != new:
            centre.note_resource(one, b"newer")
            centre.write_resource(one, b"newer")

    centre.cache.capacity = 1
    new = records.ResourceMeta(5, "")
    with crash.arm(tell):
        centre.evictor.run_once()
    assert {one, f"{one}.resource"} <= centre.here()


# -- which go first ----------------------------------------------------------------------------


def test_a_walk_over_everything_throws_out_nothing_that_is_used(centre: Cached) -> None:
    loaded = centre.filled(8)
    centre.evictor.run_once()
    for each in loaded[:3]:
        centre.fetch(each, used=True)
    more = [centre.load(number) for number in range(8, 20)]
    centre.uploader.run_once()
    centre.evictor.run_once()
    for each in loaded[3:] + more:  # the walk
        centre.fetch(each)
        centre.evictor.run_once()
    assert set(loaded[:3]) <= centre.here()


def test_what_is_protected_leaves_room_for_what_comes() -> None:
    cache = DiskCache(100)
    for number in range(10):
        cache.came(str(number), 10)
        cache.used(str(number))
    assert cache.victims(20, lambda _: True) == ["0", "1"]
    cache.used("0")
    assert cache.victims(20, lambda _: True) == ["1", "2"]


def test_a_demand_for_room_is_met_though_no_mark_is_passed(centre: Cached) -> None:
    centre.filled(8)
    centre.evictor.run_once()
    centre.cache.want(4 * BLOCK)
    assert centre.evictor.run_once() == 2
    assert centre.evictor.run_once() == 0
    assert centre.cache.room() == 4 * BLOCK


def test_after_a_start_the_books_are_what_the_disk_has_in_the_order_of_the_loads(
    centre: Cached,
) -> None:
    loaded = [*centre.filled(9), centre.load(10, resource=b"r")]
    centre.restart()
    centre.uploader.run_once()
    centre.books.look()
    assert centre.cache.usage == 11 * BLOCK
    assert centre.cache.victims(10**9, lambda _: True) == loaded


# -- pins and fetches --------------------------------------------------------------------------


def test_what_is_pinned_stays(centre: Cached) -> None:
    loaded = centre.filled()
    with centre.fetcher.pinned([centre.row(loaded[0])]):
        centre.evict_all()
        assert centre.here() == {loaded[0]}
    centre.evict_all()
    assert centre.here() == set()


def test_others_go_in_the_place_of_what_is_pinned(centre: Cached) -> None:
    loaded = centre.filled()
    with centre.fetcher.pinned([centre.row(loaded[0])]):
        assert centre.evictor.run_once() == 2
    assert centre.here() == {loaded[0], *loaded[3:]}


def test_what_is_pinned_at_the_last_moment_stays(centre: Cached) -> None:
    loaded = centre.filled()

    def pin(name: str) -> None:
        if name == "storage.evict.before":
            centre.cache.pin(loaded[:1])

    with crash.arm(pin):
        assert centre.evictor.run_once() == 1
    assert loaded[0] in centre.here()


def test_it_comes_back_as_it_was(centre: Cached) -> None:
    one = centre.load(77, resource=b"res")
    centre.filled(9)
    before = centre.whole(one), centre.whole(f"{one}.resource")
    centre.evict_all()
    assert centre.here() == set()
    centre.fetch(one)
    assert (centre.whole(one), centre.whole(f"{one}.resource")) == before
    assert centre.cache.usage == 2 * BLOCK


@pytest.mark.parametrize("damage", ["cut", "other bytes"])
def test_other_bytes_get_no_place(centre: Cached, damage: str) -> None:
    (one,) = centre.filled(1)
    centre.evict_all()
    place = centre.root / "bucket" / centre.key(one)
    place.write_bytes(place.read_bytes()[:-1] + (b"" if damage == "cut" else b"?"))
    with pytest.raises(ContentChangedError):
        centre.fetch(one)
    assert not [rel for rel, _ in centre.tree.files() if rel != ".tsferry-receiver"]
    assert centre.cache.usage == 0


def test_an_object_is_fetched_once_however_many_wait(centre: Cached) -> None:
    (one,) = centre.filled(1)
    centre.evict_all()
    centre.store.reads.clear()
    centre.store.gate.clear()
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(centre.fetch, one) for _ in range(20)]
        while not centre.store.reads:
            pass
        centre.store.gate.set()
        for each in asked:
            each.result()
    assert len(centre.store.reads) == 1


def test_all_that_a_step_needs_comes_or_none_of_it(centre: Cached) -> None:
    loaded = centre.filled(9)
    centre.evict_all()
    centre.store.reads.clear()
    many = [centre.row(each) for each in loaded] + [centre.row(centre.load(99))]
    waiting = [centre.load(number) for number in range(20, 22)]
    centre.evictor.run_once()
    with pytest.raises(NoSpaceError), centre.fetcher.pinned(many):
        raise AssertionError
    assert centre.store.reads == []
    centre.uploader.run_once()
    assert centre.evictor.run_once()  # what was asked for is made room for
    with centre.fetcher.pinned(many[:9]):
        assert set(loaded) <= centre.here()
    assert waiting


def test_what_is_larger_than_the_cache_is_refused_at_once(centre: Cached) -> None:
    loaded = centre.filled(11)
    centre.evict_all()
    with (
        pytest.raises(NoSpaceError, match=r"storage\.capacity"),
        centre.fetcher.pinned([centre.row(each) for each in loaded]),
    ):
        raise AssertionError


def test_what_was_deleted_while_it_came_does_not_stay(centre: Cached) -> None:
    (one,) = centre.filled(1)
    centre.evict_all()

    def delete(name: str) -> None:
        if name == "storage.fetch.named":
            centre.engine.commit([records.FileDeleted(one, "operator")])
            centre.engine.commit([records.FileForgotten(one)])

    with crash.arm(delete), pytest.raises(NotFoundError):
        centre.fetch(one)
    assert centre.here() == set()


def test_a_resource_that_came_meanwhile_is_not_replaced_by_the_one_before(centre: Cached) -> None:
    one = centre.load(77, resource=b"old")
    centre.uploader.run_once()
    centre.evict_all()

    def tell(name: str) -> None:
        if name == "storage.fetch.written" and centre.row(one).resource.size == 3:  # type: ignore[union-attr]
            centre.note_resource(one, b"newer")
            centre.write_resource(one, b"newer")

    with crash.arm(tell):
        centre.fetch(one)
    assert centre.whole(f"{one}.resource") == b"newer"


def test_a_fetch_after_the_end_is_refused(centre: Cached) -> None:
    (one,) = centre.filled(1)
    centre.evict_all()
    centre.fetcher.close()
    with pytest.raises(StoppedError):
        centre.fetch(one)


def test_what_is_here_can_be_read_though_there_is_no_room_at_all(centre: Cached) -> None:
    loaded = [centre.load(number) for number in range(12)]
    centre.evictor.run_once()
    assert centre.cache.room() == 0
    centre.fetch(*loaded)


def test_a_new_resource_of_a_file_in_the_store_goes_there_too_and_leaves_the_disk(
    centre: Cached,
) -> None:
    one = centre.load(77, resource=b"old")
    centre.uploader.run_once()
    centre.evict_all()
    centre.note_resource(one, b"newer")
    centre.books.look()
    centre.write_resource(one, b"newer")
    centre.uploader.run_once()
    assert centre.here() == {f"{one}.resource"}
    centre.evict_all()
    assert centre.here() == set()
    centre.fetch(one)
    assert centre.whole(f"{one}.resource") == b"newer"


# -- kills -------------------------------------------------------------------------------------

EVICTION = [
    "storage.evict.before",
    "durable.unlink.unlinked",
    "storage.evict.half",
    "storage.evicted",
]
FETCH = ["storage.fetch.begun", "storage.fetch.written", "storage.fetch.named", "storage.fetched"]


@pytest.mark.parametrize("point", [*EVICTION, *FETCH])
def test_a_kill_at_any_step_loses_nothing_and_leaves_nothing(centre: Cached, point: str) -> None:
    one = centre.load(77, resource=b"res")
    content = centre.whole(one)
    centre.uploader.run_once()
    act: Callable[[], object] = centre.evict_all
    if point in FETCH:
        centre.evict_all()
        act = lambda: centre.fetcher._fetch(centre.fetcher._absent([centre.row(one)])[0])  # noqa: E731

    def die(name: str) -> None:
        if name == point:
            raise crash.SimulatedCrash

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        act()
    centre.restart()
    centre.books.look()
    assert not list(centre.tree.files(".fetching"))
    here = centre.here()
    assert here in ({one, f"{one}.resource"}, {f"{one}.resource"}, set())
    assert centre.cache.usage == len(here) * BLOCK
    centre.fetch(one)
    assert centre.whole(one) == content
    assert centre.whole(f"{one}.resource") == b"res"
    centre.evict_all()
    assert centre.here() == set()


# -- ahead ---------------------------------------------------------------------------------------


def test_while_a_batch_is_worked_on_the_next_two_come_and_no_more(centre: Cached) -> None:
    loaded = centre.filled(8)
    centre.evict_all()
    centre.store.reads.clear()
    turns = centre.fetcher.pinned_in_turn([centre.row(each)] for each in loaded)
    with next(turns):
        wait_for(lambda: len(centre.here()) >= 3)
        assert loaded[0] in centre.here()
        assert len(centre.store.reads) == 3
    with next(turns):
        wait_for(lambda: len(centre.here()) >= 4)
        assert loaded[1] in centre.here()
    turns.close()
    wait_for(lambda: not centre.fetcher._coming)
    assert set(centre.store.reads) == {centre.key(each) for each in loaded[:4]}, "no more is begun"
    wait_for(lambda: not centre.cache._pins)


def test_what_comes_ahead_takes_free_room_only(centre: Cached) -> None:
    """Nothing goes for it, least of all what the running batch has pinned."""
    loaded = centre.filled(8)
    centre.evict_all()
    centre.cache.capacity = 2 * BLOCK
    asked = [[centre.row(loaded[0]), centre.row(loaded[1])], [centre.row(loaded[2])]]
    turns = centre.fetcher.pinned_in_turn(asked)
    with next(turns):
        wait_for(lambda: not centre.fetcher._turns._work_queue.qsize())
        centre.fetcher._turns.submit(int).result()
        assert centre.here() == set(loaded[:2])
        assert not centre.cache._demand, "no room is asked for"
    centre.evict_all()
    centre.cache.capacity = 2 * BLOCK
    with next(turns):
        assert loaded[2] in centre.here()


def test_what_does_not_come_ahead_is_an_error_where_it_is_needed(centre: Cached) -> None:
    loaded = centre.filled(3)
    centre.evict_all()
    read, lost = centre.store.read, centre.key(loaded[1])

    def refusing(key: str, offset: int, length: int) -> bytes:
        if key == lost:
            raise StoreAwayError("away")
        return read(key, offset, length)

    centre.store.read = refusing  # type: ignore[method-assign]
    first, second, third = centre.fetcher.pinned_in_turn([centre.row(each)] for each in loaded)
    with first:
        assert loaded[0] in centre.here()
    with pytest.raises(StoreAwayError), second:
        pass
    with third:
        assert loaded[2] in centre.here()


def test_what_is_going_to_be_asked_for_comes_as_far_as_there_is_room(centre: Cached) -> None:
    loaded = centre.filled(9)
    centre.evict_all()
    centre.cache.capacity = 6 * BLOCK
    centre.fetcher.come_ahead([centre.row(each) for each in loaded])
    wait_for(centre.fetcher._guess.done)
    assert centre.here() == set(loaded[:4]), "in fours"
    assert not centre.cache._demand
    assert not centre.cache._pins


def test_proofs_over_files_of_the_store_do_not_wait_for_each(centre: Cached) -> None:
    """While one batch is worked on, the next one is on its way."""
    rows = [[centre.row(each)] for each in centre.filled(8)]
    centre.evict_all()
    read, begun = centre.store.read, set[str]()

    def noted(key: str, offset: int, length: int) -> bytes:
        begun.add(key)
        return read(key, offset, length)

    centre.store.read = noted  # type: ignore[method-assign]
    for number, batch in enumerate(centre.fetcher.pinned_in_turn(rows), 1):
        with batch:
            wait_for(lambda number=number: len(begun) > min(number, len(rows) - 1))
