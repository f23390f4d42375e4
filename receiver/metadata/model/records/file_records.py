"""Records of the log about loaded files: how they come, rank, end, are lost and copied."""

from __future__ import annotations

from collections.abc import Sequence

from common.wire.base import CommitTs
from receiver.metadata.model.records.record_parts import (
    DeletionReason,
    DeviceRange,
    FileOrigin,
    ManifestMeta,
    RawTime,
    Record,
    ResourceMeta,
)


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
        owner: whose its devices are, where that is another one than `sender`: of a load at the
            centre in the name of an edge. Empty, and from earlier versions: they are `sender`'s.
        others: who else owns devices of it: of a load at the centre in the name of several.
        series: how many are in it.
        points: how many are in it.
        manifest: what its sender counted in it; None if it told nothing.
    """

    sender: str
    path: str
    physical: str
    size: int
    md5: str
    tail: str
    version: int
    devices: Sequence[DeviceRange]
    first: RawTime | None
    last: RawTime | None
    series: int
    points: int
    task: str
    resource: ResourceMeta | None = None
    manifest: ManifestMeta | None = None
    data_dir: str = ""
    first_look: int = 0
    closed_look: int = 0
    origin: FileOrigin | None = None
    owner: str = ""
    others: Sequence[str] = ()


class FileDeleted(Record, frozen=True, tag=8):
    """A file is visible no more; its bytes go later, when nobody needs them."""

    physical: str
    reason: DeletionReason


class FileRetired(Record, frozen=True, tag=9):
    """Gone at the edge, kept at the centre: the sender's path is free again.

    Attributes:
        last_look: the last look of the sender that had it; 0 where it was not told.
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


class QuarantinePut(Record, frozen=True, tag=14):
    """A file that could not be loaded; what is there under the same key is replaced.

    Attributes:
        digest: xxh3-128 of the last 64 KiB of it.
        hold: whether it is not to be tried again by itself.
        kept: where its bytes lie, if they were kept, relative to the data directory.
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
    """The end of a quarantine entry: other content came, it is gone at the edge, or by hand.

    Attributes:
        digest: of the entry.
    """

    sender: str
    path: str
    digest: str


class FileReturned(Record, frozen=True, tag=16):
    """A retired file is at the edge again: it stands for the sender's path as before.

    Attributes:
        path: where it is now; empty for where it was.
        first_look: set where that name ranks otherwise: see `FileUnnamed`; 0 elsewhere.
        closed_look: the look that has it closed now, if that is another one, 0 if not: its device
            may have come back behind the look that saw it.
    """

    physical: str
    path: str = ""
    first_look: int = 0
    closed_look: int = 0


class FileVerified(Record, frozen=True, tag=27):
    """Every point of these files was decoded and found to be what was loaded."""

    physicals: Sequence[str]


class FileNamed(Record, frozen=True, tag=28):
    """The sender has the content of a file under another path too, from now on.

    Attributes:
        first_look: where that name ranks above the others, the file ranks by it, as one that was
            first seen by this look; 0 where it does not.
    """

    physical: str
    path: str
    first_look: int = 0

    def among(self, paths: Sequence[str]) -> tuple[str, ...]:
        """The names of the file, the one by which it ranks first."""
        return (self.path, *paths) if self.first_look else (*paths, self.path)


class FileUnnamed(Record, frozen=True, tag=29):
    """The sender has a file under this path no more; under another one it has.

    Attributes:
        first_look: where the name that is left ranks otherwise than the one that went (a
            compaction made the content anew), the look that counts as the first to have seen the
            file; 0 where it ranks as before.
    """

    physical: str
    path: str
    first_look: int = 0


class ResourceNoted(Record, frozen=True, tag=47):
    """The sender's database wrote the `.resource` of a loaded file anew: this is it from now on.

    Its bytes lie verified in the sender's folder by then; they take their place behind the commit,
    and before anything else is done for that sender. None: a restore has found it nowhere.
    """

    physical: str
    resource: ResourceMeta | None


class OriginNoted(Record, frozen=True, tag=35):
    """A forwarded file stands otherwise at the centre below than it did, or has another one.

    Attributes:
        origin: where it comes from.
    """

    physical: str
    origin: FileOrigin


class FileSuperseded(Record, frozen=True, tag=31):
    """A retired file is left out, because every point of it is given by files that stand above.

    Attributes:
        rests: physical paths of these: the proof holds while they are visible.
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
    first: RawTime | None = None
    last: RawTime | None = None
    reason: str = ""


class LossAcknowledged(Record, frozen=True, tag=44):
    """An operator knows that a file is lost: it is counted no more.

    `physical` is the file in quarantine that stands for it; empty where `FileLost` told of it.
    """

    sender: str
    path: str
    md5: str
    physical: str = ""


class LetGoNoted(Record, frozen=True, tag=136):
    """An operator had deleted a file, and no row of a file tells so now.

    Attributes:
        sender: that had it loaded here.
        path: under which it had the file.
        md5: of its content.
        deleted: the commit that deleted it.
        tail: digest of its tail, by which it is known under any name; empty of a file without
            points, which has no identity beyond its path, and in what earlier releases noted.
    """

    sender: str
    path: str
    md5: str
    deleted: CommitTs
    tail: str = ""


class LetGoEnded(Record, frozen=True, tag=137):
    """A sender has told the end of a file that was deleted here, and its note goes.

    Written by earlier releases only: the file may come back to the edge, with a copy of its disk.
    """

    sender: str
    path: str


class FileUploaded(Record, frozen=True, tag=70):
    """A file is in the object store, which confirmed its bytes; once more when its resource is new.

    Attributes:
        physical: of the file.
        incarnation: of the owner that put it; its key is made of both.
        size: bytes of the object.
        digests: of its bytes, by the store's words for them, as ``etag=... sha256=...``; none of
            these where it knows none, and the object was read back. ``blocks``: MD5 of the object
            beside it that has the digests of its blocks.
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

    Attributes:
        path: of the storage group.
        after: milliseconds behind their load, 0 for at once, -1 for never; None: as configured.
    """

    path: str
    after: int | None
