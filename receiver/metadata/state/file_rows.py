"""The rows of files by physical path: as objects while they are young, packed afterwards.

A row that a commit touches is an object, as each new one is: commits cost what they cost without
packed ones. What is as most files are is packed when a checkpoint is taken, and a packed file of
which something changes becomes an object again (`FileTable` says where it is found then).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, ValuesView
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.state.packed_file import EndedFile, packed_row, packed_rows, whole
from receiver.metadata.state.packed_files import REGISTERED, RETIRED, PackedFiles
from receiver.metadata.state.packing import pack
from receiver.metadata.state.table_rows import FileRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from collections.abc import Set as AbstractSet

    from receiver.metadata.state.packing import Packed
    from receiver.metadata.state.ranges import DeviceTable

__all__ = ["FileRows", "FrozenFileRows"]


_ASKED = 4096
"""Numbers that were asked for by name: what is judged is applied soon afterwards."""
_FEW = 64
"""Up to so many are looked at one by one, which is quicker then."""


class FrozenFileRows(NamedTuple):
    """The rows as of one commit, free of any lock."""

    young: list[FileRow]
    packed: PackedFiles
    left: bytes

    def pack(self) -> Packed:
        """All of them packed that can be."""
        return pack(self.packed, self.left, self.young)

    def number(self, physical: str) -> int | None:
        """The number of a packed file."""
        number = self.packed.number(physical)
        return None if number is None or self.left[number] else number


class FileRows(Mapping[str, FileRow]):
    """Rows by physical path.

    Attributes:
        young: those that are objects.
        packed: those that are not, and numbers that have left.
        left: a byte for each number of `packed`, 1 for a file that is not there any more, or young.
        within: how many packed files each directory has, without those.
    """

    def __init__(self, devices: DeviceTable) -> None:
        """Make an empty table; `devices` knows what the files hold."""
        self.young: dict[str, FileRow] = {}
        self.packed = PackedFiles.none(devices)
        self.left = bytearray()
        self.within = array("I")
        self._staying = 0
        self._asked: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.young) + self._staying

    def __iter__(self) -> Iterator[str]:
        return chain(self.young, map(self.packed.physical, self.numbers()))

    def __getitem__(self, physical: str) -> FileRow:
        found = self.get(physical)
        if found is None:
            raise KeyError(physical)
        return found

    def get(self, physical: str, default: None = None) -> FileRow | None:  # type: ignore[override]
        """The row of a physical path."""
        found = self.young.get(physical)
        if found is not None or not self._staying:
            return found
        number = self.number(physical)
        return default if number is None else packed_row(self.packed, number)

    def __contains__(self, physical: object) -> bool:
        return physical in self.young or (
            isinstance(physical, str) and self.number(physical) is not None
        )

    def values(self) -> ValuesView[FileRow]:
        """The rows, in no order."""
        return _Rows(self)

    def of(
        self,
        senders: Collection[str] | None = None,
        *,
        held: bool | None = None,
        registered: bool | None = None,
        sizes: Collection[int] | None = None,
    ) -> Iterator[FileRow]:
        """Rows of some senders, or all, that are as it is said, in no order.

        Of the packed ones columns are looked at, and what does not fit is not gone through.
        """
        for row in self.young.values():
            if (
                (senders is None or row.sender in senders)
                and (held is None or row.held is held)
                and (registered is None or row.registered is registered)
                and (sizes is None or row.size in sizes)
            ):
                yield row
        packed = self.packed
        fits = np.frombuffer(self.left, np.uint8) == 0
        if senders is not None:
            known = np.array([each in senders for each in packed.texts.senders], np.bool_)
            fits &= known[view(packed.senders)] if len(known) else False
        if held is not None:
            fits &= ((view(packed.flags) & RETIRED) == 0) == held
        if registered is not None:
            fits &= ((view(packed.flags) & REGISTERED) != 0) == registered
        if sizes is not None:
            wanted = np.array([*sizes], np.uint64)
            fits &= np.isin(view(packed.sizes).view(np.uint64), wanted)
        yield from packed_rows(packed, np.flatnonzero(fits).tolist())

    def meeting(
        self,
        ids: AbstractSet[int],
        first: int,
        last: int,
        *,
        since: int,
        beside: Collection[str],
        hidden: bool = False,
    ) -> Iterator[FileRow]:
        """Visible files with one of some devices, whose times meet a range, in no order.

        Args:
            ids: of the devices.
            first: of the range.
            last: of it.
            since: only those that changed behind this commit.
            beside: directories whose files are left out.
            hidden: those too that are not visible, and not yet forgotten.
        """
        for row in self.young.values():
            if (
                (hidden or row.visible)
                and row.changed > since
                and row.first is not None
                and row.last is not None
                and row.first <= last
                and first <= row.last
                and row.physical.rpartition("/")[0] not in beside
                and not ids.isdisjoint(row.devices.ids)
            ):
                yield row
        packed = self.packed
        fits = np.frombuffer(self.left, np.uint8) == 0
        fits &= (view(packed.firsts) <= last) & (view(packed.lasts) >= first)
        fits &= view(packed.changed).view(np.uint64) > since
        numbers = np.flatnonzero(fits)
        sets, places = view(packed.sets)[numbers], view(packed.directories)[numbers]
        have = [e for e in np.unique(sets).tolist() if not ids.isdisjoint(packed.id_arrays[e])]
        aside = [at for at, each in enumerate(packed.texts.directories) if each in beside]
        chosen = np.isin(sets, have) & ~np.isin(places, aside)
        yield from packed_rows(packed, numbers[chosen].tolist())

    # -- what is packed ----------------------------------------------------------------------

    def number(self, physical: str) -> int | None:
        """The number of a packed file."""
        number = self._asked.get(physical)
        if number is None and self._staying:
            number = self.packed.number(physical)
            if number is not None:
                if len(self._asked) >= _ASKED:
                    self._asked = {}
                self._asked[physical] = number
        return None if number is None or self.left[number] else number

    def numbers(self, within: range | None = None) -> list[int]:
        """Of all packed files, or of some that are neighbours."""
        begin, end = (0, len(self.left)) if within is None else (within.start, within.stop)
        if end - begin < _FEW:
            left = self.left
            return [number for number in range(begin, end) if not left[number]]
        some = np.frombuffer(self.left, np.uint8)[begin:end]
        found: list[int] = (np.flatnonzero(some == 0) + begin).tolist()
        return found

    def count_packed(self, sg: str, sender: str, *, held: bool) -> int:
        """How many packed files of a storage group a sender has; only what it lists with `held`."""
        packed = self.packed
        if sender not in packed.texts.senders:
            return 0
        fits = np.frombuffer(self.left, np.uint8) == 0
        fits &= view(packed.senders) == packed.texts.senders.index(sender)
        if held:
            fits &= (view(packed.flags) & RETIRED) == 0
        names = packed.texts.directories
        inside = np.array([each.split("/", 2)[1] == sg for each in names], np.bool_)
        return int(np.count_nonzero(inside[view(packed.directories)[fits]]))

    def staying(self, numbers: Iterable[int]) -> list[FileRow]:
        """The packed files of some numbers, without what has left."""
        left = self.left
        return list(packed_rows(self.packed, (number for number in numbers if not left[number])))

    def take_out(self, number: int) -> FileRow:
        """Let a packed file be young, as an object."""
        row = whole(packed_row(self.packed, number))
        self._leave(number)
        self.young[row.physical] = row
        return row

    def end(self, number: int, physical: str, *, last_look: int, changed: int) -> FileRow:
        """Let a packed file be young and retired, without an object of all its fields."""
        ended = EndedFile(
            self.packed, number, physical=physical, last_look=last_look, changed=changed
        )
        row = self.young[physical] = cast("FileRow", ended)
        self._leave(number)
        return row

    def _leave(self, number: int) -> None:
        self.left[number] = 1
        self._staying -= 1
        self.within[self.packed.directories[number]] -= 1

    def freeze(self) -> FrozenFileRows:
        """A copy, made under the caller's lock: references and a byte for each."""
        return FrozenFileRows(list(self.young.values()), self.packed, bytes(self.left))

    def adopt(self, frozen: FrozenFileRows, packed: Packed) -> None:
        """Take what `frozen` was packed to; what was young stays so until it is `put_back`."""
        changed = np.frombuffer(self.left, np.uint8) != np.frombuffer(frozen.left, np.uint8)
        self.packed, self.left, self.within = packed.files, packed.left, packed.within
        self._staying = len(packed.files) - len(packed.rows)
        self._asked = {}
        for number in packed.moved[changed].tolist():
            self._leave(number)

    def put_back(self, number: int, row: FileRow) -> bool:
        """Let a packed file stand for a row, unless that has changed since."""
        if self.young.get(row.physical) is not row:
            return False
        del self.young[row.physical]
        self.left[number] = 0
        self._staying += 1
        self.within[self.packed.directories[number]] += 1
        return True

    def shrink(self) -> None:
        """Give back the room of rows that are packed by now."""
        ended = [row for row in self.young.values() if isinstance(row, EndedFile)]
        for row in ended:
            if not row.is_of(self.packed):  # the table before would stay for it
                self.young[row.physical] = row.whole()
        self.young = dict(self.young)

    def thaw(self, packed: PackedFiles) -> None:
        """Begin with packed files; there are no others yet."""
        self.packed, self.left = packed, bytearray(len(packed))
        self.within = array("I", np.diff(view(packed.begins)).astype(np.uint32).tobytes())
        self._staying = len(packed)


class _Rows(ValuesView[FileRow]):
    def __init__(self, rows: FileRows) -> None:
        super().__init__(rows)
        self._rows = rows

    def __iter__(self) -> Iterator[FileRow]:
        rows = self._rows
        return chain(rows.young.values(), packed_rows(rows.packed, rows.numbers()))
