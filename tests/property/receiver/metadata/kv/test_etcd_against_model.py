"""Two processes write to etcd, others do too, and somebody compacts: history stays what it was."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.kv.etcd_kv import EtcdKV
from receiver.metadata.model.errors import CompactedError
from tests.support import tiers
from tests.support.etcd import running_etcd

KEYS = st.text("ab/é", min_size=1, max_size=3)
COMMIT = st.tuples(
    st.sampled_from([0, 1]),
    st.lists(st.text("ab/", max_size=2), max_size=2),
    st.dictionaries(KEYS, st.sampled_from("xyz"), max_size=3),
    st.sampled_from([0, 0, 0, 0, 140]),
)
STEPS = st.lists(
    st.one_of(COMMIT, COMMIT, COMMIT, st.integers(1, 5), st.just("compact")),
    min_size=1,
    max_size=25,
)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


class Model:
    """All states, and from where on they can be asked for."""

    def __init__(self):
        self.states = [(0, {})]
        self.oldest = 0

    def apply(self, removals, saves):
        ts, state = self.states[-1]
        kept = {k: v for k, v in state.items() if not any(map(k.startswith, removals))}
        self.states.append((ts + 10, kept | saves))

    def at(self, ts):
        return [state for at, state in self.states if at <= ts][-1]

    def check(self, kv, ts):
        expected = self.at(ts)
        try:
            keys, values = kv.load_with_prefix("", ts)
        except CompactedError as error:
            told = error.extra["oldest"]
        else:
            told = None
        if told is not None:
            assert ts < told == self.oldest
            return
        assert keys == sorted(expected)
        assert dict(zip(keys, values, strict=True)) == expected


@pytest.mark.slow
@given(STEPS, st.sampled_from([1, 3, 1024]), st.randoms(use_true_random=False))
@settings(max_examples=tiers.examples(40))
def test_history_is_what_was_committed(etcd, steps, ring, random):
    chosen = etcd.settings()
    client = EtcdClient(chosen)

    def process():
        return EtcdKV(
            client, f"{chosen.prefix}/keys", allocate=lambda newest: newest + 10, ring=ring
        )

    model = Model()
    processes = [process(), process()]
    for step in steps:
        if step == "compact":
            etcd.write_elsewhere(1)  # the same revision cannot be compacted twice
            etcd.compact()
            model.oldest = model.states[-1][0]
        elif isinstance(step, int):
            etcd.write_elsewhere(step)
        else:
            who, removals, saves, many = step
            saves = saves | {f"many/{number:03}": str(number) for number in range(many)}
            if not saves and not removals:
                continue
            ts = processes[who].multi_save_and_remove_with_prefix(saves, removals)
            model.apply(removals, saves)
            assert ts == model.states[-1][0]
        newest = model.states[-1][0]
        for kv in (*processes, process()):
            model.check(kv, random.randint(0, newest + 15))
    for ts in range(0, model.states[-1][0] + 10, 5):
        model.check(random.choice([*processes, process()]), ts)
    client.close()
