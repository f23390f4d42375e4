"""Thousands of transactions at once, over keys and tags: their histories have no anomaly."""

import itertools
import random
import threading

import pytest

from common.errors import BusyError, TsferryError
from receiver.metadata.commit.guards import UnchangedGuard
from receiver.metadata.commit.recent_commits import RecentCommits
from receiver.metadata.engine import Engine
from receiver.metadata.model.alterations import Upsert
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import KeyMissingError
from receiver.metadata.sql.executing import execute
from receiver.txn.errors import WriteConflictError
from receiver.txn.txn_manager import TxnManager
from receiver.txn.txn_readers import TxnKeys
from receiver.txn.txn_store import TxnStore
from tests.support import tiers
from tests.support.txn_histories import Done, anomalies

TAG_BYTES = 1 << 16


class Player:
    """Plays transactions on an engine; `step` does one thing in one of them.

    A cell is a key, or a tag of a series; what is in it are numbers with commas between.
    """

    def __init__(self, engine, rng, *, series, ticks, values):
        self.engine = engine
        self.manager = TxnManager(engine, most=1000)
        self.rng = rng
        self.ticks = ticks
        self.values = values
        self.done: list[Done] = []
        self.open: list[tuple[object, Done]] = []
        self.cells = [("key", f"k{number}") for number in range(4)]
        self.cells += [("tag", f"root.sg.d.s{number}") for number in range(series)]

    def begin(self):
        began = next(self.ticks)
        self.open.append((self.manager.begin(), Done(began)))

    def step(self):
        if len(self.open) < 2 or (len(self.open) < 6 and self.rng.random() < 0.2):
            self.begin()
            return
        place = self.rng.randrange(len(self.open))
        txn, done = self.open[place]
        what = self.rng.random()
        if what < 0.2:
            self.end(place, commits=what > 0.03)
            return
        cell = self.rng.choice(self.cells)
        try:
            values = self.read(txn, cell)
            own = [value for where, value in done.appends if where == cell]
            (done.seen_own if own else done.reads).append((cell, values))
            if what < 0.6:
                value = next(self.values)
                self.write(txn, cell, (*values, value))
                done.appends.append((cell, value))
        except WriteConflictError:
            self.end(place, commits=self.rng.random() < 0.5)
        except BusyError:  # too many look at what they wrote
            self.end(place, commits=False)

    def end(self, place, *, commits):
        txn, done = self.open.pop(place)
        try:
            if commits:
                txn.commit()
                done.is_committed = True
            else:
                txn.rollback()
        except WriteConflictError:
            pass
        done.ended = next(self.ticks)
        self.done.append(done)

    def read(self, txn, cell):
        kind, name = cell
        if kind == "key":
            try:
                text = txn.keys.load(name)
            except KeyMissingError:
                text = ""
        else:
            (row,) = execute(txn.database, f"show timeseries {name}")
            text = row[6].get("list", "")
        return tuple(map(int, filter(None, text.split(","))))

    def write(self, txn, cell, values):
        kind, name = cell
        text = ",".join(map(str, values))
        if kind == "key":
            txn.keys.save(name, text)
        else:
            txn.database.alter(name, Upsert(tags={"list": text}))

    def finish(self):
        while self.open:
            self.end(0, commits=True)
        self.begin()
        txn, done = self.open[0]
        done.reads += [(cell, self.read(txn, cell)) for cell in self.cells]
        self.end(0, commits=True)


def made(tmp_path, series):
    engine = Engine.open(tmp_path, background=False, options=EngineOptions(tag_bytes=TAG_BYTES))
    engine.set_storage_group("root.sg")
    for number in range(series):
        engine.create_series(f"root.sg.d.s{number}", "INT32")
    return engine


def played(engine, rng, steps, *, series):
    player = Player(engine, rng, series=series, ticks=itertools.count(1), values=itertools.count(1))
    for _ in range(steps):
        player.step()
    player.finish()
    return player.done


@pytest.mark.slow
@pytest.mark.parametrize("series", [0, 3])
def test_a_history_has_no_anomaly(tmp_path, series):
    rng = random.Random(tiers.seed())
    committed = 0
    for life in range(tiers.examples(25)):
        with made(tmp_path / str(life), series) as engine:
            history = played(engine, rng, 400 if series else 2000, series=series)
        assert anomalies(history) == []
        committed += sum(each.is_committed for each in history)
    assert committed > tiers.examples(25) * 40


