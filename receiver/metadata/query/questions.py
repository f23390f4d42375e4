"""Questions about the schema: what may be shown and counted, each also as it was at a time.

All are values: equal questions are equal, and a cursor may keep one for as long as it likes.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

from receiver.metadata.model.paths import Pattern, parse_pattern

__all__ = [
    "ALL",
    "Asked",
    "At",
    "CountDevices",
    "CountNodes",
    "CountStorageGroups",
    "CountTimeseries",
    "Listed",
    "Query",
    "ShowCacheSlots",
    "ShowChildNodes",
    "ShowChildPaths",
    "ShowDevices",
    "ShowFiles",
    "ShowPartitions",
    "ShowStorageGroups",
    "ShowStorageNodes",
    "ShowTables",
    "ShowTablets",
    "ShowTagKeys",
    "ShowTagValues",
    "ShowTasks",
    "ShowTimeseries",
    "ShowTtl",
    "ShowUpload",
    "TagFilter",
]

At = int | datetime.datetime | None
"""A commit timestamp, a moment (with its zone), or None for the newest commit."""

ALL: Final = parse_pattern("root.**")
"""Everything below the root."""
_ROOT: Final = parse_pattern("root")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every question has.

    Attributes:
        pattern: which paths are meant. One without wildcards that is none of the things asked for
            means what lies below it.
        at: as of when.
    """

    pattern: Pattern = ALL
    at: At = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Asked):
    """A question whose answer is a list.

    Attributes:
        limit: rows, at most; None for all.
        offset: rows that are left out at the beginning.
    """

    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A condition on a tag.

    Attributes:
        key: of the tag; an attribute is none.
        value: what it is, or holds.
        contains: whether it is enough that `value` is a part of it.
    """

    key: str
    value: str
    contains: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTimeseries(Listed):
    """Series in order of their paths.

    Attributes:
        where: only series with such a tag.
        by_heat: the newest loaded time first; series without one come last.
    """

    where: TagFilter | None = None
    by_heat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowDevices(Listed):
    """Devices in order of their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStorageGroups(Listed):
    """Storage groups in order of their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowChildPaths(Listed):
    """Paths of the children of the nodes that match, and what each is."""

    pattern: Pattern = _ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowChildNodes(Listed):
    """Names of the children of the nodes that match, each once."""

    pattern: Pattern = _ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTimeseries(Asked):
    """How many series there are.

    Attributes:
        where: only series with such a tag.
        level: count them below each node at this level (root is 0); None for all together.
    """

    where: TagFilter | None = None
    level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountDevices(Asked):
    """How many devices there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountStorageGroups(Asked):
    """How many storage groups there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountNodes(Asked):
    """How many nodes at a level (root is 0) the matching series and nodes pass through."""

    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTtl(Asked):
    """How long files of storage groups are kept.

    Attributes:
        groups: which; none for all that `pattern` means.
    """

    groups: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowUpload(Asked):
    """When files of storage groups go into the object store, as it is now: it has no past.

    Attributes:
        groups: which; none for all that `pattern` means.
    """

    groups: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowFiles(Listed):
    """Loaded files that readers see, in order of their physical paths.

    Those of the storage groups that `pattern` means, and those with a device that it means.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowPartitions(Listed):
    """Time partitions that have such files, by storage group, virtual group, number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTables(Listed):
    """Tables of what is loaded, by name, with the sums of the files that readers see in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTablets(Listed):
    """Tablets, by table and partition, with the same sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStorageNodes(Listed):
    """Storage nodes, by kind and name; they have no paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCacheSlots(Listed):
    """Storage nodes that keep what of the object store, with their slots; they have no paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTasks(Listed):
    """Background tasks in the order in which they were added; they have no paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTagKeys(Listed):
    """Keys of tags in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTagValues(Listed):
    """Values of tags in use.

    Attributes:
        key: only of this tag; None for all.
    """

    key: str | None = None


Query = (
    ShowTimeseries
    | ShowDevices
    | ShowStorageGroups
    | ShowChildPaths
    | ShowChildNodes
    | ShowTtl
    | ShowUpload
    | ShowFiles
    | ShowPartitions
    | ShowTables
    | ShowTablets
    | ShowStorageNodes
    | ShowCacheSlots
    | ShowTasks
    | ShowTagKeys
    | ShowTagValues
    | CountTimeseries
    | CountDevices
    | CountStorageGroups
    | CountNodes
)
