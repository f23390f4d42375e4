"""Buckets with versions, and with a lock on each object, are places for copies like any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.durable import Tree
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.storage.file_restore import restore_files
from receiver.storage.log_removal import LogRemover
from receiver.storage.log_shipping import LogShipper
from receiver.storage.metadata_restore import restore_metadata
from receiver.storage.object_removal import ObjectRemover
from receiver.storage.store_opening import StoreOptions, open_store
from tests.support.s3_server import KEY, REGION, SECRET, S3Server
from tests.support.uploading import Centre

DAY = 86_400.0


@pytest.fixture(params=["versions", "lock"])
def bucket(
    request: pytest.FixtureRequest, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Any]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    from botocore.session import Session

    client: Any = Session().create_client("s3", region_name=REGION, endpoint_url=s3.endpoint)
    name = f"kept-{request.param}"
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
