"""What is in the object store only is read there: the same rows, and few bytes for few rows."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from common.errors import UsageError
from receiver.spark.source.file_opening import FileOpener, MissingFileError
from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.slicing import Slice
from receiver.spark.source.read_plans.slicing import plan as plan_parts
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from receiver.storage.reading import open_stores
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_content import ContentChangedError
from tests.support.spark_world import NORTH
from tests.support.stored_world import LARGE_DEVICES, StoredWorld, large
from tests.support.tsfile_bytes import build

PATH = "sequence/root.wind/0/0/{0}-{0}-0-0.tsfile"


class Seen:
    """Reads of all stores, by key and length."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, int]] = []

    @property
    def bytes(self) -> int:
        return sum(length for _, length in self.reads)


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """A process of its own, as far as memory and connections go."""
    made, read = Seen(), DirectoryStore.read

    def noted(self: DirectoryStore, key: str, offset: int, length: int) -> bytes:
        found = read(self, key, offset, length)
        made.reads.append((key, len(found)))
        return found

    monkeypatch.setattr(DirectoryStore, "read", noted)
    fresh()
    return made


def fresh() -> None:
    open_stores.of_process.__init__()  # type: ignore[misc]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    (tmp_path / "bucket").mkdir()
    made = StoredWorld(tmp_path)
    made.configure((tmp_path / "bucket").as_uri())
    yield made
    made.engine.close()


def small(number: int) -> bytes:
    return build({"root.wind.d1": {"s1": [(number * 100 + n, n) for n in range(50)]}})


def read(world: StoredWorld, **given: str) -> list[dict[str, Any]]:
    """As a driver plans and workers read, which get pickled tasks."""
    options = parse_options({"catalog": str(world.config), **given})
    plan = plan_of(options, columns_of(options))
    parts = plan_parts(
        list_sources(options),
        plan.selection.span,
        options.partition_bytes,
        plan.picker(),
        read_tail_of,
        merge=options.merge,
    )
    found = []
    for part in parts:
        slices, its = pickle.loads(pickle.dumps((part, plan)))
        found += [row for batch in read_slices(slices, its) for row in batch.to_pylist()]
    return sorted(found, key=repr)


@pytest.mark.parametrize("form", ["wide", "long"])
def test_the_rows_are_those_of_the_disk(world: StoredWorld, form: str) -> None:
    for number in range(1, 5):
        world.load(NORTH, PATH.format(number), small(number))
    overlapping = build({"root.wind.d1": {"s1": [(149, -1), (210, -2)]}})
    world.load(NORTH, "unsequence/root.wind/0/0/9-9-0-0.tsfile", overlapping)
    before = read(world, form=form)
    assert len(before) == 200
    world.upload()
    assert read(world, form=form) == before


def test_each_small_file_is_one_request(world: StoredWorld, seen: Seen) -> None:
    for number in range(1, 5):
        world.load(NORTH, PATH.format(number), small(number))
    world.upload()
    seen.reads.clear()
    assert len(read(world)) == 200
    assert len(seen.reads) == 4


def test_one_device_and_one_day_of_a_large_file_are_a_small_part_of_its_bytes(
    world: StoredWorld, seen: Seen
) -> None:
    content, devices = large()
    world.load(NORTH, PATH.format(1), content)
    world.upload(keep=True)
    given = {"devices": LARGE_DEVICES[4], "startTime": "200", "endTime": "299"}
    expected = read(world, **given)
    assert len(expected) == 3
    assert expected[0]["t"] == devices[LARGE_DEVICES[4]]["t"][6][1]
    assert seen.bytes < 3 * len(content), "it was read from the store though it is here"
    for each in world.data.rglob("*.tsfile"):
        each.unlink()
    seen.reads.clear()
    fresh()
    assert read(world, **given) == expected
    assert seen.bytes < len(content) // 3
    numbers = read(world, columns="n", **given)
    assert [each["n"] for each in numbers] == [0, 1, 2]


def test_other_bytes_there_are_an_error_that_names_the_object(world: StoredWorld) -> None:
    for number in (1, 2):
        world.load(NORTH, PATH.format(number), small(number))
    world.upload()
    first, _ = world.physicals()
    place = world.object(first)
    bad = bytearray(place.read_bytes())
    bad[80] ^= 1
    place.write_bytes(bad)
    with pytest.raises(ContentChangedError, match=world.key(first)):
        read(world)
    rows = read(world, onError="row", form="long")
    (said,) = (each["_error"] for each in rows if each["_error"])
    assert world.key(first) in said
    assert len(rows) == 51


def test_one_that_the_store_lost_is_an_error_where_it_is_needed(world: StoredWorld) -> None:
    for number in (1, 2):
        world.load(NORTH, PATH.format(number), small(number))
    world.upload()
    world.object(world.physicals()[1]).unlink()
    assert len(read(world, form="long", endTime="199")) == 50
    with pytest.raises(Exception, match=r"2-2-0-0\..*not there"):
        read(world, form="long")


def test_where_nobody_says_which_store_it_is_the_error_tells_how_to(world: StoredWorld) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    world.upload()
    given = {"catalog": str(world.root / "schema"), "form": "long"}
    with pytest.raises(MissingFileError, match="expected option store"):
        read(world, **given)
    assert len(read(world, store=world.url, **given)) == 50


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/x", "https://bucket", "file:///a?token=b"])
def test_no_secret_can_be_said_in_an_option(url: str) -> None:
    with pytest.raises(UsageError, match="without credentials"):
        parse_options({"catalog": "http://127.0.0.1:1", "store": url})
    with pytest.raises(UsageError, match="together with store"):
        parse_options({"catalog": "http://127.0.0.1:1", "storeRegion": "eu-1"})


def test_who_stops_reading_fetches_no_more(world: StoredWorld, seen: Seen) -> None:
    for number in range(1, 41):
        world.load(NORTH, PATH.format(number), small(number))
    world.upload()
    options = parse_options({"catalog": str(world.config), "form": "long"})
    plan = plan_of(options, columns_of(options))
    parts = plan_parts(
        list_sources(options), plan.selection.span, 1 << 30, plan.picker(), read_tail_of
    )
    seen.reads.clear()
    slices = [each for part in parts for each in part]
    first = slices[0]
    assert isinstance(first, Slice)
    with FileOpener(slices, plan, plan.picker()) as opener, ExitStack() as stack:
        opener.open(first.file, first, stack)
    open_stores.of_process.pool.shutdown(wait=True)
    assert 1 <= len(seen.reads) <= 17


def test_a_scan_waits_for_several_requests_at_once(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is several times as fast where each takes long: none waits for those before it."""
    for number in range(1, 41):
        world.load(NORTH, PATH.format(number), small(number))
    world.upload()
    together, read_object, number_of = threading.Barrier(8), DirectoryStore.read, count()

    def waits(self: DirectoryStore, key: str, offset: int, length: int) -> bytes:
        if next(number_of) < 8:
            together.wait(60)  # for seven others, which are under way at the same time
        return read_object(self, key, offset, length)

    monkeypatch.setattr(DirectoryStore, "read", waits)
    options = parse_options({"catalog": str(world.config), "form": "long"})
    plan = plan_of(options, columns_of(options))
    files = list_sources(options)
    slices = [Slice(each.for_worker(), plan.selection.span) for each in files]
    assert sum(batch.num_rows for batch in read_slices(slices, plan)) == 40 * 50
