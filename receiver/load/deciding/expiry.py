"""Which files are wholly past the TTL of their storage groups, at one moment.

A file is past when it has points, and the newest of each of its devices is older than the TTL of
the storage group that the device lies in. One device in a group without TTL, or with one point
that is young enough, keeps the whole file: what is partly past stays. A file without points is
never past, for it says nothing of its age.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.config.shared_rules import PER_MILLISECOND
from common.errors import TsferryError
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model.paths import Nodes, device_nodes, parse_lax

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.metadata.schema import Schema
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Expiry"]


class Expiry:
    """The limits of all storage groups with a TTL; made anew for each look.

    Attributes:
        newest: a file with a point at this time or a later one is past no limit; None where no
            storage group has a TTL.
        guards: the storage groups as they were when the limits were made.
    """

    def __init__(self, schema: Schema, now: float, unit: str) -> None:
        """Take the limits from the schema; it is not kept.

        Args:
            schema: as it is now.
            now: seconds since the epoch.
            unit: of the data's timestamps: ms, us or ns.
        """
        self._limits: dict[Nodes, int] = {}
        self._groups: dict[str, Nodes | None] = {}
        self.guards: dict[Nodes, Guard] = {}
        for group in schema.groups.rows():
            if group.ttl is not None:
                limit = (int(now * 1000) - group.ttl) * PER_MILLISECOND[unit]
                self._limits[group.nodes] = limit
                guard = Guard("storage_group", group.path, group.changed)
                self.guards[group.nodes] = guard
        self.newest = max(self._limits.values(), default=None)

    def limit(self, device: str) -> int | None:
        """The time before which points of a device are past; None if its group has no TTL."""
        group = self._group_of(device)
        return None if group is None else self._limits[group]

    def limit_of_directory(self, sg: str) -> int | None:
        """The same for what lies in the directory of a storage group, or of a database."""
        group = self._group(_directory(sg))
        return None if group is None else self._limits[group]

    def _group_of(self, device: str) -> Nodes | None:
        """The storage group with a TTL that a device lies in."""
        if device not in self._groups:
            self._groups[device] = self._group(_nodes(device))
        return self._groups[device]

    def _group(self, nodes: Nodes) -> Nodes | None:
        prefixes = (nodes[:length] for length in range(2, len(nodes) + 1))
        return next((each for each in prefixes if each in self._limits), None)

    def is_past(self, ranges: Iterable[tuple[str, int, int]]) -> bool:
        """Whether a file is wholly past.

        Args:
            ranges: (device, first, last) of its devices with points.
        """
        if self.newest is None:
            return False
        some = False
        for device, _, last in ranges:
            limit = self.limit(device)
            if limit is None or last >= limit:
                return False
            some = True
        return some

    def is_past_row(self, row: FileRow) -> bool:
        """The same of a file that is loaded."""
        if self.newest is None or row.last is None or row.last >= self.newest:
            return False
        return self.is_past(row.devices.ranges())

    def is_past_word(self, sg: str, devices: Iterable[str], last: int | None) -> bool:
        """The same as far as a plan tells, which has one range for all: in doubt it is not past.

        Args:
            sg: the storage group of the directory, which decides where no device is named.
            devices: of the file.
            last: its newest time, None if it is not known or the file has no points.
        """
        if self.newest is None or last is None or last >= self.newest:
            return False
        limits = [self.limit(each) for each in devices] or [self.limit_of_directory(sg)]
        return all(limit is not None and last < limit for limit in limits)

    def guard_row(self, row: FileRow) -> Iterable[Guard]:
        """Guards on what made a loaded file past: the limits of its devices."""
        groups = {self._group_of(device) for device in row.devices}
        return [self.guards[each] for each in groups if each is not None]


def _nodes(device: str) -> Nodes:
    """Where a device stands; nowhere, for a name that has no place."""
    try:
        return device_nodes(device)
    except TsferryError:
        return ()


def _directory(sg: str) -> Nodes:
    try:
        return parse_lax(sg)
    except TsferryError:
        return ("root", f"/{sg}")
