"""Records of the log about storage nodes: the places that files lie at.

A node is a data directory of the receiver (`directory`), or a process that keeps files for it
(`remote`). It is named by a uuid that it keeps for life; where it stands may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from common.wire.base import CommitTs
from receiver.metadata.model.records.record_parts import Record

StorageNodeKind = Literal["directory", "remote"]


class NodeRegistered(Record, frozen=True, tag=104):
    """A node is there, with this start of it.

    Attributes:
        uuid: 32 hex digits; of the node for life.
        kind: what it is, for life.
        name: the path of a directory, the URL of a process; for people, and for what lies there.
        host: the machine that it is on: no two copies of a tablet lie on one.
        instance: how often it has started, 1 at least. Never a lower one than is known; the same
            one again changes what else is told.
        addresses: under which a process is reached, none of a directory.
        boot: random id of this start, which tells a process from a copy of it that has started as
            often; empty of a directory, and where an operator lets any start go on.
    """

    uuid: str
    kind: StorageNodeKind
    name: str
    host: str
    instance: int
    addresses: Sequence[str] = ()
    boot: str = ""


class NodeDraining(Record, frozen=True, tag=105):
    """Nothing new comes to a node, and what is there is moved away; or that is over.

    Attributes:
        uuid: of the node.
        draining: whether it is drained from now on.
    """

    uuid: str
    draining: bool


class NodeLost(Record, frozen=True, tag=106):
    """An operator says that what lies at a node is gone for good; or that it is there after all.

    Attributes:
        uuid: of the node.
        lost: whether it is lost from now on.
    """

    uuid: str
    lost: bool = True


class FileMoved(Record, frozen=True, tag=108):
    """The bytes of a file lie in another data directory; what they are stays as it is.

    Attributes:
        physical: of a file in whatever state, or of a merged one.
        node: uuid of the directory that they were copied from, which has to be draining still.
        data_dir: that they are in now, as the configuration names it.
        size: of what was copied.
        md5: of it.
        resource: MD5 of the `.resource` that went along, empty for none; None where the one that
            was told of was not there, and what lies in its place goes along later.
    """

    physical: str
    node: str
    data_dir: str
    size: int
    md5: str
    resource: str | None = None


class NodeForgotten(Record, frozen=True, tag=107):
    """A node is none any more: its row goes. Should it start again, it is made anew.

    Attributes:
        uuid: of the node.
    """

    uuid: str


class MasterLifeBegun(Record, frozen=True, tag=118):
    """A process that has the engine speaks to storage nodes, the first time.

    Nodes hold later masters against what they have heard in which life: a copy of the engine has
    the lives that were before it was made, and none of those that the original has had since.

    Attributes:
        life: random id.
        after: the newest commit when this process opened the engine: none of the life before is
            later.
    """

    life: str
    after: CommitTs
