"""The operations of the metadata engine, as they are committed and as they stand in its log.

A commit is a sequence of operations; all of it becomes true, or nothing. In the log it is msgpack:

    commit   [ts, [operation, ...], offset of its tags in the tlog, left out where it has none]
    operation [tag, field, ...]          fields in the order below

Rules that keep old logs readable: a tag is never used again for anything else; fields are only
added at the end, with a default; a change that an older program must not overlook raises the
version in the head of the log (`receiver.metadata.log.frames`). Decoding ignores further fields at
the end and fails on an unknown tag.

Paths are texts of `common.names.FilePath`; `physical` is one too, the name under which the
receiver keeps the file. Times inside files (`first`, `last`) are raw integers of the file's own
precision; other times are seconds since the epoch. Digests are lower-case hex.
"""

from __future__ import annotations

from receiver.metadata.model.records.commits_encoded import (
    Commit,
    Op,
    decode_commits,
    decode_ops,
    encode_ops,
)
from receiver.metadata.model.records.compaction_records import (
    CompactionDissolved,
    CompactionForgotten,
    CompactionOutput,
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
    LossAcknowledged,
    ObjectRemoved,
    OriginNoted,
    QuarantineDrop,
    QuarantinePut,
    ResourceNoted,
    UploadSet,
)
from receiver.metadata.model.records.record_parts import (
    DeletionReason,
    DeviceRange,
    FileOrigin,
    FileOutcome,
    ManifestMeta,
    OriginLooks,
    Record,
    ResourceMeta,
    TimePiece,
)
from receiver.metadata.model.records.records_of_deletions import (
    DeletesCounted,
    DeletesHeld,
    DeletesSettled,
    DeletesVerdict,
    DeletionsNoted,
    KeptRecordsApplied,
)
from receiver.metadata.model.records.schema_records import (
    AliasSet,
    KeysWritten,
    LoadedDevice,
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
    OPERATOR,
    READER,
    SENDER,
    TOKEN_ROLES,
    ClockCorrected,
    EngineMade,
    EpochSet,
    ListBegun,
    OwnerSet,
    SenderMode,
    SenderSeen,
    TaskDone,
    TokenPut,
    TokenRevoke,
    TokenRole,
    TxnCommitted,
)
from receiver.metadata.model.records.work_records import (
    WorkAdded,
    WorkEnd,
    WorkEnded,
    WorkPlace,
    WorkTaken,
)

__all__ = [
    "OPERATOR",
    "READER",
    "SENDER",
    "TOKEN_ROLES",
    "AliasSet",
    "ClockCorrected",
    "Commit",
    "CompactionDissolved",
    "CompactionForgotten",
    "CompactionOutput",
    "DeletesCounted",
    "DeletesHeld",
    "DeletesSettled",
    "DeletesVerdict",
    "DeletionReason",
    "DeletionsNoted",
    "DeviceRange",
    "EngineMade",
    "EpochSet",
    "FileDeleted",
    "FileForgotten",
    "FileLoaded",
    "FileLost",
    "FileNamed",
    "FileOrigin",
    "FileOutcome",
    "FileQuarantined",
    "FileRestored",
    "FileRetired",
    "FileReturned",
    "FileRevived",
    "FileSuperseded",
    "FileUndeleted",
    "FileUnnamed",
    "FileUploaded",
    "FileVerified",
    "FilesCompacted",
    "KeptRecordsApplied",
    "KeysWritten",
    "ListBegun",
    "LoadedDevice",
    "LossAcknowledged",
    "ManifestMeta",
    "ObjectRemoved",
    "Op",
    "OriginLooks",
    "OriginNoted",
    "OwnerSet",
    "QuarantineDrop",
    "QuarantinePut",
    "Record",
    "ResourceMeta",
    "ResourceNoted",
    "SchemaSynced",
    "SenderMode",
    "SenderSeen",
    "SeriesCreated",
    "SeriesDeleted",
    "SeriesLoaded",
    "StorageGroupDeleted",
    "StorageGroupSet",
    "TagsSet",
    "TaskDone",
    "TimePiece",
    "TokenPut",
    "TokenRevoke",
    "TokenRole",
    "TtlSet",
    "TxnCommitted",
    "UploadSet",
    "WorkAdded",
    "WorkEnd",
    "WorkEnded",
    "WorkPlace",
    "WorkTaken",
    "decode_commits",
    "decode_ops",
    "encode_ops",
]
