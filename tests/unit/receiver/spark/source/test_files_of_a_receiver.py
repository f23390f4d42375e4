"""A worker that has neither the disk nor the store reads of the receiver, by its own token."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.config import load
from common.errors import TsferryError, UnauthorizedError
from receiver.compaction.worth_merging.crowded import CrowdedPartitions
from receiver.config import ENV_PREFIX, AuthConfig, ReceiverConfig
from receiver.metadata.model import records
from receiver.operator.edges.tokens import make_token, revoke_token
from receiver.spark.source import crowding
from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.selection import TimeRange
from receiver.spark.source.read_plans.slicing import overlapping_in
from receiver.spark.source.read_plans.slicing import plan as plan_parts
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from receiver.spark.verify.committed import CommittedFiles
from receiver.spark.verify.examining.file_checks import check_part
from receiver.spark.verify.examining.parts import FilePart
from receiver.spark.verify.file_scope import FileScope
from receiver.storage.reading import open_stores
from receiver.storage.reading.receiver_reads import TOKEN
from receiver.storage.reading.stored_place import ReceiverAddress
from receiver.web.app import close, create_app, site_of
from receiver.web.server import ServerTls, TlsFiles
from tests.support.authority import Authority
from tests.support.spark_world import NORTH
from tests.support.stored_world import LARGE_DEVICES, StoredWorld, large
from tests.support.tsfile_bytes import build
from tests.support.web import make_certificate, running

PATH = "sequence/root.wind/0/0/{0}-{0}-0-0.tsfile"


def fresh() -> None:
    """As another process: it has no connection, no bytes and no token yet."""
    open_stores.of_process.__init__()  # type: ignore[misc]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """A large and a small file, on the disk; the large one overlaps a third."""
    (tmp_path / "bucket").mkdir()
    made = StoredWorld(tmp_path)
    made.configure((tmp_path / "bucket").as_uri())
    with made.config.open("a") as config:
        config.write('upload = "never"\n')  # or who asks for a file finds it in the store by chance
    made.load(NORTH, PATH.format(1), large()[0])
    made.load(NORTH, PATH.format(2), build({"root.wind.e": {"n": [(5, 1), (6, 2)]}}))
    late = build({LARGE_DEVICES[0]: {"n": [(0, 7)]}})
    made.load(NORTH, "unsequence/root.wind/0/0/9-9-0-0.tsfile", late)
    yield made
    made.engine.close()


@contextmanager
def served(world: StoredWorld, **auth: Any) -> Iterator[tuple[str, str]]:
    """(URL, token of a reader)."""
    world.engine.close()
    app = create_app(configuration(world))
    try:
        token = make_token(site_of(app).node.engine, "reader").token
        with running(app, gate=site_of(app).gate) as server:
            yield f"http://127.0.0.1:{server.addresses[0][1]}", token
    finally:
        close(app)


def configuration(world: StoredWorld) -> ReceiverConfig:
    return load(
        ReceiverConfig, file=world.config, env_prefix=ENV_PREFIX, environ={}, flags={}
    ).value


def tasks(given: dict[str, str]) -> list[bytes]:
    """What a driver sends to workers."""
    options = parse_options(given)
    plan = plan_of(options, columns_of(options))
    parts = plan_parts(
        list_sources(options),
        plan.selection.span,
        options.partition_bytes,
        plan.picker(),
        read_tail_of,
        merge=options.merge,
    )
    return [pickle.dumps((part, plan)) for part in parts]


def rows(sent: list[bytes]) -> list[dict[str, Any]]:
    """What workers read, each a process of its own."""
    fresh()
    found = []
    for each in sent:
        slices, plan = pickle.loads(each)
        found += [row for batch in read_slices(slices, plan) for row in batch.to_pylist()]
    return sorted(found, key=repr)


def test_the_rows_are_those_of_the_disk_and_no_token_is_in_a_task(
    world: StoredWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"columns": "n"}
    expected = rows(tasks({"catalog": str(world.config), **given}))
    assert {"time": 0, "device": LARGE_DEVICES[0], "n": 7} in expected
    with served(world) as (url, token):
        far = {"catalog": url, "token": token, "dataDirs": str(tmp_path / "elsewhere"), **given}
        fresh()
        sent = tasks(far)
        assert not any(token.encode() in each for each in sent)
        with pytest.raises(UnauthorizedError, match=TOKEN):
            rows(sent)
        monkeypatch.setenv(TOKEN, token)
        assert rows(sent) == expected


def test_a_certificate_stands_in_for_the_token_of_driver_and_workers(
    world: StoredWorld, tmp_path: Path
) -> None:
    given = {"columns": "n", "dataDirs": str(tmp_path / "elsewhere")}
    expected = rows(tasks({"catalog": str(world.config), "columns": "n"}))
    plant = Authority(tmp_path / "plant")
    own = make_certificate(tmp_path, "127.0.0.1")
    cert, key = map(str, plant.issue("spark", "DNS:spark.plant.example"))
    shown = {"caCert": str(own[0]), "clientCert": cert, "clientKey": key}
    world.engine.close()
    config = msgspec.structs.replace(configuration(world), auth=AuthConfig(require="always"))
    app = create_app(config)
    tls = ServerTls(TlsFiles(*own, plant.ca))
    try:
        with running(app, gate=site_of(app).gate, tls=tls) as server:
            url = f"https://127.0.0.1:{server.addresses[0][1]}"
            far = {"catalog": url, **shown, **given}
            fresh()
            with pytest.raises(UnauthorizedError, match="no name of the certificate is bound"):
                tasks(far)
            made = make_token(site_of(app).node.engine, "reader", certificate="spark.plant.example")
            fresh()
            sent = tasks(far)
            assert rows(sent) == expected
            revoke_token(site_of(app).node.engine, made.id)
            with pytest.raises(UnauthorizedError):
                rows(sent)
    finally:
        close(app)


def test_of_a_large_file_only_what_a_query_asks_for_comes(
    world: StoredWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"devices": LARGE_DEVICES[4], "startTime": "200", "endTime": "299"}
    with served(world) as (url, token):
        monkeypatch.setenv(TOKEN, token)
        far = {"catalog": url, "token": token, "dataDirs": str(tmp_path / "elsewhere"), **given}
        sent = tasks(far)
        assert len(rows(sent)) == 3
        (asked,) = open_stores.of_process._receivers.values()
        assert open_stores.of_process.cache.used < len(large()[0]) // 3
    assert asked.url == url


def test_the_store_comes_first_and_the_receiver_where_it_refuses(
    world: StoredWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As executors without credentials, whom a bucket gives nothing; the receiver has the disk."""
    expected = rows(tasks({"catalog": str(world.config), "columns": "n"}))
    world.upload(keep=True)
    with served(world) as (url, token):
        monkeypatch.setenv(TOKEN, token)
        gone = {
            "catalog": str(tmp_path / "schema"),
            "dataDirs": str(tmp_path / "elsewhere"),
            "store": (tmp_path / "no-bucket").as_uri(),
            "receiver": url,
            "columns": "n",
        }
        assert rows(tasks(gone)) == expected
        del gone["receiver"]
        with pytest.raises(TsferryError, match="no-bucket"):
            tasks(gone)


