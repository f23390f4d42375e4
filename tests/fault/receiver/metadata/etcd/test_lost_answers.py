"""A frame without an answer is found out about, and never kept twice."""

from contextlib import suppress

import pytest

from common import crash
from common.errors import UnreachableError
from receiver.metadata.etcd.commits import EtcdLog
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.messages import PART_SIZE, Delete, Get, prefix_end
from receiver.metadata.etcd.patience import Patience
from receiver.metadata.model.errors import FencedError, UnknownOutcomeError
from tests.support.etcd_faults import FAULTS, LossyClient, quick, stopped

LARGE = b"large" * (PART_SIZE // 2)


class World:
    def __init__(self, settings):
        self.settings = settings
        self._logs = []
        self.sound = EtcdClient(settings)

    def log(self, client=None, patience=None, lease=60.0):
        client = client or EtcdClient(self.settings)
        log = EtcdLog(client, self.settings.prefix, lease=lease, patience=patience or Patience(5.0))
        self._logs.append(log)
        return log

    def lossy(self, patience=None):
        client = LossyClient(self.settings)
        log = self.log(client, patience or quick())
        log.acquire(wait=0.0)
        log.append(1, 1, b"one")
        return client, log

    def after_restart(self, log):
        """All frames, as the next process finds them; `log` has to be closed before."""
        log.close()
        new = self.log()
        new.acquire(wait=0.0)
        return new, list(new.frames(1))

    def lose_lease(self):
        """As the server does when it hears nothing for too long."""
        self.sound.transaction([], [Delete(f"{self.settings.prefix}/owner".encode())])

    def staged(self):
        below = f"{self.settings.prefix}/parts/".encode()
        return self.sound.get(Get(below, prefix_end(below), keys_only=True)).keys

    def close(self):
        for log in self._logs:
            log.close()
        self.sound.close()


@pytest.fixture
def world(shared_etcd):
    world = World(shared_etcd.settings())
    yield world
    world.close()


@pytest.mark.few(8)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("payload", "step"), [(b"two", 0), *((LARGE, step) for step in range(4))], ids=lambda _: ""
)
def test_a_frame_is_kept_once_or_not_at_all_whatever_is_lost(world, payload, fault, step):
    client, log = world.lossy()
    client.script += ["ok"] * step + [fault]
    try:
        log.append(2, 2, payload)
    except UnreachableError:
        kept = False
    else:
        kept = True
    assert not client.script
    assert not any(client.arrive()) or payload is LARGE  # a part may be staged late
    assert log.newest() == (3 if kept else 1)
    log.append(log.newest() + 1, 1, b"next")
    expected = [(1, b"one"), (2, payload), (4, b"next")] if kept else [(1, b"one"), (2, b"next")]
    assert list(log.frames(1)) == expected
    assert world.after_restart(log)[1] == expected
    assert len(world.staged()) == (3 if kept and payload is LARGE else 0)


def test_what_nobody_can_tell_is_settled_later(world):
    for fault, kept in (("answer lost", True), ("late", False)):
        client, log = world.lossy()
        client.script += [fault, *["no connection"] * 40]
        with pytest.raises(UnknownOutcomeError, match="kept or not") as caught:
            log.append(2, 1, b"two")
        assert caught.value.extra["lsn"] == 2
        with pytest.raises(UnknownOutcomeError):
            log.append(2, 1, b"other")
        with pytest.raises(UnreachableError):
            log.settle()
        client.script.clear()
        assert log.settle() is kept
        assert log.settle() is None
        assert client.arrive() in ([], [False])
        assert log.newest() == (2 if kept else 1)
        log.append(log.newest() + 1, 1, b"next")
        log, frames = world.after_restart(log)
        assert [payload for _, payload in frames] == [b"one", *[b"two"] * kept, b"next"]
        log.close()
        everything = f"{world.settings.prefix}/".encode()
        world.sound.transaction([], [Delete(everything, prefix_end(everything))])


def test_a_frame_that_arrives_before_it_is_settled_is_kept(world):
    client, log = world.lossy()
    client.script += ["late", *["no connection"] * 40]
    with pytest.raises(UnknownOutcomeError):
        log.append(2, 1, b"two")
    client.script.clear()
    assert client.arrive() == [True]
    assert log.settle() is True
    assert log.newest() == 2


def test_a_lease_that_ran_out_meanwhile_does_not_hide_what_became_of_a_frame(world):
    for fault in ("answer lost", "late"):
        client, log = world.lossy()
        client.script += [fault, world.lose_lease]
        if fault == "late":
            with pytest.raises(UnreachableError, match="nothing was written"):
                log.append(2, 1, b"two")
        else:
            log.append(2, 1, b"two")
        assert client.arrive() in ([], [False])
        kept = fault != "late"
        log.append(log.newest() + 1, 1, b"next")
        log, frames = world.after_restart(log)
        assert [payload for _, payload in frames] == [b"one", *[b"two"] * kept, b"next"]
        log.close()
        everything = f"{world.settings.prefix}/".encode()
        world.sound.transaction([], [Delete(everything, prefix_end(everything))])


