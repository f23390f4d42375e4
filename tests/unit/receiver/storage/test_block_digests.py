"""The digests of a large file's blocks go with its object: up, into the row, and away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.digests import md5
from receiver.metadata.model import records
from receiver.storage.objects.object_places import file_of, place_objects
from receiver.storage.objects.object_removal import objects_of
from receiver.storage.objects.object_repair import examine_store, repair_store
from receiver.storage.reading.block_digests import (
    BLOCK_BYTES,
    WHOLE_BYTES,
    BlockDigests,
    blocks_key,
)
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_keys import stored_key
from tests.support.uploading import Centre

LARGE = WHOLE_BYTES + 12345


class Large(Centre):
    def is_checked(self, physical: str) -> bool:
        """Whether the digests that the row vouches for are those of the file."""
        with self.engine.reading() as state:
            there = state.uploaded_table.rows[physical]
        (said,) = (each[7:] for each in there.digests.split() if each.startswith("blocks="))
        packed = self.store.read(blocks_key(stored_key(self.engine.uuid, there)), 0, 1 << 20)
        content, digests = self.content(physical), BlockDigests.unpack(packed)
        cut = [content[at : at + BLOCK_BYTES] for at in range(0, len(content), BLOCK_BYTES)]
        right = [digests.is_block(number, block) for number, block in enumerate(cut)]
        wrong = [digests.is_block(number, block + b"?") for number, block in enumerate(cut)]
        return md5(packed).hexdigest() == said and all(right) and not any(wrong)

    def content(self, physical: str) -> bytes:
        return (self.root / "data" / physical).read_bytes()

    def blocks(self, physical: str, again: str = "") -> Path:
        return self.root / "bucket" / blocks_key(self.key(physical) + again)


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Large]:
    (tmp_path / "bucket").mkdir()
    made = Large(tmp_path, DirectoryStore(tmp_path / "bucket"))
    yield made
    made.end()


def test_a_large_file_has_them_and_a_small_one_needs_none(centre: Large) -> None:
    large, small = centre.load(1, size=LARGE), centre.load(2)
    centre.uploader.run_once()
    key = centre.key(large)
    assert sorted(centre.objects()) == sorted([key, blocks_key(key), centre.key(small)])
    assert centre.is_checked(large)
    centre.engine.checkpoint()
    centre.restart()
    assert centre.is_checked(large)


def test_who_was_cut_off_between_file_and_digests_puts_them_at_the_next_try(
    centre: Large, tmp_path: Path
) -> None:
    large = centre.load(1, size=LARGE)
    bytes_there = centre.content(large)
    place = tmp_path / "bucket" / centre.key(large)
    place.parent.mkdir(parents=True)
    place.write_bytes(bytes_there)
    centre.uploader.run_once()
    assert centre.is_checked(large)


def test_a_check_of_the_store_knows_them(centre: Large) -> None:
    one, two = centre.load(1, size=LARGE), centre.load(2, size=LARGE)
    centre.uploader.run_once()

    def found(*, deep: bool = False) -> list[tuple[str, str, str]]:
        report = examine_store(centre.engine, centre.store, [centre.tree], deep=deep)
        return [(each.kind, each.physical, each.repair) for each in report.found]

    assert found(deep=True) == []
    centre.blocks(one).unlink()
    damaged = bytearray(centre.blocks(two).read_bytes())
    damaged[-1] ^= 1
    centre.blocks(two).write_bytes(damaged)
    assert found() == [("blocks", one, "put it there once more")]
    assert [each[:2] for each in found(deep=True)] == [("blocks", one), ("blocks", two)]
    report = examine_store(centre.engine, centre.store, [centre.tree], deep=True)
    assert repair_store(centre.engine, centre.store, centre.owner, [centre.tree], report).good
    assert found(deep=True) == []
    assert centre.blocks(one, ".again-1").exists()
    assert centre.is_checked(one)


def test_a_file_that_is_nowhere_else_is_not_given_up_for_its_digests(centre: Large) -> None:
    one = centre.load(1, size=LARGE)
    centre.uploader.run_once()
    centre.tree.unlink(one)
    centre.blocks(one).unlink()
    (found,) = examine_store(centre.engine, centre.store, [centre.tree], deep=True).found
    assert (found.kind, found.repair) == ("blocks", "")


def test_they_go_with_the_objects_of_their_file_each_time_that_it_was_put(centre: Large) -> None:
    one = centre.load(1, size=LARGE)
    centre.uploader.run_once()
    with centre.engine.reading() as state:
        row = state.uploaded_table.rows[one]
    centre.engine.commit([records.FileUploaded(one, row.incarnation, row.size, "", "", 1)])
    with centre.engine.reading() as state:
        keys = objects_of(centre.engine.uuid, state.uploaded_table.rows[one])
    first = centre.key(one)
    again = f"{first}.again-1"
    assert keys == [blocks_key(first), blocks_key(again), first, again]
    assert {file_of(each) for each in keys} == {one}


def test_they_are_never_taken_for_the_file(centre: Large, tmp_path: Path) -> None:
    """Where no commit tells of an upload, its object is found by the names in the list."""
    one = centre.load(1, size=LARGE)
    key = centre.key(one)
    place = tmp_path / "bucket" / blocks_key(key)
    place.parent.mkdir(parents=True)
    place.write_bytes(centre.content(one))
    assert place_objects(centre.store, centre.engine) == {}
