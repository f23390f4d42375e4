"""A task: how it begins and ends, its states, and what becomes of each of its paths."""

from __future__ import annotations

from enum import StrEnum

from common.wire.base import Count, Struct
from common.wire.checking import HeldRecords, SchemaPosition
from common.wire.origins_below import EndBelow
from common.wire.task_content import ManifestEntry


class Propagate(StrEnum):
    """What a file that is gone at the edge means at the centre."""

    REPLACED = "replaced"
    ALL = "all"
    NEVER = "never"


class StartRequest(Struct, frozen=True, kw_only=True):
    """`PUT /tasks/<id>`: start a task, or resume it."""

    engine: str
    epoch: str | None = None
    propagate: Propagate = Propagate.REPLACED
    """What a file that is gone at the sender means here."""
    look: Count = 0
    """The look that the task tells of; 0 from a sender that takes none."""
    anew: bool = False
    """All that the sender has is listed behind this task, and begins anew: what it tells as ended
    is only retired, and of deletion files it tells all."""


class TaskState(StrEnum):
    """The life of a task at the receiver."""

    OPEN = "open"
    LOADING = "loading"
    DONE = "done"


class Result(StrEnum):
    """What became of one path of a task."""

    LOADED = "loaded"
    """Committed: readers see it."""
    ALREADY = "already"
    """Its content was loaded before, under this name or another."""
    DELETED = "deleted"
    """Gone at the edge, and deleted at the centre by its mode."""
    RETIRED = "retired"
    """Gone at the edge, kept at the centre, off the sender's list."""
    HELD = "held"
    """A deletion that waits for the additions of its partition."""
    CONFLICT = "conflict"
    """It has a device that belongs to another sender."""
    REFUSED = "refused"
    """A rule of the centre is against it; the reason says which."""
    QUARANTINED = "quarantined"
    """Whole, and no TsFile that can be loaded; kept apart at the centre, with the reason."""
    EXPIRED = "expired"
    """All of its data is older than the TTL of its storage group."""
    MISSING = "missing"
    """Named in the manifest, and not received whole or not to be put in its place now: the next
    round tries it again, without the bytes that are here."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The committed fate of one path of a task."""

    path: str
    result: Result
    """What became of it."""
    device: str | None = None
    reason: str | None = None
    owner: str | None = None
    """Only where the receiver reveals owners."""
    hold: bool = False
    """For a quarantine: do not try again by itself. For an end that is held: until an operator of
    the receiver lets it through."""


class SchemaKind(StrEnum):
    """What a sender's schema log is."""

    TEXT = "iotdb-text"
    """`mlog.txt`, with the slots of its `tlog.txt`."""
    CHANGES = "changes"
    """JSON lines of `common.formats.schemaitems`: changes of the sender's receiver, or database."""


class SchemaStaged(Struct, frozen=True, kw_only=True):
    """What the receiver has of a schema that no task has brought to its end yet."""

    kind: SchemaKind
    identity: str
    """Which log it is."""
    base: Count
    """Offset in the log at which the blocks begin."""
    size: Count
    """Bytes of the log that are here for good: the next block begins there."""
    digest: str
    """xxh3-128 (hex) of these."""


class SchemaEnd(Struct, frozen=True, kw_only=True):
    """The schema that a task brings: blocks of one log, and where they end."""

    kind: SchemaKind
    identity: str
    """Which log it is: another one begins at 0."""
    base: Count
    """Where they begin: the offset that is applied, or 0 for the whole log."""
    size: Count
    """Bytes of the log in all blocks."""
    offset: Count
    """How far the log is applied, once they are."""
    news: Count = 0
    """Deletions that begin here or behind (offset in the log) have not been told before. Those
    before it are old: they take nothing that holds loaded data."""
    mark: str = ""
    """At most 1,024 characters, given back by `SchemaPosition`."""


class SchemaAnswer(Struct, frozen=True, kw_only=True):
    """`PATCH /tasks/<id>/schema`: bytes of the log that are here for good."""

    size: Count


class TaskAnswer(Struct, frozen=True, kw_only=True):
    """State of a task; `outcomes` and `commit` once it is done."""

    task: str
    state: TaskState
    """Whether it is open, being loaded, or done."""
    epoch: str | None = None
    """The epoch of all further calls of this task, and of the next round's check."""
    commit: Count = 0
    outcomes: list[Outcome] = []
    """Of each of its paths, once it is done."""
    schema_staged: SchemaStaged | None = None
    """In the answer to the start: a schema that was begun."""
    schema_position: SchemaPosition | None = None
    """Once it is done: what is applied of the sender's schema log by now."""
    untold: list[str] = []
    """Once it is done: TsFiles whose deletion files are to be told again; nothing of it was taken
    of what they told in this task."""
    held_records: list[HeldRecords] = []
    """Once it is done: as in the answer to the check, by now."""


class EndRequest(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/end`: everything is sent; load it."""

    manifest: list[ManifestEntry]
    """The files of the task, or what follows the pages that came before."""
    deleted: list[str] = []
    """Paths of files that are gone at the sender."""
    last_looks: list[Count] = []
    """For each path of `deleted` the last look that had it; empty from a sender that takes none."""
    below: list[EndBelow] = []
    """Of forwarded files that are in `deleted`, or were before, what their ends mean."""
    schema: SchemaEnd | None = None
    """The schema that comes with it; None for none."""
    pages: Count = 0
    """Of the manifest that came before: what stands here follows them."""
