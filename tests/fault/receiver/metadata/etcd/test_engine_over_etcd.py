"""The metadata engine with its commits in etcd: what is local can be made anew."""

import shutil
import threading

import pytest

from common import crash
from common.errors import LockedError, UnreachableError
from receiver.metadata.engine import Engine
from receiver.metadata.etcd.commits import EtcdLog, open_remote
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.messages import Delete, Get, prefix_end
from receiver.metadata.etcd.patience import Patience
from receiver.metadata.kv.embedded import EmbeddedKV
from receiver.metadata.model import records
from receiver.metadata.model.errors import FencedError, UnknownOutcomeError
from tests.support.etcd_faults import LossyClient, quick


class Site:
    """Schema directories of receivers that use one prefix."""

    def __init__(self, settings, path):
        self.settings = settings
        self.path = path
        self._engines = []

    def open(self, name="one", remote=None, **options):
        remote = remote or open_remote(self.settings)
        engine = Engine.open(self.path / name, remote=remote, background=False, **options)
        self._engines.append(engine)
        return engine

    def close(self):
        for engine in self._engines:
            engine.close()


@pytest.fixture
def site(shared_etcd, tmp_path):
    site = Site(shared_etcd.settings(lease=3.0), tmp_path)
    yield site
    site.close()


def fill(engine, first=0, count=5):
    engine.commit([records.StorageGroupSet("root.turbine", if_missing=True)])
    for number in range(first, first + count):
        engine.commit([
            records.SeriesCreated(
                f"root.turbine.d{number}",
                ["s1", "s2"],
                b"\x03\x01",
                b"\x02\x02",
                b"\x01\x01",
                tags=[{"unit": f"u{number}"}, {}],
                attributes=[{}, {"place": "north"}],
            ),
            records.KeysWritten((), {f"key/{number}": str(number)}),
        ])  # fmt: skip


def content(engine):
    """All that a checkpoint would hold of the state, but for the time that it is taken at."""
    with engine.reading() as state:
        found = {
            "uuid": state.uuid,
            "newest": state.newest,
            "keys": state.keys.load_with_prefix(""),
            "schema": dict(state.schema.freeze().sections()),
        }
    found["schema"] = {name: bytes(section) for name, section in found["schema"].items()}
    return found


def test_a_lost_schema_directory_is_made_anew_from_etcd(site):
    engine = site.open()
    fill(engine)
    before = content(engine)
    engine.close()
    shutil.rmtree(site.path / "one")
    engine = site.open()
    assert content(engine) == before
    fill(engine, 5)
    assert len(EmbeddedKV(engine).load_with_prefix("key/")[0]) == 10


def test_another_machine_takes_over_where_the_first_was(site):
    engine = site.open()
    fill(engine)
    before = content(engine)
    engine.close()
    engine = site.open("two")
    assert content(engine) == before
    fill(engine, 5)
    newest = content(engine)
    engine.close()
    # The first directory is behind now, and catches up.
    assert content(site.open("one")) == newest


def test_a_checkpoint_lets_go_of_the_log_and_stands_in_for_it(site):
    engine = site.open()
    fill(engine, 0, 10)
    engine.checkpoint()
    fill(engine, 10, 3)
    engine.checkpoint()
    fill(engine, 13, 2)
    before = content(engine)
    engine.close()
    client = EtcdClient(site.settings)
    log = f"{site.settings.prefix}/log/".encode()
    assert len(client.get(Get(log, prefix_end(log))).keys) < 14
    shutil.rmtree(site.path / "one")
    engine = site.open()
    assert content(engine) == before
    with engine.reading() as state:
        row = state.schema.series.find(("root", "turbine", "d3", "s1"))
        offset = state.schema.series.describe(row).tags_at
    assert engine.tags_of(offset)[0] == {"unit": "u3"}
    client.close()


def test_a_second_receiver_is_fenced_off(site):
    engine = site.open()
    fill(engine)
    with pytest.raises(LockedError, match="in etcd"):
        site.open("two", remote=None)
    fill(engine, 5)


def test_a_receiver_that_was_replaced_takes_no_more_commits(site):
    old = site.open("one")
    fill(old)
    client = EtcdClient(site.settings)
    client.transaction([], [Delete(f"{site.settings.prefix}/owner".encode())])
    new = site.open("two")
    fill(new, 5)
    with pytest.raises(FencedError):
        old.commit([records.KeysWritten((), {"late": "x"})])
    assert old.failed
    with new.reading() as state:
        assert state.keys.load("late") is None
    client.close()


def test_a_commit_of_five_megabytes_lives_there_whole(site):
    engine = site.open()
    values = {f"k{number}": chr(97 + number) * 500_000 for number in range(10)}
    engine.commit([records.KeysWritten((), values)])
    engine.close()
    shutil.rmtree(site.path / "one")
    engine = site.open()
    assert dict(zip(*EmbeddedKV(engine).load_with_prefix(""), strict=True)) == values


def test_commits_go_on_after_etcd_was_away(own_etcd, tmp_path):
    site = Site(own_etcd.settings(timeout=5.0, lease=30.0), tmp_path)
    engine = site.open()
    fill(engine)
    own_etcd.kill()
    before = content(engine)
    with pytest.raises(UnreachableError):
        fill(engine, 5, 1)
    assert content(engine) == before  # readers do not need it
    own_etcd.start()
    fill(engine, 5, 1)
    own_etcd.compact()
    own_etcd.defragment()
    fill(engine, 6, 1)
    after = content(engine)
    engine.close()
    shutil.rmtree(tmp_path / "one")
    assert content(site.open()) == after
    site.close()


