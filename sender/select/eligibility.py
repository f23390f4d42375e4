"""What lies beside a TsFile and says that it is being changed.

Whether it is closed is decided by `select.file_verdicts`: by this, and by its resource or its tail.

What was deleted in a closed file travels with it, unless the configuration says that such a file
waits (`deletion_files = "wait"`).

A database leaves these beside `X.tsfile` while it changes it (apache/iotdb): deletions in
`X.tsfile.mods` (1.x), `.mods2` (2.x), deletions during a compaction in `.compaction.mods[2]`, a
running merge or settle in `.merge`, `.settle`, a resource being written in `.resource.temp`, a
broken file marked `.broken`. `.modification` is what its manual of the sync tool calls
`.mods` (0.9 to 0.12): no version writes a file of that name, so where there is one, only whoever
made it can say that it is over. Since 2.x files of a partition may share a `<level>-<n>.mods2`;
which of them it concerns, and from where on, stands in their resources.

Results of a running compaction are `X.inner` and `X.cross` until they are renamed: no TsFiles yet,
but their partition is in motion.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from common.names import RESOURCE, SUFFIX
from common.tsfile.deletion_records import DELETION_FORMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

__all__ = ["CHANGING", "Beside"]

CHANGING = (
    ".mods",
    ".modification",
    ".mods2",
    ".compaction.mods",
    ".compaction.mods2",
    ".merge",
    ".settle",
    ".resource.temp",
    ".broken",
)
"""What is beside a TsFile, behind its name, while it is being changed."""
_TRAVELLING = tuple(f".{form}" for form in DELETION_FORMS)
_USUAL = (SUFFIX, SUFFIX + RESOURCE)
_SHARED = re.compile(r"[0-9]+-[0-9]+\.mods2\Z")
_UNFINISHED = re.compile(r".*\.(inner|cross)(\.resource)?\Z|.*\.compaction\.log\Z|merge\.log\Z")


class Beside:
    """The names of one directory, asked about its TsFiles.

    Attributes:
        names: all of them.
        shared_deletions: those of deletion files that several TsFiles share.
        deletions_travel: whether a TsFile with deletions is sent with them.
    """

    def __init__(self, names: Iterable[str], *, deletions_travel: bool = False) -> None:
        """Look at names.

        Args:
            names: all in the directory.
            deletions_travel: a TsFile with a deletion file of its own is not being changed.
        """
        self.names: Set[str] = frozenset(names)
        # Nearly all names are TsFiles and resources: only the few others are looked at closely.
        self._others = sorted(name for name in self.names if not name.endswith(_USUAL))
        self.shared_deletions: Set[str] = frozenset(filter(_SHARED.match, self._others))
        self._changes: dict[str, str] = {}
        self.deletions_travel = deletions_travel
        for name in self._others:
            for suffix in CHANGING:
                if deletions_travel and suffix in _TRAVELLING:
                    continue
                if name.endswith(SUFFIX + suffix):
                    self._changes.setdefault(name.removesuffix(suffix), name)

    @property
    def is_usual(self) -> bool:
        """Whether nothing but TsFiles and resources is here: nothing is said of any of them."""
        return not self._others

    @property
    def any_deletions(self) -> bool:
        """Whether there may be deletion files: nearly all directories have none."""
        return self.deletions_travel and bool(self._others)

    @property
    def tsfiles(self) -> list[str]:
        """Names that end in `.tsfile`, in order."""
        return sorted(name for name in self.names if name.endswith(SUFFIX))

    def has_resource(self, name: str) -> bool:
        """Whether the resource is there."""
        return name + RESOURCE in self.names

    def deletion_files(self, name: str) -> list[str]:
        """The forms of the deletion files of a TsFile; none where they are a reason to wait."""
        if not self.deletions_travel:
            return []
        return [form for form in DELETION_FORMS if f"{name}.{form}" in self.names]

    def change(self, name: str) -> str | None:
        """What says that this TsFile is being changed, or None."""
        return self._changes.get(name)

    @property
    def unfinished(self) -> str | None:
        """A name that says that a compaction in this directory is under way, or None."""
        return next((name for name in self._others if _UNFINISHED.match(name)), None)
