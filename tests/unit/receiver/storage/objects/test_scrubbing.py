"""Each object is asked for once in a round, and what is lost comes again from the copy here."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.operator.stored.storage import running_storage
from receiver.storage.objects import scrubbing
from receiver.storage.objects.scrubbing import Scrubber
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_store import StoredObject, StoreRefusedError
from tests.support.followed import wait_for
from tests.support.node_world import A, Edge, World, path_of, tsfile
from tests.support.uploading import Centre

DAY = 86400.0


class Heads(DirectoryStore):
    """A store that notes which files it is asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[str] = []

    def head(self, key: str) -> StoredObject:
        if "/data/" in key:
            self.asked.append(key.partition("/data/")[2].partition("/")[2])
        return super().head(key)


class Scrubbed(Centre):
    """Ten files in the store, and a clock of its own."""

    store: Heads

    def __init__(self, root: Path) -> None:
        (root / "bucket").mkdir()
        super().__init__(root, Heads(root / "bucket"))
        self.names = sorted(self.load(number) for number in range(10))
        self.uploader.run_once()
        self.now = 1.7e9
        self.store.asked.clear()
        self.open()

    def open(self) -> None:
        self.scrubber = Scrubber(
            self.engine,
            self.store,
            self.owner,
            self.home,
            lambda: [self.tree],
            days=10,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def after(self, days: float) -> list[str]:
        """Which files are asked for then; several at once, so in no order."""
        self.now += days * DAY
        self.store.asked.clear()
        self.scrubber.work()
        return sorted(each for each in self.store.asked if each.endswith(".tsfile"))

    def object(self, physical: str) -> Path:
        return self.root / "bucket" / self.key(physical)


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Scrubbed]:
    made = Scrubbed(tmp_path)
    yield made
    made.end()


def test_a_round_is_spread_over_its_days_and_asks_for_each_file_once(centre: Scrubbed) -> None:
    assert centre.after(0) == []
    assert centre.after(1) == centre.names[:1]
    assert centre.after(0) == []
    assert centre.after(3) == centre.names[1:4]
    assert centre.after(6.1) == centre.names[4:]
    assert centre.after(0.1) == [], "the next round begins"
    assert centre.after(2) == centre.names[:2]


def test_a_start_goes_on_where_the_last_one_ended(centre: Scrubbed) -> None:
    centre.after(0)
    centre.after(4)
    centre.open()
    assert centre.after(2) == centre.names[4:6]


def test_what_is_lost_or_cut_is_put_there_once_more_from_the_copy_here(centre: Scrubbed) -> None:
    whole = (centre.root / "data" / centre.names[1]).read_bytes()
    centre.object(centre.names[0]).unlink()
    centre.object(centre.names[1]).write_bytes(whole[:-1])
    centre.after(0)
    centre.after(3)
    assert centre.scrubber.problem is None
    for each in centre.names[:2]:
        with centre.engine.reading() as state:
            assert state.uploaded_table.rows[each].again == 1
        again = Path(f"{centre.object(each)}.again-1")
        assert again.read_bytes() == (centre.root / "data" / each).read_bytes()
    assert centre.object(centre.names[1]).read_bytes() == whole[:-1], "no object is replaced"


def test_bytes_that_a_disk_changed_where_no_digest_is_known_are_put_there_once_more(
    centre: Scrubbed,
) -> None:
    one, two = centre.names[:2]
    place = centre.object(one)
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    gone = centre.object(two)
    gone.write_bytes(gone.read_bytes()[:-1] + b"?")
    (centre.root / "data" / two).unlink()
    centre.after(0)
    centre.after(3)
    again = Path(f"{place}.again-1")
    assert again.read_bytes() == (centre.root / "data" / one).read_bytes()
    assert two in str(centre.scrubber.problem)


def test_one_step_reads_no_more_than_uploads_may_wait_for(
    centre: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with centre.engine.reading() as state:
        size = state.files[centre.names[0]].size
    monkeypatch.setattr(scrubbing, "_STEP_BYTES", 2 * size)
    centre.after(0)
    assert centre.after(5) == centre.names[:2]
    assert centre.after(0) == centre.names[2:4]
    monkeypatch.setattr(scrubbing, "_STEP_BYTES", 1)
    assert centre.after(0) == centre.names[4:5]


def test_what_nobody_has_is_named_until_it_is_right_and_nothing_is_concluded(
    centre: Scrubbed,
) -> None:
    lost = centre.names[0]
    kept = centre.object(lost).read_bytes()
    centre.object(lost).unlink()
    (centre.root / "data" / lost).unlink()
    centre.after(0)
    centre.after(1)
    assert centre.scrubber.problem is not None
    assert lost in centre.scrubber.problem
    with centre.engine.reading() as state:
        assert state.files[lost].visible
    centre.open()
    assert centre.scrubber.problem is not None, "a start forgets nothing"
    centre.object(lost).write_bytes(kept)
    assert centre.after(0.1)[0] == lost
    assert centre.scrubber.problem is None


def test_an_empty_directory_in_the_place_of_the_store_loses_nothing(centre: Scrubbed) -> None:
    centre.after(0)
    for each in centre.names[:2]:
        (centre.root / "data" / each).unlink()
    (centre.root / "bucket").rename(centre.root / "away")
    (centre.root / "bucket").mkdir()
    with pytest.raises(StoreRefusedError):
        centre.after(2)
    (centre.root / "bucket").rmdir()
    (centre.root / "away").rename(centre.root / "bucket")
    assert centre.after(0.1) == centre.names[:2]
    assert centre.scrubber.problem is None


def test_a_note_that_is_damaged_begins_a_round(centre: Scrubbed) -> None:
    centre.after(0)
    centre.after(4)
    (centre.home.path / "storage" / "scrub.json").write_bytes(b"{")
    centre.open()
    assert centre.after(0) == []
    assert centre.after(1) == centre.names[:1]


def test_a_running_receiver_mends_what_it_can_and_says_what_it_cannot(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    world = World(tmp_path / "centre", storage={"url": bucket.as_uri(), "lag": 0.1})
    world.root.mkdir()
    with world.node() as node:
        edge = Edge(node, uuid=A)
        edge.round({path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile("root.sg.d2")})
        wait_for(lambda: len(node.engine._state.uploaded_table.rows) == 2)
        rows = sorted(node.engine._state.files.values(), key=lambda row: row.physical)
        place = node.config.schema_dir / "storage" / "scrub.json"
    for row in rows:
        (there,) = bucket.rglob(row.physical)
        there.unlink()
    (Path(rows[1].data_dir) / rows[1].physical).unlink()
    place.write_text(json.dumps({"begun": time.time() - 60 * DAY}))
    with world.node() as node:
        assert node.storage is not None
        storage = node.storage
        wait_for(lambda: rows[1].physical in str(storage.trouble()))
        assert rows[0].physical not in str(storage.trouble())
        assert rows[1].physical in (running_storage(node.operator).problem or "")
        wait_for(lambda: list(bucket.rglob(f"{rows[0].physical}.again-1")))
