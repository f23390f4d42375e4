"""Where transfers of devices cut through files: some devices went, the file goes on with others.

In a device that went to another sender the files of all others stand as if that commit had ended
them: what the new owner lists stands above. Where it comes back, what its sender has then stands
above all that others brought meanwhile. A transfer changes no order of files that are there by
going; by coming back it only lifts what is listed. So what was proved before it stays proved. What
the new owner loads stands above them, be it that a look before the transfer had it: but only in the
devices that were transferred. What was loaded at the centre is on no list that could lift it: where
the centre comes to own a device, its files stay as they stand to each other.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from receiver.metadata.model.centre_source import is_centre
from receiver.metadata.model.ranks import NOW, TransferCut

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Mapping

    from receiver.metadata.model.ranks import Rank
    from receiver.metadata.state.ranges import Devices
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.sender_tables.owners import OwnerMove

__all__ = ["TransferCuts", "looks_in_device"]

_Moved: TypeAlias = "tuple[tuple[OwnerMove, ...], frozenset[str]]"
_MANY: Final = 4
"""Devices of a file from which on others may share them."""


def looks_in_device(rank: Rank, sender: str, moves: Iterable[OwnerMove]) -> tuple[int, int]:
    """The first and last look by which a file ranks in a device.

    Args:
        rank: of the file.
        sender: whose it is.
        moves: the transfers of the device, in order.
    """
    first, last, end = rank.first, rank.last, NOW
    is_listed = not is_centre(sender)
    for move in moves:
        if move.released:
            continue
        if move.commit <= rank.loaded:
            is_gained = move.sender == sender and (move.since or not move.came_first)
            if is_gained and is_listed:
                first = max(first, move.border + 1)  # it may have waited for the device
                last = max(last, first)
        elif move.sender != sender:
            end = min(end, move.border)
        elif is_listed and rank.last >= move.border:
            first, end = max(first, move.border + 1), NOW
    last = min(last, end)
    return min(first, last), last  # a new name gives it another first look, in its other devices


class TransferCuts:
    """Tells where files are cut, at one commit.

    What it found of devices that files share it remembers, so it is made anew for each question.
    """

    def __init__(self, moves: Mapping[str, tuple[OwnerMove, ...]], at: int) -> None:
        """Take in the transfers.

        Args:
            moves: of each device that was transferred, in order.
            at: later ones do not count.
        """
        self._moves, self._at = moves, at
        self._known: dict[int, tuple[array[int], list[_Moved]]] = {}

    def of(self, row: FileRow) -> tuple[TransferCut, ...]:
        """The cuts of a file, as its row was at that commit; a device is in one of them at most."""
        # Of nearly all files the rank, which takes longer, is not asked for.
        is_moved = bool(self._moves) and bool(self._moved(row.devices))
        return self.of_rank(row.rank, row) if is_moved else ()

    def of_rank(self, rank: Rank, row: FileRow) -> tuple[TransferCut, ...]:
        """The cuts of a file, if it had that rank."""
        if not self._moves:
            return ()
        found = [
            TransferCut(*looks_in_device(rank, row.sender, moves), devices)
            for moves, devices in self._moved(row.devices)
        ]
        return tuple(each for each in found if each[:2] != (rank.first, rank.last))

    def _moved(self, devices: Devices) -> list[_Moved]:
        if len(devices) < _MANY:
            return self._gathered(devices)
        ids = devices.parts()[0]
        known = self._known.get(id(ids))
        if known is None:
            # The array is kept as well: its id would be another one's otherwise.
            known = self._known[id(ids)] = (ids, self._gathered(devices))
        return known[1]

    def _gathered(self, devices: Iterable[str]) -> list[_Moved]:
        """Devices that were transferred, those together that went together all the way."""
        found: dict[tuple[OwnerMove, ...], list[str]] = defaultdict(list)
        for device in devices:
            if (moves := self._moves.get(device)) is not None:
                found[tuple(each for each in moves if each.commit <= self._at)].append(device)
        return [(moves, frozenset(several)) for moves, several in found.items()]
