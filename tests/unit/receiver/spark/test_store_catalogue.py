"""The catalogue of a bucket, with no receiver, has the rows that the receiver's own has."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from common.durable import Tree
from common.errors import NotFoundError
from receiver.metadata.model import records
from receiver.node import Node
from receiver.spark.catalogue import Catalogue
from receiver.spark.catalogue_opening import open_catalogue
from receiver.spark.finder import DataFile
from receiver.spark.local_catalogue import LocalCatalogue, StoreCatalogue
from receiver.spark.source.inferring import catalogue_of, columns_of, list_sources
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.storage.reading.stored_place import StoreAddress
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import next_incarnation
from tests.support.compacting import compact
from tests.support.followed import wait_for
from tests.support.node_world import A, Edge, World, path_of, tsfile

MADE = "create timeseries root.sg.d9.{} with datatype=INT32, encoding=RLE"


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.fixture
def world(tmp_path: Path, bucket: Path) -> World:
    return World(tmp_path / "centre", storage={"url": bucket.as_uri(), "lag": 0.1})


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    world.root.mkdir()
    with world.node() as node:
        yield node


@pytest.fixture
def edge(node: Node) -> Edge:
    return Edge(node, uuid=A)


def copied(node: Node) -> None:
    """Wait until all is in the store, and the log that says so."""
    storage = node.storage
    assert storage is not None

    def is_level() -> bool:
        storage.hurry()
        with node.engine.reading() as state:
            table = state.uploaded_table
            is_lacking = any(table.lacks(row) for row in state.files.values())
        return not is_lacking and storage.shipped() == node.engine.newest_commit

    wait_for(is_level)


def same(each: DataFile) -> DataFile:
    return replace(each, locations=(), devices=None, place=None)


def told(catalogue: Catalogue, at: int) -> list[list[DataFile]]:
    return [[same(file) for file in several] for several in catalogue.loads(at)]


def test_rows_of_the_bucket_are_those_of_the_receiver_at_each_commit(
    node: Node, edge: Edge, bucket: Path, world: World
) -> None:
    commits = []
    edge.round({path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile("root.sg.d2", first=100)})
    copied(node)
    commits.append(node.engine.newest_commit)
    with open_catalogue(bucket.as_uri()) as far:
        assert isinstance(far, StoreCatalogue)
        edge.round({path_of(3): tsfile("root.sg.d3")}, deleted=[path_of(1)])
        with node.engine.reading() as state:
            held = next(each for each in state.files.values() if each.path == path_of(2))
        node.engine.checkpoint()
        node.engine.commit([records.FileQuarantined(held.physical, "bad")])
        commits.append(node.engine.newest_commit)
        node.engine.checkpoint()
        copied(node)
        commits.append(node.engine.newest_commit)
        assert far.newest == commits[0]
        far.refresh()
        with LocalCatalogue(world.config.schema_dir) as near:
            assert (far.uuid, far.newest) == (near.uuid, near.newest)
            for at in commits:
                assert told(far, at) == told(near, at)
                assert told(far, at) != [[], []]
        scratch = far.engine.directory
    with open_catalogue(bucket.as_uri()) as fresh, LocalCatalogue(world.config.schema_dir) as near:
        for at in commits:
            assert told(fresh, at) == told(near, at), "the past is fetched when it is asked for"
    assert not scratch.parent.exists()


def test_the_bytes_are_read_from_a_directory_with_no_receiver_left(
    node: Node, edge: Edge, bucket: Path, world: World
) -> None:
    content = tsfile("root.sg.d1")
    edge.round({path_of(1): content})
    copied(node)
    first = node.engine.newest_commit
    edge.round({path_of(2): tsfile("root.sg.d2")})
    copied(node)
    node.close()
    shutil.rmtree(world.root)
    given = {"catalog": bucket.as_uri()}
    assert len(list_sources(parse_options(given))) == 2
    options = parse_options({**given, "asOf": str(first)})
    (file,) = list_sources(options)
    assert file.place is not None
    read = (bucket / file.place.key).read_bytes()
    assert hashlib.md5(read).hexdigest() == hashlib.md5(content).hexdigest()
    assert file.stored
    assert {"time", "device", "s1"} <= {each.name for each in columns_of(options)}


def test_a_bucket_has_no_merged_files_so_those_that_were_loaded_are_read(
    node: Node, edge: Edge, bucket: Path, world: World
) -> None:
    edge.round({path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile("root.sg.d2", first=100)})
    with node.engine.reading() as state:
        names = sorted(state.files)
    data = next(each for each in node.config.data_dirs if (each / names[0]).exists())
    compact(node.engine, node.config.schema_dir, data, names, 7)
    copied(node)

    def read(**given: str) -> list[str]:
        options = parse_options({"catalog": bucket.as_uri(), **given})
        return sorted(each.name for each in list_sources(options))

    with StoreCatalogue(StoreAddress(bucket.as_uri())) as far:
        assert [each.inputs for each in far.stand_ins(far.newest)] == [tuple(names)]
    assert read() == names
    node.close()
    shutil.rmtree(world.root)
    assert read() == read(compacted="true") == read(dataDirs="/elsewhere") == names
    assert columns_of(parse_options({"catalog": bucket.as_uri()}))


def test_a_stream_goes_on_from_commit_to_commit_and_sees_a_restored_centre(
    node: Node, edge: Edge, bucket: Path
) -> None:
    edge.round({path_of(1): tsfile("root.sg.d1")})
    copied(node)
    with catalogue_of(parse_options({"catalog": bucket.as_uri()})) as far:
        first = far.newest
        edge.round({path_of(2): tsfile("root.sg.d2")})
        copied(node)
        far.refresh()
        (new,) = far.loads(far.newest, first).visible
        assert new.name.startswith("sequence/root.sg/0/0/1600000000002-2-0.")
        where = far.engine.directory
        storage = node.storage
        assert storage is not None
        with Tree(node.config.schema_dir) as home:
            next_incarnation(DirectoryStore(bucket), home, node.engine.uuid)
        node.close()
        config = msgspec.structs.replace(node.config)
        with Node.open(config) as second:
            copied(second)
            far.refresh()
            assert far.engine.directory != where
            assert len(far.files(far.newest)) == 2


def test_a_bucket_without_copies_is_named(bucket: Path) -> None:
    with pytest.raises(NotFoundError, match="no centre has copied anything there"):
        open_catalogue(bucket.as_uri())
