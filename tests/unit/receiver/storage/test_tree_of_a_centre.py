"""A running receiver keeps the tree of its files in the store if it is told to, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.config import ConfigFinding
from receiver.config import StorageConfig
from receiver.metadata.model import records
from receiver.operator.stored.storage import running_storage
from receiver.storage import copying
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.stores.store_opening import open_store
from tests.support.node_world import B, Edge, World, path_of, tsfile
from tests.support.tree_world import Duck, said
from tests.support.web import until

C = "c" * 32


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "bucket").mkdir()
    url = (tmp_path / "bucket").as_uri()
    storage = {"url": url, "lag": 0.1, "tree": True, "tree_every": 0.1}
    return World(tmp_path / "centre", storage=storage)


def test_the_tree_follows_a_receiver_and_goes_on_after_a_start(
    world: World, tmp_path: Path
) -> None:
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile("root.sg.d2")})
        first = node.engine.newest_commit
        until(lambda: running_storage(node.operator).tree >= first)
        until(lambda: running_storage(node.operator).uploaded_files == 2)
        assert node.concerns() == []
    with world.node() as node:
        (gone, _) = sorted(said(node.engine, first))
        last = node.engine.commit([records.FileDeleted(gone, "operator")])
        until(lambda: running_storage(node.operator).tree >= last)
        duck = Duck(str(tmp_path / "bucket"))
        for ts in (first, last - 1, last):
            assert duck.files(ts) == said(node.engine, ts)
        assert duck.chunks("root.sg.d2", 0, 1 << 62)


def test_without_the_key_nothing_of_it_is_there_and_without_a_store_it_is_an_error(
    world: World, tmp_path: Path
) -> None:
    world.storage["tree"] = False
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        assert running_storage(node.operator).tree == 0
    assert not list((tmp_path / "bucket").glob("*/tree"))
    (found,) = StorageConfig(tree=True).check()
    assert isinstance(found, ConfigFinding)
    assert found.key == "tree"


def test_a_tree_in_trouble_is_shown_and_holds_up_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no tree today")

    monkeypatch.setattr(copying.StorageService, "_find_tree", broken)
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: "no tree today" in str(running_storage(node.operator).problem))
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        until(lambda: running_storage(node.operator).shipped == node.engine.newest_commit)


def test_a_receiver_that_was_replaced_puts_no_tree(world: World, tmp_path: Path) -> None:
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).tree > 0)
        store = open_store(str(world.storage["url"]))
        service = node.operator.storage
        assert service is not None
        next_incarnation(store, service._home, node.engine.uuid)
        Edge(node, uuid=B).round({path_of(2): tsfile("root.sg.other")})
        until(lambda: running_storage(node.operator).fenced)
        (thread,) = [each for each in service._jobs._threads if each.name == copying._TREE]
        until(lambda: not thread.is_alive())
        Edge(node, uuid=C).round({path_of(3): tsfile("root.sg.third")})
        before = [each.key for each in store.objects(f"{node.engine.uuid}/tree/")]
    assert [each.key for each in store.objects(f"{node.engine.uuid}/tree/")] == before
    store.close()
    assert {each.name for each in (tmp_path / "bucket").glob("*/tree/tables/*")} == {"00000001"}
