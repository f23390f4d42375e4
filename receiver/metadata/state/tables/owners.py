"""Who owns a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.model import records
from receiver.metadata.state.sorted_keys import SortedKeys
from receiver.metadata.state.table_rows import OwnerRow

if TYPE_CHECKING:
    from receiver.metadata.state.ranges import DeviceTable
    from receiver.metadata.state.tables import Appliers

__all__ = ["OwnerChange", "OwnerTable"]


class OwnerChange(NamedTuple):
    """A device that got an owner, another owner, or none."""

    ts: int
    device: str
    sender: str | None
    reason: str


class OwnerTable:
    """Owners of devices.

    Attributes:
        rows: by device.
        changed: timestamp of the last commit that changed them.
        on_change: called with each change as it is applied.
    """

    def __init__(self, devices: DeviceTable) -> None:
        """Make an empty table; `devices` keeps the one copy of each name."""
        self.rows: dict[str, OwnerRow] = {}
        self.changed = 0
        self.on_change: Callable[[OwnerChange], None] | None = None
        self._devices = devices
        self._order = SortedKeys()

    def page(self, after: str | None, limit: int) -> list[tuple[str, OwnerRow]]:
        """Devices and their rows in order of their names, up to `limit` from behind `after`."""
        return [(device, self.rows[device]) for device in self._order.page(after, limit)]

    def restore(self, device: str, row: OwnerRow) -> None:
        """Put a row in as it was."""
        name = self._devices.name(device)
        self.rows[name] = row
        self._order.add(name)

    def restore_order(self) -> None:
        """Finish what `restore` began, when all rows are there."""
        self._order.settle()

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.OwnerSet: self._owner_set,
            records.FileLoaded: self._file_loaded,
        }

    def _owner_set(self, op: records.OwnerSet, ts: int) -> None:
        device = self._devices.name(op.device)
        known = self.rows.get(device)
        if op.sender is None:
            del self.rows[device]
            self._order.remove(device)
        else:
            created = ts if known is None else known.created
            self.rows[device] = OwnerRow(sender=op.sender, created=created, changed=ts)
            if known is None:
                self._order.add(device)
        self._note(OwnerChange(ts, device, op.sender, op.reason))

    def _file_loaded(self, op: records.FileLoaded, ts: int) -> None:
        rows = self.rows
        row: OwnerRow | None = None
        for each in op.devices:
            if each.name not in rows:
                device = self._devices.name(each.name)
                row = row or OwnerRow(sender=op.sender, created=ts, changed=ts)
                rows[device] = row
                self._order.add(device)
                self._note(OwnerChange(ts, device, op.sender, "first load"))

    def _note(self, change: OwnerChange) -> None:
        self.changed = change.ts
        if self.on_change is not None:
            self.on_change(change)
