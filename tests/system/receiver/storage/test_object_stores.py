"""What every store promises, held by a directory and by a real S3 server."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from common.digests import md5
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import ObjectExistsError, ObjectMissingError, ObjectStore
from receiver.storage.stores.store_check import check_store

LARGE = 40 << 20


@dataclass
class Bytes:
    data: bytes
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def md5(self) -> str:
        return md5(self.data).hexdigest()

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.data[offset : offset + length]


class Broken(Exception):
    """The end of a process in the middle of an upload."""


def stop_after(parts: int) -> Callable[[int], None]:
    left = [parts]

    def pace(size: int) -> None:
        if not left[0]:
            raise Broken
        left[0] -= 1

    return pace


@pytest.fixture(scope="module")
def large() -> Bytes:
    return Bytes(random.Random(7).randbytes(LARGE))


def test_an_object_is_what_was_put(store: ObjectStore) -> None:
    put = store.put("a/b", b"hello")
    found = store.head("a/b")
    assert (found.key, found.size) == ("a/b", 5)
    assert found.agrees(put) is not False
    assert store.read("a/b", 1, 3) == b"ell"


def test_a_range_ends_with_the_object(store: ObjectStore) -> None:
    store.put("a", b"hello")
    assert store.read("a", 4, 100) == b"o"
    assert store.read("a", 5, 1) == b""
    assert store.read("a", 50, 1) == b""
    assert store.read("a", 0, 0) == b""


def test_what_is_not_there_is_missing(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissingError):
        store.head("a")
    with pytest.raises(ObjectMissingError):
        store.read("a", 0, 1)
    store.remove("a")


def test_an_object_is_never_replaced(store: ObjectStore) -> None:
    store.put("a", b"first")
    with pytest.raises(ObjectExistsError):
        store.put("a", b"second")
    with pytest.raises(ObjectExistsError):
        store.upload("a", Bytes(b"third"), {})
    assert store.read("a", 0, 9) == b"first"


def test_a_large_object_is_never_replaced(store: ObjectStore, large: Bytes) -> None:
    store.put("a", b"first")
    with pytest.raises(ObjectExistsError):
        store.upload("a", large, {})
    assert store.read("a", 0, 9) == b"first"
    assert list(store.unfinished("")) == []


def test_one_of_many_writers_wins(make_store: Callable[[], ObjectStore]) -> None:
    def put(number: int) -> int | None:
        try:
            make_store().put("a", b"%d" % number)
        except ObjectExistsError:
            return None
        return number

    with ThreadPoolExecutor(16) as pool:
        won = [number for number in pool.map(put, range(16)) if number is not None]
    assert [b"%d" % number for number in won] == [make_store().read("a", 0, 9)]


@pytest.mark.few(3)
@pytest.mark.parametrize("size", [0, 1, 1 << 20, (16 << 20) + 1])
def test_content_of_any_size_comes_whole(store: ObjectStore, size: int, large: Bytes) -> None:
    content = Bytes(large.data[:size])
    put = store.upload("x", content, {"sender": "s", "path": "sequence/root.a/0/0/1-1-0-0.tsfile"})
    found = store.head("x")
    assert found.size == size
    assert found.agrees(put) is not False
    assert found.about == {"sender": "s", "path": "sequence/root.a/0/0/1-1-0-0.tsfile"}
    assert store.read("x", 0, size + 1) == content.data


def test_an_attempt_that_broke_off_is_gone_on_with(
    make_store: Callable[[], ObjectStore], large: Bytes
) -> None:
    store, began = make_store(), []
    with pytest.raises(Broken):
        store.upload("x", large, {"a": "b"}, began=began.append, paced=stop_after(2))
    with pytest.raises(ObjectMissingError):
        store.head("x")
    sent: list[int] = []
    again = make_store()
    put = again.upload(
        "x", large, {"a": "b"}, resume=began[0] if began else None, paced=sent.append
    )
    assert again.read("x", 0, LARGE) == large.data
    assert again.head("x").agrees(put) is not False
    if began:
        assert sum(sent) < LARGE, "parts that were there came again"


def test_a_part_that_is_another_is_sent_again(
    make_store: Callable[[], ObjectStore], large: Bytes
) -> None:
    """The file was replaced between the attempts, and has the size that it had."""
    store, began = make_store(), []
    other = Bytes(bytes(1 << 20) + large.data[1 << 20 :])
    with pytest.raises(Broken):
        store.upload("x", other, {}, began=began.append, paced=stop_after(2))
    make_store().upload("x", large, {}, resume=began[0] if began else None)
    assert store.read("x", 0, LARGE) == large.data


def test_an_attempt_that_the_store_forgot_begins_anew(store: ObjectStore, large: Bytes) -> None:
    began: list[str] = []
    with pytest.raises(Broken):
        store.upload("x", large, {}, began=began.append, paced=stop_after(2))
    for attempt in list(store.unfinished("")):
        store.abandon(attempt)
    store.upload("x", large, {}, resume=began[0] if began else None)
    assert store.read("x", 0, LARGE) == large.data


@pytest.mark.few(2)
@pytest.mark.parametrize("size", [100, LARGE])
def test_bytes_that_are_not_the_catalogues_are_not_put(
    store: ObjectStore, size: int, large: Bytes
) -> None:
    class Rotten(Bytes):
        @property
        def md5(self) -> str:
            return "0" * 32

    with pytest.raises(ContentChangedError):
        store.upload("x", Rotten(large.data[:size]), {})
    with pytest.raises(ObjectMissingError):
        store.head("x")
    assert list(store.unfinished("")) == []


def test_objects_are_listed_by_prefix(store: ObjectStore) -> None:
    keys = {"a-b", "a/1", "a/10", "a/2", "a/b/c", "ab", "b"}
    for key in keys:
        store.put(key, key.encode())
    assert {each.key for each in store.objects("")} == keys
    assert {each.key for each in store.objects("a/")} == {"a/1", "a/10", "a/2", "a/b/c"}
    assert list(store.objects("c")) == []
    assert [each.size for each in store.objects("a/b")] == [5]


def test_objects_of_one_folder_are_in_order_from_a_place_on(store: ObjectStore) -> None:
    for number in (3, 1, 10, 2):
        store.put(f"m/{number:04}", b"")
    assert [each.key for each in store.objects("m/")] == ["m/0001", "m/0002", "m/0003", "m/0010"]
    assert [each.key for each in store.objects("m/", after="m/0002")] == ["m/0003", "m/0010"]


def test_a_good_store_passes_the_check(store: ObjectStore) -> None:
    assert [found for found in check_store(store) if found.problem] == []
    assert list(store.objects("")) == []


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "name", ["a b", "a%20b", "ä€", "a#b?c&d=e", "~[{^}]|<>*'\"", "a+b", "`root`.`x`", "a:b@c;d,e!$"]
)
def test_a_key_is_any_name_that_a_file_may_have(
    make_store: Callable[[], ObjectStore], name: str
) -> None:
    store = make_store()
    key = f"keys/{name}/{name}.tsfile"
    store.put(key, b"content")
    assert make_store().read(key, 0, 100) == b"content"
    assert store.head(key).size == 7
    assert [each.key for each in store.objects("keys/") if each.key == key] == [key]


def test_what_is_said_of_an_object_may_be_any_text(store: ObjectStore) -> None:
    content = Bytes(b"content")
    about = {"path": "sequence/root.ä%20 `x`/0/0/1-1-0-0.tsfile", "sender": "5e" * 16}
    store.upload("a", content, about)
    assert store.head("a").about == about
    store.upload("b", content, {"path": "ä" * 1000, "sender": "5e" * 16})  # S3 takes 2,048 bytes
    assert store.head("b").about["sender"] == "5e" * 16
