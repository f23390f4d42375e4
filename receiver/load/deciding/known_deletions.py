"""What is new in deletion files, joined to what is known of them.

A deletion file is only ever appended to, and the last one that was seen holds: what a sender tells
once more is known already, what is shorter than what is known takes nothing back. One that was
written anew takes the place of what is known. What was only kept, and is told once more as to be
applied, is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from receiver.metadata.model.records import DeletionsNoted, KeptRecordsApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from common.wire import DeletionsPart
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import DeletionsRow, DeletionsSegment, FileRow

__all__ = ["KeptRecords", "KnownDeletions"]


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
        self._content: dict[tuple[str, str], bytearray] = {}
        self._anew_files: set[tuple[str, str]] = set()
        self._again: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.ops: list[DeletionsNoted] = []

    def take(self, part: DeletionsPart) -> bool:
        """Take one more part; whether what stands before it is known."""
        physical = self._physical(part.path)
        known = self._known(part.path, part.form, physical)
        if part.base > len(known):
            return False
        again = known[part.base : part.base + len(part.content)]
        if part.content.startswith(again):  # behind what is known, or known already
            base, content = len(known), part.content[len(again) :]
            if again and part.applied:
                span = (part.base, part.base + len(again))
                self._again.setdefault((part.path, part.form), []).append(span)
        elif part.base == 0:
            base, content = 0, part.content
            self._again.pop((part.path, part.form), None)
            self._anew_files.add((part.path, part.form))
        else:
            return False
        if content:
            if base != len(known):
                known = known[:base]
            told = known if isinstance(known, bytearray) else bytearray(known)
            told += content
            self._content[part.path, part.form] = told
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
            op
            if op.applied or not _spans(self._told_again(op), op.base, op.base + len(op.content))
            else msgspec.structs.replace(op, applied=True, kept=None)
            for op in self.ops
        ]

    def _told_again(self, op: DeletionsNoted) -> list[tuple[int, int]]:
        return self._again.get((op.path, op.form), [])

    def kept(self) -> Iterator[KeptRecords]:
        """What was told once more of what was only kept, and is to be applied."""
        for (path, form), told in self._again.items():
            physical = self._physical(path)
            row = self._committed(path, form, physical)
            if row is None or (path, form) in self._anew_files:
                continue
            begin, ends = 0, []
            for each in row.segments:
                if each.may_apply and _spans(told, begin, each.end):
                    ends.append(each.end)
                begin = each.end
            if ends:
                yield KeptRecords(KeptRecordsApplied(self._sender, path, physical, form, ends), row)

    def _known(self, path: str, form: str, physical: str | None) -> bytes | bytearray:
        if (path, form) in self._content:
            return self._content[path, form]
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


def _spans(told: list[tuple[int, int]], begin: int, end: int) -> bool:
    """Whether ranges, joined, hold all from a begin to an end."""
    for first, last in sorted(told):
        if first <= begin:
            begin = max(begin, last)
    return begin >= end
