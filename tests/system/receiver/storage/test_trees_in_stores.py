"""The tree of files in a real store: written, merged, gone after the grace, and read by DuckDB."""

from __future__ import annotations

import pytest

from receiver.metadata.model import records
from receiver.storage.stores.object_store import ObjectStore
from receiver.storage.tree import tree_merging
from tests.support.tree_world import GRACE, Duck, TreeCentre, from_s3, said


@pytest.mark.slow
def test_the_tree_in_a_store_is_what_readers_saw(
    store: ObjectStore,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_merging, "_AT_ONCE", 3)
    monkeypatch.setattr(tree_merging, "_LEAST", 30)
    place = tmp_path_factory.mktemp("centre")
    centre = TreeCentre(place, store)
    seen: dict[int, set[str]] = {}
    names = [centre.load_real(number, partition=number % 2) for number in range(4)]
    centre.ship()
    for number in range(4, 14):
        gone = names.pop(0)
        new = centre.loaded(number, partition=number % 2)
        names.append(new.physical)
        centre.engine.commit([records.FileDeleted(gone, "replaced"), new])
        seen[centre.engine.newest_commit] = set(names)
        centre.uploader.run_once()
        centre.ship()
        if number == 9:
            centre.restart()
    centre.passed += 2 * GRACE
    assert centre.remover.run_once() > 5
    is_s3 = store.url.startswith("s3:")
    before = from_s3(request.getfixturevalue("s3")) if is_s3 else []
    duck = Duck(store.url.removeprefix("file://"), *before)
    for ts, files in seen.items():
        assert duck.files(ts) == files == said(centre.engine, ts)
    (key, *_), *_ = duck.chunks("root.sg.d1", 0, 1000)
    assert store.read(key, 0, 6) == b"TsFile"
    centre.stop()
