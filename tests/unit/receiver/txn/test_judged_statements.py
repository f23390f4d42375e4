"""A statement is judged when it is made, and again only if what concerns it came between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from receiver.metadata.commit import committer as committing
from receiver.metadata.commit import tablet_making
from receiver.metadata.commit.replaced import coming_back, dissolving
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.alterations import Upsert
from receiver.metadata.model.errors import UnknownOutcomeError
from receiver.metadata.sql.executing import execute
from receiver.txn import txn_store
from receiver.txn.errors import WriteConflictError
from receiver.txn.txn_manager import TxnManager

D = "root.sg.d"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path, background=False) as engine:
        engine.set_storage_group("root.sg")
        engine.create_series(f"{D}.a", "INT32")
        yield engine


@pytest.fixture
def txns(engine: Engine) -> TxnManager:
    return TxnManager(engine)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many operations each commit had that the committer judged."""
    found: list[int] = []
    real = committing.examine

    def counted(state: Any, ops: Any, **more: Any) -> Any:
        found.append(len(ops))
        return real(state, ops, **more)

    monkeypatch.setattr(committing, "examine", counted)
    return found


def shown(engine: Engine) -> list[object]:
    return [row[0] for row in execute(engine, "show timeseries")]


def test_commits_of_other_rows_leave_what_was_judged_as_it_is(
    engine: Engine, txns: TxnManager, judged: list[int]
) -> None:
    txn = txns.begin()
    engine.create_series(f"{D}.x", "INT32")
    txn.database.alter(f"{D}.a", Upsert(tags={"unit": "v"}))
    txn.database.create_series(f"{D}.s", "INT32")
    txn.database.create_series(f"{D}.t", "INT32")
    txn.keys.save("k", "v")
    engine.create_series("root.sg.e.s", "INT32")
    with txns.transaction() as other:
        other.database.create_series("root.sg.f.s", "INT32")
    assert judged == [1, 1]
    txn.commit()
    assert judged == [1, 1]
    assert shown(engine) == [f"{D}.{each}" for each in "astx"] + ["root.sg.e.s", "root.sg.f.s"]


def test_one_that_goes_on_for_long_is_judged_again(
    engine: Engine, txns: TxnManager, judged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.metadata.commit.recent_commits._MOST_BATCHES", 4)
    txn = txns.begin()
    txn.database.create_series(f"{D}.s", "INT32")
    for number in range(5):
        engine.create_series(f"root.sg.e.s{number}", "INT32")
    txn.commit()
    assert judged[5:] == [2]
    assert f"{D}.s" in shown(engine)


@pytest.mark.parametrize("statements", [1, 2])
@pytest.mark.parametrize("begins", [True, False], ids=["before", "behind"])
def test_a_row_that_another_commit_made_is_a_conflict(
    engine: Engine, txns: TxnManager, statements: int, begins: bool
) -> None:
    txn = txns.begin()

    def write() -> None:
        for name in ("s", "t")[:statements]:
            txn.database.create_series(f"{D}.{name}", "INT32")

    if begins:
        write()
    engine.create_series(f"{D}.s", "FLOAT")
    with pytest.raises(WriteConflictError, match=rf"'{D}\.s' was changed by commit"):
        write() if not begins else txn.commit()


def test_a_row_that_was_made_and_deleted_between_is_a_conflict(
    engine: Engine, txns: TxnManager
) -> None:
    txn = txns.begin()
    txn.database.create_series(f"{D}.s", "INT32")
    engine.create_series(f"{D}.s", "FLOAT")
    engine.delete_series(f"{D}.s")
    with pytest.raises(WriteConflictError, match=rf"'{D}\.s'"):
        txn.commit()


@pytest.mark.parametrize(
    "between",
    [
        "create aligned timeseries root.sg.e(z INT32)",
        "create timeseries root.sg.e with datatype=INT32",
        "create timeseries root.sg.e.z(s) with datatype=INT32",
        "delete storage group root.sg",
    ],
)
def test_what_came_between_and_is_against_it_refuses_it(
    engine: Engine, txns: TxnManager, between: str
) -> None:
    txn = txns.begin()
    txn.database.create_series("root.sg.e.s", "INT32")
    execute(engine, between)
    before = shown(engine)
    with pytest.raises(WriteConflictError):
        txn.commit()
    assert shown(engine) == before


def test_a_batch_whose_outcome_was_unknown_concerns_everything(
    engine: Engine, txns: TxnManager, judged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes visible when it is settled; what was judged before it is judged again."""
    txn = txns.begin()
    txn.database.create_series(f"{D}.s", "INT32")
    log = engine._committer._appender  # type: ignore[union-attr]
    append = log.append

    def lost(*given: Any) -> None:
        append(*given)
        raise UnknownOutcomeError("no answer")

    with monkeypatch.context() as inner:
        inner.setattr(log, "append", lost)
        with pytest.raises(UnknownOutcomeError):
            engine.create_series(f"{D}.s", "FLOAT")
    monkeypatch.setattr(log, "settle", lambda: True)
    with pytest.raises(WriteConflictError, match=rf"'{D}\.s'"):
        txn.commit()
    assert shown(engine) == [f"{D}.a", f"{D}.s"]


def test_a_transaction_is_committed_once_whatever_was_judged(
    engine: Engine, txns: TxnManager, judged: list[int]
) -> None:
    txn = txns.begin()
    txn.database.create_series(f"{D}.s", "INT32")
    operator = txn._store.operator
    txn.commit()
    ops, again = txn._store.ops, txns.begin()
    again.database.create_series(f"{D}.t", "INT32")
    again._store.operator = operator
    with pytest.raises(WriteConflictError, match="was committed already"):
        again.commit()
    assert ops
    assert shown(engine) == [f"{D}.a", f"{D}.s"]


def _named_in(module: ModuleType) -> set[type]:
    """The operations in a module's collections: those that a commit of them adds something for."""
    found: set[type] = set()
    for value in vars(module).values():
        if isinstance(value, dict | tuple | frozenset):
            found.update(each for each in value if isinstance(each, type))
        elif isinstance(value, type):
            found.add(value)
    return {each for each in found if issubclass(each, records.Record)}


def test_to_what_is_judged_once_a_commit_adds_nothing() -> None:
    """So it need not be asked what comes back, is dissolved or made by it."""
    once = {*txn_store._LIGHT, records.KeysWritten}
    adding = {records.CompactionFinal, records.FileQuarantined, records.OwnerSet}
    for module in (coming_back, dissolving, tablet_making):
        adding |= _named_in(module)
    assert adding.issuperset((records.StorageGroupDeleted, records.TtlSet, records.FileLoaded))
    assert once.isdisjoint(adding)


@pytest.mark.parametrize("behind", [0, 1])
def test_a_ttl_that_a_transaction_sets_is_told_to_the_table_of_its_group(
    engine: Engine, txns: TxnManager, behind: int
) -> None:
    table = "ab" * 16
    engine.commit([records.TableMade(table, "root.sg")])
    with txns.transaction() as txn:
        txn.database.set_ttl("root.sg", 7)
        for _ in range(behind):
            engine.create_series("root.sg.e.s", "INT32")
    with engine.reading() as state:
        row = state.loaded_tables.rows[table]
    assert (row.ttl, row.version) == (7, engine.newest_commit)
