"""A receiver whose disk is smaller than what it has loaded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from common.digests import md5
from common.durable import Tree
from common.errors import NoSpaceError
from common.wire import Action
from receiver.load.upkeep.verdicts import Verdict
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.node import Node
from receiver.operator.stored.files import list_files, undelete_files
from receiver.operator.stored.quarantine import retry_quarantined
from receiver.operator.stored.storage import fetch_files, running_storage
from receiver.storage import copying
from receiver.storage.cache.file_restore import restore_files
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_store import StoreAwayError
from receiver.storage.stores.store_opening import open_store
from tests.support.node_world import (
    A,
    Edge,
    World,
    fsck_of,
    path_of,
    plan_entry,
    resource_entry,
    tsfile,
)
from tests.support.proving import Site, in_this_process
from tests.support.web import until

BLOCK = 4096


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "bucket").mkdir()
    storage = {
        "url": (tmp_path / "bucket").as_uri(),
        "lag": 0.1,
        "capacity": 10 * BLOCK,
        "pin_wait": 60.0,
    }
    return World(tmp_path / "centre", storage=storage)


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.node() as node:
        yield node


def files(first: int, last: int) -> dict[str, bytes]:
    return {path_of(number): tsfile(first=number * 100) for number in range(first, last + 1)}


def here(world: World) -> int:
    """Files that are here, which may go while they are counted."""
    return sum(
        each.suffix == ".tsfile"
        for kind in ("sequence", "unsequence")
        for each in (world.data / kind).rglob("*")
    )


def comes_in(edge: Edge, batch: dict[str, bytes]) -> bool:
    """Whether all of it is loaded; what there is no room for is sent again."""
    try:
        return edge.round(batch).keys() == batch.keys()
    except NoSpaceError:
        return False


def row_of(node: Node, path: str) -> FileRow:
    with node.engine.reading() as state:
        (row,) = (each for each in state.files.values() if each.path == path)
    return row


def is_taken(edge: Edge, batch: dict[str, bytes]) -> bool:
    """Whether all of it is received, and waits to be loaded."""
    try:
        return all(each.problem is None for each in edge.batch(edge.start(), batch))
    except NoSpaceError:
        return False


def is_here_again(node: Node, world: World, path: str, content: bytes) -> bool:
    """Whether what was fetched is here as it was sent; it may have made room once more."""
    physical = row_of(node, path).physical
    try:
        found = (world.data / physical).read_bytes()
    except FileNotFoundError:
        fetch_files(node.operator, [physical])
        return False
    assert found == content
    return True


def remote(node: Node) -> set[str]:
    return {each.path for each in list_files(node.operator).files if each.data_dir is None}


def test_a_file_and_its_resource_are_two_on_the_disk_for_plan_and_batch(
    node: Node, world: World
) -> None:
    edge = Edge(node)
    sent, beside = files(1, 6), resource_entry(b"resource")
    task = edge.start()
    entries = [plan_entry(path, content, resource=beside) for path, content in sent.items()]
    asked = [each.path for each in edge.plan(task, entries) if each.action is Action.SEND]
    assert len(asked) == 5
    goes = {path: sent[path] for path in asked} | {
        f"{path}.resource": b"resource" for path in asked
    }
    assert [each.problem for each in edge.batch(task, goes)] == [None] * 10


def test_what_makes_room_for_a_file_makes_it_for_its_resource(node: Node, world: World) -> None:
    edge = Edge(node)
    until(partial(comes_in, edge, files(1, 5)))
    until(partial(comes_in, edge, files(6, 10)))
    until(lambda: running_storage(node.operator).uploaded_files == 10)
    (last,) = files(11, 11).items()
    until(lambda: edge.round(dict([last]), resources={last[0]: b"resource"}).keys() == {last[0]})


@pytest.mark.parametrize("waiting", [0, 2])
def test_room_is_made_for_all_of_a_partition_that_comes_together(node: Node, waiting: int) -> None:
    """A sender that compacted sends none of it while one is refused."""
    edge = Edge(node)
    until(partial(comes_in, edge, files(1, 5)))
    until(partial(comes_in, edge, files(6, 9)))
    until(lambda: running_storage(node.operator).uploaded_files == 9)
    until(lambda: running_storage(node.operator).cached_bytes == 9 * BLOCK)
    merged = files(11, 16)
    entries = [plan_entry(path, content) for path, content in merged.items()]
    for path in [*merged][:waiting]:
        until(partial(is_taken, edge, {path: merged[path]}))

    def all_may_come() -> bool:
        actions = [each.action for each in edge.plan(edge.start(), entries)]
        assert actions.count(Action.HAVE) == waiting
        return Action.REFUSED not in actions

    until(all_may_come)


def test_what_goes_together_and_has_no_room_is_told_of(node: Node) -> None:
    edge, many = Edge(node), files(1, 11)
    edge.plan(edge.start(), [plan_entry(path, content) for path, content in many.items()])
    assert "storage.capacity" in str(node.problem())
    edge.plan(edge.start(), [plan_entry(path, content) for path, content in files(1, 2).items()])
    assert node.problem() is None


def test_what_it_loads_fits_whatever_the_sum(node: Node, world: World) -> None:
    edge = Edge(node)
    sent: dict[str, bytes] = {}
    for low in range(1, 31, 3):
        sent |= files(low, low + 2)
        until(partial(comes_in, edge, files(low, low + 2)))
    until(lambda: here(world) <= 9)
    until(lambda: running_storage(node.operator).uploaded_files == 30)
    assert running_storage(node.operator).capacity == 10 * BLOCK
    assert len(remote(node)) >= 21
    report = fsck_of(node)
    assert (report.found, report.files) == ([], 30)
    until(lambda: node.problem() is None)
    entries = node.listing.inventory(edge.who, A, None, None, look=True).entries
    assert [each.stands for each in entries] == [True] * 30
    wanted = [row_of(node, path).physical for path in sorted(sent)[:3]]
    answer = fetch_files(node.operator, [*wanted, "sequence/no/0/0/1-1-0-0.tsfile"])
    assert sorted(answer.here) == sorted(wanted)
    assert [each.reason for each in answer.failed] == ["there is no such file"]
    for path in sorted(sent)[:3]:
        until(partial(is_here_again, node, world, path, sent[path]))


def test_what_was_loaded_just_now_takes_its_room_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is staged no more, and the next look for what may go is a second away."""
    monkeypatch.setattr(copying, "_LOOK", 3600.0)
    with world.node() as node:
        assert node.storage is not None
        books = node.storage.disk_room._books
        until(lambda: books._seen >= 0)
        Edge(node).round(files(1, 4))
        assert node.storage.disk_room.room() == 6 * BLOCK


