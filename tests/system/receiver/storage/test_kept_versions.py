"""Buckets with versions, and with a lock on each object, are places for copies like any other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.durable import Tree
from common.wire import Propagate
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.operator.stored.storage import running_storage
from receiver.storage.cache.file_restore import restore_files
from receiver.storage.log_copies.log_removal import LogRemover
from receiver.storage.log_copies.log_shipping import LogShipper
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.objects.object_removal import ObjectRemover
from receiver.storage.stores.store_opening import StoreOptions, open_store
from tests.support.node_world import Edge as NodeEdge
from tests.support.node_world import World, path_of, tsfile
from tests.support.s3_server import KEY, REGION, SECRET, S3Server
from tests.support.uploading import Centre
from tests.support.web import until

DAY = 86_400.0
_numbers = itertools.count(1)


@pytest.fixture(params=["versions", "lock"])
def bucket(
    request: pytest.FixtureRequest, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Any]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    from botocore.session import Session

    client: Any = Session().create_client("s3", region_name=REGION, endpoint_url=s3.endpoint)
    name = f"kept-{request.param}-{next(_numbers)}"
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=request.param == "lock")
    if request.param == "lock":
        rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
        client.put_object_lock_configuration(
            Bucket=name,
            ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule},
        )
    else:
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    yield name, client
    client.close()


@pytest.mark.few(1)
def test_what_is_needed_no_more_is_out_of_sight_and_the_rest_is_restored(
    bucket: tuple[str, Any], s3: S3Server, tmp_path: Path
) -> None:
    name, client = bucket
    options = StoreOptions(endpoint=s3.endpoint, region=REGION, path_style=True)
    store = open_store(f"s3://{name}/centre", options)
    centre = Centre(tmp_path, store)
    centre.stop()
    now = [centre.clock()]
    centre.clock, centre.options = lambda: now[0], EngineOptions(history=DAY)
    centre.start()
    one, two = centre.load(1, resource=b"one"), centre.load(2)
    centre.uploader.run_once()
    shipper = LogShipper(centre.engine.published, centre.home, store, centre.owner)
    shipper.ship()
    centre.engine.commit([records.FileDeleted(one, "operator")])
    centre.engine.commit([records.FileForgotten(one)])
    given = (centre.engine, store, centre.owner)
    files = ObjectRemover(*given, grace=DAY, newest=lambda: shipper.newest)
    logs = LogRemover(*given, grace=DAY, newest=lambda: shipper.newest)
    for _ in range(3):
        now[0] += 2 * DAY
        centre.engine.commit([records.SenderSeen("0" * 32, "", "x")])
        centre.engine.collect()
        centre.engine.checkpoint()
        shipper.ship()
        files.run_once()
        logs.run_once()
    assert files.problem is None
    assert centre.uploaded() == {two}
    assert [two in each for each in centre.objects()] == [True]
    versions = client.list_object_versions(Bucket=name, Prefix="centre/")
    assert any(one in each["Key"] for each in versions["Versions"]), "the bucket keeps its own"
    uuid = centre.engine.uuid
    centre.stop()
    restore_metadata(store, uuid, tmp_path / "again" / "schema")
    with (
        Engine.open(tmp_path / "again" / "schema", background=False) as engine,
        Tree(tmp_path / "again" / "data", create=True) as data,
    ):
        found = restore_files(store, engine, [data])
    assert (found.fetched, found.lacking) == (1, [])
    store.close()


@pytest.mark.few(1)
def test_a_receiver_lives_with_it_loses_its_machine_and_is_made_of_it_again(
    bucket: tuple[str, Any], s3: S3Server, tmp_path: Path
) -> None:
    name, client = bucket
    storage = {
        "url": f"s3://{name}/whole",
        "endpoint": s3.endpoint,
        "region": REGION,
        "path_style": True,
        "lag": 0.1,
    }
    world = World(tmp_path / "one", storage=storage)
    with world.node() as node:
        edge = NodeEdge(node)
        edge.round({path_of(1): tsfile(), path_of(2): tsfile(salt=2)}, resources={path_of(1): b"r"})
        edge.round({path_of(1): tsfile()}, resources={path_of(1): b"anew"})
        edge.round({}, [path_of(2)], propagate=Propagate.ALL)

        def is_copied() -> bool:
            view = running_storage(node.operator)
            return view.waiting_files == 0 and view.shipped == node.engine.newest_commit

        until(is_copied)
        assert node.concerns() == []
        uuid, loaded = node.engine.uuid, world.loaded()
    # Somebody removes an object by hand: it is out of sight, and is put there once more.
    with world.node() as node:
        assert node.storage is not None
        until(lambda: running_storage(node.operator).shipped)
        with node.engine.reading() as state:
            (lost,) = [row.physical for row in state.files.values() if row.visible]
        for each in client.list_objects_v2(Bucket=name, Prefix=f"whole/{uuid}/data/")["Contents"]:
            if each["Key"].endswith(lost):
                client.delete_object(Bucket=name, Key=each["Key"])
        assert node.storage._scrubber is not None
        node.storage._scrubber._ask([lost])
        until(is_copied)
        assert node.concerns() == []
    options = StoreOptions(endpoint=s3.endpoint, region=REGION, path_style=True)
    store = open_store(f"s3://{name}/whole", options)
    restore_metadata(store, uuid, tmp_path / "again" / "schema", take_over=True)
    with (
        Engine.open(tmp_path / "again" / "schema", background=False) as engine,
        Tree(tmp_path / "again" / "data", create=True) as data,
    ):
        assert restore_files(store, engine, [data]).lacking == []
    store.close()
    again = World(tmp_path / "again", storage=storage)
    kept = {path: data for path, data in loaded.items() if path.startswith(lost)}
    assert kept.items() <= again.loaded().items()
    with again.node() as node:
        edge.node = node
        edge.round({path_of(3): tsfile(salt=3)})
        until(is_copied)
        assert node.concerns() == []
