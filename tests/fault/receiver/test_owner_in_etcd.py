"""A receiver over etcd that loses its machine goes on in the store by itself, and alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.durable import Tree
from common.errors import ConflictError
from receiver.config import EtcdConfig
from receiver.metadata.engine import Engine
from receiver.metadata.model.errors import FencedError
from receiver.operator.stored.storage import running_storage
from receiver.storage.log_copies.log_succession import claim_log
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.stores.object_store import ObjectStore
from receiver.storage.stores.store_manifests import StoreManifest
from receiver.storage.stores.store_opening import open_store
from tests.support.etcd import Etcd
from tests.support.followed import step
from tests.support.node_world import Edge, World, path_of, tsfile
from tests.support.remote_log import MemoryPlace, MemoryRemote
from tests.support.web import until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    (tmp_path / "bucket").mkdir()
    found = open_store((tmp_path / "bucket").as_uri())
    yield found
    found.close()


def test_a_machine_that_is_lost_is_followed_by_a_new_one_over_the_same_etcd(
    tmp_path: Path, store: ObjectStore, shared_etcd: Etcd
) -> None:
    found = shared_etcd.settings()
    config = EtcdConfig(endpoints=tuple(found.endpoints), prefix=found.prefix, lease=2.0)
    kept = {"url": store.url, "lag": 0.1}
    metadata = {"backend": "etcd", "etcd": config}
    first = World(tmp_path / "one", storage=kept, metadata=metadata)
    with first.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).shipped == node.engine.newest_commit)
        assert running_storage(node.operator).incarnation == 1
        uuid = node.engine.uuid
    second = World(tmp_path / "two", storage=kept, metadata=metadata)
    second.data.mkdir(parents=True)
    shutil.copytree(first.data, second.data, dirs_exist_ok=True)
    with second.node() as node:
        edge.node = node
        edge.round({path_of(2): tsfile(first=90)})
        until(lambda: running_storage(node.operator).shipped == node.engine.newest_commit)
        view = running_storage(node.operator)
        assert (view.incarnation, view.problem) == (2, None)
        newest = node.engine.newest_commit
    restored = restore_metadata(store, uuid, tmp_path / "restored")
    assert (restored.ts, restored.manifest.incarnation) == (newest, 2)
    with second.node() as node:  # and as the same from then on
        until(lambda: running_storage(node.operator).incarnation == 2)


class Centre:
    """Engines over one remote log, each with a directory of its own, and their copies."""

    def __init__(self, root: Path, store: ObjectStore) -> None:
        self.root = root
        self.store = store
        self.place = MemoryPlace()
        self.made: list[int] = []

    def serve(self, machine: str, commits: int = 1) -> int:
        """A life of a machine: its commits, copied; the incarnation that it had."""
        place = self.root / machine
        with (
            Engine.open(place, background=False, remote=MemoryRemote(self.place)) as engine,
            Tree(place) as home,
        ):
            for _ in range(commits):
                engine.commit(step(len(self.made)))
                self.made.append(len(self.made))
            owner, shipper = claim_log(engine, self.store, home)
            shipper.ship()
            self.uuid = engine.uuid
        return owner.number

    def restored(self, name: str) -> set[int]:
        restore_metadata(self.store, self.uuid, self.root / name)
        with Engine.open(self.root / name, background=False) as engine, engine.reading() as state:
            return {int(each[1:], 16) for each in state.senders}


@pytest.fixture
def centre(tmp_path: Path, store: ObjectStore) -> Centre:
    return Centre(tmp_path, store)


def test_the_one_before_is_fenced_off_and_may_come_back_as_the_next(centre: Centre) -> None:
    assert [centre.serve("one"), centre.serve("one")] == [1, 1]
    engine = Engine.open(centre.root / "one", background=False, remote=MemoryRemote(centre.place))
    with Tree(centre.root / "one") as home:
        claim_log(engine, centre.store, home)
        assert centre.serve("two") == 2  # etcd let it in: the lease of the other is over
        with pytest.raises(FencedError):
            engine.commit(step(77))
        with pytest.raises(FencedError):
            claim_log(engine, centre.store, home)
    engine.close()
    assert centre.serve("one") == 3
    assert centre.restored("again") == set(centre.made)


def test_one_that_has_copied_nothing_yet_is_fenced_off_too(centre: Centre) -> None:
    place = centre.root / "one"
    with (
        Engine.open(place, background=False, remote=MemoryRemote(centre.place)) as engine,
        Tree(place) as home,
    ):
        engine.commit(step(0))
        centre.made.append(0)
        assert claim_log(engine, centre.store, home)[0].number == 1
    assert centre.serve("two") == 2


def test_a_directory_that_was_made_anew_beside_what_it_remembers_goes_on(centre: Centre) -> None:
    centre.serve("one", 2)
    for each in (centre.root / "one").glob("*log*"):
        each.unlink() if each.is_file() else shutil.rmtree(each)
    assert centre.serve("one") == 2
    found = StoreManifest.newest(centre.store, centre.uuid)
    assert found is not None
    assert found.parent_lsn == found.lsn - 1
    assert centre.restored("again") == set(centre.made)


def test_a_centre_that_was_restored_elsewhere_fences_off_whoever_comes_of_the_old_etcd(
    centre: Centre,
) -> None:
    centre.serve("one")
    restore_metadata(centre.store, centre.uuid, centre.root / "elsewhere", take_over=True)
    for machine in ("one", "two", "two"):
        with pytest.raises(FencedError, match="has taken over"):
            centre.serve(machine)
    other = Centre(centre.root, centre.store)
    other.made.append(0)
    assert other.serve("elsewhere", 7) == 2
    assert other.restored("again") == set(other.made)
    # What an operator takes here is ahead of what etcd remembers.
    with Tree(centre.root / "two") as home:
        next_incarnation(centre.store, home, centre.uuid)
    assert centre.serve("two") == 3
    shutil.rmtree(centre.root / "two")
    assert centre.serve("three") == 4


def test_an_etcd_that_was_turned_back_gives_up_nothing_by_itself(centre: Centre) -> None:
    centre.serve("one")
    log = list(centre.place.log)
    centre.serve("one", 2)
    centre.place.log = log
    for commits in (0, 3):
        with pytest.raises(ConflictError, match="turned back"):
            centre.serve("two", commits)
    assert centre.restored("again") == {0, 1, 2}


def test_whoever_dies_while_it_takes_over_is_followed_by_the_next(centre: Centre) -> None:
    """At each step, on this machine or another; nobody is ever the one that another was."""
    centre.serve("one")
    seen: list[str] = []
    with crash.arm(seen.append):
        centre.serve("watched")
    points = [name for name in dict.fromkeys(seen) if name.startswith("storage.")]
    assert {"storage.incarnation.noted", "storage.incarnation.put"} < set(points)
    last = 2
    for number, point in enumerate(points):
        for goes_on in ("same", "other"):
            machine = f"{number}-{goes_on}"

            def die(name: str, point: str = point) -> None:
                if name == point:
                    raise SimulatedCrash(name)

            with pytest.raises(SimulatedCrash), crash.arm(die):
                centre.serve(machine)
            taken = centre.serve(machine if goes_on == "same" else f"{machine}-2")
            assert last < taken <= last + 2
            last = taken
    assert centre.restored("again") == set(centre.made)
