"""Files come into a store once, whatever dies, is away, is slow or loses its answers."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.errors import Transient
from receiver.storage.stores.object_store import ObjectStore
from receiver.storage.stores.store_opening import StoreOptions, open_store
from tests.support.s3_proxy import Request, S3Proxy
from tests.support.s3_server import KEY, REGION, SECRET, S3Server
from tests.support.uploading import Centre

_numbers = itertools.count(1)
LARGE = 33 << 20
"""Three parts."""
POINTS = [
    pytest.param("storage.upload.sent", marks=pytest.mark.long),
    "storage.upload.sent:3",
    "storage.upload.confirmed",
    pytest.param("storage.upload.committed", marks=pytest.mark.long),
    pytest.param("storage.parts.begun", marks=pytest.mark.long),
    pytest.param("storage.parts.sent", marks=pytest.mark.long),
    "storage.parts.sent:2",
    "storage.parts.complete",
]
LIFE = """
import json, sys
from pathlib import Path
from receiver.storage.stores.store_opening import StoreOptions, open_store
from tests.support.uploading import Centre

url, options = json.loads(sys.argv[2])
centre = Centre(Path(sys.argv[1]), open_store(url, StoreOptions(**options)))
centre.uploader_of(parallel=2)
centre.uploader.run_once()
centre.stop()
"""


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with S3Proxy(s3.endpoint) as made:
        yield made


@pytest.fixture
def place(proxy: S3Proxy) -> tuple[str, dict[str, object]]:
    options = {"endpoint": proxy.endpoint, "region": REGION, "path_style": True}
    return f"s3://tests/faults-{os.getpid()}-{next(_numbers)}", options


@pytest.fixture
def store(place: tuple[str, dict[str, object]]) -> Iterator[ObjectStore]:
    url, options = place
    store = open_store(url, StoreOptions(**options))  # type: ignore[arg-type]
    yield store
    store.close()


@pytest.fixture
def centre(tmp_path: Path, store: ObjectStore) -> Iterator[Centre]:
    made = Centre(tmp_path, store)
    yield made
    made.end()


def upload_all(centre: Centre, tries: int = 60) -> None:
    for _ in range(tries):
        try:
            centre.uploader.run_once()
        except Transient:
            continue
        if not centre.uploader.progress().waiting_files:
            return
        centre.now += 61
    raise AssertionError("it does not come to an end")


@pytest.mark.few(1)
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_uploads_nothing_twice_and_loses_none(
    tmp_path: Path,
    store: ObjectStore,
    place: tuple[str, dict[str, object]],
    proxy: S3Proxy,
    point: str,
) -> None:
    centre = Centre(tmp_path, store)
    large = "parts" in point
    names = {centre.load(each, resource=b"r%d" % each) for each in range(4)}
    if large:
        names.add(centre.load(9, size=LARGE))
    uuid = centre.engine.uuid
    centre.stop()
    command = [sys.executable, "-c", LIFE, str(tmp_path), json.dumps(place)]
    environment = {**os.environ, "TSFERRY_CRASH_AT": point}
    assert subprocess.run(command, env=environment, check=False).returncode == -9
    before = {each.key: each.modified for each in store.objects(f"{uuid}/data/")}
    subprocess.run(command, check=True)
    centre.start()
    assert centre.uploaded() == names
    assert centre.uploader.run_once() == 0
    found = {each.key: each.modified for each in store.objects(f"{uuid}/data/")}
    assert {key: found[key] for key in before} == before
    assert len(found) == len(names) + 4 + large  # the digests of its blocks
    assert list(store.unfinished("")) == []
    assert not list((tmp_path / "schema" / "storage" / "attempts").glob("*"))
    if large:
        key = centre.key(next(each for each in names if each.endswith(f"{9:016x}.tsfile")))
        # What was on its way at the kill goes again, and no part that had come.
        assert proxy.put_bytes(key) <= LARGE + (17 << 20 if "sent" in point else 0)
    centre.stop()


def chance(seed: int, fault: str, part: float) -> Callable[[Request], str | None]:
    draws = random.Random(seed)
    return lambda _: fault if draws.random() < part else None


@pytest.mark.few(2)
@pytest.mark.parametrize("fault", ["slow", "lost", "cut"])
def test_a_store_that_is_slow_or_loses_its_answers_gets_each_file_once(
    centre: Centre, proxy: S3Proxy, fault: str
) -> None:
    names = {centre.load(each, resource=b"r%d" % each) for each in range(6)}
    proxy.fault = chance(5, fault, 0.2)
    upload_all(centre)
    proxy.fault = lambda _: None
    assert centre.uploaded() == names
    assert len(centre.objects()) == 12
    for name in names:
        whole = (centre.root / "data" / name).read_bytes()
        assert centre.store.read(centre.key(name), 0, 1 << 20) == whole


def test_the_answer_to_the_last_part_is_lost(centre: Centre, proxy: S3Proxy) -> None:
    one = centre.load(1, size=LARGE)
    lost: list[Request] = []

    def fault(request: Request) -> str | None:
        if request.method == "POST" and "uploadId=" in request.path and not lost:
            lost.append(request)
            return "lost"
        return None

    proxy.fault = fault
    upload_all(centre)
    assert lost
    assert centre.uploaded() == {one}
    assert proxy.put_bytes(one) == LARGE


def test_a_store_that_says_of_an_object_what_was_not_put_is_not_believed(
    centre: Centre, proxy: S3Proxy
) -> None:
    centre.load(1)
    proxy.fault = lambda request: "lie" if request.method == "HEAD" else None
    assert centre.uploader.run_once() == 0
    assert centre.uploaded() == set()
    progress = centre.uploader.progress()
    assert (progress.waiting_files, progress.unreadable_files) == (1, 1)


def is_list(request: Request) -> bool:
    return request.method == "GET" and "data" in request.path and "list-type" in request.path


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("lying", "believed"), [("nobody", True), ("the list", True), ("both", False)]
)
def test_of_many_small_objects_a_list_says_what_is_there_and_is_not_believed_alone(
    centre: Centre, proxy: S3Proxy, lying: str, believed: bool
) -> None:
    names = {centre.load(number, resource=b"r%d" % number) for number in range(20)}
    lies = {"nobody": (), "the list": ("GET",), "both": ("GET", "HEAD")}[lying]

    def fault(request: Request) -> str | None:
        asks = is_list(request) or request.method == "HEAD"
        return "lie" if asks and request.method in lies else None

    proxy.fault = fault
    centre.uploader.run_once()
    assert centre.uploaded() == (names if believed else set())
    if lying == "nobody":
        assert not any(each.method == "HEAD" for each in proxy.seen)
        assert sum(map(is_list, proxy.seen)) <= 2


def test_with_one_line_too_the_owner_is_asked_for_by_the_commit_and_not_by_the_file(
    centre: Centre, proxy: S3Proxy
) -> None:
    for number in range(20):
        centre.load(number)
    centre.uploader_of(parallel=1)
    centre.uploader.run_once()
    assert sum("owners" in each.path for each in proxy.seen) <= 4


def test_requests_are_counted_by_kind(centre: Centre, proxy: S3Proxy) -> None:
    centre.load(1)
    before, seen = dict(centre.store.requests), len(proxy.seen)
    centre.uploader.run_once()
    spent = {kind: n - before.get(kind, 0) for kind, n in centre.store.requests.items()}
    assert sum(spent.values()) == len(proxy.seen) - seen
    assert (spent.get("get", 0), spent["put"], spent["head"]) == (0, 1, 1)
