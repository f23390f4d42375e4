"""What a transaction is refused, and why."""

from __future__ import annotations

from common.errors import NotFoundError, Permanent, Transient

__all__ = [
    "TxnActiveError",
    "TxnEndedError",
    "TxnForgottenError",
    "TxnInterruptedError",
    "TxnMissingError",
    "WriteConflictError",
]


class WriteConflictError(Transient):
    """Another commit changed a row first that the transaction changes; begin it anew."""

    slug = "write-conflict"
    http_status = 409


class TxnInterruptedError(Transient):
    """A statement of it was cut off in the middle; nothing is committed, begin it anew."""

    slug = "transaction-interrupted"
    http_status = 409


class TxnEndedError(Permanent):
    """The transaction is over: committed, rolled back, or not used for longer than its lease."""

    slug = "transaction-ended"
    http_status = 409


class TxnActiveError(Permanent):
    """A session has one transaction at a time; the message has the id of the one that it has."""

    slug = "transaction-active"
    http_status = 409


class TxnMissingError(NotFoundError):
    """There is no such transaction now; what became of it can be asked for by its id."""

    slug = "transaction-missing"


class TxnForgottenError(Permanent):
    """So many have been committed since that what became of this transaction is not known here."""

    slug = "transaction-forgotten"
    http_status = 410
