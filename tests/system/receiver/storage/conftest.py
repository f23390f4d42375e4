from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from receiver.storage.stores.object_store import ObjectStore
from receiver.storage.stores.store_opening import StoreOptions, open_store
from tests.support.s3_server import KEY, REGION, SECRET, S3Server, s3_server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["directory", "s3"])
def make_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], ObjectStore]]:
    """Opens one and the same place anew, as another process would."""
    opened: list[ObjectStore] = []
    if request.param == "directory":
        url, options = tmp_path.as_uri(), StoreOptions()
    else:
        server: S3Server = request.getfixturevalue("s3")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        url = f"s3://tests/{next(_numbers)}"
        options = StoreOptions(endpoint=server.endpoint, region=REGION, path_style=True)

    def make() -> ObjectStore:
        opened.append(open_store(url, options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(make_store: Callable[[], ObjectStore]) -> ObjectStore:
    return make_store()