def test_what_was_acknowledged_while_etcd_stopped_and_went_on_is_kept(own_etcd, tmp_path):
    site = Site(own_etcd.settings(timeout=1.5, lease=30.0), tmp_path)
    engine = site.open()
    fill(engine, 0, 1)
    acknowledged, unknown = [], []

    def write(thread):
        for number in range(12):
            key = f"{thread}/{number:02}"
            try:
                engine.commit([records.KeysWritten((), {key: "x"})])
                acknowledged.append(key)
            except UnknownOutcomeError:
                unknown.append(key)
            except UnreachableError:
                continue

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        own_etcd.pause()
        threads[0].join(1.8)
        own_etcd.resume()
        threads[0].join(0.2)
    for thread in threads:
        thread.join()
    engine.commit([records.KeysWritten((), {"end": "x"})])
    found = EmbeddedKV(engine).load_with_prefix("")[0]
    assert set(acknowledged) <= set(found)
    assert set(found) <= {*acknowledged, *unknown, "end", "key/0"}
    after = content(engine)
    engine.close()
    shutil.rmtree(tmp_path / "one")
    assert content(site.open()) == after
    site.close()


@pytest.mark.parametrize("fault", ["answer lost", "late"])
def test_an_outcome_that_shows_later_is_the_same_here_and_there(site, fault):
    client = LossyClient(site.settings)
    engine = site.open(remote=EtcdLog(client, site.settings.prefix, lease=30.0, patience=quick()))
    fill(engine, 0, 1)
    client.script += [fault, *["no connection"] * 30]
    with pytest.raises(UnknownOutcomeError):
        engine.commit([records.KeysWritten((), {"unknown": "x"})])
    with engine.reading() as state:
        assert state.keys.load("unknown") is None
    client.script.clear()
    engine.commit([records.KeysWritten((), {"after": "x"})])
    kept = fault == "answer lost"
    assert client.arrive() in ([], [False])
    with engine.reading() as state:
        assert (state.keys.load("unknown") == "x") is kept
    before = content(engine)
    engine.close()
    assert content(site.open("one")) == before
    site.close()
    assert content(site.open("two")) == before


def test_an_engine_that_was_kept_here_alone_is_handed_in(site):
    engine = Engine.open(site.path / "one", background=False)
    fill(engine)
    before = content(engine)
    engine.close()
    engine = site.open("one")
    assert content(engine) == before
    engine.close()
    assert content(site.open("two")) == before


def cut_engine(path, after=3):
    """An engine that was kept here alone, whose log begins behind a checkpoint; its content."""
    with Engine.open(path, background=False) as engine:
        for number in range(4):
            fill(engine, number * 5)
            engine.checkpoint()
        fill(engine, 20, after)
        before = content(engine)
    numbers = sorted(int(each.stem.partition("-")[2]) for each in path.glob("mtree.snapshot-*.tsf"))
    for each in path.glob("mlog-*.tsf"):
        if int(each.stem.partition("-")[2]) <= numbers[-2]:
            each.unlink()
    assert not (path / "mlog-1.tsf").exists()
    return before


@pytest.mark.parametrize("after", [0, 3])
def test_an_engine_whose_log_begins_behind_a_checkpoint_is_handed_in(site, after):
    before = cut_engine(site.path / "one", after)
    engine = site.open("one")
    assert content(engine) == before
    fill(engine, 30, 1)
    newest = content(engine)
    engine.close()
    assert content(site.open("two")) == newest
    site.close()
    assert content(site.open("one")) == newest
    assert not list((site.path / "one").glob("aside-*"))


@pytest.mark.parametrize(
    "point", ["remote.handed_in.checkpoint", "etcd.append.before", "remote.handed_in.frame"]
)
def test_a_handing_in_that_was_cut_off_is_done_again(site, point):
    before = cut_engine(site.path / "one")

    def die(name):
        if name == point:
            raise crash.SimulatedCrash

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        site.open("one")
    engine = site.open("one")
    assert content(engine) == before
    assert not list((site.path / "one").glob("aside-*"))
    engine.close()
    assert content(site.open("two")) == before


def test_what_another_engine_began_to_hand_in_stands_for_nothing(site):
    """Its checkpoint would be taken for one of the engine whose log is there."""
    cut_engine(site.path / "one")

    def die(name):
        if name == "remote.handed_in.checkpoint":
            raise crash.SimulatedCrash

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        site.open("one")
    engine = site.open("two")
    fill(engine, 0, 2)
    before = content(engine)
    engine.close()
    assert content(site.open("three")) == before


def test_a_directory_of_another_engine_is_set_aside(site):
    engine = site.open("one")
    fill(engine)
    before = content(engine)
    engine.close()
    other = Engine.open(site.path / "two", background=False)
    fill(other, 50)
    other.close()
    assert content(site.open("two")) == before
    assert any(each.name.startswith("aside") for each in (site.path / "two").iterdir())


def test_a_start_without_etcd_is_an_error_and_changes_nothing(own_etcd, tmp_path):
    site = Site(own_etcd.settings(timeout=5.0), tmp_path)
    engine = site.open()
    fill(engine)
    before = content(engine)
    engine.close()
    own_etcd.kill()
    with pytest.raises(UnreachableError, match="etcd does not answer"):
        Engine.open(
            tmp_path / "one",
            remote=EtcdLog(EtcdClient(site.settings), site.settings.prefix, patience=Patience(0.1)),
            background=False,
        )
    own_etcd.start()
    assert content(site.open()) == before
    site.close()
