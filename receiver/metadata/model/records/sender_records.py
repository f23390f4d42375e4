"""Records of the log about the engine, its senders, tokens and owners, and their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from common.wire import Propagate
from common.wire.base import CommitTs
from receiver.metadata.model.records.record_parts import FileOutcome, Record, TimePiece

SENDER: Final = "sender"
READER: Final = "reader"
OPERATOR: Final = "operator"
WORKER: Final = "worker"
WRITER: Final = "writer"
STORAGE_NODE: Final = "node"
TokenRole = Literal["sender", "reader", "operator", "worker", "writer", "node"]
TOKEN_ROLES: tuple[TokenRole, ...] = (SENDER, READER, OPERATOR, WORKER, WRITER, STORAGE_NODE)
"""What a token may be for."""
ANYONE: Final = "*"
"""In place of a uuid: whoever owns a device."""


class EngineMade(Record, frozen=True, tag=1):
    """First record of a log, made by the engine itself.

    Attributes:
        uuid: of the engine.
        judged: whether the clock that gives its timestamps was judged from the first one on; the
            logs of 0.1.0 followed any clock.
    """

    uuid: str
    judged: bool = False


class SenderSeen(Record, frozen=True, tag=2):
    """First contact with a sender, or a new label of a known one.

    Attributes:
        uuid: of the sender.
        directory: name of its folder beneath `sync-receiver/`; it never changes.
    """

    uuid: str
    label: str
    directory: str


class EpochSet(Record, frozen=True, tag=3):
    """Where the sender's epochs stand: one for each task, so that a clone is noticed.

    Attributes:
        current: the epoch of the task that runs, or ran last.
        previous: the one before.
        confirmed: whether the sender has shown that it has the current one.
        restored: an operator says that the sender was restored from a copy: see `ListBegun`.
    """

    sender: str
    current: str | None
    previous: str | None
    task: str | None
    confirmed: bool
    restored: bool = False


class TokenPut(Record, frozen=True, tag=4):
    """A new token.

    Attributes:
        hash: SHA-256 of the token.
        expires: when it ends; None for never.
        allow_deletes: whether what its sender deletes may take anything out of sight; of a writer,
            whether what it loads may stand above points that are there.
        owners: of a writer, uuids of those whose devices it may load, the centre's own among them,
            or `*` for all.
        certificate: the name of the client certificate that this stands for, in the place of a
            token (see `receiver.metadata.model.certificate_names`); then nobody knows what has the
            hash. None for a token.
    """

    id: str
    role: TokenRole
    hash: str
    sender: str | None
    scope: Sequence[str]
    note: str
    expires: float | None
    allow_deletes: bool = True
    owners: Sequence[str] = ()
    certificate: str | None = None


class TokenRevoke(Record, frozen=True, tag=5):
    """The end of a token."""

    id: str


class OwnerSet(Record, frozen=True, tag=6):
    """An operator's transfer of a device to a sender, or its release.

    Attributes:
        sender: uuid of the new owner; None for a release.
    """

    device: str
    sender: str | None
    reason: str


class TaskDone(Record, frozen=True, tag=13):
    """A task with the outcome of each of its paths: the last word on it.

    Attributes:
        outcomes: of each of its paths.
        untold: the TsFiles of whose deletion files it told something that was not taken.
    """

    sender: str
    task: str
    outcomes: Sequence[FileOutcome]
    untold: Sequence[str] = ()


class SenderMode(Record, frozen=True, tag=33):
    """What a sender's word may take away from now on.

    Attributes:
        propagate: which of its deletions count.
        look: the look that told it first; 0 if the sender never told anything else.
    """

    sender: str
    propagate: Propagate
    look: int


class ListBegun(Record, frozen=True, tag=45):
    """The list of a sender that was restored from a copy begins anew.

    What was known of its deletion files is known of it no more, and goes on to hide points of what
    has ended.

    Attributes:
        look: what is listed behind what stands earlier in the commit counts as first seen, and
            closed, by this look: it stands above all that ended before.
    """

    sender: str
    look: int


class LatenessSet(Record, frozen=True, tag=123):
    """After what silence a sender is late.

    Attributes:
        late_after: seconds, 0 for never; None: as configured.
    """

    sender: str
    late_after: float | None


class FilesAdopted(Record, frozen=True, tag=119):
    """What a task loads was not sent: the receiver has taken it from another one's directories.

    It stands before `TaskDone` of that task.

    Attributes:
        source: the directory, as the operator named it.
    """

    sender: str
    task: str
    source: str


class ClockCorrected(Record, frozen=True, tag=63):
    """What was learnt of the clock: the moments that timestamps stand for from now on.

    Attributes:
        pieces: all of them, those that hold as before too.
        why: it is believed: `step` (too small to be doubted), `right again`, `synchronised`,
            `senders`, `one sender`, `operator`, `restart`, or `begun` in a log that followed any
            clock before.
        boot: which start of which machine.
        offset: seconds since the epoch when the boot clock of that machine began, as believed now.
    """

    pieces: Sequence[TimePiece]
    why: str
    boot: str
    offset: float


class TxnCommitted(Record, frozen=True, tag=73):
    """The commit is that of a transaction.

    Attributes:
        id: of the transaction: who lost the answer finds the commit by it.
    """

    id: CommitTs
