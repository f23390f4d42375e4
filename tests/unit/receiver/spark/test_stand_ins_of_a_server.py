"""Readers without the disks have merged files from the server, and its files where it has none."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.config import load
from common.errors import NotFoundError
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.operator.edges.tokens import make_token
from receiver.spark.source.inferring import (
    catalogue_of,
    columns_of,
    list_sources,
    plan_of,
    read_tail_of,
)
from receiver.spark.source.read_plans.slicing import plan as plan_parts
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from receiver.storage.reading import open_stores
from receiver.storage.reading.receiver_reads import TOKEN
from receiver.web.app import close, create_app, site_of
from tests.support.compacting import compact, merged
from tests.support.spark_world import NORTH
from tests.support.stored_world import StoredWorld
from tests.support.tsfile_bytes import build
from tests.support.web import running

DEVICES = [f"root.wind.d{number}" for number in range(3)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """Three compactions, of two files each, and a late file above one of them."""
    made = StoredWorld(tmp_path)
    for number, device in enumerate(DEVICES):
        inputs = []
        for count in (1, 2):
            stem = number * 10 + count
            points = {device: {"n": [(count, stem), (count + 1, stem)]}}
            place = made.load(NORTH, f"sequence/root.wind/0/0/{stem}-{stem}-0-0.tsfile",
                              build(points))  # fmt: skip
            inputs.append(str(place.relative_to(made.data)))
        compact(made.engine, tmp_path / "schema", made.data, inputs, number + 1)
    late = build({DEVICES[0]: {"n": [(2, 99)]}})
    made.load(NORTH, "unsequence/root.wind/0/0/99-99-0-0.tsfile", late)
    yield made
    made.engine.close()


@contextmanager
def served(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[dict[str, str], Engine]]:
    """Options of one who has no disk of the receiver, and the server's engine."""
    world.engine.close()
    config = load(ReceiverConfig, file=world.config, env_prefix=ENV_PREFIX, environ={}, flags={})
    app = create_app(config.value)
    open_stores.of_process.__init__()  # type: ignore[misc]  # as another process
    try:
        engine = site_of(app).node.engine
        token = make_token(engine, "reader").token
        monkeypatch.setenv(TOKEN, token)
        with running(app, gate=site_of(app).gate) as server:
            url = f"http://127.0.0.1:{server.addresses[0][1]}"
            elsewhere = str(world.root / "elsewhere")
            yield {"catalog": url, "token": token, "dataDirs": elsewhere}, engine
    finally:
        close(app)


def planned(given: dict[str, str]) -> list[bytes]:
    options = parse_options(given)
    plan = plan_of(options, columns_of(options))
    parts = plan_parts(
        list_sources(options), plan.selection.span, options.partition_bytes, plan.picker(),
        read_tail_of, merge=True,
    )  # fmt: skip
    return [pickle.dumps((part, plan)) for part in parts]


def read(sent: list[bytes]) -> list[dict[str, Any]]:
    found = []
    for each in sent:
        slices, plan = pickle.loads(each)
        found += [row for batch in read_slices(slices, plan) for row in batch.to_pylist()]
    return sorted(found, key=repr)


def rows(given: dict[str, str], **more: str) -> list[dict[str, Any]]:
    return read(planned({**given, **more}))


def names(given: dict[str, str], **more: str) -> list[str]:
    options = parse_options({**given, **more})
    return sorted(each.name.rpartition("/")[2] for each in list_sources(options))


