"""What a check of the receiver's disks finds: findings, and the report of them."""

from __future__ import annotations

import msgspec

from common.wire import Struct
from common.wire.base import CommitTs

__all__ = ["BAD_FILES", "STRAY", "Found", "Report"]

BAD_FILES = frozenset({"missing", "size", "md5", "structure", "unreadable"})
"""Kinds of what may be wrong with a loaded file itself."""
STRAY = "stray"
"""Directory of a data directory for what is not to lie under its name."""


class Found(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be.

    Attributes:
        kind: `missing`, `size`, `md5`, `structure`, `resource`, `merged` (what is read in place of
            others), `stray`, `log`, `engine`, `metadata`, `tags`, `journal`, `folder`,
            `quarantine`, `manifest` or `unreadable`.
        path: of the file, relative to its data or schema directory.
        detail: what was found.
        repair: what a repair does about it; empty where an operator has to decide.
        repaired: whether it was done.
        sender: uuid of the sender whose file it is.
        elsewhere: of a bad or missing file, who is to have it whole: `store` or `nodes`; empty for
            nobody.
    """

    kind: str
    path: str
    detail: str
    repair: str = ""
    repaired: bool = False
    sender: str | None = None
    elsewhere: str = ""

    @property
    def is_bad_file(self) -> bool:
        """Whether a loaded file is not here as it was loaded."""
        return self.kind in BAD_FILES


class Report(Struct, frozen=True, kw_only=True):
    """What was looked at, and what is wrong.

    Attributes:
        engine: its uuid.
        commit: the newest.
        files: that readers see, or would see.
        bytes: of them.
        remote: files that are in none of the data directories, and in the object store.
        found: what is not as it should be.
    """

    engine: str
    commit: CommitTs
    files: int = 0
    bytes: int = 0
    remote: int = 0
    found: list[Found] = msgspec.field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is left to be put right."""
        return all(each.repaired for each in self.found)
