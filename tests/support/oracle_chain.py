"""An edge's database, a centre that takes from it and forwards, and a centre above that one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from receiver.metadata.state.table_rows import FileRow
from receiver.node import Node
from sender.config import ReceiverEntry
from sender.round.round_report import RoundReport
from tests.support.edge import Edge
from tests.support.edge_database import Points
from tests.support.oracle import Oracle, points_read, receiver_at

__all__ = ["OracleChain", "forwarding_to", "oracle_chain"]


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
        self, root: Path, modes: tuple[str, str], node: Node, url: str, above: Node, up: str
    ) -> None:
        super().__init__(root, modes[0], node, url)
        self.above, self.up = above, up
        self.forwarder = forwarding_to(root / "forwarder", url, up, modes[1])

    def forward(self) -> RoundReport:
        """A round from the centre in the middle to the one above."""
        report = self.forwarder.round()
        assert report.error is None, report.as_json()
        return report

    def read_above(self) -> Points:
        """What a reader of the centre above gets."""
        return points_read(self.above)

    def below_rows(self) -> list[FileRow]:
        """All rows of the centre in the middle, in the order of their names."""
        return _rows(self.node)

    def rows_above(self) -> list[FileRow]:
        """All rows of the centre above."""
        return _rows(self.above)


def _rows(node: Node) -> list[FileRow]:
    with node.engine.reading() as state:
        return sorted(state.files.values(), key=lambda row: row.physical)


@contextlib.contextmanager
def oracle_chain(
    root: Path, edge_mode: str = "replaced", forwarder_mode: str = "replaced"
) -> Iterator[OracleChain]:
    """Two receivers in this process, an edge below and a forwarder between."""
    with (
        receiver_at(root / "middle") as (node, url),
        receiver_at(root / "above") as (above, up),
    ):
        yield OracleChain(root, (edge_mode, forwarder_mode), node, url, above, up)
