"""A commit on its way: its operations and their bytes, and what became of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Self

import msgspec

from common.errors import TooLargeError
from receiver.metadata.commit.pace import weight_of
from receiver.metadata.log.frames import MAX_PAYLOAD
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.model.records import (
    Op,
    decode_op,
    decode_ops,
    encode_op,
    encode_ops,
    join_ops,
)

if TYPE_CHECKING:
    from receiver.metadata.commit.guards import Guard
    from receiver.metadata.commit.recent_commits import JudgedBeside, JudgedOps

__all__ = ["Build", "CommitRequest", "is_large"]

_MAX_COMMIT: Final = MAX_PAYLOAD - 64
_NO_PIECES: Final[dict[int, bytes]] = {}
_MANY: Final = 2048
"""Devices and operations; so many are judged in some fifty milliseconds."""

Build = Callable[[int], "Sequence[Op]"]
"""Gives the operations of a commit, told its timestamp."""


def is_large(ops: Sequence[Op]) -> bool:
    """Whether judging operations would hold up others for long."""
    count = sum(map(weight_of, ops))
    for op in ops:
        if type(op) is records.FileLoaded or type(op) is records.SeriesLoaded:
            count += len(op.devices)
    return count >= _MANY


class CommitRequest:
    """A commit that waits, or work to be done between two batches.

    Attributes:
        settled: `ts` or `error` is known.
        is_large: it has so many devices or operations that it is judged beside the line first.
        asked: the operations that the caller gave, where others were added.
        judged: what the caller knows of all of them but the last, `TxnCommitted`; see `of_txn`.
        leads: its thread has been told to lead.
        beside: what was judged of it before it stood in the line.
        abandoned: its thread has gone (an interrupt); nobody may wait for it.
    """

    __slots__ = (
        "_pieces",
        "abandoned",
        "asked",
        "beside",
        "build",
        "encoded",
        "error",
        "guards",
        "is_large",
        "judged",
        "leads",
        "offsets",
        "ops",
        "settled",
        "tags",
        "tags_at",
        "ts",
        "turn",
        "work",
    )

    def __init__(
        self,
        ops: Sequence[Op] | None,
        guards: Sequence[Guard] = (),
        *,
        build: Build | None = None,
        work: Callable[[], None] | None = None,
    ) -> None:
        self.guards = guards
        self.judged: JudgedOps | None = None
        self.beside: JudgedBeside | None = None
        self.is_large = False
        self._pieces = _NO_PIECES
        self.build = build
        self.work = work
        self.encoded = b""
        self.ops: list[Op] = []
        self.asked: list[Op] | None = None
        if ops is not None:
            self.encode(ops)
        self.ts = 0
        self.tags = b""
        self.tags_at = -1
        self.offsets: list[Sequence[int] | None] | None = None
        self.error: BaseException | None = None
        self.settled = False
        self.leads = False
        self.abandoned = False
        # A bare lock, taken twice, is the cheapest way to wait: an Event costs three times that.
        self.turn = threading.Lock()
        self.turn.acquire()

    @classmethod
    def of_txn(cls, judged: JudgedOps, committed: records.TxnCommitted) -> Self:
        """Of a transaction: what it wrote was encoded and judged as it was written."""
        made = cls(None)
        made.judged = judged
        made.ops = [*judged.ops, committed]
        pieces = [*judged.pieces, encode_op(committed)]
        made.encoded = join_ops(pieces)
        # No device, name or operation takes less than a byte.
        made.is_large = len(made.encoded) >= _MANY and is_large(made.ops)
        if made.is_large:
            made._pieces = {id(op): piece for op, piece in zip(made.ops, pieces, strict=True)}
        return made

    def encode(self, ops: Sequence[Op]) -> None:
        """Let it have these operations.

        Raises:
            RefusedCommitError: they cannot be stored.
            TooLargeError: they are too many.
        """
        try:
            # Read back: what is applied now is what the next start will read, and a value that it
            # could not read never gets into the log.
            if self.is_large or is_large(ops):
                self.is_large = True
                self._encode_each(ops)
            else:
                self.encoded = encode_ops(ops)
                self.ops = decode_ops(self.encoded)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise RefusedCommitError(f"operations that cannot be stored: {error}") from error
        if len(self.encoded) > _MAX_COMMIT:
            raise TooLargeError(
                f"a commit of {len(self.encoded)} bytes; at most {_MAX_COMMIT} are allowed"
            )

    def _encode_each(self, ops: Sequence[Op]) -> None:
        """Each by itself: others get a turn between, and what was encoded before stays."""
        pieces: dict[int, bytes] = {}
        found: list[Op] = []
        for op in ops:
            piece = self._pieces.get(id(op))  # of `ops`, which live as long
            if piece is None:
                piece = encode_op(op)
                op = decode_op(piece)
            found.append(op)
            pieces[id(op)] = piece
        self.encoded = join_ops([pieces[id(op)] for op in found])
        self.ops, self._pieces = found, pieces

    def again(self) -> CommitRequest:
        """The same anew, for the line."""
        made = CommitRequest(None, self.guards)
        made.encoded, made.ops, made.asked = self.encoded, self.ops, self.asked
        made.is_large, made._pieces = self.is_large, self._pieces
        return made

    def settle(self, error: BaseException | None = None) -> None:
        """What becomes of it is known; wake its thread. Once it is, it stays so."""
        if self.settled:
            return
        self.error = error
        self.settled = True
        if not self.leads:
            self.turn.release()
