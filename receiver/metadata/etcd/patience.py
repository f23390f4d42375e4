"""How long to ask etcd for an answer, where asking twice does no harm."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import UnreachableError
from receiver.metadata.model.errors import UnknownOutcomeError

if TYPE_CHECKING:
    from receiver.metadata.etcd.gateway import EtcdClient
    from receiver.metadata.etcd.messages import Compare, Operation, TransactionResult

__all__ = ["DEFAULT_PATIENCE", "Patience", "insist"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to ask for an answer.

    Attributes:
        seconds: in all.
        clock: seconds since whenever.
        sleep: waits so many seconds.
    """

    seconds: float = 10.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


DEFAULT_PATIENCE = Patience()


def insist(
    client: EtcdClient,
    patience: Patience,
    conditions: Sequence[Compare],
    then: Sequence[Operation],
    otherwise: Sequence[Operation] = (),
) -> TransactionResult:
    """A transaction that may well be done twice: repeated until there is an answer.

    Raises:
        UnreachableError: the patience is over.
    """
    end = patience.clock() + patience.seconds
    pause = _FIRST_PAUSE
    while True:
        try:
            return client.transaction(conditions, then, otherwise)
        except (UnknownOutcomeError, UnreachableError) as error:
            if patience.clock() + pause > end:
                raise UnreachableError(error.message) from error
        patience.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
