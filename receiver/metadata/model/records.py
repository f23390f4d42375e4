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

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from common.wire import Propagate, Result

__all__ = [
    "OPERATOR",
    "READER",
    "SENDER",
    "TOKEN_ROLES",
    "AliasSet",
    "ClockCorrected",
    "Commit",
    "DeletesCounted",
    "DeletesHeld",
    "DeletesSettled",
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
    "UploadSet",
    "decode_commits",
    "decode_ops",
    "encode_ops",
]

SENDER: Final = "sender"
READER: Final = "reader"
OPERATOR: Final = "operator"
TokenRole = Literal["sender", "reader", "operator"]
TOKEN_ROLES: tuple[TokenRole, ...] = (SENDER, READER, OPERATOR)
"""What a token may be for."""
DeletesVerdict = Literal["allow", "drop", "use", "done"]
"""What became of a list of held deletes."""
DeletionReason = Literal["gone", "superseded", "replaced", "operator", "expired", "everywhere"]


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of everything that is stored."""


# -- parts ---------------------------------------------------------------------------------------


class DeviceRange(Record, frozen=True):
    """A device of a file, with its first and last timestamp; None, None if it has no points."""

    name: str
    first: int | None
    last: int | None


class ResourceMeta(Record, frozen=True):
    """The `.resource` that came with a file."""

    size: int
    md5: str


class ManifestMeta(Record, frozen=True):
    """What the sender's manifest says of a file.

    `root` is the digest of its table of series (`common.tsfile.proof`), empty where the sender
    sent none.
    """

    series: int
    points: int
    root: str = ""


class OriginLooks(Record, frozen=True):
    """Where a file stands at a centre below: the looks there, as its engine numbers them.

    Attributes:
        engine: its uuid.
        first: the first look that had it.
        closed: the first look that had it closed.
        last: the last look that had it; 0 while its sender has it.
        loaded: the commit that loaded it.
        physical: its name there.
    """

    engine: str
    first: int
    closed: int
    last: int
    loaded: int
    physical: str


class FileOrigin(Record, frozen=True):
    """Where a forwarded file comes from.

    Attributes:
        sender: uuid of the edge.
        path: at the edge.
        below: at each centre on the way, from the edge on; one at least.
    """

    sender: str
    path: str
    below: Sequence[OriginLooks]

    @property
    def author(self) -> str:
        """In whose files, and by which engine's looks, deletions count."""
        return f"{self.sender}@{self.below[0].engine}"


class FileOutcome(Record, frozen=True):
    """The fate of one path of a task; `owner` is recorded always and revealed only by choice."""

    path: str
    result: Result
    device: str | None = None
    reason: str | None = None
    owner: str | None = None
    hold: bool = False


class TimePiece(Record, frozen=True):
    """From `ts` on timestamps stand for `moment` and what follows it, `pace` times as fast.

    See `receiver.metadata.model.true_times`; `moment` is on the scale of timestamps.
    """

    ts: int
    moment: int
    pace: int


# -- operations ----------------------------------------------------------------------------------


class EngineMade(Record, frozen=True, tag=1):
    """First record of a log, made by the engine itself.

    `judged`: whether the clock that gives its timestamps was judged from the first one on; the
    logs of 0.1.0 followed any clock.
    """

    uuid: str
    judged: bool = False


class SenderSeen(Record, frozen=True, tag=2):
    """First contact with a sender, or a new label of a known one.

    `directory` is the name of its folder beneath `sync-receiver/`; it never changes.
    """

    uuid: str
    label: str
    directory: str


class EpochSet(Record, frozen=True, tag=3):
    """Where the sender's epochs stand: one for each task, so that a clone is noticed.

    `restored`: an operator says that the sender was restored from a copy: see `ListBegun`.
    """

    sender: str
    current: str | None
    previous: str | None
    task: str | None
    confirmed: bool
    restored: bool = False