def test_merged_files_come_from_the_server_to_who_has_no_disk(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rows({"catalog": str(world.config), "compacted": "false"})
    assert len(expected) == 9
    with served(world, monkeypatch) as (far, _):
        assert names(far)[-3:] == [f"merged-{each}-0.tsfile" for each in (1, 2, 3)]
        assert len(names(far)) == 4
        assert len(names(far, compacted="false")) == 7
        assert rows(far) == rows(far, compacted="false") == expected
        assert rows(far, devices=DEVICES[1]) == [e for e in expected if e["device"] == DEVICES[1]]


def test_a_page_of_merged_files_is_not_the_whole(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.spark.remote_catalogue._PAGE", 1)
    monkeypatch.setattr("receiver.transfer.said_lists.listing._MOST_DEVICES", 1)
    with served(world, monkeypatch) as (far, _), catalogue_of(parse_options(far)) as catalogue:
        found = catalogue.stand_ins(catalogue.newest)
        assert [each.outputs[0].name[-17:] for each in found] == [
            f"merged-{each}-0.tsfile" for each in (1, 2, 3)
        ]
        assert all(len(each.inputs) == 2 for each in found)


def test_what_the_server_does_not_have_whole_is_read_of_the_inputs(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = sorted(world.data.rglob("merged-*"))
    outputs[0].unlink()
    outputs[1].write_bytes(outputs[1].read_bytes()[:-1])
    expected = rows({"catalog": str(world.config), "compacted": "false"})
    with served(world, monkeypatch) as (far, _):
        assert [each for each in names(far) if each.startswith("m")] == ["merged-3-0.tsfile"]
        assert rows(far) == expected


def test_a_task_in_flight_reads_what_was_dissolved_as_long_as_the_history_has_it(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(world, monkeypatch) as (far, engine):
        before = rows(far)
        sent = planned(far)
        first = engine.newest_commit
        engine.commit([records.CompactionDissolved(1, "for a test")])
        open_stores.of_process.__init__()  # type: ignore[misc]
        assert read(sent) == before
        assert "merged-1-0.tsfile" not in names(far)
        assert "merged-1-0.tsfile" in names(far, asOf=str(first))
        assert rows(far) == rows(far, asOf=str(first)) == before
        engine.commit([records.CompactionForgotten(1)])
        assert names(far, asOf=str(first))[-1:] == ["merged-3-0.tsfile"]
        assert rows(far, asOf=str(first)) == before
        open_stores.of_process.__init__()  # type: ignore[misc]
        with pytest.raises(NotFoundError, match=r"merged-1-0.tsfile"):
            read(sent)


def test_of_a_server_that_does_not_know_them_the_files_are_read(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    from receiver.spark.remote_catalogue import RemoteCatalogue

    get = RemoteCatalogue._get

    def old(self: RemoteCatalogue, what: str, kind: Any, **query: Any) -> Any:
        if what == "/compacted":
            raise NotFoundError("no such call")
        return get(self, what, kind, **query)

    monkeypatch.setattr(RemoteCatalogue, "_get", old)
    with served(world, monkeypatch) as (far, _):
        assert len(names(far)) == 7


def test_beside_a_store_merged_files_are_read_where_it_is_said_how_workers_have_them(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bucket").mkdir()
    world.configure((tmp_path / "bucket").as_uri())
    near = {"catalog": str(world.config)}
    assert len(names(near)) == 7
    assert len(names(near, compacted="true")) == 4
    assert len(names(near, dataDirs=str(world.data))) == 4
    assert len(names(near, receiver="http://127.0.0.1:1")) == 4
    assert len(names(near, dataDirs=str(tmp_path / "elsewhere"))) == 7
    world.upload(keep=True)
    with served(world, monkeypatch) as (far, _):
        del far["dataDirs"]
        assert len(names(far)) == 7
        assert len(names(far, compacted="true")) == 4


def test_a_merged_file_whose_place_nobody_says_is_not_read(
    world: StoredWorld, tmp_path: Path
) -> None:
    schema, data = {"catalog": str(tmp_path / "schema")}, {"dataDirs": str(world.data)}
    assert len(names(schema)) == 4
    lone = world.load(
        NORTH, "sequence/root.wind/0/1/1-1-0-0.tsfile", build({DEVICES[0]: {"n": [(5000, 1)]}})
    )
    name = str(lone.relative_to(world.data))
    op = merged(world.engine, tmp_path / "schema", world.data, [name], 9)
    outputs = [msgspec.structs.replace(each, data_dir="") for each in op.outputs]
    world.engine.commit([msgspec.structs.replace(op, outputs=outputs)])
    assert lone.name in names(schema)
    assert lone.name not in names({**schema, **data})
    assert "merged-9-0.tsfile" in names({**schema, **data})
