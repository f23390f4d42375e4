"""An edge's database, a centre that takes from it and forwards, and a centre above that one."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from common import crash
from common.crash import SimulatedCrash
from receiver.config import DeletesConfig
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileRow, FileState
from sender.config import ReceiverEntry
from sender.round.round_words.round_report import RoundReport
from tests.support.edge import Edge
from tests.support.edge_shapes import Points
from tests.support.oracle import CentreView, Oracle, difference, points_read, receiver_at
from tests.support.oracle_host import Host, InProcess
from tests.support.oracle_play import WEIGHTS, Play, WrongAnswer

__all__ = ["ChainPlay", "OracleChain", "as_below", "forwarding_to", "oracle_chain"]


def forwarding_to(root: Path, below: str, above: str, mode: str) -> Edge:
    """The forwarding sender of a centre."""
    forwarder = Edge(root, above, propagate_deletes=mode)
    forwarder.with_settings(
        receivers=(ReceiverEntry(name="up", url=above, source="receiver", source_url=below),)
    )
    return forwarder


class OracleChain(Oracle):
    """`Oracle` with a forwarder at its centre and another centre above it."""

    def __init__(
        self, root: Path, modes: tuple[str, str], host: InProcess, above: InProcess
    ) -> None:
        super().__init__(root, modes[0], host)
        self.above = above
        self.forwarder = forwarding_to(root / "forwarder", host.url, above.url, modes[1])

    def forward(self) -> RoundReport:
        """A round from the centre in the middle to the one above."""
        report = self.forwarder.round()
        assert report.error is None, report.as_json()
        return report

    def read_above(self) -> Points:
        """What a reader of the centre above gets."""
        return points_read(self.above, self.database.shape)

    def view_above(self) -> CentreView:
        """What is committed above, with names and looks as they were handed up."""
        view = CentreView.of(self.above, [self.forwarder.uuid], self.database)
        return CentreView([as_below(row) for row in view.rows], view.deletions, view.contents)

    def below_rows(self) -> list[FileRow]:
        """All rows of the centre in the middle, in the order of their names."""
        return _rows(self.host)

    def rows_above(self) -> list[FileRow]:
        """All rows of the centre above."""
        return _rows(self.above)


def as_below(row: FileRow) -> FileRow:
    """A row above, with the name and the looks that it was handed up with."""
    origin = row.origin
    assert origin is not None
    (looks,) = origin.below
    return msgspec.structs.replace(
        row,
        path=origin.path,
        first_look=looks.first,
        closed_look=looks.closed,
        last_look=looks.last,
        created=looks.loaded,
    )


def _rows(host: Host) -> list[FileRow]:
    with host.reading() as state:
        return sorted(state.files.values(), key=lambda row: row.physical)


@contextlib.contextmanager
def oracle_chain(
    root: Path,
    edge_mode: str = "replaced",
    forwarder_mode: str = "replaced",
    deletes: DeletesConfig | None = None,
) -> Iterator[OracleChain]:
    """Two receivers in this process, an edge below and a forwarder between."""
    with receiver_at(root / "middle") as host, receiver_at(root / "above", deletes) as above:
        yield OracleChain(root, (edge_mode, forwarder_mode), host, above)


class ChainPlay(Play):
    """A history with rounds of the forwarder in it, whole and dying, and harm to copies below."""

    def __init__(self, world: OracleChain, seed: int) -> None:
        weights = WEIGHTS | {"forward": 8.0, "dying_forward": 3.0, "harm": 1.0, "prove_above": 2.0}
        super().__init__(world, seed, weights=weights)
        self.chain = world
        self.harmed = False

    def _forward(self) -> None:
        """After it the centre above gives what the one in the middle gives."""
        for _ in range(3):  # ends of what a dying round has left come a round later
            report = self.chain.forward()
            self._note("forward", report.sent, report.retired, report.deleted, report.already)
        if report.held or not report.quiet:
            raise WrongAnswer("the forwarder does not come to rest", report)
        if self.harmed:
            return
        wanted, given = self.chain.answer(), self.chain.view_above().answer()
        if wanted != given:
            raise WrongAnswer("above is not as below", difference(given, wanted))
        self.reads = getattr(self, "reads", 0) + 1
        if self.reads % 4 == 0 and (read := self.chain.read_above()) != given:
            raise WrongAnswer("the reader above differs", difference(read, given))

    def _dying_forward(self) -> None:
        left, me = itertools.count(self.chance.randint(-120, 0)), threading.get_ident()

        def hook(name: str) -> None:
            if threading.get_ident() == me and next(left) == 0:
                raise SimulatedCrash(name)

        with contextlib.suppress(SimulatedCrash), crash.arm(hook):
            self.chain.forwarder.round()
        self._note("dying forward")

    def _prove_above(self) -> None:
        before = self.chain.view_above().answer()
        self._note("prove above", self.chain.above.prove())
        if (now := self.chain.view_above().answer()) != before:
            raise WrongAnswer("a proof above changed an answer", difference(now, before))

    def _harm(self) -> None:
        """A copy in the middle is found bad; it comes again, and above nothing is lost by it."""
        live = [row for row in self.chain.below_rows() if row.state is FileState.LIVE]
        if not live:
            return
        row = self.chance.choice(live)
        self.chain.forward()
        before = self.chain.view_above().answer()
        self.chain.host.node.engine.commit([records.FileQuarantined(row.physical, "rotten")])
        self._note("harm", row.path)
        self.chain.forward()
        if (now := self.chain.view_above().answer()) != before:
            raise WrongAnswer("harm in the middle changed an answer", difference(now, before))
        if row.path in {each.path(self.database.group) for each in self.database.closed()}:
            self._whole_round()
        else:
            self.chain.host.node.engine.commit([records.FileRestored(row.physical)])
