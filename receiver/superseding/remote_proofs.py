"""Proofs by an executor elsewhere: it is asked as the process beside the server is, without paths.

It gets the bytes of files from the receiver and compares them with their MD5, as everybody does.
What is superseded by its word is so because it says so: its token is that of a worker.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal

import msgspec

from common.errors import ProtocolError
from receiver.superseding.asking import PartitionAnswer

if TYPE_CHECKING:
    from receiver.metadata.state.work_rows import WorkRow
    from receiver.superseding.asking import PartitionAsked
    from receiver.superseding.proof_work import PartitionProofs, ProofWork

__all__ = ["RemoteProofs"]


class RemoteProofs:
    """One attempt: the questions of all partitions of the work, one after another."""

    def __init__(self, work: ProofWork, row: WorkRow) -> None:
        self._work = work
        self._row = row
        self._left = deque(work.partitions(row))
        self._proofs: PartitionProofs | None = None
        self._asked: deque[PartitionAsked] = deque()

    def question(self) -> bytes | None:
        """The next question, packed; None: all partitions are gone over, and the work is done."""
        while not self._asked:
            if self._proofs is not None:
                self._proofs.close()
                self._proofs = None
            if not self._left:
                self._work.queue.end(self._row, "done")
                return None
            self._proofs = self._work.open(self._row, self._left.popleft())
            self._asked = deque(self._proofs.due.asked)
        asked = self._asked[0]
        files = [msgspec.structs.replace(each, path=None) for each in asked.files]
        return msgspec.msgpack.encode(msgspec.structs.replace(asked, files=files))

    def answer(self, content: bytes) -> None:
        """Commit what was found.

        Raises:
            ConflictError: the work is not this attempt's any more.
            ProtocolError: it is no answer to the question.
        """
        try:
            answer = msgspec.msgpack.decode(content, type=PartitionAnswer)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"no answer of proofs: {error}") from error
        if self._proofs is None or not self._asked:
            raise ProtocolError("nothing was asked")
        self._proofs.settle(self._asked[0], answer.proofs)
        self._asked.popleft()

    def put(self, number: int, offset: int, content: memoryview, xxh3: str) -> None:
        """Refuse it: no file goes with what is said of proofs."""
        del offset, content, xxh3
        raise ProtocolError(f"no file {number} goes with an answer of proofs")

    def end(self, end: Literal["failed", "pending"], reason: str) -> None:
        """Say that it failed, or give it back; raises `ConflictError` as `WorkQueue.end`."""
        self._work.queue.end(self._row, end, reason=reason)

    def drop(self) -> None:
        """Nothing came but what is committed."""