def test_a_frame_of_a_process_that_was_replaced_never_arrives(world):
    client, old = world.lossy()
    new = world.log()

    def replaced():
        world.lose_lease()
        new.acquire(wait=0.0)
        new.append(2, 1, b"theirs")

    client.script += ["late", replaced]
    with pytest.raises(FencedError):
        old.append(2, 1, b"two")
    assert client.arrive() == [False]
    with pytest.raises(FencedError):
        old.append(2, 1, b"two")
    assert list(new.frames(1)) == [(1, b"one"), (2, b"theirs")]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "point",
    ["etcd.append.part:2", "etcd.append.before:1", "etcd.append.after:1"],
)
def test_a_death_leaves_a_large_frame_whole_or_not_at_all(world, point):
    name, _, passage = point.partition(":")
    _, log = world.lossy()
    left = [int(passage)]

    def die(here):
        left[0] -= here == name
        if not left[0]:
            raise crash.SimulatedCrash(here)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        log.append(2, 1, LARGE)
    assert world.staged()
    new, frames = world.after_restart(log)
    expected = [(1, b"one"), (2, LARGE)] if name.endswith("after") else [(1, b"one")]
    assert frames == expected
    assert len(world.staged()) == (3 if name.endswith("after") else 0)
    new.append(new.newest() + 1, 1, b"next")
    assert len(list(new.frames(1))) == len(expected) + 1


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "point", ["etcd.checkpoint.piece", "etcd.checkpoint.before", "etcd.checkpoint.after"]
)
def test_a_death_leaves_the_old_checkpoint_or_the_new_one(world, tmp_path, point):
    _, log = world.lossy()
    log.append(2, 1, b"two")
    file = tmp_path / "mtree"
    contents = [bytes([number]) * 1_500_000 for number in range(2)]
    file.write_bytes(contents[0])
    log.put_checkpoint(1, {"mtree": file})
    file.write_bytes(contents[1])

    def die(here):
        if here == point:
            raise crash.SimulatedCrash(here)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        log.put_checkpoint(2, {"mtree": file})
    new, _ = world.after_restart(log)
    checkpoint = new.checkpoint()
    after = point.endswith("after")
    assert checkpoint.lsn == 1 + after
    assert b"".join(checkpoint.read("mtree")) == contents[after]
    new.put_checkpoint(2, {"mtree": file})
    assert b"".join(new.checkpoint().read("mtree")) == contents[1]


@pytest.mark.parametrize("point", ["etcd.trim.before", "etcd.trim.frames"])
def test_a_death_while_trimming_leaves_a_log_that_can_be_read(world, tmp_path, point):
    _, log = world.lossy()
    log.append(2, 1, LARGE)
    log.append(3, 1, b"three")
    file = tmp_path / "mtree"
    file.write_bytes(b"x")
    log.put_checkpoint(2, {"mtree": file})

    def die(here):
        if here == point:
            raise crash.SimulatedCrash(here)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        log.trim(2)
    log.close()
    new = world.log()
    new.acquire(wait=0.0)
    assert list(new.frames(3)) == [(3, b"three")]
    new.trim(2)
    assert new.oldest() == 3
    assert not world.staged()


# -- the server ----------------------------------------------------------------------------------


def test_a_server_that_stops_for_a_while_loses_and_doubles_nothing(own_etcd):
    world = World(own_etcd.settings())
    client = EtcdClient(world.settings)
    log = world.log(client, Patience(20.0))
    log.acquire()
    kept = []
    for number in range(4):
        payload = b"%d" % number * (1 if number < 3 else PART_SIZE + 1)
        with stopped(own_etcd, client), suppress(UnreachableError):
            log.append(log.newest() + 1, 1, payload)
            kept.append(payload)
    log.append(log.newest() + 1, 1, b"end")
    assert [payload for _, payload in log.frames(1)] == [*kept, b"end"]
    assert [payload for _, payload in world.after_restart(log)[1]] == [*kept, b"end"]
    world.close()


def test_a_server_that_is_killed_and_started_again_has_every_frame(own_etcd):
    world = World(own_etcd.settings())
    log = world.log(patience=Patience(0.2), lease=60.0)
    log.acquire()
    for number in range(1, 4):
        log.append(number, 1, b"%d" % number)
        own_etcd.kill()
        with pytest.raises(UnreachableError):
            log.append(number + 1, 1, b"never")
        own_etcd.start()
    own_etcd.compact()
    own_etcd.defragment()
    assert [payload for _, payload in world.after_restart(log)[1]] == [b"1", b"2", b"3"]
    world.close()


def test_a_process_that_slept_past_its_lease_is_refused_by_the_server_itself(own_etcd):
    settings = own_etcd.settings()
    world = World(settings)
    old = world.log(lease=2.0)
    old.acquire()
    old.append(1, 1, b"one")
    old._ownership._ended.set()  # as if paused: no sign of life any more
    new = world.log(lease=2.0)
    new.acquire()  # waits for the end of the lease
    with pytest.raises(FencedError):
        old.append(2, 1, b"old")
    new.append(2, 1, b"new")
    assert list(new.frames(1)) == [(1, b"one"), (2, b"new")]
    world.close()
