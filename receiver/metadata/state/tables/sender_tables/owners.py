"""Who owns a device, and to whom it was transferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.model import records
from receiver.metadata.state.sorted_keys import SortedKeys
from receiver.metadata.state.table_rows import OwnerRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.metadata.state.ranges import DeviceTable
    from receiver.metadata.state.tables import Appliers

__all__ = ["OwnerChange", "OwnerMove", "OwnerTable"]


class OwnerChange(NamedTuple):
    """Devices that got an owner, another owner, or none."""

    ts: int
    devices: Sequence[str]
    sender: str | None
    reason: str


class OwnerMove(NamedTuple):
    """A commit that gave a device to a sender, in the place of the one before.

    Attributes:
        commit: of it.
        sender: that has it from then on.
        came_first: it was released, and this one loaded a file with it.
        since: the commit that released it, then; 0 if that is not known (earlier versions).
        released: it is a release, of a device that was this sender's; that changes no order yet.
    """

    commit: int
    sender: str
    came_first: bool = False
    since: int = 0
    released: bool = False

    @property
    def border(self) -> int:
        """The last look of whoever had the device before, as it were."""
        return self.since or self.commit


class OwnerTable:
    """Owners of devices.

    Attributes:
        rows: by device.
        moves: the transfers of each device that ever was transferred, in order; whoever else than
            its last owner came first after it had been released; and a release, while nobody has.
        changed: timestamp of the last commit that changed them.
        moved: that of the last transfer, 0 for none.
        on_change: called with each change as it is applied.
    """

    def __init__(self, devices: DeviceTable) -> None:
        """Make an empty table; `devices` keeps the one copy of each name."""
        self.rows: dict[str, OwnerRow] = {}
        self.moves: dict[str, tuple[OwnerMove, ...]] = {}
        self._moved: tuple[OwnerMove, ...] = ()
        self.changed = 0
        self.moved = 0
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

    def restore_moves(self, moves: tuple[OwnerMove, ...], devices: Iterable[str]) -> None:
        """Put the transfers of devices in as they were; those of all of them are the same."""
        self.moved = max((self.moved, *(each.commit for each in moves)))
        for each in devices:
            self.moves[self._devices.name(each)] = moves

    def restore_moves_by_rows(self) -> None:
        """Take the last transfer of each device from its row: no others are known."""
        for device, row in self.rows.items():
            if row.changed != row.created:
                self._move(device, OwnerMove(row.changed, row.sender))

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
            if known is not None:
                self._move(device, OwnerMove(ts, known.sender, released=True))
        else:
            created = ts if known is None else known.created
            self.rows[device] = OwnerRow(sender=op.sender, created=created, changed=ts)
            if known is None:
                self._order.add(device)
                self._come_first(device, op.sender, ts)
            elif known.sender != op.sender:
                self._move(device, OwnerMove(ts, op.sender))
        self._note(OwnerChange(ts, (device,), op.sender, op.reason))

    def _file_loaded(self, op: records.FileLoaded, ts: int) -> None:
        rows = self.rows
        new = [each.name for each in op.devices if each.name not in rows]
        if not new:
            return
        devices, owner = self._devices.kept(new), op.owner or op.sender
        rows.update(dict.fromkeys(devices, OwnerRow(sender=owner, created=ts, changed=ts)))
        self._order.add_many(devices)
        if self.moves:
            for device in devices:
                self._come_first(device, owner, ts)
        self._note(OwnerChange(ts, devices, owner, "first load"))

    def _come_first(self, device: str, sender: str, ts: int) -> None:
        """A device that nobody owns gets an owner: it is taken from the one before, if another."""
        moves = self.moves.get(device, ())
        if not moves or not moves[-1].released:
            return
        *before, release = moves
        if release.sender != sender:
            before.append(OwnerMove(ts, sender, came_first=True, since=release.commit))
        self._set_moves(device, tuple(before), ts)

    def _move(self, device: str, move: OwnerMove) -> None:
        self._set_moves(device, (*self.moves.get(device, ()), move), move.commit)

    def _set_moves(self, device: str, moves: tuple[OwnerMove, ...], ts: int) -> None:
        if moves != self._moved:  # devices that went together all the way share them
            self._moved = moves
        self.moves[device] = self._moved
        self.moved = max(self.moved, ts)

    def _note(self, change: OwnerChange) -> None:
        self.changed = change.ts
        if self.on_change is not None:
            self.on_change(change)
