"""What the calls of transactions answer; ids are text: they are above what JSON is sure of."""

from __future__ import annotations

from common.wire import Struct
from common.wire.base import CommitTs

__all__ = ["TxnBegun", "TxnOutcome", "TxnRunning", "TxnsRunning"]


class TxnBegun(Struct, frozen=True, kw_only=True):
    """`POST /v1/txn`.

    Attributes:
        txn: its id.
        read_ts: the commit as of which it reads.
        lease: seconds without a use, until it is rolled back.
    """

    txn: str
    read_ts: CommitTs
    lease: float


class TxnOutcome(Struct, frozen=True, kw_only=True):
    """`GET /v1/txn/<txn>` and `POST /v1/txn/<txn>/commit`.

    Attributes:
        txn: its id.
        state: `active`, `committed`, or `rolled back`: nothing of it is committed, nor will be.
            The last two are for ever.
        commit: of one that is committed.
    """

    txn: str
    state: str
    commit: CommitTs | None = None


class TxnRunning(Struct, frozen=True, kw_only=True):
    """A transaction that is not over.

    Attributes:
        txn: its id.
        who: began it: the id of a token, or an address.
        read_ts: the commit as of which it reads.
        age: seconds since it began.
        idle: seconds since it was used.
        operations: that it has written.
    """

    txn: str
    who: str
    read_ts: CommitTs
    age: float
    idle: float
    operations: int


class TxnsRunning(Struct, frozen=True, kw_only=True):
    """`GET /v1/txn`: those that are not over, the oldest first."""

    transactions: list[TxnRunning]
    """Each of them."""