@pytest.mark.slow
def test_a_history_of_threads_has_no_anomaly(tmp_path):
    ticks, values = itertools.count(1), itertools.count(1)
    with made(tmp_path, 0) as engine:
        players = [
            Player(engine, random.Random(each), series=0, ticks=ticks, values=values)
            for each in range(4)
        ]

        def play(player):
            for _ in range(tiers.examples(4000)):
                player.step()
            while player.open:
                player.end(0, commits=True)

        threads = [threading.Thread(target=play, args=(each,)) for each in players]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        players[0].finish()
    history = [done for each in players for done in each.done]
    assert anomalies(history) == []
    assert sum(each.is_committed for each in history) > 300


# -- what the checker sees -------------------------------------------------------------------------


def test_the_checker_sees_lost_updates(tmp_path, monkeypatch):
    monkeypatch.setattr(TxnStore, "_see_unchanged", lambda *_: None)
    monkeypatch.setattr(TxnStore, "_take_lightly", lambda *_: False)
    with made(tmp_path, 0) as engine:
        assert any("lost update" in each for each in found(engine))


def test_the_checker_sees_lost_updates_of_statements_that_are_judged_once(tmp_path, monkeypatch):
    monkeypatch.setattr(RecentCommits, "leave_alone", lambda *_: True)
    with made(tmp_path, 0) as engine:
        assert any("lost update" in each for each in found(engine))


def test_the_checker_sees_lost_updates_without_the_guards_of_those(tmp_path, monkeypatch):
    monkeypatch.setattr(UnchangedGuard, "holds", lambda *_: True)
    with made(tmp_path, 0) as engine:
        assert any("lost update" in each for each in found(engine))


def test_the_checker_sees_reads_of_what_came_later(tmp_path, monkeypatch):
    load = TxnKeys.load

    def newest(self, key):
        store = self._store
        before, store.read_ts = store.read_ts, self._engine.newest_commit
        try:
            return load(self, key)
        finally:
            store.read_ts = before

    monkeypatch.setattr(TxnKeys, "load", newest)
    with made(tmp_path, 0) as engine:
        assert any("cycle" in each for each in found(engine))


def test_the_checker_sees_snapshots_that_are_old(tmp_path, monkeypatch):
    with made(tmp_path, 0) as engine:
        first = engine.newest_commit
        load = TxnKeys.load

        def old(self, key):
            store = self._store
            before, store.read_ts = store.read_ts, max(first, store.read_ts - 1)
            try:
                return load(self, key)
            finally:
                store.read_ts = before

        monkeypatch.setattr(TxnKeys, "load", old)
        assert found(engine)


@pytest.mark.parametrize(
    ("history", "what"),
    [
        (  # write skew alone is none
            [
                Done(1, 3, True, [("x", ()), ("y", ())], [("x", 1)]),
                Done(2, 4, True, [("x", ()), ("y", ())], [("y", 2)]),
                Done(5, 6, True, [("x", (1,)), ("y", (2,))]),
            ],
            None,
        ),
        (  # read skew
            [
                Done(1, 4, True, [("x", ()), ("y", (2,))]),
                Done(2, 3, True, [("x", ()), ("y", ())], [("x", 1), ("y", 2)]),
                Done(5, 6, True, [("x", (1,)), ("y", (2,))]),
            ],
            "cycle",
        ),
        (  # circular information flow
            [
                Done(1, 3, True, [("y", (2,))], [("x", 1)]),
                Done(2, 4, True, [("x", (1,))], [("y", 2)]),
                Done(5, 6, True, [("x", (1,)), ("y", (2,))]),
            ],
            "cycle",
        ),
        ([Done(1, 2, False, [], [("x", 1)]), Done(1, 3, True, [("x", (1,))])], "aborted"),
        (
            [Done(1, 4, True, [], [("x", 1), ("x", 2)]), Done(2, 3, True, [("x", (1,))]),
             Done(5, 6, True, [("x", (1, 2))])],
            "intermediate",
        ),
        (
            [Done(1, 2, True, [], [("x", 1)]), Done(3, 4, True, [("x", ())]),
             Done(5, 6, True, [("x", (1,))])],
            "cycle",
        ),
    ],
)  # fmt: skip
def test_the_checker_knows_the_anomalies(history, what):
    said = anomalies(history)
    assert (said == []) if what is None else any(what in each for each in said)


def found(engine):
    try:
        return anomalies(played(engine, random.Random(1), 1500, series=0))
    except TsferryError as error:
        return [str(error)]
