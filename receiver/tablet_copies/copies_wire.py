"""What a master and its storage nodes tell each other about copies of tablets, as JSON.

    POST /node/v1/tablets             master -> node   make replicas, by `CopyOrders`
    POST /node/v1/tablets/drop        master -> node   drop replicas, by `DropOrders`
    GET  /node/v1/tablets/files       master -> node   what it has of a tablet, `KeptFiles`
    POST /node/v1/tablets/proof       master -> node   prove that it has bytes, `ProofAsked`
    GET  /v1/copies?after=            node -> master   tablets with something new, `CopyNews`
    GET  /v1/copies/<tablet>/files    node -> master   a page of what belongs to one, `CopyPage`
    POST /v1/copies/<tablet>/gone     node -> master   which files may go, `GoneAsked`, `GoneSaid`
    GET  /v1/copies/where?path=       reader -> master nodes that give a file, `FilePlaces`
    POST /v1/copies/held              node -> master   replicas that are complete, `HeldCopies`

Commits are those of the master's engine. Who holds a list as of a commit holds each file that was
in the tablet then and still is.
"""

from __future__ import annotations

import msgspec

from common.digests import md5
from common.wire import Struct
from common.wire.base import Count
from receiver.heartbeats.node_wire import MasterMark, NodeStart

__all__ = [
    "CachePlace",
    "CopiedDeletions",
    "CopiedFile",
    "CopiedOrigin",
    "CopyNews",
    "CopyOrder",
    "CopyOrders",
    "CopyPage",
    "CopySource",
    "DropOrder",
    "DropOrders",
    "FilePlace",
    "FilePlaces",
    "GoneAsked",
    "GoneSaid",
    "HeldCopies",
    "HeldCopy",
    "KeptFiles",
    "ProofAsked",
    "ProofGiven",
    "TableAttributes",
    "TabletNews",
    "digest_of_list",
    "sum_of_file",
]


class TableAttributes(Struct, frozen=True, kw_only=True):
    """What nodes know of a table, for the day that its master does not.

    Attributes:
        version: the commit since which it is so; 0 where nothing was ever said.
        ttl: its files are kept for so many milliseconds; None for ever.
        replicas: nodes that are to have its tablets; None for as many as configured.
    """

    version: Count = 0
    ttl: Count | None = None
    replicas: Count | None = None


class CopyOrder(Struct, frozen=True, kw_only=True):
    """Have a replica of a tablet, and know this of its table.

    Attributes:
        tablet: its id, 32 hex digits.
        generation: of its placement, 1 at least; a higher one takes the place of a lower one.
        table: name of the storage group, or database.
        begin: number of its first partition.
        end: of the first that is not in it.
        attributes: of the table; those of a lower version never take the place of higher ones.
    """

    tablet: str
    generation: Count
    table: str
    begin: int
    end: int
    attributes: TableAttributes = TableAttributes()


class CopyOrders(Struct, frozen=True, kw_only=True):
    """Replicas that a node is to make, or know something of; the files that are there stay."""

    master: MasterMark
    tablets: list[CopyOrder]


class DropOrder(Struct, frozen=True, kw_only=True):
    """Have no replica of this generation any more."""

    tablet: str
    generation: Count


class DropOrders(Struct, frozen=True, kw_only=True):
    """Replicas that a node is to drop; one that is not there is none, and is no error."""

    master: MasterMark
    tablets: list[DropOrder]


class CopiedDeletions(Struct, frozen=True, kw_only=True):
    """What is known of one deletion file of a copied file."""

    form: str
    content: bytes
    """Its bytes, in base64."""


class CopiedOrigin(Struct, frozen=True, kw_only=True):
    """Where a forwarded file comes from, as `records.FileOrigin` has it.

    `below`: (engine, first, closed, last, loaded, physical) of each centre on the way.
    """

    sender: str
    path: str
    below: list[tuple[str, int, int, int, int, str]]
    """Of each centre on the way: engine, first, closed and last look, commit that loaded it,
    name."""


class CopiedFile(Struct, frozen=True, kw_only=True):
    """A file of a tablet: where its bytes belong, and what a row of the catalogue needs.

    Attributes:
        physical: name at the receiver.
        size: bytes.
        md5: of them, in hex.
        commit: that loaded it.
        sender: uuid of whoever sent it.
        path: there.
        names: further paths there.
        first_look: see `records.FileLoaded`, as what follows.
        closed_look: the same.
        last_look: the last look that had it, of one that is gone there.
        retired: whether it is gone there.
        origin: of a file that was forwarded.
        deletions: what was deleted of it.
    """

    physical: str
    size: Count
    md5: str
    commit: Count
    sender: str
    path: str
    names: tuple[str, ...] = ()
    first_look: int = 0
    closed_look: int = 0
    last_look: int = 0
    retired: bool = False
    origin: CopiedOrigin | None = None
    deletions: tuple[CopiedDeletions, ...] = ()


class TabletNews(CopyOrder, frozen=True, kw_only=True):
    """A tablet of a node, of which something may have changed."""


class CopyNews(Struct, frozen=True, kw_only=True):
    """Tablets of a node that something happened to behind a commit.

    Attributes:
        master: who says so; its newest commit is where the next question goes on.
        life: of the master's process. Another one knows nothing of what nodes have.
        tablets: those; what a node has of others is as it was.
    """

    master: MasterMark
    life: str
    tablets: list[TabletNews]


