"""What a signal, or a lack of memory, cuts off in the middle: nothing half, nothing for ever."""

from __future__ import annotations

import threading

import pytest

from common.errors import BusyError
from receiver.metadata.commit import committer
from receiver.metadata.commit.commit_request import CommitRequest
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from receiver.txn.errors import TxnInterruptedError
from receiver.txn.txn import TxnState
from receiver.txn.txn_manager import TxnManager
from receiver.txn.txn_store import TxnStore
from tests.support.procs import BOUND


class Signal(BaseException):
    pass


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path, background=False) as opened:
        opened.set_storage_group("root.g")
        yield opened


def series(engine: Engine) -> list[str]:
    return [row[0] for row in execute(engine, "show timeseries root.**")]


@pytest.mark.parametrize("cut", [Signal, MemoryError])
@pytest.mark.parametrize("before", [0, 1])
def test_a_transaction_with_a_statement_that_was_cut_off_commits_nothing(
    engine, monkeypatch, before, cut
):
    """Its operations may be there without their bytes: memory and log would differ."""

    def grow(store: TxnStore, ops, *_) -> None:
        store.ops += ops
        raise cut

    txn = TxnManager(engine).begin()
    for each in range(before):
        txn.keys.save(f"key {each}", "x")
    with monkeypatch.context() as patched:
        patched.setattr(TxnStore, "_grow", grow)
        with pytest.raises(cut):
            txn.database.create_series("root.g.d.s", "FLOAT")
    with pytest.raises(TxnInterruptedError, match="cut off"):
        txn.commit()
    assert txn.state is TxnState.ROLLED_BACK
    assert series(engine) == []


def test_a_begin_that_was_cut_off_takes_no_place_beyond_its_lease(engine):
    class Pins(dict):
        def setdefault(self, *given):
            super().setdefault(*given)
            raise Signal

    clock = Clock()
    manager = TxnManager(engine, most=1, clock=clock)
    manager._pins = Pins()
    with pytest.raises(Signal):
        manager.begin()
    manager._pins = dict(manager._pins)
    assert len(manager._pins) == 1
    clock.now = 2 * manager.lease
    manager.begin().rollback()


def test_an_end_that_was_cut_off_is_made_up_for(engine, monkeypatch):
    clock = Clock()
    manager = TxnManager(engine, clock=clock)
    txn = manager.begin()
    txn.database.create_series("root.g.d.s", "FLOAT")

    def ended(_: object) -> None:
        raise Signal

    with monkeypatch.context() as patched:
        patched.setattr(txn, "_ended", ended)
        with pytest.raises(Signal):
            txn.commit()
    clock.now = 2 * manager.lease
    assert manager.running() == []
    assert manager.outcome(txn.id).state is TxnState.COMMITTED
    assert not manager._pins


@pytest.mark.parametrize("inside", [False, True])
def test_a_reading_that_was_cut_off_as_it_began_keeps_nobody_out(engine, inside):
    reading = engine.reading()
    lock = reading._lock

    class CutOff:
        release, _is_owned = lock.release, lock._is_owned

        def acquire(self) -> None:
            lock.acquire()
            raise Signal

    def begin() -> None:
        reading._lock = CutOff()
        with pytest.raises(Signal):
            reading.__enter__()
        reading._lock = lock

    if inside:
        with reading:
            begin()
    else:
        begin()
    assert not reading.is_mine()
    another = threading.Thread(target=series, args=(engine,), daemon=True)
    another.start()
    another.join(BOUND / 10)
    assert not another.is_alive()


def test_who_leads_and_is_cut_off_before_anything_is_written_stops_nobody(engine, monkeypatch):
    judged = committer.examine

    def examine(state, ops, **more):
        if "mine" in ops[0].names:
            raise Signal
        return judged(state, ops, **more)

    op = records.SeriesCreated("root.g.d", ("other",), bytes([3]), bytes([8]), bytes([1]))
    other = CommitRequest([op])
    other.abandoned = True  # nobody waits for it, so nobody but the next is to lead
    engine._committer._waiting.append(other)
    with monkeypatch.context() as patched:
        patched.setattr(committer, "examine", examine)
        with pytest.raises(Signal):
            engine.create_series("root.g.d.mine", "FLOAT")
    engine.create_series("root.g.d.next", "FLOAT")
    assert engine.failed is None
    assert other.settled
    assert series(engine) == ["root.g.d.mine", "root.g.d.next", "root.g.d.other"]


def test_no_memory_before_anything_is_written_is_an_error_of_those_commits_alone(
    engine, monkeypatch
):
    def settle(*_) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(committer.Committer, "_settle_unknown", settle)
        with pytest.raises(BusyError, match="nothing of it was committed"):
            engine.create_series("root.g.d.mine", "FLOAT")
    engine.create_series("root.g.d.next", "FLOAT")
    assert series(engine) == ["root.g.d.next"]
