"""A commit of records, and its bytes in the log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from receiver.metadata.model.records.cache_records import CacheSlotsSet
from receiver.metadata.model.records.compaction_records import (
    CompactionDissolved,
    CompactionFinal,
    CompactionForgotten,
    CompactionVerified,
    FilesCompacted,
)
from receiver.metadata.model.records.file_records import (
    FileDeleted,
    FileForgotten,
    FileLoaded,
    FileLost,
    FileNamed,
    FileQuarantined,
    FileRestored,
    FileRetired,
    FileReturned,
    FileRevived,
    FileSuperseded,
    FileUndeleted,
    FileUnnamed,
    FileUploaded,
    FileVerified,
    LetGoEnded,
    LetGoNoted,
    LossAcknowledged,
    ObjectRemoved,
    OriginNoted,
    QuarantineDrop,
    QuarantinePut,
    ResourceNoted,
    UploadSet,
)
from receiver.metadata.model.records.node_records import (
    FileMoved,
    MasterLifeBegun,
    NodeDraining,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
)
from receiver.metadata.model.records.placement_records import (
    CopyDoubted,
    FileReleased,
    TabletPlaced,
    TabletRunning,
)
from receiver.metadata.model.records.record_parts import Record
from receiver.metadata.model.records.records_of_deletions import (
    DeletesCounted,
    DeletesHeld,
    DeletesSettled,
    DeletionsNoted,
    KeptRecordsApplied,
)
from receiver.metadata.model.records.schema_records import (
    AliasSet,
    KeysWritten,
    SchemaSynced,
    SeriesCreated,
    SeriesDeleted,
    SeriesLoaded,
    StorageGroupDeleted,
    StorageGroupSet,
    TagsSet,
    TtlSet,
)
from receiver.metadata.model.records.sender_records import (
    ClockCorrected,
    EngineMade,
    EpochSet,
    FilesAdopted,
    LatenessSet,
    ListBegun,
    OwnerSet,
    SenderMode,
    SenderSeen,
    TaskDone,
    TokenPut,
    TokenRevoke,
    TxnCommitted,
)
from receiver.metadata.model.records.tablet_records import (
    TableDropped,
    TableForgotten,
    TableMade,
    TableReplicasSet,
    TabletDropped,
    TabletForgotten,
    TabletMade,
    TableTtlSet,
)
from receiver.metadata.model.records.work_records import WorkAdded, WorkEnded, WorkTaken

Op = (
    EngineMade
    | SenderSeen
    | EpochSet
    | TokenPut
    | TokenRevoke
    | OwnerSet
    | FileLoaded
    | FileDeleted
    | FileRetired
    | FileQuarantined
    | FileRestored
    | FileForgotten
    | TaskDone
    | QuarantinePut
    | QuarantineDrop
    | FileReturned
    | StorageGroupSet
    | StorageGroupDeleted
    | TtlSet
    | SeriesCreated
    | SeriesDeleted
    | AliasSet
    | TagsSet
    | SeriesLoaded
    | SchemaSynced
    | KeysWritten
    | FileVerified
    | FileNamed
    | FileUnnamed
    | DeletionsNoted
    | KeptRecordsApplied
    | OriginNoted
    | ResourceNoted
    | FileSuperseded
    | FileRevived
    | SenderMode
    | FileUndeleted
    | DeletesCounted
    | DeletesHeld
    | DeletesSettled
    | FileLost
    | LossAcknowledged
    | ListBegun
    | FileUploaded
    | ObjectRemoved
    | UploadSet
    | ClockCorrected
    | TxnCommitted
    | WorkAdded
    | WorkTaken
    | WorkEnded
    | FilesCompacted
    | CompactionDissolved
    | CompactionForgotten
    | TableMade
    | TableDropped
    | TableForgotten
    | TabletMade
    | TabletDropped
    | TabletForgotten
    | TableReplicasSet
    | TableTtlSet
    | CompactionFinal
    | NodeRegistered
    | NodeDraining
    | NodeLost
    | NodeForgotten
    | LatenessSet
    | FilesAdopted
    | TabletPlaced
    | TabletRunning
    | CacheSlotsSet
    | FileReleased
    | CopyDoubted
    | MasterLifeBegun
    | FileMoved
    | CompactionVerified
    | LetGoNoted
    | LetGoEnded
)


class Commit(Record, frozen=True):
    """Operations that became true together, at `ts`.

    `tags_at` is where its entries of tags begin in the tlog (`receiver.metadata.log.tlog`), -1 if
    it has none.
    """

    ts: int
    ops: Sequence[Op]
    tags_at: int = -1


# For the life of the process: building a decoder inspects every type above.
_decoder = msgspec.msgpack.Decoder(list[Commit])
_ops_decoder = msgspec.msgpack.Decoder(list[Op])
_op_decoder: msgspec.msgpack.Decoder[Op] = msgspec.msgpack.Decoder(Op)


def encode_ops(ops: Sequence[Op]) -> bytes:
    """The operations of one commit in msgpack."""
    return msgspec.msgpack.encode(ops)


def decode_ops(encoded: bytes) -> list[Op]:
    """The operations that `encode_ops` was given.

    Raises:
        msgspec.MsgspecError: these are none.
    """
    return _ops_decoder.decode(encoded)


_SHORT_HEADS = tuple(bytes([0x90 | count]) for count in range(1 << 4))


def encode_op(op: Op) -> bytes:
    """One operation, as `join_ops` takes it."""
    return msgspec.msgpack.encode(op)


def decode_op(encoded: bytes) -> Op:
    """The operation that `encode_op` was given.

    Raises:
        msgspec.MsgspecError: this is none.
    """
    return _op_decoder.decode(encoded)


def join_ops(pieces: Sequence[bytes]) -> bytes:
    """What `encode_ops` gives for the operations whose bytes these are."""
    count = len(pieces)
    if count < len(_SHORT_HEADS):
        head = _SHORT_HEADS[count]
    elif count < 1 << 16:
        head = b"\xdc" + count.to_bytes(2, "big")
    else:
        head = b"\xdd" + count.to_bytes(4, "big")
    return b"".join([head, *pieces])


def decode_commits(payload: bytes | memoryview) -> list[Commit]:
    """The commits of one frame.

    Raises:
        msgspec.MsgspecError: the payload is none (an unknown tag among others).
    """
    return _decoder.decode(payload)
