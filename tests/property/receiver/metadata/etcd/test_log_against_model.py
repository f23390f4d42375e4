"""Owners come and go, requests are lost, the log is trimmed: the frames stay what they were."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UnreachableError
from receiver.metadata.etcd.commits import EtcdLog
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.messages import PART_SIZE, Delete, Get, prefix_end
from receiver.metadata.model.errors import FencedError
from tests.support import tiers
from tests.support.etcd import running_etcd
from tests.support.etcd_faults import FAULTS, LossyClient, quick

APPEND = st.tuples(
    st.just("append"),
    st.integers(1, 4),
    st.sampled_from([0, 1, 100, 100, PART_SIZE, PART_SIZE + 1, 2 * PART_SIZE]),
    st.lists(st.sampled_from(["ok", "ok", *FAULTS]), max_size=3),
)
STEPS = st.lists(
    st.one_of(
        APPEND,
        APPEND,
        APPEND,
        st.tuples(st.just("restart")),
        st.tuples(st.just("replace")),
        st.tuples(st.just("lease gone")),
        st.tuples(st.just("checkpoint"), st.integers(0, 30)),
    ),
    min_size=1,
    max_size=15,
)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


class World:
    def __init__(self, chosen, directory):
        self.settings = chosen
        self.sound = EtcdClient(chosen)
        self.file = directory / "mtree"
        self.frames = []
        self.trimmed = 0
        self.replaced = []
        self.log = self.open()

    def open(self):
        self.client = LossyClient(self.settings)
        log = EtcdLog(self.client, self.settings.prefix, lease=600.0, patience=quick())
        log.acquire(wait=0.0)
        return log

    def lose_lease(self):
        self.sound.transaction([], [Delete(f"{self.settings.prefix}/owner".encode())])

    def newest(self):
        return sum(commits for _, commits, _ in self.frames)

    def append(self, commits, size, faults):
        first = self.newest() + 1
        payload = bytes([len(self.frames) % 256]) * size
        self.client.script += faults
        try:
            self.log.append(first, commits, payload)
        except UnreachableError:
            pass
        else:
            self.frames.append((first, commits, payload))
        self.client.script.clear()
        self.client.arrive()

    def restart(self):
        self.log.close()
        self.log = self.open()

    def replace(self):
        self.replaced.append(self.log)
        self.lose_lease()
        self.log = self.open()

    def checkpoint(self, lsn):
        lsn = min(lsn, self.newest())
        self.file.write_bytes(b"state at %d" % lsn)
        self.log.put_checkpoint(lsn, {"mtree": self.file})
        self.log.trim(lsn)
        self.trimmed = max(self.trimmed, lsn)

    def check(self):
        kept = [each for each in self.frames if each[0] + each[1] - 1 > self.trimmed]
        oldest = kept[0][0] if kept else self.newest() + 1
        assert (self.log.newest(), self.log.oldest()) == (self.newest(), oldest)
        found = list(self.log.frames(oldest))
        assert found == [(first, payload) for first, _, payload in kept]

    def close(self):
        for old in self.replaced:
            with pytest.raises(FencedError):
                old.append(old.newest() + 1, 1, b"from the past")
        self.check()
        below = f"{self.settings.prefix}/parts/".encode()
        for log in (*self.replaced, self.log):
            log.close()
        self.log = self.open()
        self.check()
        staged = self.sound.get(Get(below, prefix_end(below), keys_only=True)).keys
        large = [
            each for each in self.frames
            if len(each[2]) > PART_SIZE and each[0] + each[1] - 1 > self.trimmed
        ]  # fmt: skip
        assert len({each.key.rsplit(b"/", 1)[0] for each in staged}) == len(large)
        self.log.close()
        self.sound.close()


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=tiers.examples(25))
def test_the_log_is_the_frames_that_were_kept(etcd, tmp_path_factory, steps):
    world = World(etcd.settings(), tmp_path_factory.mktemp("files"))
    for name, *arguments in steps:
        {
            "append": world.append,
            "restart": world.restart,
            "replace": world.replace,
            "lease gone": world.lose_lease,
            "checkpoint": world.checkpoint,
        }[name](*arguments)
        world.check()
    world.close()
