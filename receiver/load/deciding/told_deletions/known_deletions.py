"""What is new in deletion files, joined to what is known of them.

What is known of the deletion file of a TsFile is only ever appended to: what a sender tells once
more is known already, what is shorter takes nothing back, and what does not begin as it did is told
behind what is known. So is what belongs to another name of the same content: where a file has
several names, what is deleted beside one of them is deleted of it. Only of a file that is not
loaded what is written anew takes the place of what is known. What was only kept, and is told once
more as to be applied, is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.tsfile.deletion_records import whole_records
from common.tsfile.primitives import Malformed
from receiver.metadata.model.records import DeletionsNoted, KeptRecordsApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from common.wire import DeletionsPart
    from receiver.metadata.state.deletion_rows import DeletionsRow, DeletionsSegment
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["KeptRecords", "KnownDeletions"]

_HEAD = 64
"""Bytes by which a place is looked for."""
_MOST_PLACES = 1000


class KeptRecords(NamedTuple):
    """Records of one deletion file that were only kept, and are to be applied.

    Attributes:
        op: what is to be committed.
        row: the deletion file, as it is known.
    """

    op: KeptRecordsApplied
    row: DeletionsRow

    def parts(self) -> Iterator[tuple[int, bytes, DeletionsSegment]]:
        """Of each of its segments: where it begins, its records, and itself."""
        begin = 0
        for each in self.row.segments:
            if each.end in self.op.ends:
                yield begin, self.row.content[begin : each.end], each
            begin = each.end

    @property
    def certain(self) -> bool:
        """Whether all of it is known to have been kept, not dropped by an operator."""
        return all(each.kept for _, _, each in self.parts())


class KnownDeletions:
    """The deletion files of one sender, with what a task tells of them.

    Attributes:
        ops: what is to be committed; see `noted`.
    """

    def __init__(
        self,
        state: State,
        sender: str,
        loads: Mapping[str, str] | None = None,
        held: Callable[[str], FileRow | None] | None = None,
        carried: Mapping[str, str] | None = None,
        *,
        anew: bool = False,
    ) -> None:
        """Begin with what is committed.

        Args:
            state: committed.
            sender: whose.
            loads: path -> physical path of the files that the commit at hand loads.
            held: the file that has a path once it is done; as it is committed, if None.
            carried: path -> physical path of the file whose deletions the loaded one takes over.
            anew: whether all is told from its begin, and nothing of before is known any more.
        """
        self._state = state
        self._sender = sender
        self._loads = loads or {}
        self._held = held or (lambda path: state.file_table.held(sender, path))
        self._carried = carried or {}
        self._anew = anew
        self._content: dict[tuple[str, str, str], bytes | bytearray] = {}
        self._behind: dict[tuple[str, str], int] = {}
        self._renewed: set[tuple[str, str, str]] = set()
        self._paths: dict[tuple[str, str, str], str] = {}
        self._again: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
        self.ops: list[DeletionsNoted] = []

    def take(self, part: DeletionsPart) -> bool:
        """Take one more part; whether what stands before it is known."""
        physical = self._physical(part.path)
        key = _key(physical, part.path, part.form)
        if key not in self._content:
            self._content[key] = self._known(part.path, part.form, physical)
        known = self._content[key]
        base = part.base + (self._behind.get((part.path, part.form), 0) if part.base else 0)
        if base > len(known):
            return False
        again = known[base : base + len(part.content)]
        if not part.content.startswith(again):
            if physical is None or (part.path in self._loads and part.path not in self._carried):
                if part.base:
                    return False
                known = b""  # nobody knows whether it is of the same file
                self._again.pop(key, None)
                self._renewed.add(key)
            base = _place(known, part.content, part.form)
            again = known[base : base + len(part.content)]
        self._behind[part.path, part.form] = base - part.base
        if again and part.applied:
            self._again.setdefault(key, []).append((base, base + len(again)))
            self._paths[key] = part.path
        content, base = part.content[len(again) :], len(known)
        if content:
            told = known if isinstance(known, bytearray) else bytearray(known)
            told += content
            self._content[key] = told
            self.ops.append(
                DeletionsNoted(
                    sender=self._sender,
                    path=part.path,
                    physical=physical,
                    form=part.form,
                    base=base,
                    content=content,
                    floor=part.floor,
                    applied=part.applied,
                    author=part.author,
                    kept=None if part.applied else True,
                )
            )
        return True

    def _physical(self, path: str) -> str | None:
        if path in self._loads:
            return self._loads[path]
        row = self._held(path) or self._state.file_table.forwarded(self._sender, path)
        return None if row is None else row.physical

    def noted(self) -> list[DeletionsNoted]:
        """What is to be committed; what the task told once more as to be applied is applied."""
        return [
            msgspec.structs.replace(op, applied=True, kept=None)
            if not op.applied and _spans(self._told_again(op), op.base, op.base + len(op.content))
            else op
            for op in self.ops
        ]

    def _told_again(self, op: DeletionsNoted) -> list[tuple[int, int]]:
        return self._again.get(_key(op.physical, op.path, op.form), [])

    def kept(self) -> Iterator[KeptRecords]:
        """What was told once more of what was only kept, and is to be applied."""
        for key, told in self._again.items():
            path, form = self._paths[key], key[2]
            physical = self._physical(path)
            row = self._committed(path, form, physical)
            if row is None or key in self._renewed:
                continue
            begin, ends = 0, []
            for each in row.segments:
                if each.may_apply and _spans(told, begin, each.end):
                    ends.append(each.end)
                begin = each.end
            if ends:
                yield KeptRecords(KeptRecordsApplied(self._sender, path, physical, form, ends), row)

    def _known(self, path: str, form: str, physical: str | None) -> bytes:
        row = self._committed(path, form, physical)
        return b"" if row is None else row.content

    def _committed(self, path: str, form: str, physical: str | None) -> DeletionsRow | None:
        if self._anew:
            return None
        table = self._state.deletion_table
        if physical is None or path in self._loads:  # a file that is loaded takes them over
            rows = table.unloaded(self._sender, path)
            if path in self._carried:
                rows = table.of_file(self._carried[path]) + rows
        else:
            rows = table.of_file(physical)
        return next((row for row in rows if row.form == form), None)


def _key(physical: str | None, path: str, form: str) -> tuple[str, str, str]:
    return physical or "", "" if physical else path, form


def _spans(told: list[tuple[int, int]], begin: int, end: int) -> bool:
    """Whether ranges, joined, hold all from a begin to an end."""
    for first, last in sorted(told):
        if first <= begin:
            begin = max(begin, last)
    return begin >= end


def _place(known: bytes | bytearray, content: bytes, form: str) -> int:
    """Where records stand in what is known, or with their begin at its end; else its end."""
    places = _found(known, content[:_HEAD])
    places += range(max(0, len(known) - _HEAD), len(known))
    for at in places:
        there = bytes(known[at : at + len(content)])
        if content.startswith(there) and _is_whole(there, form):
            return at
    return len(known)


def _found(known: bytes | bytearray, head: bytes) -> list[int]:
    found: list[int] = []
    at = known.find(head)
    while at >= 0 and len(found) < _MOST_PLACES:
        found.append(at)
        at = known.find(head, at + 1)
    return found


def _is_whole(records: bytes, form: str) -> bool:
    try:
        return whole_records(records, form) == len(records)
    except Malformed:
        return False