@pytest.mark.parametrize("where", ["disk", "receiver"])
def test_a_hidden_file_whose_bytes_are_gone_is_an_error_that_names_it_and_no_fewer_rows(
    world: StoredWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """As of a commit that had it: planned before they went, and behind that."""
    (hidden,) = (each for each in world.physicals() if "/2-2-0-0." in each)
    then = world.engine.newest_commit
    world.engine.commit([records.FileRetired(hidden), records.FileDeleted(hidden, "operator")])
    given = {"columns": "n", "asOf": str(then)}
    place = next(tmp_path.rglob(Path(hidden).name))
    before = rows(tasks({"catalog": str(world.config), **given}))
    assert {"time": 5, "device": "root.wind.e", "n": 1} in before
    with served(world) as (url, token):
        monkeypatch.setenv(TOKEN, token)
        far = {"catalog": url, "token": token, "dataDirs": str(tmp_path / "elsewhere")}
        given |= far if where == "receiver" else {"catalog": str(world.config)}
        fresh()
        sent = tasks(given)
        assert rows(sent) == before
        place.unlink()
        with pytest.raises(TsferryError, match=hidden):
            rows(sent)
        fresh()
        with pytest.raises(TsferryError, match=hidden):
            rows(tasks(given))


@pytest.mark.parametrize("has_token", [True, False])
def test_a_verification_proves_what_the_receiver_gives(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch, *, has_token: bool
) -> None:
    with served(world) as (url, token):
        monkeypatch.setenv(TOKEN, token if has_token else "nobodys")
        fresh()
        with CommittedFiles(
            configuration(world), FileScope(), receiver=ReceiverAddress(url)
        ) as files:
            expected = [each.expected for each in files.files]
        found = []
        for number, each in enumerate(expected):
            sent = pickle.loads(pickle.dumps(each))
            sent = type(each)(**{n: getattr(sent, n) for n in each.__slots__} | {"roots": ("/no",)})
            found.append(check_part(FilePart(number, 0, 0, 0, sent)).result)
    assert len(found) == 3
    if has_token:
        assert [each.findings for each in found] == [()] * 3 or not any(e.findings for e in found)
        assert sum(each.points for each in found) > 100
    else:
        said = [finding for each in found for finding in each.findings]
        assert {each.check for each in said} == {"read"}
        assert all(TOKEN in each.detail and "nobodys" not in each.detail for each in said)
        assert json.dumps([each.severity.name for each in said]).count("UNPROVED") == 3


def test_a_query_tells_the_receiver_where_it_meets_many_files(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowding, "_CROWDED", 2)
    heard: list[list[tuple[str, str]]] = []
    monkeypatch.setattr(CrowdedPartitions, "report", lambda _, told: heard.append(list(told)))
    with served(world) as (url, token):
        options = parse_options({"catalog": url, "token": token})
        files = list_sources(options)
        names = [each.name for each in files]
        (told,) = crowding.crowded_among(names)
        assert (told.storage_group, told.partition, told.files) == ("root.wind", "0", 3)
        crowding.report_crowded(options, files)
        assert heard == [[("root.wind", "0")]]
        crowding.report_crowded(options, files[:2])
        crowding.report_crowded(replace(options, token="wrong"), files)
        assert len(heard) == 1
        monkeypatch.setattr(crowding, "_OVERLAPPING", 1)
        picker = plan_of(options, columns_of(options)).picker()
        parts = plan_parts(files, TimeRange(), 1 << 20, picker, read_tail_of, merge=True)
        assert overlapping_in(parts) == {names[0], names[2]}
        assert crowding.crowded_among(names[:2], names[:1]) == []
        (told,) = crowding.crowded_among(names[:2], overlapping_in(parts))
        assert (told.files, told.overlapping) == (2, 2)
        crowding.report_crowded(options, files[:2], overlapping_in(parts))
        assert heard[1:] == [[("root.wind", "0")]]
    crowding.report_crowded(options, files)  # nobody answers, and the query goes on
    crowding.report_crowded(replace(options, catalog=str(world.config)), files)
