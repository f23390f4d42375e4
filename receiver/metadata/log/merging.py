"""Commits of a replay that make single series, taken together by device.

A commit of one series costs a dozen calls; thousands of such, one after the other, are the common
content of a log. Until something else comes they change nothing but the tree, each another place of
it, so their order among devices does not matter: the series of a device are made in one go, each
with the timestamp of its own commit. Devices come in the order of their first commits, and so do
the nodes above them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_stored

if TYPE_CHECKING:
    from receiver.metadata.schema import Schema

__all__ = ["Merged"]

_FEW = 16
"""A commit with more series is no gain to merge."""
_MOST = 1 << 14
"""Commits that are held back."""


class _Columns(NamedTuple):
    """Series of a device; every list has one entry for each."""

    names: list[str]
    types: bytearray
    encodings: bytearray
    compressions: bytearray
    stamps: list[int]


class Merged:
    """Creations that are not applied yet."""

    def __init__(self) -> None:
        self._devices: dict[str, _Columns] = {}
        self._held = 0

    def takes(self, commit: records.Commit) -> bool:
        """Hold a commit back if it is one of those; False if it has to be applied by itself."""
        ops = commit.ops
        if len(ops) != 1 or type(ops[0]) is not records.SeriesCreated or commit.tags_at >= 0:
            return False
        op = ops[0]
        if op.aligned or op.aliases or op.props or len(op.names) > _FEW or self._held >= _MOST:
            return False
        found = self._devices.get(op.device)
        if found is None:
            found = _Columns([], bytearray(), bytearray(), bytearray(), [])
            self._devices[op.device] = found
        found.names.extend(op.names)
        found.types.extend(op.types)
        found.encodings.extend(op.encodings)
        found.compressions.extend(op.compressions)
        if len(op.names) == 1:
            found.stamps.append(commit.ts)
        else:
            found.stamps.extend([commit.ts] * len(op.names))
        self._held += 1
        return True

    def flush(self, schema: Schema) -> None:
        """Apply what is held back."""
        if not self._held:
            return
        devices, self._devices, self._held = self._devices, {}, 0
        for device, each in devices.items():
            schema.changes.create_series(
                parse_stored(device),
                each.names,
                bytes(each.types),
                bytes(each.encodings),
                bytes(each.compressions),
                each.stamps[0],
                stamps=each.stamps,
            )
