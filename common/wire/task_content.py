"""What a task brings: plan, deletion files, proofs, manifest."""

from __future__ import annotations

from enum import StrEnum

from common.wire.base import Count, Struct, Time
from common.wire.node_uploads import UploadNode
from common.wire.origins_below import EndBelow, OriginEntry


class ResourceEntry(Struct, frozen=True, kw_only=True):
    """The `.resource` beside a TsFile; it is shipped, and never part of the file's identity."""

    size: Count
    md5: str


class PlanEntry(Struct, frozen=True, kw_only=True):
    """One file that the sender would send."""

    path: str
    size: Count
    tail: str
    """Digest of the last 64 KiB, 32 hex digits (XXH3-128)."""
    md5: str | None = None
    replaces: bool = False
    """Other content under a path that was loaded before."""
    retry: bool = False
    """The operator asked for another try of a quarantined file."""
    answered: Count = 0
    """`commit` of the answer that it was asked for behind, 0 if not known: what an operator of the
    receiver deleted later stays deleted."""
    first_time: Time | None = None
    last_time: Time | None = None
    devices: list[str] = []
    """As the sender reads them; a hint that saves bytes. The receiver judges by its own reading."""
    resource: ResourceEntry | None = None
    origin: str = ""
    """uuid of the edge that a forwarded file comes from: content of another one is not it."""
    deletes: bool = False
    """Its deletions are told with it: content that has another name besides is not it."""


class PlanPage(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/plan`."""

    entries: list[PlanEntry]
    nodes: bool = False
    """Whether bytes may go to storage nodes, where the answer names one."""
    avoid: list[str] = []
    """uuids of storage nodes that cannot be reached from there, or gave no good answer."""


class Action(StrEnum):
    """What the sender is to do with a file."""

    SEND = "send"
    RESUME = "resume"
    HAVE = "have"
    """Received and verified, not loaded yet: nothing to send, name it in the manifest."""
    ALREADY = "already"
    """Loaded with the same content: nothing to send, goes to the list of loaded files."""
    EXPIRED = "expired"
    CONFLICT = "conflict"
    REFUSED = "refused"


class PlanDecision(Struct, frozen=True, kw_only=True):
    """The answer for one entry, in the order of the page."""

    path: str
    action: Action
    """What the sender does with it."""
    offset: Count = 0
    upload: str | None = None
    """Id of the partial upload to resume, for `/files/<id>`."""
    device: str | None = None
    reason: str | None = None
    hold: bool = False
    """Of one that is refused: whether the sender asks again only when it is told to."""
    resource: bool = False
    """Whether the `.resource` is still wanted."""
    md5: str | None = None
    """For `already` and `have`: MD5 of what the receiver holds, to be compared by the sender."""
    commit: Count = 0
    """The newest commit that it was decided by."""
    node: UploadNode | None = None
    """For `send` and `resume`: the storage node that the bytes may go to."""


class PlanAnswer(Struct, frozen=True, kw_only=True):
    """Decisions, in the order of the page."""

    decisions: list[PlanDecision]
    """One for each entry."""


class DeletedPage(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/deleted`: loaded paths that are gone, or replaced, at the edge."""

    paths: list[str]


class DeletionsForm(StrEnum):
    """What a deletion file is."""

    MODS = "mods"
    MODS2 = "mods2"


class DeletionsPart(Struct, frozen=True, kw_only=True):
    """Whole records of the deletion file beside a TsFile, which need not be loaded, nor closed."""

    path: str
    form: DeletionsForm
    base: Count
    """Bytes of the deletion file before these; the receiver has them already, or 0."""
    content: bytes
    """Base64 in JSON."""
    floor: Count
    """The last look that could have seen these records and did not; 0 where none could have."""
    applied: bool = True
    """Whether readers are to leave out what is deleted."""
    author: str = ""
    """Of a forwarded one, in whose files, and by which engine's looks, `floor` counts:
    `<uuid of the edge>@<uuid of the engine>`."""


class DeletionsPage(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/deletions`: what is new in deletion files, committed with the task."""

    parts: list[DeletionsPart]
    """Those of this page, in the order of their files' bytes."""


class DeletionsAnswer(Struct, frozen=True, kw_only=True):
    """What was taken is on the disk."""

    again: list[str] = []
    """Paths whose parts were not taken: what stands before them is not here. They begin with 0."""


class ProofEntry(Struct, frozen=True, kw_only=True):
    """What the sender read in each series of a file: see `common.tsfile.proof`."""

    root: str
    """xxh3-128 (hex) of the table of its series."""
    table: bytes | None = None
    """The table, packed; None where it is too long to travel. Base64 in JSON."""


class ManifestEntry(Struct, frozen=True, kw_only=True):
    """One file of the task as the sender knows it."""

    path: str
    size: Count
    md5: str
    series: Count
    """Time series in the file."""
    points: Count
    """Points in the file."""
    proof: ProofEntry | None = None
    """None from a sender that makes none."""
    first_look: Count = 0
    """The first look that had the file, closed or not; 0 from a sender that takes none."""
    closed_look: Count = 0
    """The first look that had it closed."""
    last_look: Count = 0
    """The last look that had it, if it lives on at the sender only as a link; 0 while it has it."""
    origin: OriginEntry | None = None
    """Of a forwarded file. One that has ended below ends by the commit that it comes by."""


class ManifestPage(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/manifest`: a part of what the end of a task says, before it comes.

    Number 0 begins anew; another one follows what was taken, or takes the place of what was taken
    under its number and behind that.
    """

    number: Count
    """Of the page, from 0 up."""
    manifest: list[ManifestEntry] = []
    """Files of the task."""
    deleted: list[str] = []
    """Paths of files that are gone at the sender."""
    last_looks: list[Count] = []
    """For each path of `deleted` the last look that had it."""
    below: list[EndBelow] = []
    """See `EndRequest`."""
