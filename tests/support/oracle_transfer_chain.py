"""Two edges whose devices go to and fro at a centre that forwards to another one.

The one above is not told of transfers: it ranks files as a whole, by the looks of the one below. So
it answers as that does in devices that never went, and in the others by its own rule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.edge import Edge
from tests.support.edge_shapes import PLAIN, Points, Shape
from tests.support.oracle import CentreView, difference, points_read, receiver_at, records
from tests.support.oracle_chain import as_below, forwarding_to
from tests.support.oracle_host import InProcess
from tests.support.oracle_play import WrongAnswer
from tests.support.oracle_transfers import SharedOracle, SharedView, TransferLife

__all__ = ["ForwardedLife", "shared_chain"]

_FORWARDS = 0.12
"""Of the steps, those in which the centre forwards, or the one above proves."""


class ForwardedLife(TransferLife):
    """A history of two edges at a centre, and of the one above it."""

    def __init__(
        self,
        host: InProcess,
        worlds: Sequence[SharedOracle],
        seed: int,
        forwarder: Edge,
        above: InProcess,
    ) -> None:
        super().__init__(host, worlds, seed)
        self.forwarder, self.above = forwarder, above

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.chance.random() > _FORWARDS:
                super().run(1)
            elif self.chance.random() < 0.7:
                self.forward()
            else:
                self.prove_above()

    def forward(self) -> None:
        """After it the centre above gives what the one in the middle gives, but for transfers."""
        for _ in range(3):
            report = self.forwarder.round()
            if report.error is not None:
                raise WrongAnswer("a round of the forwarder failed", report.error)
            self.events.append(("forward", report.sent, report.retired, report.already))
        if report.held or not report.quiet:
            raise WrongAnswer("the forwarder does not come to rest", report)
        below, given = self.plays[0].world.answer(), self.answer_above()
        for key in below.keys() | given.keys():
            if key[0] not in self.moves and below.get(key) != given.get(key):
                raise WrongAnswer("above is not as below", key, given.get(key), below.get(key))
        shape = self.plays[0].database.shape
        if (read := points_read(self.above, shape)) != given:
            raise WrongAnswer("the reader above differs", difference(read, given))

    def prove_above(self) -> None:
        """Proofs change no answer there either."""
        before = self.answer_above()
        self.events.append(("prove above", self.above.prove()))
        if (now := self.answer_above()) != before:
            raise WrongAnswer("a proof above changed an answer", difference(now, before))

    def answer_above(self) -> Points:
        """What readers of the centre above should get of what is committed there."""
        contents, shape = self.plays[0].database.contents, self.plays[0].database.shape
        with self.above.reading() as state:
            files = list(state.files.values())
            noted = [
                row
                for row in state.deletion_table.of_sender(self.forwarder.uuid)
                if row.path.split("/")[1] == self.plays[0].database.group
            ]
        every = []
        for play in self.plays:
            mine = [row for row in files if row.origin and row.origin.sender in play.world.senders]
            authors = {row.author for row in mine}
            known = [
                (each.physical, record)
                for each in noted
                if each.author in authors
                for record in records(each, shape)
            ]
            every.append(CentreView([as_below(row) for row in mine], known, contents))
        return SharedView(every[0], every, {}).answer()


@contextlib.contextmanager
def shared_chain(root: Path, mode: str, seed: int, shape: Shape = PLAIN) -> Iterator[ForwardedLife]:
    """Two edges, a receiver that forwards, and one above."""
    with receiver_at(root / "middle") as host, receiver_at(root / "above") as above:
        worlds = [SharedOracle(root / name, mode, host, shape) for name in ("one", "two")]
        forwarder = forwarding_to(root / "forwarder", host.url, above.url, mode)
        yield ForwardedLife(host, worlds, seed, forwarder, above)