class TokenPut(Record, frozen=True, tag=4):
    """A new token; `hash` is the SHA-256 of the token, `expires` None for never.

    `allow_deletes`: whether what its sender deletes may take anything out of sight.
    """

    id: str
    role: TokenRole
    hash: str
    sender: str | None
    scope: Sequence[str]
    note: str
    expires: float | None
    allow_deletes: bool = True


class TokenRevoke(Record, frozen=True, tag=5):
    """The end of a token."""

    id: str


class OwnerSet(Record, frozen=True, tag=6):
    """An operator's transfer of a device to a sender, or its release (`sender` None)."""

    device: str
    sender: str | None
    reason: str


class FileLoaded(Record, frozen=True, tag=7):
    """A file becomes visible; the devices of it that nobody owns become its sender's.

    Attributes:
        version: version of the TsFile format, 3 or 4.
        tail: xxh3-128 of its last 64 KiB, as in the plan.
        first: earliest timestamp of any device, None for a file without points.
        data_dir: the receiver's data directory that holds it, as the configuration names it.
        first_look: the first look of the sender that had it, closed or not; 0 if it was not told.
        closed_look: the first look that had it closed; 0 if it was not told.
        origin: of a file that was forwarded.
    """

    sender: str
    path: str
    physical: str
    size: int
    md5: str
    tail: str
    version: int
    devices: Sequence[DeviceRange]
    first: int | None
    last: int | None
    series: int
    points: int
    task: str
    resource: ResourceMeta | None = None
    manifest: ManifestMeta | None = None
    data_dir: str = ""
    first_look: int = 0
    closed_look: int = 0
    origin: FileOrigin | None = None


class FileDeleted(Record, frozen=True, tag=8):
    """A file is visible no more; its bytes go later, when nobody needs them."""

    physical: str
    reason: DeletionReason


class FileRetired(Record, frozen=True, tag=9):
    """Gone at the edge, kept at the centre: the sender's path is free again.

    `last_look` is the last look of the sender that had it; 0 where it was not told.
    """

    physical: str
    last_look: int = 0


class FileQuarantined(Record, frozen=True, tag=10):
    """Found bad after it was loaded: visible no more, and wanted again from its sender.

    Not wanted while a `QuarantinePut` with `hold` stands for the same content of its path.
    """

    physical: str
    reason: str


class FileRestored(Record, frozen=True, tag=11):
    """A quarantined file was found good after all."""

    physical: str


class FileForgotten(Record, frozen=True, tag=12):
    """The bytes of a deleted file are gone from the disk; so may be its row."""

    physical: str


class TaskDone(Record, frozen=True, tag=13):
    """A task with the outcome of each of its paths: the last word on it.

    `untold` names the TsFiles of whose deletion files it told something that was not taken.
    """

    sender: str
    task: str
    outcomes: Sequence[FileOutcome]
    untold: Sequence[str] = ()


class QuarantinePut(Record, frozen=True, tag=14):
    """A file that could not be loaded; what is there under the same key is replaced.

    `hold`: not to be tried again by itself. `kept`: where its bytes lie, if they were kept,
    relative to the data directory.
    """

    sender: str
    path: str
    digest: str
    size: int
    hold: bool
    reason: str
    kept: str | None = None
    device: str | None = None


class QuarantineDrop(Record, frozen=True, tag=15):
    """The end of a quarantine entry: other content came, it is gone at the edge, or by hand."""

    sender: str
    path: str
    digest: str


class FileReturned(Record, frozen=True, tag=16):
    """A retired file is at the edge again: it stands for the sender's path as before.

    `path` is where it is now; empty for where it was. `first_look` is set where that name ranks
    otherwise: see `FileUnnamed`.
    """

    physical: str
    path: str = ""
    first_look: int = 0


# -- schema --------------------------------------------------------------------------------------