class CopySource(Struct, frozen=True, kw_only=True):
    """A node that has files of a tablet.

    Attributes:
        url: of its server.
        ticket: that it gives them for, for a while.
        commit: it has all that was loaded up to here.
    """

    url: str
    ticket: str
    commit: Count


class CopyPage(Struct, frozen=True, kw_only=True):
    """Files of a tablet, by physical name.

    Attributes:
        master: who says so.
        generation: of the tablet's placement.
        commit: that a node which has all pages and all files of them is complete as of; of the
            first page, the others repeat it.
        same: the digest that was asked with is that of the list: there is nothing to tell.
        is_delta: the files are those that something happened to since the commit that was asked
            with; all others are as they were.
        files: of this page.
        ended: names that are on the list no more; of a delta.
        next: the last name of it, where there are more.
        source: another node that has them.
        others: more of these, for what that one gives other bytes of.
    """

    master: MasterMark
    generation: Count
    commit: Count
    same: bool = False
    is_delta: bool = False
    files: tuple[CopiedFile, ...] = ()
    ended: tuple[str, ...] = ()
    next: str | None = None
    source: CopySource | None = None
    others: tuple[CopySource, ...] = ()


class GoneAsked(Struct, frozen=True, kw_only=True):
    """Files of a replica that are on no list any more.

    Attributes:
        generation: of the replica.
        commit: as of which the list was that they are not on.
        seen: the newest commit that the node had heard of when it was last told what is new. A
            master that has it not is not the one of then.
        files: (physical name, commit that loaded it).
        life: of the master that it was heard in; empty if that said none.
        lives: of the masters that listed the files, each in its place; empty where it is not known.
            A number is no proof that a commit is this master's: where clocks were set back, two
            histories that went apart have commits of one number.
        unplaced: that the replica is to go, and no list of a trusted master has named these: which
            of them the master had is all that is asked, and nothing goes by the answer.
    """

    generation: Count
    commit: Count
    seen: Count
    files: list[tuple[str, Count]]
    life: str = ""
    lives: tuple[str, ...] = ()
    unplaced: bool = False


class GoneSaid(Struct, frozen=True, kw_only=True):
    """Which of those files may go.

    Attributes:
        master: who says so.
        generation: of the tablet's placement.
        files: physical names.
        unknown: those that the master knows nothing of and does not let go.
    """

    master: MasterMark
    generation: Count
    files: list[str]
    unknown: tuple[str, ...] = ()


class HeldCopy(Struct, frozen=True, kw_only=True):
    """A replica that is complete.

    Attributes:
        tablet: its id.
        generation: of the replica.
        commit: it has all files that were in the tablet then and still are: of a list that the
            master gave.
        digest: of the list of what is there; see `digest_of_list`.
        life: of the master that gave it; empty if that said none.
    """

    tablet: str
    generation: Count
    commit: Count
    digest: str
    life: str = ""


class HeldCopies(Struct, frozen=True, kw_only=True):
    """What a node has come to have.

    Attributes:
        start: which start of which node says so.
        copies: replicas that are complete.
    """

    start: NodeStart
    copies: list[HeldCopy]


class FilePlace(Struct, frozen=True, kw_only=True):
    """A node that gives a file.

    Attributes:
        url: of its server.
        ticket: for the tablet, for some minutes.
        tablet: that the file is in.
    """

    url: str
    ticket: str
    tablet: str


class CachePlace(Struct, frozen=True, kw_only=True):
    """The node that keeps a file of the object store for those who read it.

    Attributes:
        url: of its server.
        ticket: for the file, for some minutes.
        version: of the cache slots by which it was chosen.
    """

    url: str
    ticket: str
    version: Count


class FilePlaces(Struct, frozen=True, kw_only=True):
    """Nodes that give a file.

    Attributes:
        places: none where no node has it.
        nodes: whether there are any nodes at all.
        cache: who keeps it of the object store; None where nobody does, or it is not there.
    """

    places: list[FilePlace]
    nodes: bool = False
    cache: CachePlace | None = None


class KeptFiles(Struct, frozen=True, kw_only=True):
    """A page of what a node has of a tablet, by physical name; `GET /node/v1/tablets/files`.

    Attributes:
        table: name of the storage group, or database.
        files: of this page.
        next: the last name of it, where there are more.
        attributes: of the table, as the node knows them.
    """

    table: str
    attributes: TableAttributes = TableAttributes()
    files: tuple[CopiedFile, ...] = ()
    next: str | None = None


class ProofAsked(Struct, frozen=True, kw_only=True):
    """Prove that bytes of a file are here; `POST /node/v1/tablets/proof`.

    Attributes:
        boot: of the start of the node that is asked: another one has nothing to prove.
        tablet: that the file is in.
        generation: of the replica.
        physical: of the file.
        size: bytes of all of it.
        md5: of them, in hex.
        begin: the first byte of those that are asked for.
        length: how many these are.
        nonce: 32 bytes in hex that nobody knew before.
    """

    boot: str
    tablet: str
    generation: Count
    physical: str
    size: Count
    md5: str
    begin: Count
    length: Count
    nonce: str


class ProofGiven(Struct, frozen=True, kw_only=True):
    """SHA-256 of the nonce and the bytes behind it, in hex."""

    digest: str


def sum_of_file(file: CopiedFile) -> int:
    """A number below 2 ** 128 that stands for all that is told of a file."""
    return int.from_bytes(md5(msgspec.json.encode(file)).digest())


def digest_of_list(total: int) -> str:
    """The digest of a list, by the sum of its files' numbers, in whatever order they come."""
    return f"{total % (1 << 128):032x}"
