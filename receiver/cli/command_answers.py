"""What commands write with --json that no call of a server answers with."""

from __future__ import annotations

from common.console.json_option import OpenForm
from common.wire import Struct
from common.wire.base import CommitTs
from receiver.metadata.model.records import Op
from receiver.operator.edges.enrolment import EnrolledEdge
from receiver.operator.views.wire import RetiredKey

__all__ = [
    "BackupDone",
    "EdgesEnrolled",
    "FilesDropped",
    "FilesRetried",
    "ForgottenNode",
    "FoundNode",
    "InitDone",
    "LackingFile",
    "LoggedCommit",
    "MasterConfirmed",
    "NodeAccepted",
    "RestoreDone",
    "RetiredDropped",
    "RetriedFile",
    "SchemaLine",
    "SenderFile",
    "SenderSet",
    "StoreFindings",
    "StoreNeed",
    "StoreTaken",
    "TokenRevoked",
]


class SenderFile(Struct, frozen=True, kw_only=True):
    """A file of a sender."""

    sender: str
    path: str


class LackingFile(Struct, frozen=True, kw_only=True):
    """A file that could not be copied."""

    sender: str
    path: str
    reason: str


class BackupDone(Struct, frozen=True, kw_only=True):
    """What a backup has.

    Attributes:
        commit: up to which it has everything.
        files: that are in it.
        copied: those of them that were copied now.
        bytes: of these.
        lacking: those that could not be.
    """

    engine: str
    commit: CommitTs
    files: int
    copied: int
    bytes: int
    lacking: list[LackingFile]


class RestoreDone(Struct, frozen=True, kw_only=True):
    """What a restore came to.

    Attributes:
        fetched: files that came.
        bytes: of these.
        there: files that were here already.
        left: files that stay in the store until they are needed.
        at_nodes: files that are not in the store, and that storage nodes are to have.
        lacking: files that are not in the store, and are asked for again from their senders.
        given_up: files that are not in the store, and whose points others give.
        deleted_later: files that are visible again, and that an operator deleted behind `--at`.
    """

    engine: str
    fetched: int
    bytes: int
    there: int
    left: int
    at_nodes: int
    lacking: list[SenderFile]
    given_up: list[SenderFile]
    deleted_later: list[SenderFile]


class StoreNeed(Struct, frozen=True, kw_only=True):
    """Something that copies need of a store.

    Attributes:
        need: what it has to do.
        problem: what it did in place of it; null where it holds.
    """

    need: str
    problem: str | None


class StoreFindings(Struct, frozen=True, kw_only=True):
    """What was tried of a store.

    Attributes:
        findings: in the order in which it was tried.
    """

    findings: list[StoreNeed]


class StoreTaken(Struct, frozen=True, kw_only=True):
    """Whose the copies are now.

    Attributes:
        incarnation: its number; the one before copies nothing any more.
    """

    engine: str
    incarnation: int


class InitDone(Struct, frozen=True, kw_only=True):
    """What was written.

    Attributes:
        config: the configuration; null where rules for Prometheus were written and it is not there.
        directories: that were made.
        unit: for systemd; null where none was asked for.
        unit_user: whom it runs as: who owns the schema directory; null likewise.
        alerts: rules for Prometheus, likewise.
        marked: data directories that are this receiver's now (`--adopt`).
    """

    config: str | None
    directories: list[str]
    unit: str | None
    unit_user: str | None
    alerts: str | None
    marked: list[str]


class EdgesEnrolled(Struct, frozen=True, kw_only=True):
    """Edges that have a token.

    Attributes:
        directory: that has their files.
        edges: those of the list.
    """

    directory: str
    edges: list[EnrolledEdge]


class TokenRevoked(Struct, frozen=True, kw_only=True):
    """A token that is worthless now.

    Attributes:
        revoked: its id.
    """

    revoked: str


class SenderSet(Struct, frozen=True, kw_only=True):
    """What is expected of a sender now.

    Attributes:
        late_after: seconds of silence after which it is late; 0 for never; null as configured.
    """

    sender: str
    late_after: float | None


class RetriedFile(Struct, frozen=True, kw_only=True):
    """A file of the quarantine that was looked at again.

    Attributes:
        result: what came of it.
    """

    path: str
    sender: str
    result: str


class FilesRetried(Struct, frozen=True, kw_only=True):
    """What came of files of the quarantine.

    Attributes:
        results: of each.
    """

    results: list[RetriedFile]


class FilesDropped(Struct, frozen=True, kw_only=True):
    """Files that are out of the quarantine, with the bytes that were kept of them.

    Attributes:
        dropped: each of them.
    """

    dropped: list[SenderFile]


class RetiredDropped(Struct, frozen=True, kw_only=True):
    """Retired files that were given up.

    Attributes:
        dropped: each of them.
    """

    dropped: list[RetiredKey]


class ForgottenNode(Struct, frozen=True, kw_only=True):
    """A node that is listed no more.

    Attributes:
        forgotten: its uuid.
    """

    forgotten: str


class FoundNode(Struct, frozen=True, kw_only=True):
    """A node that was lost and is there.

    Attributes:
        found: its uuid.
    """

    found: str


class NodeAccepted(Struct, frozen=True, kw_only=True):
    """A node whose next start may go on.

    Attributes:
        accept: its uuid.
    """

    accept: str


class MasterConfirmed(Struct, frozen=True, kw_only=True):
    """A master that a storage node takes as it is.

    Attributes:
        confirmed: true.
    """

    confirmed: bool


class LoggedCommit(Struct, frozen=True, kw_only=True):
    """A commit of the engine's log.

    Attributes:
        ts: its timestamp.
        ops: its records, in their order; `op` says which one each is.
    """

    ts: CommitTs
    ops: list[Op]


class SchemaLine(OpenForm):
    """A storage group or a series: `is` says which, `path` where; the rest is in docs/protocol.md.

    It is what a receiver tells the next centre, and what has its default there is left out.
    """
