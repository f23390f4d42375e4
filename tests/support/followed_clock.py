"""A receiver as 0.1.0 was: its timestamps follow whatever the clock shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from common.durable import Tree
from receiver.metadata.clock.judged_clock import JudgedClock
from receiver.metadata.clock.machine_clock import MachineClock
from receiver.metadata.engine_upkeep import Setting
from receiver.metadata.log.frames import LOG_NAME, create_log, encode_payload
from receiver.metadata.model import records
from receiver.metadata.model.timestamps import from_seconds, hybrid

__all__ = ["clock_followed_blindly"]


@contextmanager
def clock_followed_blindly() -> Iterator[None]:
    """What is opened, committed and closed within is as if by 0.1.0; it knows no record either."""

    def allocate(self: JudgedClock, newest: int) -> int:
        return hybrid(self._machine.wall)(newest)

    def make(tree: Tree, _: object, machine: MachineClock) -> None:
        made = records.encode_ops([records.EngineMade("ee" * 16)])
        payload = encode_payload([(from_seconds(machine.wall()), made)])
        create_log(tree, LOG_NAME, 1, payload)

    with (
        mock.patch.object(JudgedClock, "allocate", allocate),
        mock.patch.object(Setting, "settle"),
        mock.patch.object(Setting, "note"),
        mock.patch("receiver.metadata.engine._make", make),
    ):
        yield
