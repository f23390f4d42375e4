"""A fork of the schema answers as the past does, and a transaction as if it were committed."""

import random

import pytest

from common.errors import TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.sql.executing import execute
from receiver.txn.errors import WriteConflictError
from receiver.txn.own_state import OwnState
from receiver.txn.txn_manager import TxnManager
from tests.support import schema_view, tiers
from tests.support.metadata import load, path, physical, seen
from tests.support.schema_commits import series

ALL = parse_pattern("root.**")
GROUPS = ["root.a", "root.b", "root.a2.x"]
DEVICES = ["root.a.d1", "root.a.d2", "root.b.d1", "root.a.x.d1", "root.a2.x.d"]
NAMES = ["s1", "s2", "s3"]
PATTERNS = ["root.a.**", "root.*.d1.*", "root.**.s1"]


def step(rng, state):
    """Operations that may be refused; the state says what is there, so that most are not."""
    there = [state.schema.series.describe(row).path for row in state.schema.series.match(ALL)]
    some = rng.choice(there) if there and rng.random() < 0.9 else "root.a.d1.s1"
    labels = {key: rng.choice("xyz") for key in rng.sample(["k1", "k2"], rng.randrange(3))}
    names = rng.sample(NAMES, rng.randint(1, 3))
    tags = [dict(labels) for _ in names] if rng.random() < 0.5 else None
    made = series(
        rng.choice(DEVICES),
        *names,
        tags=tags,
        aligned=rng.random() < 0.3,
        aliases=[rng.choice([None, "al"]), *[None] * (len(names) - 1)],
        props=[{"p": rng.choice("xy")} for _ in names] if rng.random() < 0.2 else None,
    )
    return rng.choice([
        [records.StorageGroupSet(rng.choice(GROUPS))],
        [records.StorageGroupSet(rng.choice(GROUPS), if_missing=True), made],
        [records.StorageGroupSet(rng.choice(GROUPS)), made],
        [made],
        [made],
        [records.StorageGroupDeleted(rng.choice(GROUPS))] if rng.random() < 0.4 else [made],
        [records.TtlSet(rng.choice(GROUPS), rng.choice([None, 5, 9]))],
        [records.SeriesDeleted(some)],
        [records.SeriesDeleted(some)],
        [records.AliasSet(some, rng.choice([None, "al", "s3"]))],
        [records.AliasSet(some, rng.choice([None, "al", "s3"]))],
        [records.TagsSet(some, labels, {"at": rng.choice("xy")})],
    ])  # fmt: skip


def loaded(rng, number):
    """A file with series of a device, which get warmer by it."""
    device = rng.choice(DEVICES)
    name = path(f"{number}-1-0", sg="root.a")
    names = tuple(rng.sample(NAMES, 2))
    lasts = [rng.choice([None, rng.randrange(100)]) for _ in names]
    one = records.LoadedDevice(device, False, names, b"\3\3", b"\x08\x08", b"\1\1", lasts)
    file = load(name, number, devices={device: (0, 100)}, content=str(number))
    return [file, records.SeriesLoaded(physical(name, number), [one])]


def attempt(engine, ops):
    try:
        engine.commit(ops)
    except TsferryError:
        return False
    return True


def view(engine, at=None, *, keys=True):
    found = schema_view.of_engine(engine, at)
    if not keys:
        del found["keys"]
    return found


@pytest.mark.slow
def test_a_fork_answers_what_the_past_answers(tmp_path):
    rng = random.Random(tiers.seed())
    for life in range(tiers.examples(8)):
        with Engine.open(tmp_path / str(life), background=False) as engine:
            engine.commit([seen(), *map(records.StorageGroupSet, GROUPS)])
            stamps = []
            for number in range(60):
                with engine.reading() as state:
                    ops = step(rng, state)
                attempt(engine, loaded(rng, number) if rng.random() < 0.15 else ops)
                stamps.append(engine.newest_commit)
            several = sorted(set(stamps))
            for ts in rng.sample(several, min(8, len(several))):
                with engine.reading() as state:
                    own = OwnState(engine, ts)
                assert view(Beside(engine, own), keys=False) == view(engine, ts, keys=False)


class Beside:
    """A fork in the place of an engine."""

    def __init__(self, engine, own):
        self._own = own
        self.options = engine.options
        self.tags_of = own.tags_of

    def at(self, when=None):
        return self._own.state.newest

    def reading(self):
        return self._own.reading

    def check_answerable(self, ts):
        pass


def without_created(found):
    del found["keys"], found["hottest"]
    for row in found["series"].values():
        del row["created"]
    found["groups"] = [row[:2] for row in found["groups"]]
    return found


@pytest.mark.slow
def test_a_transaction_sees_what_a_commit_of_it_would_give(tmp_path):
    """While others commit: before it commits, and, where nobody stands against it, behind that."""
    rng = random.Random(tiers.seed() + 1)
    committed = 0
    for life in range(tiers.examples(8)):
        with (
            Engine.open(tmp_path / f"{life}", background=False) as engine,
            Engine.open(tmp_path / f"{life} twin", background=False) as twin,
        ):
            for _ in range(25):
                with engine.reading() as state:
                    ops = step(rng, state)
                assert attempt(engine, ops) == attempt(twin, ops)
            txn = TxnManager(engine).begin()
            for _ in range(12):
                if rng.random() < (0.4, 0.05)[life % 2]:
                    with engine.reading() as state:
                        ops = step(rng, state)
                    attempt(engine, ops)
                with twin.reading() as state:
                    ops = step(rng, state)
                try:
                    txn.write(ops)
                except WriteConflictError:
                    break
                except TsferryError:
                    continue
                twin.commit(ops)  # what is taken is right as of the time that was read
                expected = without_created(view(twin))
                if txn.written:
                    assert without_created(view(txn.database)) == expected
            else:
                before = txn.written
                try:
                    txn.commit()
                    committed += before > 0
                except WriteConflictError:
                    continue
    assert committed or tiers.examples(8) < 8


@pytest.mark.slow
def test_patterns_mean_what_the_transaction_sees(tmp_path):
    rng = random.Random(tiers.seed() + 2)
    with Engine.open(tmp_path, background=False) as engine:
        for _ in range(tiers.examples(80)):
            with engine.reading() as state:
                ops = step(rng, state)
            attempt(engine, ops)
            txn = TxnManager(engine).begin()
            pattern = rng.choice(PATTERNS)
            seen_before = [row[0] for row in execute(engine, f"show timeseries {pattern}")]
            attempt(engine, [series(rng.choice(DEVICES), "late")])
            try:
                txn.database.delete_series(pattern)
            except TsferryError:
                assert not seen_before
                continue
            assert not list(execute(txn.database, f"show timeseries {pattern}"))
            txn.commit()
            left = [row[0] for row in execute(engine, f"show timeseries {pattern}")]
            assert all(each.endswith(".late") and each not in seen_before for each in left)
            if left:
                engine.delete_series("root.**.late")
