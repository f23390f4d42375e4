"""What readers and forwarding centres are told: files, deletions, clocks, fates, fetches."""

from __future__ import annotations

from common.wire.base import Count, Struct, Time
from common.wire.file_lists import LOADED
from common.wire.origins_below import EndBelow, OriginEntry


class DeviceExtent(Struct, frozen=True, kw_only=True):
    """A device of a file, with its first and last time; of one deleted since, the file's."""

    name: str
    first: Time
    last: Time
    first_look: Count = 0
    """In place of the file's, where a transfer of this device parts it from others; else 0."""
    last_look: Count = 0
    """Beside `first_look`: in place of the file's; 0 while its sender has it."""


class ObjectEntry(Struct, frozen=True, kw_only=True):
    """Which object of the receiver's store a file is: its key is made of these and the engine."""

    incarnation: Count
    """Number of the owner of the store that put it."""
    again: Count = 0
    """How often it was put before and was damaged there."""
    digests: str = ""
    """As the commit has them that told of the upload."""


class StoreEntry(Struct, frozen=True, kw_only=True):
    """The receiver's object store, for who reads files there; with credentials of its own."""

    url: str
    """Bucket and prefix, or directory, as `storage.url` of the receiver."""
    endpoint: str | None = None
    """Address of the store's service; None for that of AWS."""
    region: str | None = None
    """Of the bucket; None where none is configured."""
    path_style: bool = False
    """Whether buckets stand in the path, and not in the host's name."""


class CatalogueEntry(Struct, frozen=True, kw_only=True):
    """A committed file as `GET /catalogue` lists it, whoever sent it."""

    path: str
    """The physical path at the receiver, unique, beneath one of its data directories."""
    original: str
    """The path at its sender."""
    sender: str
    size: Count
    md5: str
    data_dir: str
    commit: Count
    first_time: Time | None = None
    last_time: Time | None = None
    resource: bool = False
    state: str = LOADED
    """Or `quarantined`, for who asks for those too."""
    first_look: Count = 0
    """The first look that had it, closed or not; 0 from a receiver that knows no looks."""
    closed_look: Count = 0
    """The first look that had it closed."""
    last_look: Count = 0
    """The last look that had it, of a retired one; 0 while its sender has it."""
    devices: list[DeviceExtent] | None = None
    """Of each device with points, for who asks for them."""
    origin: OriginEntry | None = None
    """Of a file that was forwarded to this receiver."""
    changed: Count = 0
    """The commit since which it stands as it does; 0 from a receiver that does not tell."""
    stored: bool = False
    """The object store of the receiver has it, or storage nodes: where it is in no data directory,
    it is there."""
    object: ObjectEntry | None = None
    """Which it is there, of one that the store has."""
    news: Count = 0
    """Of files that were merged for good: the commit that loaded the last of them; 0 for others."""


class FatesRequest(Struct, frozen=True, kw_only=True):
    """`POST /catalogue/fates`: files, by their physical paths, that were in the catalogue."""

    paths: list[str]


class ObjectsRequest(Struct, frozen=True, kw_only=True):
    """`POST /catalogue/objects`: files that shall be read from the object store, where it has them.

    By their physical paths.
    """

    paths: list[str]


class ObjectsAnswer(Struct, frozen=True, kw_only=True):
    """Which objects of the store they are; what it has not is not among them."""

    engine: str
    store: StoreEntry | None
    """None from a receiver without one."""
    objects: dict[str, ObjectEntry] = {}
    """By physical path."""


class FetchRequest(Struct, frozen=True, kw_only=True):
    """`POST /catalogue/fetch`: files that are to be in a data directory, by their physical paths.

    Who asks opens them soon: they stay for as long as others are not needed more. Those of `ahead`
    are going to be asked for next, and come meanwhile where there is room; nothing is said of them.
    """

    paths: list[str]
    ahead: list[str] = []
    """Physical paths of files that are wanted next."""


class FailedFetch(Struct, frozen=True, kw_only=True):
    """A file that did not come, and why."""

    path: str
    reason: str


class FetchAnswer(Struct, frozen=True, kw_only=True):
    """What of the files is here now. What is coming is asked for again."""

    here: list[str]
    """Physical paths of files that lie in a data directory."""
    coming: list[str] = []
    """Physical paths of files that are being fetched."""
    failed: list[FailedFetch] = []


