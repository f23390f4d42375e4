"""What is told of copies on storage nodes, as JSON and on terminals."""

from __future__ import annotations

from common.wire import Struct
from common.wire.base import CommitTs

__all__ = [
    "BackView",
    "CopiesView",
    "FailedBack",
    "MendRequest",
    "NodeBalance",
    "OfferedDeletions",
    "OfferedFile",
    "OfferedTable",
    "OfferedView",
    "RebalanceRequest",
    "RebalanceView",
    "StrangeReplica",
]


class StrangeReplica(Struct, frozen=True, kw_only=True):
    """A replica that the catalogue does not know, or knows an older generation of: it stays."""

    node: str
    """id of the storage node."""
    tablet: str
    """id of the tablet."""


class CopiesView(Struct, frozen=True, kw_only=True):
    """How far the copies are.

    Attributes:
        replicas: nodes that are to have each tablet, where its table does not say otherwise; 0
            where none are wanted.
        before_ack: that have a file before it is told to be loaded.
        tablets: of tables that are there.
        placed: of these, those with a place.
        creating: of these, those whose leaders have not reported them.
        short: tablets with fewer nodes than are wanted.
        whole: tablets of which all of their nodes have all files now, as far as is known: these are
            heard from, and miss no directory.
        busy: why no new task is taken; None if one is.
        strange: what nodes have and the catalogue does not know.
        newer: what nodes know more of than the catalogue: `copies offered` says what.
        evict_copies: nodes that have to prove that they have a file before it leaves the disks.
        released: files that have left the data directories for nodes.
        released_bytes: of them.
        nowhere: files on no disk here, and in no store, that no node which is heard from is known
            to have; those too that a stand-by never had on its disks. Of very many the first.
        first_nowhere: physical names of the first of them.
    """

    replicas: int
    before_ack: int
    tablets: int
    placed: int
    creating: int
    short: int
    whole: int
    busy: str | None = None
    strange: tuple[StrangeReplica, ...] = ()
    newer: tuple[StrangeReplica, ...] = ()
    evict_copies: int = 0
    released: int = 0
    released_bytes: int = 0
    nowhere: int = 0
    first_nowhere: tuple[str, ...] = ()


class MendRequest(Struct, frozen=True, kw_only=True):
    """Files that were found damaged, or missing: physical names."""

    files: tuple[str, ...]


class OfferedDeletions(Struct, frozen=True, kw_only=True):
    """What was deleted of an offered file, as a deletion file of this form has it."""

    form: str
    content: bytes
    """Its bytes, in base64."""


class OfferedFile(Struct, frozen=True, kw_only=True):
    """A file that a storage node has and the catalogue has not.

    Attributes:
        node: uuid of a node that has it.
        tablet: that it is in there.
        table: name of its storage group, or database.
        physical: name there.
        size: bytes.
        md5: of them.
        sender: uuid of whoever sent it.
        path: there.
        commit: that had loaded it.
        retired: whether it was gone at its sender.
        deletions: what was deleted of it.
    """

    node: str
    tablet: str
    table: str
    physical: str
    size: int
    md5: str
    sender: str
    path: str
    commit: CommitTs
    retired: bool = False
    deletions: tuple[OfferedDeletions, ...] = ()


class OfferedTable(Struct, frozen=True, kw_only=True):
    """What storage nodes know of a table, as of a later commit than this receiver knows of it.

    Attributes:
        table: name of its storage group, or database.
        node: uuid of a node that knows it.
        version: the commit since which it was so.
        ttl: how long its files were kept, in milliseconds; None for ever.
        replicas: how many nodes were to have it; None for as many as configured.
    """

    table: str
    node: str
    version: CommitTs
    ttl: int | None = None
    replicas: int | None = None


class OfferedView(Struct, frozen=True, kw_only=True):
    """What storage nodes have and the catalogue has not.

    Attributes:
        files: those, by physical name.
        tables: of which nodes know more than this receiver.
        more: whether there are more than are told.
        silent: uuids of nodes that were not heard from, or did not answer: they may have more.
    """

    files: tuple[OfferedFile, ...] = ()
    tables: tuple[OfferedTable, ...] = ()
    more: bool = False
    silent: tuple[str, ...] = ()


class FailedBack(Struct, frozen=True, kw_only=True):
    """A file that is not whole in a data directory, and did not come."""

    physical: str
    reason: str


class RebalanceRequest(Struct, frozen=True, kw_only=True):
    """Have tablets go from full storage nodes to empty ones.

    Attributes:
        confirm: do it; else it is only told what would go.
    """

    confirm: bool = False


class NodeBalance(Struct, frozen=True, kw_only=True):
    """What a storage node has, and is going to have.

    Attributes:
        node: its uuid.
        name: of it.
        before: bytes of the tablets that were placed there.
        after: of those that are placed there with the moves.
    """

    node: str
    name: str
    before: int
    after: int


class RebalanceView(Struct, frozen=True, kw_only=True):
    """Which tablets go to other nodes, or would.

    Attributes:
        tablets: how many.
        size: bytes of them, that are copied.
        moving: others, that are on their way, or not whole: they stay where they are placed.
        nodes: those that take tablets, by uuid.
        done: whether it was had so.
    """

    tablets: int
    size: int
    moving: int
    nodes: tuple[NodeBalance, ...] = ()
    done: bool


class BackView(Struct, frozen=True, kw_only=True):
    """What came back from storage nodes.

    Attributes:
        files: that came.
        size: their bytes.
        failed: those that are not whole in a data directory and did not come.
    """

    files: int
    size: int
    failed: tuple[FailedBack, ...] = ()
