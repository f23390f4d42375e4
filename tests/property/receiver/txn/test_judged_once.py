"""Statements that are judged once come to what they come to where each commit judges them anew."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from common.errors import TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.sql.executing import execute
from receiver.txn.txn_manager import TxnManager
from receiver.txn.txn_store import TxnStore
from tests.support import tiers

GROUPS = ("root.a", "root.b", "root.b.c")
DEVICES = ("root.a.d", "root.a.d.s", "root.b.c", "root.b.c.d", "root.b.d")
NAMES = ("s", "t", "u")
OPEN = 4


class Place:
    """An engine, and transactions on it by their numbers."""

    def __init__(self, directory: Path, *, by_the_long_way: bool) -> None:
        self.engine = Engine.open(
            directory,
            background=False,
            allocate=lambda high: high + 1,
            options=EngineOptions(auto_create=False),
        )
        if by_the_long_way:
            self.engine.left_alone = lambda *_: False  # type: ignore[method-assign]
        self.manager = TxnManager(self.engine)
        self.open: dict[int, Any] = {}

    def do(self, number: int | None, step: str, *given: Any) -> object:
        """One step; of a transaction, or by itself. What came of it."""
        try:
            if step == "begin":
                self.open[number or 0] = self.manager.begin()
                return None
            if step in ("commit", "rollback"):
                return getattr(self.open.pop(number or 0), step)()
            txn = None if number is None else self.open[number]
            if step == "key":
                return txn.keys.save(*given)
            target = self.engine if txn is None else txn.database
            done = execute(target, given[0])
            return list(done) if given[0].startswith("show") else done.commit
        except TsferryError as error:
            return type(error).__name__, error.message

    def state(self) -> list[object]:
        with self.manager.transaction() as txn:
            keys = txn.keys.load_with_prefix("")
        with self.engine.reading() as state:
            told = [(row.name, row.ttl, row.version) for row in state.loaded_tables.there()]
        shown = ("show timeseries", "show storage group", "show ttl")
        return [keys, told, *(list(execute(self.engine, each)) for each in shown)]


def statement(rng: random.Random) -> str:
    device, name = rng.choice(DEVICES), rng.choice(NAMES)
    path = f"{device}.{name}"
    what = rng.random()
    if what < 0.4:
        alias = rng.choice(("", "", f"({rng.choice(NAMES)})", "(v)"))
        tags = rng.choice(("", "", " tags(unit=v)"))
        return f"create timeseries {path}{alias} with datatype=INT32{tags}"
    if what < 0.5:
        return f"create aligned timeseries {device}({name} INT32, w FLOAT)"
    if what < 0.6:
        return f"delete timeseries {path}"
    if what < 0.75:
        return f"alter timeseries {path} upsert alias={rng.choice((*NAMES, 'v'))}"
    if what < 0.85:
        return f"alter timeseries {path} upsert tags(unit={rng.choice('vw')})"
    group = rng.choice(GROUPS)
    if what < 0.92:
        return f"set ttl to {group} {rng.randint(1, 9)}"
    if what < 0.97:
        return f"set storage group to {group}"
    return f"delete storage group {group}"


def play(rng: random.Random, places: list[Place], steps: int) -> None:
    running: list[int] = []
    number = 0

    def both(of: int | None, step: str, *given: Any) -> None:
        found = [each.do(of, step, *given) for each in places]
        assert found[0] == found[1], (of, step, given, *found)

    for group in GROUPS[:2]:
        both(None, "run", f"set storage group to {group}")
        for each in places:
            each.engine.commit([records.TableMade(f"{GROUPS.index(group):032x}", group)])
    for _ in range(steps):
        what = rng.random()
        if len(running) < OPEN and what < 0.2:
            number += 1
            running.append(number)
            both(number, "begin")
        elif what < 0.4:
            both(None, "run", statement(rng))
        elif running and what < 0.9:
            of = rng.choice(running)
            if what < 0.45:
                both(of, "key", rng.choice("xyz"), str(rng.random()))
            elif what < 0.47:
                both(of, "run", "show timeseries")
            else:
                both(of, "run", statement(rng))
        elif running:
            of = running.pop(rng.randrange(len(running)))
            both(of, "commit" if rng.random() < 0.8 else "rollback")
    for of in running:
        both(of, "commit")
    assert places[0].state() == places[1].state()


@pytest.mark.slow
def test_what_is_judged_once_is_what_each_commit_would_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lightly = [0, 0]
    real = TxnStore._take_lightly

    def counted(self: TxnStore, *given: Any) -> bool:
        found = real(self, *given)
        lightly[found] += 1
        return found

    monkeypatch.setattr(TxnStore, "_take_lightly", counted)
    for life in range(tiers.examples(40)):
        seed = tiers.seed() * 1_000_000 + life
        places = [Place(tmp_path / f"{life}-{at}", by_the_long_way=bool(at)) for at in (0, 1)]
        try:
            play(random.Random(seed), places, 120)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            for each in places:
                each.engine.close()
    assert min(lightly) > tiers.examples(40)