# Paths and devices are texts of `receiver.metadata.model.paths`, in their one form: back-ticks
# where needed. Types, encodings and compressions are the codes of the TsFile format, one byte a
# series.


class StorageGroupSet(Record, frozen=True, tag=17):
    """A new storage group; `if_missing`: nothing happens where the path lies in one already."""

    path: str
    if_missing: bool = False


class StorageGroupDeleted(Record, frozen=True, tag=18):
    """A storage group goes, with all that is below it."""

    path: str


class TtlSet(Record, frozen=True, tag=19):
    """How long files of a storage group are kept, in milliseconds; None for ever."""

    path: str
    ttl: int | None


class SeriesCreated(Record, frozen=True, tag=20):
    """New series of one device; it lies in a storage group that is there.

    Attributes:
        device: the device; made where it is missing.
        names: of the measurements, bare.
        types: TSDataType of each.
        encodings: TSEncoding of each.
        compressions: CompressionType of each.
        aligned: whether a device that is made now shares one time column.
        aliases: of each, or None where none has one.
        tags: of each, or None where none has any.
        attributes: of each, or None where none has any.
        props: of each, what the encoder was told, or None where none has any.
    """

    device: str
    names: Sequence[str]
    types: bytes
    encodings: bytes
    compressions: bytes
    aligned: bool = False
    aliases: Sequence[str | None] | None = None
    tags: Sequence[dict[str, str]] | None = None
    attributes: Sequence[dict[str, str]] | None = None
    props: Sequence[dict[str, str]] | None = None


class SeriesDeleted(Record, frozen=True, tag=21):
    """All series that match a pattern at this commit go, and the nodes that are empty then."""

    pattern: str


class AliasSet(Record, frozen=True, tag=22):
    """The other name of a series in its device; None takes it away."""

    path: str
    alias: str | None


class TagsSet(Record, frozen=True, tag=23):
    """All tags and attributes of a series from now on: the outcome of an alteration."""

    path: str
    tags: dict[str, str]
    attributes: dict[str, str]


class LoadedDevice(Record, frozen=True):
    """The series of a device of a loaded file; `lasts`: newest time of each, None without."""

    device: str
    aligned: bool
    names: Sequence[str]
    types: bytes
    encodings: bytes
    compressions: bytes
    lasts: Sequence[int | None]


class SeriesLoaded(Record, frozen=True, tag=24):
    """What a loaded file holds: series that are missing are made, times grow.

    It stands behind the `FileLoaded` of the file, in the same commit or a later one; the storage
    groups are there.
    """

    physical: str
    devices: Sequence[LoadedDevice]


class SchemaSynced(Record, frozen=True, tag=25):
    """How far a sender's schema log is applied.

    Attributes:
        sender: whose.
        identity: of the log; another log has another.
        offset: behind the last byte (or commit) applied.
        applied: records of this step that took effect.
        failed: (record, reason) of those that did not, the first hundred.
        unapplied: how many did not.
        mark: by which the sender knows its log again; given back to it as it is.
        whole: the log was told from its begin, so what was counted before is told again.
    """

    sender: str
    identity: str
    offset: int
    applied: int = 0
    failed: Sequence[tuple[str, str]] = ()
    unapplied: int = 0
    mark: str = ""
    whole: bool = False


class KeysWritten(Record, frozen=True, tag=26):
    """Of the key-value store: prefixes whose keys go, then keys with their values."""

    removals: Sequence[str]
    saves: dict[str, str]


class FileVerified(Record, frozen=True, tag=27):
    """Every point of these files was decoded and found to be what was loaded."""

    physicals: Sequence[str]


class FileNamed(Record, frozen=True, tag=28):
    """The sender has the content of a file under another path too, from now on.

    Where that name ranks above the others the file ranks by it, as one that was first seen by
    `first_look`; 0 where it does not.
    """

    physical: str
    path: str
    first_look: int = 0

    def among(self, paths: Sequence[str]) -> tuple[str, ...]:
        """The names of the file, the one by which it ranks first."""
        return (self.path, *paths) if self.first_look else (*paths, self.path)