class FileFate(Struct, frozen=True, kw_only=True):
    """What became of a file."""

    path: str
    here: bool = False
    """Its sender has it, and it is not at its end: it is visible, or bad and wanted again."""
    reason: str = ""
    """Why it cannot be read, in words."""
    end: EndBelow | None = None
    """Of one that has ended. Neither of them: nothing is known of it any more."""


class FatesAnswer(Struct, frozen=True, kw_only=True):
    """In the order of the request, and what an operator deleted everywhere."""

    engine: str
    commit: Count
    fates: list[FileFate]
    """What became of each file."""
    everywhere: list[EndBelow] = []
    """What an operator deleted at all places, and is to be deleted below."""


class NotedRecords(Struct, frozen=True, kw_only=True):
    """Records of a deletion file that one commit noted."""

    end: Count
    """Bytes of the deletion file up to their end."""
    floor: Count
    """They hide their times in every file of the sender that was closed up to this look."""
    commit: Count
    applied: bool = True
    """Whether readers leave out what they delete; else it is only kept."""
    held: bool = False
    """Whether an operator has yet to let them through."""


class NotedEntry(Struct, frozen=True, kw_only=True):
    """The deletion file of a TsFile as `GET /catalogue/deletions` gives it."""

    sender: str
    path: str
    """Of the TsFile at its sender."""
    physical: str | None
    """Of the TsFile at the receiver, where it is loaded."""
    form: str
    content: bytes
    """Bytes of the deletion file, in base64."""
    segments: list[NotedRecords]
    """Which of them which commit noted, in their order."""
    older: list[str] = []
    """Patterns in it that name all that lies below as well, as those of 0.12 do: the devices of the
    TsFile tell, which a reader may not know any more."""
    author: str = ""
    """See `DeletionsPart.author`; empty where it is the sender."""


class NotedAnswer(Struct, frozen=True, kw_only=True):
    """`GET /catalogue/deletions?after=<cursor>&limit=<n>`: what readers leave out.

    A page ends early where its contents are large.
    """

    engine: str
    commit: Count
    entries: list[NotedEntry]
    next: str | None = None


class ClockPiece(Struct, frozen=True, kw_only=True):
    """From `commit` on, commits stand for `moment` and what follows it, `pace` times as fast.

    A moment is written as the commit that it would have.
    """

    commit: Count
    moment: Count
    """What it stands for, as the commit that it would have been."""
    pace: Count
    """How many times as fast moments go as commits do: 0, 1 or 2."""


class CatalogueAnswer(Struct, frozen=True, kw_only=True):
    """`GET /catalogue?after=<cursor>&limit=<n>`: committed files in path order, for readers.

    `commit` is what the answer is as of: the newest commit, or the one that was asked about.
    """

    engine: str
    commit: Count
    entries: list[CatalogueEntry]
    next: str | None = None
    times: list[ClockPiece] = []
    """What is known of the clock that gave the commits, in their order. Before the first of them a
    commit stands for itself, and for no later moment than the first piece."""
    store: StoreEntry | None = None
    """Where what is stored is; None from a receiver without one."""


class CompactedFileEntry(Struct, frozen=True, kw_only=True):
    """A file that stands for others, in a data directory of the receiver or the node."""

    physical: str
    size: Count
    md5: str
    data_dir: str
    devices: list[DeviceExtent]
    first: Time | None = None
    last: Time | None = None


class CompactedEntry(Struct, frozen=True, kw_only=True):
    """What may be read in place of some files, whose rows it has; see `CompactedAnswer`."""

    id: Count
    commit: Count
    """The one that made it."""
    inputs: list[str]
    """Physical paths of the files."""
    outputs: list[CompactedFileEntry]
    """None where nothing is left of them."""


class CompactedAnswer(Struct, frozen=True, kw_only=True):
    """`GET /catalogue/compacted?at=<commit>&after=<id>&limit=<n>`: what stands for files then.

    Only such of which the bytes can be had here now; the files are in the catalogue all the same.
    """

    engine: str
    commit: Count
    entries: list[CompactedEntry]
    next: Count | None = None


class CrowdedPartition(Struct, frozen=True, kw_only=True):
    """A partition in which a reader met many files, or such that overlap."""

    storage_group: str
    """Name of the storage group, or database."""
    partition: str
    """Number of the partition of time, as text."""
    files: Count
    overlapping: Count = 0
    """Of the files, those that have times of a device in common with others."""


class CrowdedReport(Struct, frozen=True, kw_only=True):
    """`POST /catalogue/crowded`: what it should merge first, as far as it merges at all."""

    partitions: list[CrowdedPartition]
    """Each of them."""
