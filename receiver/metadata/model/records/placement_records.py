"""Records of the log about where copies of tablets lie."""

from __future__ import annotations

from collections.abc import Sequence

from receiver.metadata.model.records.record_parts import Record


class TabletPlaced(Record, frozen=True, tag=113):
    """Copies of a tablet are to lie at these nodes from now on; it is asked for behind the commit.

    Attributes:
        tablet: its id.
        generation: 1 for its first placement, and one more with each further one.
        nodes: uuids, none twice.
        leader: the one of them whose report makes the placement a running one.
    """

    tablet: str
    generation: int
    nodes: Sequence[str]
    leader: str


class TabletRunning(Record, frozen=True, tag=114):
    """The leader of a placement has reported that its replica is there.

    Attributes:
        tablet: its id.
        generation: of the placement that runs.
    """

    tablet: str
    generation: int


class FileReleased(Record, frozen=True, tag=130):
    """The receiver may let go of its own bytes of a file: nodes have just proved that they have it.

    What is in no data directory then is at nodes, and neither lost nor missing. Said once more
    where other nodes have proved it.

    Attributes:
        physical: of the file.
        tablet: that it lies in.
        generation: of the placement that the nodes are of.
        nodes: uuids of those that have proved it, none twice.
    """

    physical: str
    tablet: str
    generation: int
    nodes: Sequence[str]


class CopyDoubted(Record, frozen=True, tag=117):
    """A node gave other bytes than a file has, and does not count for it; or that is over.

    Attributes:
        node: uuid.
        tablet: that the file lies in.
        physical: of the file.
        doubted: False where it has given all bytes of it since, and they were the right ones.
    """

    node: str
    tablet: str
    physical: str
    doubted: bool = True