class FileUnnamed(Record, frozen=True, tag=29):
    """The sender has a file under this path no more; under another one it has.

    Where the name that is left ranks otherwise than the one that went (a compaction made the
    content anew), the file counts as first seen by `first_look`; 0 where it does not.
    """

    physical: str
    path: str
    first_look: int = 0


class DeletionsNoted(Record, frozen=True, tag=30):
    """What a look found in the deletion file of a TsFile, behind what was known of it.

    Attributes:
        sender: whose.
        path: of the TsFile at the sender; it need not be loaded, nor closed.
        physical: the loaded file that has it; None while none has.
        form: `mods` (text) or `mods2` (binary).
        base: bytes that were known before; 0 for a file that begins anew.
        content: what follows them, in whole records.
        floor: the last look that could have seen these records and did not; they hide their times
            in every file that was closed in that look, or before it. 0 where no look could have.
        applied: whether readers leave out what is deleted.
        held: the digest of the list of held deletes that these records stand on, if they do.
        author: in whose files, and by which engine's looks, `floor` counts, of a forwarded one
            (`FileOrigin.author`); empty for the sender and its own looks.
        kept: of what neither is applied nor held, whether its sender may let it be applied yet:
            False where an operator dropped it, None where it is not known (earlier versions).
    """

    sender: str
    path: str
    physical: str | None
    form: str
    base: int
    content: bytes
    floor: int
    applied: bool = True
    held: str = ""
    author: str = ""
    kept: bool | None = None


class KeptRecordsApplied(Record, frozen=True, tag=46):
    """Records of a deletion file that were only kept hide from this commit on, or are held.

    Attributes:
        sender: whose.
        path: of the TsFile.
        physical: the loaded file that has them; None while none has.
        form: see `DeletionsNoted`.
        ends: up to which bytes of the deletion file each part of them goes.
        held: see `DeletionsNoted`.
    """

    sender: str
    path: str
    physical: str | None
    form: str
    ends: Sequence[int]
    held: str = ""


class ResourceNoted(Record, frozen=True, tag=47):
    """The sender's database wrote the `.resource` of a loaded file anew: this is it from now on.

    Its bytes lie verified in the sender's folder by then; they take their place behind the commit,
    and before anything else is done for that sender. None: a restore has found it nowhere.
    """

    physical: str
    resource: ResourceMeta | None


class OriginNoted(Record, frozen=True, tag=35):
    """A forwarded file stands otherwise at the centre below than it did, or has another one."""

    physical: str
    origin: FileOrigin


class SenderMode(Record, frozen=True, tag=33):
    """What a sender's word may take away from now on.

    `look` is the look that told it first; 0 if the sender never told anything else.
    """

    sender: str
    propagate: Propagate
    look: int


class FileSuperseded(Record, frozen=True, tag=31):
    """A retired file is left out, because every point of it is given by files that stand above.

    `rests` names these, by their physical paths: the proof holds while they are visible.
    """

    physical: str
    rests: Sequence[str]


class FileRevived(Record, frozen=True, tag=32):
    """A superseded file is visible again, as a retired one: its proof holds no more."""

    physical: str


class FileUndeleted(Record, frozen=True, tag=34):
    """A deleted file whose bytes stand is visible again, as a retired one."""

    physical: str
    devices: Sequence[DeviceRange]


class DeletesCounted(Record, frozen=True, tag=40):
    """What a sender deleted in a storage group, and no proof explains: counted in a window of time.

    Attributes:
        sender: whose.
        group: the storage group.
        count: files that are deleted, or that are hidden whole, in this commit.
        listed: of a window that begins with this commit, the files that were listed before it;
            None where an earlier one goes on.
    """

    sender: str
    group: str
    count: int
    listed: int | None = None


