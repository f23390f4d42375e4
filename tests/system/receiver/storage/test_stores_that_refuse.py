"""A store that is full, has another clock, keeps an object in an archive, or encrypts by its keys.

Each is said by its name, holds up nothing but what needs it, proves nothing against any file, and
is over by itself when the store lets us again.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.errors import NoSpaceError, TsferryError
from receiver.metadata.state.table_rows import FileState
from receiver.operator.stored.storage import fetch_files, running_storage
from receiver.storage.objects.object_repair import examine_store, repair_store
from receiver.storage.stores.object_store import (
    ClockSkewError,
    ObjectArchivedError,
    ObjectExistsError,
    ObjectStore,
    StoreFailingError,
    StoreFullError,
)
from receiver.storage.stores.store_check import check_store
from receiver.storage.stores.store_opening import StoreOptions, open_store
from tests.support.node_world import Edge, World, path_of, tsfile
from tests.support.s3_proxy import Request, S3Proxy
from tests.support.s3_server import KEY, REGION, SECRET, S3Server, s3_server
from tests.support.uploading import Centre
from tests.support.web import until
from tests.system.receiver.storage.test_object_stores import Bytes

_numbers = itertools.count(1)
HOUR = 3600.0
ANY = ("skewed", "unknown", "no bucket")
"""Faults of whatever is asked; the others are of what is put."""


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with S3Proxy(s3.endpoint) as made:
        yield made


@pytest.fixture
def url() -> str:
    return f"s3://tests/refusing-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def make_store(proxy: S3Proxy, url: str) -> Iterator[Callable[..., ObjectStore]]:
    opened: list[ObjectStore] = []

    def make(**more: str) -> ObjectStore:
        options = StoreOptions(endpoint=proxy.endpoint, region=REGION, path_style=True, **more)
        opened.append(open_store(url, options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def world(proxy: S3Proxy, url: str, tmp_path: Path) -> World:
    storage = {
        "url": url,
        "endpoint": proxy.endpoint,
        "region": REGION,
        "path_style": True,
        "lag": 0.1,
        "capacity": 1 << 20,
    }
    return World(tmp_path / "centre", storage=storage)


@pytest.mark.long
def test_a_server_that_is_full_is_said_to_be_so_perhaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one, with room for one volume of a megabyte."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server(tmp_path / "s3", volumes=1, volume_megabytes=1) as server:
        options = StoreOptions(endpoint=server.endpoint, region=REGION, path_style=True)
        store = open_store("s3://tests/full", options)
        put = (store.put(f"{number}", os.urandom(400_000)) for number in range(9))
        with pytest.raises(StoreFailingError, match="a store that is full may say no more"):
            list(put)
        store.close()


def fault_of(kind: str, *methods: str, part: str = "") -> Callable[[Request], str | None]:
    return lambda each: kind if each.method in methods and part in each.path else None


def comes_in(edge: Edge, number: int) -> bool:
    """Whether a file is loaded; what there is no room for is sent again."""
    batch = {path_of(number): tsfile(first=100 * number)}
    try:
        return edge.round(batch).keys() == batch.keys()
    except NoSpaceError:
        return False


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("kind", "error", "word"),
    [
        ("full", StoreFullError, "the store is full"),
        ("quota", StoreFullError, "the quota of the bucket is used up"),
        ("skewed", ClockSkewError, "set the clock right"),
        ("archived", ObjectArchivedError, "has to be restored in the store first"),
    ],
)
def test_what_a_store_refuses_for_is_said_whichever_way_it_was_asked(
    make_store: Callable[..., ObjectStore],
    proxy: S3Proxy,
    kind: str,
    error: type[TsferryError],
    word: str,
) -> None:
    store = make_store()
    store.put("a", b"hello")
    proxy.fault = fault_of(kind, "GET", "PUT", "POST")
    asks: list[Callable[[], object]] = [
        lambda: store.put("b", b"x"),
        lambda: store.upload("c", Bytes(bytes(17 << 20)), {}),
        lambda: list(store.objects("")),
    ]
    if kind != "full":  # a status of 500 and above is asked again for long by who only reads
        asks.append(lambda: store.read("a", 0, 5))
    for ask in asks:
        with pytest.raises(error, match=word):
            ask()
    proxy.fault = lambda _: None
    assert store.read("a", 0, 5) == b"hello"


@pytest.mark.parametrize(("clock", "side"), [(3 * HOUR, "behind"), (-3 * HOUR, "ahead of")])
def test_how_far_the_clocks_are_apart_is_said_and_answers_without_a_body_are_understood(
    make_store: Callable[..., ObjectStore], proxy: S3Proxy, clock: float, side: str
) -> None:
    store = make_store()
    store.put("a", b"hello")
    proxy.clock = clock
    assert store.head("a").size == 5  # a store that believes us all the same is no problem
    proxy.fault = lambda _: "skewed"
    with pytest.raises(ClockSkewError, match=rf"the clock here is 10[78]\d\d s {side} that of the"):
        store.put("b", b"x")
    with pytest.raises(ClockSkewError, match=side):
        store.head("a")


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "word", "said"),
    [
        ("skewed", "RequestTimeTooSkewed", "clock"),
        ("full", "the store is full", "is full"),
        ("failing", "InternalError", "may be full"),
        ("denied", "AccessDenied", "read-only"),
        ("unknown", "InvalidAccessKeyId", "knows no such credentials"),
        ("no bucket", "NoSuchBucket", "is not there"),
    ],
)
def test_copies_wait_for_a_store_that_refuses_say_why_and_go_on_by_themselves(
    world: World, proxy: S3Proxy, kind: str, word: str, said: str
) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        proxy.clock = -3 * HOUR if kind == "skewed" else 0.0
        proxy.fault = lambda each: kind if kind in ANY or each.is_put else None
        edge.round({path_of(2): tsfile(first=100)})
        until(lambda: word in (running_storage(node.operator).problem or ""))
        (concern,) = node.concerns()
        assert said in concern
        assert world.storage["endpoint"] not in concern, "it is said to everybody"
        assert world.storage["url"] not in concern
        assert running_storage(node.operator).waiting_files == 1
        assert running_storage(node.operator).uploaded_files == 1
        proxy.clock, proxy.fault = 0.0, lambda _: None
        until(lambda: running_storage(node.operator).uploaded_files == 2, "copying goes on")
        until(lambda: node.concerns() == [])


@pytest.mark.slow
def test_a_bucket_that_fills_up_turns_edges_away_when_the_disk_is_full_and_it_heals(
    world: World, proxy: S3Proxy
) -> None:
    world.storage["capacity"] = 64 << 10
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        proxy.fault = lambda each: "quota" if each.is_put else None
        loaded = 1
        while loaded < 17 and comes_in(edge, loaded + 1):
            loaded += 1
        until(lambda: node.problem() is not None)
        assert not comes_in(edge, 18)
        until(lambda: "storage.capacity" in str(node.problem()))
        until(lambda: "quota" in (running_storage(node.operator).problem or ""))
        assert len(world.loaded()) >= loaded - 1, "what is not in the store has left the disk"
        proxy.fault = lambda _: None
        until(lambda: running_storage(node.operator).uploaded_files == loaded, "copying goes on")
        until(lambda: node.problem() is None)
        until(lambda: comes_in(edge, 18))


def test_an_archived_object_is_waited_for_and_no_word_against_its_file(
    world: World, proxy: S3Proxy
) -> None:
    with world.node() as node:
        edge, content = Edge(node), tsfile()
        edge.round({path_of(1): content})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        with node.engine.reading() as state:
            (row,) = state.files.values()
        (world.data / row.physical).unlink()
        proxy.fault = fault_of("archived", "GET", part=".tsfile")
        for _ in range(2):
            answer = fetch_files(node.operator, [row.physical])
            assert [each.path for each in answer.failed] == [row.physical]
            assert "restored in the store first" in answer.failed[0].reason
        with node.engine.reading() as state:
            assert state.files[row.physical].state is FileState.LIVE
            assert not state.quarantine
        proxy.fault = lambda _: None
        assert fetch_files(node.operator, [row.physical]).here == [row.physical]
        assert (world.data / row.physical).read_bytes() == content


def test_one_archived_object_holds_up_no_other_upload(
    make_store: Callable[..., ObjectStore], proxy: S3Proxy, tmp_path: Path
) -> None:
    """It was put by a try whose answer was lost, and archived before it was told of."""
    centre = Centre(tmp_path, make_store())
    try:
        one, two = centre.load(1), centre.load(2)
        centre.store.put(centre.key(one), (tmp_path / "data" / one).read_bytes())
        proxy.fault = fault_of("archived", "GET", part=one.rpartition("/")[2])
        centre.uploader.run_once()
        assert centre.uploaded() == {two}
        assert not centre.bad
        proxy.fault = lambda _: None
        centre.now += 3600
        centre.uploader.run_once()
        assert centre.uploaded() == {one, two}
    finally:
        centre.stop()


def test_a_look_at_all_bytes_names_archived_objects_goes_on_and_puts_nothing_right(
    make_store: Callable[..., ObjectStore], proxy: S3Proxy, tmp_path: Path
) -> None:
    centre = Centre(tmp_path, make_store())
    try:
        one, two = centre.load(1, resource=b"r"), centre.load(2)
        centre.uploader.run_once()
        for name in (one, two):
            (tmp_path / "data" / name).unlink()
        centre.store.remove(centre.key(two))
        proxy.fault = fault_of("archived", "GET", part=one.rpartition("/")[2])
        report = examine_store(centre.engine, centre.store, [centre.tree], deep=True)
        kinds = [(each.kind, each.physical, bool(each.repair)) for each in report.found]
        assert kinds == [("archived", one, False)] * 2 + [("missing", two, True)]
        repair_store(centre.engine, centre.store, centre.owner, [centre.tree], report)
        with centre.engine.reading() as state:
            states = [state.files[each].state for each in (one, two)]
        assert states == [FileState.LIVE, FileState.QUARANTINED]
    finally:
        centre.stop()


SEALED = {
    "AES256": {"encryption": "AES256"},
    "aws:kms": {"encryption": "aws:kms", "kms_key": "measurements"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SEALED))
def test_everything_that_is_put_is_encrypted_as_it_is_configured(
    make_store: Callable[..., ObjectStore], proxy: S3Proxy, kind: str
) -> None:
    store = make_store(**SEALED[kind])
    large = Bytes(os.urandom(17 << 20))
    prints = {
        "small": store.put("small", b"hello"),
        "empty": store.put("empty", b""),
        "large": store.upload("large", large, {"a": "b"}),
    }
    begins = [each for each in proxy.seen if each.is_put or each.path.endswith("uploads")]
    begins = [each for each in begins if "partNumber" not in each.path]
    assert len(begins) == 3
    word = "x-amz-server-side-encryption"
    assert {each.headers.get(word) for each in begins} == {kind}
    key = SEALED[kind].get("kms_key")
    assert {each.headers.get(f"{word}-aws-kms-key-id") for each in begins} == {key}
    for name, put in prints.items():
        assert store.head(name).encryption == kind
        assert store.agrees(name, put) is True
    assert store.read("large", 16 << 20, 100) == large.data[16 << 20 : (16 << 20) + 100]
    with pytest.raises(ObjectExistsError):
        store.put("small", b"other")
    if kind == "aws:kms":
        assert [found for found in check_store(store) if found.problem] == []


def test_an_etag_that_is_no_md5_makes_nothing_go_twice_or_be_read_back(
    make_store: Callable[..., ObjectStore], proxy: S3Proxy, tmp_path: Path
) -> None:
    centre = Centre(tmp_path, make_store(**SEALED["aws:kms"]))
    proxy.fault = lambda each: "keyed" if "/data/" in each.path else None
    try:
        names = {centre.load(number) for number in range(12)}
        proxy.seen.clear()
        centre.uploader.run_once()
        assert centre.uploaded() == names
        of_files = [each for each in proxy.seen if "/data/" in each.path]
        assert [each.method for each in of_files].count("PUT") == 12
        assert not any(each.method == "GET" for each in of_files)
        proxy.fault = lambda each: "lie" if each.method == "HEAD" else None
        centre.load(20)
        centre.uploader.run_once()
        assert centre.uploaded() == names, "what says another checksum is not believed"
    finally:
        centre.stop()


def test_a_store_that_does_not_encrypt_as_it_was_asked_fails_the_check(
    make_store: Callable[..., ObjectStore], proxy: S3Proxy
) -> None:
    proxy.fault = lambda each: "bare" if each.method == "HEAD" else None
    trials = check_store(make_store(**SEALED["AES256"]))
    found = next(each for each in trials if each.need == "say its size and digest")
    assert found.problem == "it keeps an object as it is, where AES256 was asked for"
