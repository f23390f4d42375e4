"""A process that dies in a commit: what became of the transaction is one answer, for ever."""

import os

import pytest

from common import crash
from receiver.metadata.engine import Engine
from receiver.txn.txn import TxnState
from receiver.txn.txn_manager import TxnManager

POINTS = {
    "mlog.commit.before": TxnState.ROLLED_BACK,
    "mlog.commit.durable": TxnState.COMMITTED,
    "mlog.commit.published": TxnState.COMMITTED,
}


def die_committing(home, point):
    """A process writes in two transactions, commits one of them, and dies there; their ids."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            engine = Engine.open(home, background=False)
            manager = TxnManager(engine)
            txn, open_ = manager.begin(), manager.begin()
            txn.keys.save("k", str(txn.id))
            txn.database.set_storage_group("root.sg")
            open_.keys.save("other", "1")
            os.write(theirs, f"{txn.id} {open_.id}\n".encode())
            with crash.arm(crash._die_at(point)):
                txn.commit()
        finally:
            os._exit(0)
    os.close(theirs)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(ours) as pipe:
        ids = [int(each) for each in pipe.read().split()]
    assert os.WIFSIGNALED(status)
    return ids


@pytest.mark.parametrize("point", POINTS)
def test_the_outcome_is_found_by_the_id_and_stays(tmp_path, point):
    txn, open_ = die_committing(tmp_path, point)
    told = set()
    for checkpoints in (False, True, False):
        with Engine.open(tmp_path, background=False) as engine:
            manager = TxnManager(engine)
            outcome = manager.outcome(txn)
            told.add(outcome)
            assert outcome.state is POINTS[point]
            assert manager.outcome(open_).state is TxnState.ROLLED_BACK
            with engine.reading() as state:
                keys = dict(zip(*state.keys.load_with_prefix(""), strict=True))
                groups = [row.path for row in state.schema.groups.rows()]
            is_there = outcome.state is TxnState.COMMITTED
            assert keys == ({"k": str(txn)} if is_there else {})
            assert groups == (["root.sg"] if is_there else [])
            if checkpoints:
                engine.checkpoint()
            manager.begin().keys.save("never", "committed")
    assert len(told) == 1