class DeletesHeld(Record, frozen=True, tag=41):
    """Deletes that were told and are not applied, until an operator lets this list through.

    Attributes:
        digest: of the list: another list has another.
        sender: whose.
        group: the storage group.
        files: those that it would delete or hide, by their physical paths.
        records: whether it is of records of deletion files, which are noted in the same commit.
        reason: why, for people.
        look: that told it; 0 where it was not told.
        replaces: the digest of the list whose place it takes, if it takes one's.
    """

    digest: str
    sender: str
    group: str
    files: Sequence[str]
    records: bool
    reason: str
    look: int = 0
    replaces: str = ""


class DeletesSettled(Record, frozen=True, tag=42):
    """What becomes of a list of held deletes.

    Attributes:
        digest: of the list.
        verdict: `allow`: files may be deleted when they are told as gone once more, records hide
            from this commit on; `drop`: files are retired when they are told, records never hide;
            `use`: files of it were told in the look `look`, the only one that may; `done`: nothing
            is left to be told.
        look: see `use`.
    """

    digest: str
    verdict: DeletesVerdict
    look: int = 0


class FileLost(Record, frozen=True, tag=43):
    """A file that neither side has any more: its sender had it loaded here, and no row knows it.

    A loaded file that is in quarantine and gone at the edge is lost without this record.

    Attributes:
        sender: that tells it.
        path: under which it had the file.
        md5: of its content, as `size`.
        first: earliest timestamp, None where it is not known, or of a file without points.
        last: latest one.
        reason: why, for people.
    """

    sender: str
    path: str
    md5: str
    size: int
    first: int | None = None
    last: int | None = None
    reason: str = ""


class LossAcknowledged(Record, frozen=True, tag=44):
    """An operator knows that a file is lost: it is counted no more.

    `physical` is the file in quarantine that stands for it; empty where `FileLost` told of it.
    """

    sender: str
    path: str
    md5: str
    physical: str = ""


class ListBegun(Record, frozen=True, tag=45):
    """The list of a sender that was restored from a copy begins anew.

    What is listed behind what stands earlier in the commit counts as first seen, and closed, by
    `look`: it stands above all that ended before. What was known of its deletion files is known of
    it no more, and goes on to hide points of what has ended.
    """

    sender: str
    look: int


class FileUploaded(Record, frozen=True, tag=70):
    """A file is in the object store, which confirmed its bytes; once more when its resource is new.

    Attributes:
        physical: of the file.
        incarnation: of the owner that put it; its key is made of both.
        size: bytes of the object.
        digests: of its bytes, by the store's words for them, as ``etag=... sha256=...``; empty
            where it knows none, and the object was read back.
        resource: MD5 of the `.resource` that is there beside it; empty for none.
        again: how often it was put before, and was damaged there; its key has it too.
    """

    physical: str
    incarnation: int
    size: int
    digests: str
    resource: str = ""
    again: int = 0


class ObjectRemoved(Record, frozen=True, tag=71):
    """The object of a file that is forgotten has left the store."""

    physical: str


class UploadSet(Record, frozen=True, tag=72):
    """When files of a storage group go into the object store, whatever is configured.

    `after`: milliseconds behind their load, 0 for at once, -1 for never; None: as configured.
    """

    path: str
    after: int | None


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


def encode_ops(ops: Sequence[Op]) -> bytes:
    """The operations of one commit in msgpack."""
    return msgspec.msgpack.encode(ops)


def decode_ops(encoded: bytes) -> list[Op]:
    """The operations that `encode_ops` was given.

    Raises:
        msgspec.MsgspecError: these are none.
    """
    return _ops_decoder.decode(encoded)


def decode_commits(payload: bytes | memoryview) -> list[Commit]:
    """The commits of one frame.

    Raises:
        msgspec.MsgspecError: the payload is none (an unknown tag among others).
    """
    return _decoder.decode(payload)
