"""What can be done on any machine: by each kind of work, how a question becomes an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from receiver.storage.reading.receiver_reads import ReceiverReads

__all__ = ["WORK_KINDS", "Answerer"]

Answerer = Callable[[bytes, "ReceiverReads"], bytes]
"""Makes the answer of a question (`receiver.remote_work`), reading files of the receiver.

Whatever it raises is the reason for which the task fails; of `Transient`, for which it is given
back.
"""


def _prove(question: bytes, reads: ReceiverReads) -> bytes:
    from receiver.executor.proving_elsewhere import answer_proofs  # decoders take a second

    return answer_proofs(question, reads)


WORK_KINDS: Final[Mapping[str, Answerer]] = {"prove": _prove}
