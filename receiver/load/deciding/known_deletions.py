"""What is new in deletion files, joined to what is known of them.

A deletion file is only ever appended to, and the last one that was seen holds: what a sender tells
once more is known already, what is shorter than what is known takes nothing back. One that was
written anew takes the place of what is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.model.records import DeletionsNoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from common.wire import DeletionsPart
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["KnownDeletions"]


class KnownDeletions:
    """The deletion files of one sender, with what a task tells of them.

    Attributes:
        ops: what is to be committed.
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
        elif part.base == 0:
            base, content = 0, part.content
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
                )
            )
        return True

    def _physical(self, path: str) -> str | None:
        if path in self._loads:
            return self._loads[path]
        row = self._held(path) or self._state.file_table.forwarded(self._sender, path)
        return None if row is None else row.physical

    def _known(self, path: str, form: str, physical: str | None) -> bytes | bytearray:
        if (path, form) in self._content:
            return self._content[path, form]
        if self._anew:
            return b""
        table = self._state.deletion_table
        if physical is None or path in self._loads:  # a file that is loaded takes them over
            rows = table.unloaded(self._sender, path)
            if path in self._carried:
                rows = table.of_file(self._carried[path]) + rows
        else:
            rows = table.of_file(physical)
        return next((row.content for row in rows if row.form == form), b"")
