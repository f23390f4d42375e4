"""What is known of the deletion files of senders: of loaded files, and of files that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from receiver.metadata.model import records
from receiver.metadata.state.deletion_rows import DeletionsRow, DeletionsSegment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables import Appliers
    from receiver.metadata.state.tables.file_tables.listed import ListedSums

__all__ = ["DeletionTable"]

_Forms: TypeAlias = dict[str, DeletionsRow]


class DeletionTable:
    """Deletion files. They outlive the files that they belong to: they hide points of others."""

    def __init__(self, files: Mapping[str, FileRow], listed: ListedSums) -> None:
        """Begin with none.

        Args:
            files: the rows of files, by physical path.
            listed: hears of what those of listed files become.
        """
        self._files = files
        self._listed = listed
        self._of_file: dict[str, _Forms] = {}
        self._unloaded: dict[tuple[str, str, str], _Forms] = {}
        self._of_sender: dict[str, dict[str, None]] = {}
        self._newest: dict[str, int] = {}
        self._past: dict[str, list[DeletionsRow]] = {}

    # -- questions ---------------------------------------------------------------------------

    def of_file(self, physical: str) -> list[DeletionsRow]:
        """Those of a loaded file, at most one of each form."""
        return list(self._of_file.get(physical, {}).values())

    def unloaded(self, sender: str, path: str, heir: str = "") -> list[DeletionsRow]:
        """Those of a file that a look noted, and that is not loaded; or those of an heir's file."""
        return list(self._unloaded.get((sender, path, heir), {}).values())

    def of_sender(self, sender: str) -> Iterator[DeletionsRow]:
        """All of a sender, of loaded files first, then of files that are not, or no more."""
        for physical in self._of_sender.get(sender, ()):
            yield from self._of_file[physical].values()
        for (owner, _, _), forms in self._unloaded.items():
            if owner == sender:
                yield from forms.values()
        yield from self._past.get(sender, ())

    def newest(self, sender: str) -> int:
        """The last commit that told or moved any of a sender, 0 for none."""
        return self._newest.get(sender, 0)

    def __iter__(self) -> Iterator[DeletionsRow]:
        """All there are."""
        for table in (self._of_file, self._unloaded):
            for forms in table.values():
                yield from forms.values()
        for several in self._past.values():
            yield from several

    # -- operations --------------------------------------------------------------------------

    def restore(self, row: DeletionsRow) -> None:
        """Put a row in as it was."""
        self._newest[row.sender] = max(self._newest.get(row.sender, 0), row.changed)
        if row.past:
            self._past.setdefault(row.sender, []).append(row)
        elif row.physical is None:
            self._unloaded.setdefault((row.sender, row.path, row.heir), {})[row.form] = row
        else:
            self._of_file.setdefault(row.physical, {})[row.form] = row
            self._of_sender.setdefault(row.sender, {})[row.physical] = None
            self._listed.told(row.physical, self._of_file[row.physical].values())

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.DeletionsNoted: self._deletions_noted,
            records.KeptRecordsApplied: self._kept_records_applied,
            records.FileLoaded: self._file_loaded,
            records.DeletesSettled: self._deletes_settled,
            records.ListBegun: self._list_begun,
        }

    def _deletions_noted(self, op: records.DeletionsNoted, ts: int) -> None:
        known = self._known(op)
        before = known if known is not None and op.base else None
        content = (before.content if before else b"") + op.content
        segment = DeletionsSegment(len(content), op.floor, ts, op.applied, op.held, op.kept)
        self.restore(
            DeletionsRow(
                sender=op.sender,
                path=op.path,
                physical=op.physical,
                form=op.form,
                content=content,
                segments=(*(before.segments if before else ()), segment),
                by=op.author,
                heir=op.heir,
                created=ts if known is None else known.created,
                changed=ts,
            )
        )

    def _known(
        self, op: records.DeletionsNoted | records.KeptRecordsApplied
    ) -> DeletionsRow | None:
        if op.physical is None:
            return self._unloaded.get((op.sender, op.path, op.heir), {}).get(op.form)
        return self._of_file.get(op.physical, {}).get(op.form)

    def _kept_records_applied(self, op: records.KeptRecordsApplied, ts: int) -> None:
        row, ends = self._known(op), set(op.ends)
        assert row is not None  # the rules hold it
        segments = tuple(
            DeletionsSegment(each.end, each.floor, ts, not op.held, op.held)
            if each.end in ends and each.may_apply
            else each
            for each in row.segments
        )
        self.restore(msgspec.structs.replace(row, segments=segments, changed=ts))

    def _file_loaded(self, op: records.FileLoaded, ts: int) -> None:
        """What a look noted of the file while it was not loaded is its own from now on."""
        for row in self._unloaded.pop((op.sender, op.path, ""), {}).values():
            self.restore(msgspec.structs.replace(row, physical=op.physical, changed=ts))

    def _deletes_settled(self, op: records.DeletesSettled, ts: int) -> None:
        """Records that were held hide from this commit on, or never will."""
        if op.verdict not in ("allow", "drop"):
            return
        for row in list(self):
            if any(each.held == op.digest for each in row.segments):
                segments = tuple(
                    DeletionsSegment(each.end, each.floor, ts, op.verdict == "allow", kept=False)
                    if each.held == op.digest
                    else each
                    for each in row.segments
                )
                if row.past:
                    self._past[row.sender].remove(row)
                self.restore(msgspec.structs.replace(row, segments=segments, changed=ts))

    def _list_begun(self, op: records.ListBegun, ts: int) -> None:
        """What is listed, or not loaded, has its deletion files told anew."""
        rows: list[DeletionsRow] = []
        for physical in list(self._of_sender.get(op.sender, ())):
            if self._is_held(physical):
                rows += self._of_file.pop(physical).values()
                del self._of_sender[op.sender][physical]
                self._listed.told(physical, ())
        for key in [each for each in self._unloaded if each[0] == op.sender]:
            rows += self._unloaded.pop(key).values()
        for row in rows:
            past = msgspec.structs.replace(
                row, physical=None, past=ts, was=row.physical, changed=ts
            )
            self.restore(past)

    def _is_held(self, physical: str) -> bool:
        row = self._files.get(physical)
        return row is not None and row.held
