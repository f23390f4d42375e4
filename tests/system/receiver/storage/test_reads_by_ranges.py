"""A real store is read by ranges, whatever it answers; by Spark's workers, in their processes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import Transient
from receiver.storage.cache.stored_files import place_of
from receiver.storage.reading.file_tiers import NoTierError
from receiver.storage.reading.open_stores import OpenStores
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress, StoredPlace
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import StoreRefusedError
from tests.support.architecture import ROOT
from tests.support.s3_proxy import Request, S3Proxy
from tests.support.s3_server import KEY, REGION, SECRET, S3Server
from tests.support.spark_world import NORTH
from tests.support.stored_world import LARGE_DEVICES, StoredWorld, large
from tests.support.tsfile_bytes import build

PATH = "sequence/root.wind/0/{0}/{0}-{0}-0-0.tsfile"
_numbers = itertools.count(1)
SMALL = 12


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    with pytest.MonkeyPatch.context() as patch, S3Proxy(s3.endpoint) as made:
        patch.setenv("AWS_ACCESS_KEY_ID", KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, proxy: S3Proxy) -> Iterator[StoredWorld]:
    """A large file and a few small ones, in the store only."""
    made = StoredWorld(tmp_path_factory.mktemp("world"))
    options = {"endpoint": proxy.endpoint, "region": REGION, "path_style": True}
    made.configure(f"s3://tests/ranges-{os.getpid()}-{next(_numbers)}", options)
    made.load(NORTH, PATH.format(0), large()[0])
    for number in range(1, SMALL + 1):
        content = build({"root.wind.d1": {"s1": [(number * 100 + n, n / 2) for n in range(50)]}})
        made.load(NORTH, PATH.format(number), content)
    made.upload()
    yield made
    made.engine.close()


def places(world: StoredWorld) -> dict[int, StoredPlace]:
    options = world.options
    address = StoreAddress(world.url, options.endpoint, options.region, path_style=True)
    with world.engine.reading() as state:
        return {
            int(name.split("/")[3]): place_of(
                address, world.engine.uuid, state.uploaded_table.rows[name], row.md5
            )
            for name, row in state.files.items()
        }


@pytest.mark.few(3)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("fault", ["other", "cut", "slow"])
def test_whatever_it_answers_nothing_unchecked_is_given(
    world: StoredWorld, proxy: S3Proxy, number: int, fault: str
) -> None:
    place = places(world)[number]
    content = large()[0]
    asked, said = list[str](), list[str]()

    def first_answers(request: Request) -> str | None:
        if request.method != "GET" or request.path.endswith(".blocks"):
            return None
        asked.append(request.path)
        return fault if len(asked) <= 2 else None

    proxy.fault = first_answers
    stores = OpenStores()
    for _ in range(10):
        try:
            found = stores.file(place).read(place.size - 100, 100)
        except (ContentChangedError, Transient) as error:
            said.append(str(error))
        else:
            break
    assert all(place.key in each for each in said)
    if number == 0:
        assert found == content[-100:]
    assert len(asked) > 2, "nothing went wrong"
    assert found.endswith(b"TsFile")


def test_a_process_without_credentials_is_refused_and_so_asks_a_receiver(
    world: StoredWorld, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proxy.fault = lambda _: None
    place = places(world)[1]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreRefusedError):
        OpenStores().file(place).read(0, 1)
    asked = replace(place, receiver=ReceiverAddress("http://127.0.0.1:9"), physical="x")
    with pytest.raises(NoTierError, match=r"127\.0\.0\.1:9"):
        OpenStores().file(asked).read(0, 1)


SCRIPT = """
import json, sys
from pathlib import Path
from common.config import load
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.spark.verify.file_scope import FileScope
from receiver.spark.verify.running import verify_receiver
from receiver.spark.verify.session import start
from receiver.spark.verify.verify_options import VerifyOptions

where, device = sys.argv[1:]
read = start("local[2]").read.format("tsfile").option("catalog", where)
day = read.option("devices", device).option("startTime", 200).option("endTime", 299)
frame = day.schema("time bigint, n bigint").load()
plan = frame._jdf.queryExecution().toString()
rows = [tuple(each) for each in frame.collect()]
print(json.dumps({"day": sorted(rows), "plan": plan}), flush=True)
sys.stdin.readline()
config = load(ReceiverConfig, file=Path(where), env_prefix=ENV_PREFIX, environ={}, flags={}).value
options = VerifyOptions(
    master="local[2]", report=None, as_json=True, limit=60.0, commit=False, quarantine_many=False
)
sys.exit(verify_receiver(config, FileScope(), options))
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_workers_of_spark_read_it_with_credentials_of_their_environment(
    world: StoredWorld, proxy: S3Proxy
) -> None:
    pytest.importorskip("pyspark")
    proxy.fault = lambda _: None
    proxy.given.clear()
    given = [sys.executable, "-c", SCRIPT, str(world.config), LARGE_DEVICES[4]]
    with subprocess.Popen(
        given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        told = json.loads(child.stdout.readline())
        fetched = sum(proxy.given.values())
        summary, _ = child.communicate("\n")
    assert told["day"] == [[200, 0], [201, 1], [202, 2]]
    assert 0 < fetched < len(large()[0]) // 2, "of three processes, two of which plan"
    assert SECRET not in told["plan"]
    assert child.returncode == 0, summary
    assert json.loads(summary)["proved"] == SMALL + 1, summary