def test_what_left_the_disk_behind_the_kept_history_takes_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of what went is gone by then: all is counted anew."""
    monkeypatch.setattr(copying, "_LOOK", 3600.0)
    with world.node() as node:
        assert node.storage is not None
        books = node.storage.disk_room._books
        until(lambda: books._seen >= 0)
        Edge(node).round(files(1, 4))
        before = node.storage.disk_room.room()
        gone = row_of(node, next(iter(files(1, 1))))
        (world.data / gone.physical).unlink()
        monkeypatch.setattr(node.engine, "log_since", _gone)
        books._seen -= 1
        books.look()
        assert before is not None
        assert node.storage.disk_room.room() == before + BLOCK


def _gone(_since: int) -> NoReturn:
    raise HistoryGoneError("the kept history is over")


def test_full_of_what_could_not_be_uploaded_it_turns_edges_away_and_heals(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "bucket").rmdir()
    with world.node() as node:
        edge = Edge(node)
        edge.round(files(1, 10))
        until(lambda: node.problem() is not None)
        assert "storage.capacity" in str(node.problem())
        assert running_storage(node.operator).waiting_files == 10  # though it was never reached
        more = files(11, 11)
        task = edge.start()
        (decision,) = edge.plan(task, [plan_entry(path, more[path]) for path in more])
        assert decision.action is Action.REFUSED
        with pytest.raises(NoSpaceError):
            edge.batch(task, more)
        assert here(world) == 10
        (tmp_path / "bucket").mkdir()
        until(lambda: node.problem() is None)
        edge.batch(task, more)
        assert node.storage is not None
        assert here(world) < 10


def test_room_is_counted_as_the_disk_counts_it(world: World, tmp_path: Path) -> None:
    """Files of less than a block take one each: by their bytes all of these would fit."""
    (tmp_path / "bucket").rmdir()
    with world.node() as node:
        edge, many = Edge(node), files(1, 11)
        assert sum(map(len, many.values())) < 10 * BLOCK
        task = edge.start()
        decisions = edge.plan(task, [plan_entry(path, many[path]) for path in many])
        assert [each.action for each in decisions].count(Action.REFUSED) == 1
        with pytest.raises(NoSpaceError):
            edge.batch(task, many)
        ten = files(1, 10)
        edge.batch(task, ten)
        with pytest.raises(NoSpaceError):  # what waits to be loaded takes room too
            edge.batch(task, files(11, 11))


def test_status_tells_how_much_of_what_was_needed_was_here(node: Node, world: World) -> None:
    Site(node).round({path_of(number): {"a": {number: number}} for number in (1, 2)})
    evicted(node, world)
    assert node.storage is not None
    with node.engine.reading() as state:
        rows = list(state.files.values())
    for wanted in (rows[:1], rows, rows):
        assert node.storage.disk_room.fetch(wanted, 60.0).failed == []
    view = running_storage(node.operator)
    assert (view.asked_files, view.fetched_files) == (5, 2)


def test_proofs_read_what_is_in_the_store_only(node: Node, world: World) -> None:
    in_this_process(node)
    site = Site(node)
    old = [path_of(number) for number in range(1, 5)]
    site.round({path: {"a": {at: at}} for at, path in enumerate(old)})
    evicted(node, world)
    site.round({path_of(1, inner=1): {"a": {at: at for at in range(3)}}}, old)
    evicted(node, world)
    assert node.prover.run_once() == 3
    assert [site.state(path) for path in old] == [FileState.SUPERSEDED] * 3 + [FileState.RETIRED]


def test_a_partition_that_the_store_does_not_give_is_proved_later(
    node: Node, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(node)
    site = Site(node)
    old = [path_of(number) for number in range(1, 3)]
    site.round({path: {"a": {at: at}} for at, path in enumerate(old)})
    site.round({path_of(1, inner=1): {"a": {0: 0, 1: 1}}}, old)
    evicted(node, world)

    def refuse(*_: object) -> bytes:
        raise StoreAwayError("away")

    with monkeypatch.context() as patched:
        patched.setattr(DirectoryStore, "read", refuse)
        assert node.prover.run_once() == 0
    assert [site.state(path) for path in old] == [FileState.RETIRED] * 2
    assert node.prover.run_once() == 2


def evicted(node: Node, world: World) -> None:
    """Have all that is loaded in the store only."""
    assert node.storage is not None
    node.storage.disk_room.cache.capacity = 1
    until(lambda: here(world) == 0)
    node.storage.disk_room.cache.capacity = 10 * BLOCK


def test_a_file_in_quarantine_is_looked_at_again_where_it_is(node: Node, world: World) -> None:
    edge = Edge(node)
    edge.round(files(1, 1))
    evicted(node, world)
    physical = row_of(node, path_of(1)).physical
    node.engine.commit([records.FileQuarantined(physical, "by hand")])
    assert "visible again" in retry_quarantined(node.operator, A, path_of(1), physical)
    assert row_of(node, path_of(1)).state is FileState.LIVE


def test_a_deleted_file_comes_back_from_the_store(node: Node, world: World) -> None:
    edge = Edge(node)
    edge.round(files(1, 1))
    evicted(node, world)
    physical = row_of(node, path_of(1)).physical
    node.engine.commit([records.FileDeleted(physical, "operator")])
    assert undelete_files(node.operator, [physical]).back == [physical]
    assert here(world) == 1


def test_what_was_evicted_is_read_after_a_start(world: World) -> None:
    with world.node() as node:
        Edge(node).round(files(1, 3))
        evicted(node, world)
    with world.node() as node:
        assert node.problem() is None
        assert remote(node) == set(files(1, 3))
        until(lambda: running_storage(node.operator).incarnation)
        wanted = [row_of(node, path).physical for path in files(1, 3)]
        assert sorted(fetch_files(node.operator, wanted).here) == sorted(wanted)
    assert sorted(world.loaded().values()) == sorted(files(1, 3).values())


def test_a_restore_fetches_no_more_than_fits_and_the_rest_is_remote(
    node: Node, world: World, tmp_path: Path
) -> None:
    edge = Edge(node)
    for number in range(1, 4):
        edge.round(files(number, number))
    until(lambda: running_storage(node.operator).uploaded_files == 3)
    store = open_store(str(world.storage["url"]))
    newest = [row_of(node, path_of(number)).physical for number in (2, 3)]
    most = sum(row_of(node, path_of(number)).size for number in (2, 3))
    with Tree(tmp_path / "restored", create=True) as data:
        found = restore_files(store, node.engine, [data], most=most)
        there = [rel for rel, _ in data.files("sequence")]
    store.close()
    assert (found.fetched, found.left, found.lacking) == (2, 1, [])
    assert sorted(there) == sorted(newest)


def test_a_restore_fetches_what_no_commit_tells_of_whatever_fits(
    node: Node, world: World, tmp_path: Path
) -> None:
    """The resource of a file that it tells of, too: nothing would ever look for it otherwise."""
    edge, path = Edge(node), path_of(1)
    edge.round(files(1, 1), resources={path: b"before"})
    until(lambda: running_storage(node.operator).uploaded_files == 1)
    new = b"anew"
    row = row_of(node, path)
    meta = records.ResourceMeta(len(new), md5(new).hexdigest())
    (first,) = (tmp_path / "bucket").glob(f"*/data/*/{row.physical}")
    Path(f"{first}.{meta.md5}").write_bytes(new)
    node.engine.commit([records.ResourceNoted(row.physical, meta)])
    store = open_store(str(world.storage["url"]))
    with Tree(tmp_path / "restored", create=True) as data:
        found = restore_files(store, node.engine, [data], most=0)
        assert data.read(f"{row.physical}.resource") == new
    store.close()
    assert (found.fetched, found.left, found.lacking) == (1, 0, [])


def test_a_file_found_bad_is_mended_from_the_store_and_hidden_where_that_has_it_not(
    node: Node, world: World
) -> None:
    Edge(node).round(files(1, 2))
    rows = {each.path: each for each in list_files(node.operator).files}
    one, two = rows[path_of(1)], rows[path_of(2)]
    until(lambda: running_storage(node.operator).uploaded_files == 2)
    for each in (one, two):
        (world.data / each.physical).write_bytes(b"damaged")
    bucket = world.root.parent / "bucket"
    name = two.physical.rpartition("/")[2]
    objects = [each for each in bucket.rglob("*") if name in str(each) and each.is_file()]
    for each in objects:
        each.write_bytes(b"damaged too")
    assert objects
    said = node.operator.damaged.judge(
        [Verdict(each.physical, each.md5, "page 3") for each in (one, two)]
    )
    assert (said.mended, said.recorded.quarantined) == (1, 1)
    assert (world.data / one.physical).read_bytes() == files(1, 1)[path_of(1)]
    assert [each.path for each in list_files(node.operator).files] == [path_of(1)]
