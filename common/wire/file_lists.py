"""What both sides compare: inventory, the list of the edge, what was lost, ended and settled."""

from __future__ import annotations

import msgspec

from common.wire.base import Count, Struct, Time
from common.wire.checking import IncarnationMark, LostFile, LostFiles
from common.wire.outcomes import Propagate
from common.wire.task_content import ResourceEntry

LOADED, QUARANTINED = "loaded", "quarantined"
"""The states of a file that the receiver has: it is read, or was found bad since."""


class InventoryEntry(Struct, frozen=True, kw_only=True):
    """A file of this sender that the receiver has."""

    path: str
    size: Count
    md5: str
    state: str
    """`loaded`, or `quarantined` (loaded once, found bad since)."""
    commit: Count = 0
    first_time: Time | None = None
    """Of its data, as `last_time`: what tells a sender that lost its list what a compaction did."""
    last_time: Time | None = None
    verified: Count = 0
    """The commit of its last verification, in which every point was proved; 0 for never."""
    stands: bool = False
    """Whether its bytes, and those of its `.resource`, lay on the receiver's disk for this answer:
    regular files of their sizes, in a data directory that is not away; or an object store that has
    them said so for this answer. Only if it was asked."""
    resource: ResourceEntry | None = None
    """The `.resource` that came with it. Only if it was asked whether it stands."""
    deletions: str = ""
    """What is known of its deletion files, as `common.listed` has it."""
    inside: list[str] = msgspec.field(default_factory=list)
    """Merged files that the receiver's readers read in place of this one, which is there as well:
    `stands` and `verified` are of its own bytes. Only if it was asked whether it stands."""


class InventoryAnswer(Struct, frozen=True, kw_only=True):
    """`GET /inventory?after=<cursor>&limit=<n>`: a page, in path order, as of `commit`.

    With `look=true` each file is looked at on the disk.
    """

    engine: str
    commit: Count
    entries: list[InventoryEntry]
    next: str | None = None
    looked: bool = False
    """Whether `stands` was asked and found out; a receiver that cannot does not say."""
    propagate: Propagate | None = None
    """What a file that is gone means, as this sender has it committed here; None for nothing."""
    incarnation: IncarnationMark | None = None
    """As that of a check."""


class ListedRequest(Struct, frozen=True, kw_only=True):
    """`POST /listed`: what outcomes called loaded and no end was told for, as `common.listed`."""

    files: Count
    digest: str
    """The sum of all rows, 32 hex digits."""
    since: Count = 0
    """The newest commit that the sender knew of before this round."""


class ListedFile(Struct, frozen=True, kw_only=True):
    """A file on the sender's list."""

    path: str
    md5: str


class ListedPage(Struct, frozen=True, kw_only=True):
    """`POST /listed/ended`: files on the sender's list that the inventory lacks.

    Attributes:
        files: a page of them.
        freed: they are files that the sender had freed; of these it is told which nothing is known
            of any more.
    """

    files: list[ListedFile]
    freed: bool = False


class EndedHere(Struct, frozen=True, kw_only=True):
    """A file on the sender's list that the receiver let go by itself: it is not to come again."""

    path: str
    md5: str
    reason: str


class ListedAnswer(Struct, frozen=True, kw_only=True):
    """Whether both sides list the same."""

    agrees: bool
    """Whether they do."""
    ended: list[EndedHere] = []
    """If not, what the receiver let go since the commit that was named, as far as it tells."""


class EndedAnswer(Struct, frozen=True, kw_only=True):
    """Those of a page that the receiver let go by itself."""

    ended: list[EndedHere] = []
    """Each of them."""


class LostPage(Struct, frozen=True, kw_only=True):
    """`POST /lost`: files that the receiver may not know any more."""

    files: list[LostFile]


class LostAnswer(Struct, frozen=True, kw_only=True):
    """Of the page, the paths that the receiver has nothing of; they are lost from now on."""

    lost: list[str] = []
    """Their paths at the sender."""
    all: LostFiles | None = None
    """With those that were lost before, as at the check."""


class SettledFile(Struct, frozen=True, kw_only=True):
    """A file of the sender that nobody needs to remember any more, by `commit`."""

    path: str
    md5: str
    commit: Count


class SettledAnswer(Struct, frozen=True, kw_only=True):
    """`GET /settled?after=<commit>&cursor=<cursor>&limit=<n>`: in the order of the commits.

    Superseded, deleted (by a mirror, by its TTL, by an operator), or lost and acknowledged.
    """

    engine: str
    commit: Count
    """The newest: there is nothing more up to here once the pages have ended."""
    files: list[SettledFile] = []
    next: str | None = None
    oldest: Count = 0
    """Of what was deleted up to here, files may be forgotten, and are not told."""
