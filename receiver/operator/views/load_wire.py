"""What is said of TsFiles that are brought in at the centre, without an edge: loads and adoptions.

Each is asked for under an id that who asks has made, and its answer is asked for until it is over:
a call that is made twice does it once.
"""

from __future__ import annotations

import msgspec

from common.wire import Struct
from receiver.operator.views.step_now import StepNow

__all__ = [
    "AdoptionAnswer",
    "AdoptionFile",
    "AdoptionOddity",
    "AdoptionRequest",
    "CentreLoadAnswer",
    "CentreLoadFile",
    "CentreLoadRequest",
]


class CentreLoadRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/loads`: load TsFiles of the receiver's machine, without an edge.

    Attributes:
        task: an id of 32 hex digits, made by who asks, under which the answer is asked for.
        paths: absolute, of directories or files.
        storage_group: of files that do not lie as a database lays them.
        owner: uuid or label of the sender whose devices they are, and whose new ones become; empty:
            the centre's own.
        others: of further senders whose devices may be among them; `*`: of all.
        dry_run: only say what would become of each file.
        on_duplicate: `error`: refuse the load where a point of it is here already;
            `keep`, `replace`: load above them; `skip`: below, so that what is missing counts.
    """

    task: str
    paths: list[str]
    storage_group: str | None = None
    owner: str = ""
    others: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False
    on_duplicate: str = "error"


class CentreLoadFile(Struct, frozen=True, kw_only=True):
    """What became, or would become, of a file.

    Attributes:
        source: where it lies.
        path: that it is loaded under.
        size: bytes; 0 of one that has the content of another one of the load.
        result: `loaded`, `already`, `expired`, `refused`, or `missing`: found bad while copies were
            awaited.
        device: that the reason names.
        reason: of a file that is not loaded.
    """

    source: str
    path: str
    size: int
    result: str
    device: str | None = None
    reason: str | None = None


class CentreLoadAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/loads/<task>`. All files are loaded in one commit, or none is.

    Attributes:
        task: the id of the load.
        done: whether it is over.
        dry_run: whether nothing was to be changed.
        trouble: why one that is not over has to wait.
        progress: how far one is that is not over.
        files: what became of each, when it is.
    """

    task: str
    done: bool
    dry_run: bool = False
    trouble: str | None = None
    progress: StepNow | None = None
    files: list[CentreLoadFile] = msgspec.field(default_factory=list)


class AdoptionRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/adoptions`: take over what an old receiver, or a copied tree, has on this machine.

    Attributes:
        task: an id of 32 hex digits, made by who asks, under which the answer is asked for.
        paths: absolute, of its data and system directories.
        owner: uuid or label of the sender of whatever else says nothing; empty: nobody.
        groups: the same of storage groups.
        storage_group: of TsFiles that do not lie as a database lays them.
        with_deleted: take files that the old server has deleted points of, with all their points.
        move: take the files themselves, so that the old receiver has them no more.
        commit: do it; otherwise only say what would become of each file.
    """

    task: str
    paths: list[str]
    owner: str = ""
    groups: dict[str, str] = msgspec.field(default_factory=dict)
    storage_group: str | None = None
    with_deleted: bool = False
    move: bool = False
    commit: bool = False


class AdoptionFile(Struct, frozen=True, kw_only=True):
    """What became, or would become, of a file.

    Attributes:
        source: where it lies.
        path: at its sender.
        sender: uuid of it.
        size: bytes.
        result: `loaded`, `already`, `expired`, or why it is not taken: `conflict`, `refused`, ...
        device: that the reason names.
        reason: of a file that is not loaded.
        deletions: whether what the old server has deleted of it comes with it.
    """

    source: str
    path: str
    sender: str
    size: int
    result: str
    device: str | None = None
    reason: str | None = None
    deletions: bool = False


class AdoptionOddity(Struct, frozen=True, kw_only=True):
    """Something that is left out, or to be known: where it is, and why."""

    source: str
    """The file or directory, as it is called there."""
    reason: str


class AdoptionAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/adoptions/<task>`. Where one file is refused, nothing is taken.

    Attributes:
        task: the id of the adoption.
        done: whether it is over.
        committed: whether it was carried out.
        progress: how far one is that is not over.
        files: what became of each.
        odd: what is left out, and what is to be known.
        devices: that belong to a sender by the old receiver's word, and are in no file.
    """

    task: str
    done: bool
    committed: bool = False
    progress: StepNow | None = None
    files: list[AdoptionFile] = msgspec.field(default_factory=list)
    odd: list[AdoptionOddity] = msgspec.field(default_factory=list)
    devices: dict[str, str] = msgspec.field(default_factory=dict)
