"""What is read of an object is checked before it is given, and fetched by blocks."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.digests import md5
from common.tsfile import Corrupt
from receiver.storage.reading.block_cache import BlockCache
from receiver.storage.reading.block_digests import BLOCK_BYTES as BLOCK
from receiver.storage.reading.block_digests import WHOLE_BYTES as WHOLE
from receiver.storage.reading.block_digests import BlockDigests, blocks_key
from receiver.storage.reading.ranged_file import RangedFile
from receiver.storage.reading.stored_place import StoreAddress, StoredPlace
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import ObjectMissingError
from receiver.storage.uploading.digest_uploads import ReadContent, put_block_digests
from tests.support import tiers

LARGE = random.Random(1).randbytes(WHOLE + 3 * BLOCK + 17)
SMALL = LARGE[: WHOLE // 2]


class Bytes:
    """As `ObjectContent`."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size, self.md5 = data, len(data), md5(data).hexdigest()

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


class Reads(DirectoryStore):
    """Notes what is read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.seen: list[tuple[str, int, int]] = []

    def read(self, key: str, offset: int, length: int) -> bytes:
        self.seen.append((key, offset, length))
        return super().read(key, offset, length)

    @property
    def of_file(self) -> list[tuple[int, int]]:
        return [(offset, length) for key, offset, length in self.seen if key == "file"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Reads]:
    made = Reads(tmp_path)
    yield made
    made.close()


def uploaded(store: DirectoryStore, data: bytes, *, digests: bool = True) -> StoredPlace:
    content = ReadContent(Bytes(data))
    store.upload("file", content, {})
    said = put_block_digests(store, "file", content) if digests else {}
    return StoredPlace(
        StoreAddress(store.url), "file", len(data), content.md5, said.get("blocks", "")
    )


def opened(
    store: DirectoryStore, place: StoredPlace, cache: BlockCache | None = None
) -> RangedFile:
    return RangedFile(store, place, cache or BlockCache(64 << 20))


@pytest.fixture(scope="module")
def stored(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[DirectoryStore, StoredPlace]]:
    made = DirectoryStore(tmp_path_factory.mktemp("bucket"))
    yield made, uploaded(made, LARGE)
    made.close()


@settings(max_examples=tiers.examples(30), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(LARGE)), st.integers(0, 3 * BLOCK)), max_size=5))
def test_each_range_is_what_was_uploaded(
    stored: tuple[DirectoryStore, StoredPlace], ranges: list[tuple[int, int]]
) -> None:
    store, place = stored
    file = opened(store, place, BlockCache(3 * BLOCK))
    for offset, length in ranges:
        end = min(len(LARGE), offset + length)
        assert file.read(offset, end - offset) == LARGE[offset:end]


def test_a_small_file_is_one_request_and_is_checked_by_its_md5(store: Reads) -> None:
    place = uploaded(store, SMALL)
    assert not place.blocks
    store.seen.clear()
    file = opened(store, place)
    assert file.read(10, 20) == SMALL[10:30]
    assert file.read(len(SMALL) - 5, 5) == SMALL[-5:]
    assert store.seen == [("file", 0, len(SMALL))]


def test_of_a_large_one_only_the_blocks_are_fetched_that_are_read(store: Reads) -> None:
    file = opened(store, uploaded(store, LARGE))
    store.seen.clear()
    assert file.read(BLOCK + 5, 10) == LARGE[BLOCK + 5 : BLOCK + 15]
    assert file.read(BLOCK + 500, 10) == LARGE[BLOCK + 500 : BLOCK + 510]
    assert file.read(len(LARGE) - 3, 3) == LARGE[-3:]
    assert store.of_file == [(BLOCK, BLOCK), (7 * BLOCK, 17)]


def test_what_is_read_next_comes_with_what_lies_beside_it_by_one_request(store: Reads) -> None:
    file = opened(store, uploaded(store, LARGE))
    offsets = (10, BLOCK, 2 * BLOCK + 1, 5 * BLOCK)
    file.expect([(each, each + 9) for each in offsets])
    store.seen.clear()
    for offset in offsets:
        assert file.read(offset, 5) == LARGE[offset : offset + 5]
    assert store.of_file == [(0, 3 * BLOCK), (5 * BLOCK, BLOCK)]


def test_what_is_brought_ahead_is_not_fetched_again(store: Reads) -> None:
    file = opened(store, uploaded(store, LARGE))
    file.expect([(0, BLOCK), (3 * BLOCK, 4 * BLOCK), (6 * BLOCK, 7 * BLOCK)])
    store.seen.clear()
    file.bring(2 * BLOCK)
    assert store.of_file == [(0, BLOCK), (3 * BLOCK, BLOCK)]
    assert file.read(3 * BLOCK, 9) == LARGE[3 * BLOCK : 3 * BLOCK + 9]
    assert len(store.of_file) == 2


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_other_bytes_than_were_uploaded_are_an_error_that_names_the_object(
    store: Reads, tmp_path: Path, data: bytes
) -> None:
    place = uploaded(store, data)
    there = tmp_path / "file"
    bad = bytearray(data)
    bad[1_500_000] ^= 1
    there.write_bytes(bad)
    file = opened(store, place)
    with pytest.raises(ContentChangedError, match=f"{store.url}: file"):
        file.read(1_499_999, 4)
    there.write_bytes(data[:1_400_000])
    with pytest.raises(ContentChangedError, match=f"{store.url}: file"):
        file.read(1_499_999, 4)
    there.unlink()
    with pytest.raises(ObjectMissingError):
        file.read(1_499_999, 4)
    there.write_bytes(data)  # nothing of what was bad is kept
    assert file.read(1_499_999, 4) == data[1_499_999:1_500_003]


def test_another_block_is_no_error_while_nobody_reads_it(store: Reads, tmp_path: Path) -> None:
    place = uploaded(store, LARGE)
    bad = bytearray(LARGE)
    bad[3 * BLOCK] ^= 1
    (tmp_path / "file").write_bytes(bad)
    assert opened(store, place).read(0, 5) == LARGE[:5]


def test_without_digests_the_object_is_read_once_and_must_have_the_md5(
    store: Reads, tmp_path: Path
) -> None:
    place = uploaded(store, LARGE, digests=False)
    cache = BlockCache(64 << 20)
    for _ in range(2):
        assert opened(store, place, cache).read(5, 5) == LARGE[5:10]
    assert sum(length for _, length in store.of_file) == len(LARGE) + BLOCK
    bad = bytearray(LARGE)
    bad[-1] ^= 1
    (tmp_path / "file").write_bytes(bad)
    with pytest.raises(ContentChangedError):
        opened(store, place).read(5, 5)


@pytest.mark.parametrize("how", ["gone", "other", "of another file"])
def test_digests_that_are_damaged_are_made_anew_and_never_believed(
    store: Reads, tmp_path: Path, how: str
) -> None:
    place = uploaded(store, LARGE)
    there = tmp_path / blocks_key("file")
    if how == "gone":
        there.unlink()
    elif how == "other":
        packed = bytearray(there.read_bytes())
        packed[-1] ^= 1
        there.write_bytes(packed)
    else:
        others = BlockDigests.of(Bytes(LARGE[::-1])).pack()
        there.write_bytes(others)
        place = dataclasses.replace(place, blocks=md5(others).hexdigest())
    assert opened(store, place).read(len(LARGE) - 5, 5) == LARGE[-5:]


def test_beyond_the_end_there_is_nothing(store: Reads) -> None:
    file = opened(store, uploaded(store, SMALL))
    with pytest.raises(Corrupt):
        file.read(len(SMALL) - 1, 2)
    assert file.read(len(SMALL), 0) == b""
