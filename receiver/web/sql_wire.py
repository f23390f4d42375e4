"""What the calls of SQL take and answer."""

from __future__ import annotations

from typing import Any

from common.wire import Struct
from common.wire.base import CommitTs
from receiver.metadata.model.records import TimePiece

__all__ = ["SqlAnswer", "SqlRequest"]


class SqlRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/sql`.

    Attributes:
        statement: one statement.
        txn: id of the transaction that the session is in, as `begin` gave it.
        at: as of when show and count answer, where the statement does not say: a commit timestamp,
            or a time such as `2026-01-31T08:00:00Z`.
        fetch_size: rows of a page, at most; the receiver's own limit holds in any case.
        wait: seconds for which the answer of a load waits for its end, 30 at most; null for that.
    """

    statement: str
    txn: str | None = None
    at: int | str | None = None
    fetch_size: int | None = None
    wait: float | None = None


class SqlAnswer(Struct, frozen=True, kw_only=True):
    """`POST /v1/sql` and `GET /v1/sql/<cursor>`.

    Attributes:
        columns: names of the members of a row; empty for a statement that asks nothing.
        rows: text, numbers, truth values, null, or objects (tags and attributes).
        message: what was done, of a statement that does something.
        commit: that the answer is as of, or that holds what was done; 0 of what was done in a
            transaction, which its own commit holds.
        next: cursor of the next page; null at the end.
        clock: which times commits stand for, where the clock was wrong.
        txn: id of the transaction that the session is in behind the statement; null for none.
        load: id of a load that goes on: `GET /v1/loads/<task>` has its end.
    """

    columns: list[str]
    rows: list[list[Any]]
    message: str | None
    commit: CommitTs
    next: str | None
    clock: tuple[TimePiece, ...] = ()
    txn: str | None = None
    load: str | None = None
