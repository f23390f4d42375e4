"""Whether tables of files that are to be loaded have their tags as those of the same name here.

A device of a table has its tags by place: of two files with two orders of them a device of one is
called as another device of the other one, and would hide its points.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from common.tsfile import read_tail
from common.tsfile.device_names import in_database, quote_node
from receiver.datadirs.disks import place_of
from receiver.load.deciding.decision_pauses import pauses
from receiver.metadata.model.paths import ROOT
from receiver.metadata.state.tables.file_tables.file_index import GroupKey
from receiver.operator.centre.centre_files import opened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.tsfile import TableSchema
    from receiver.datadirs.disks import Disks
    from receiver.load.deciding.known_files.candidates import Candidate
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.operator.centre.centre_files import CentreFile

__all__ = ["OtherTags", "TableTags"]

_LOOKED_AT: Final = 3
"""Files that are here, of a table: one of them may be of before the last tag was added."""


class OtherTags(NamedTuple):
    """A file of a load whose table has other tags.

    Attributes:
        path: of the file.
        reason: which tags, and where there are others.
    """

    path: str
    reason: str


class _Known(NamedTuple):
    """A table as a file has it."""

    table: TableSchema
    where: str


class TableTags:
    """Compares tables with those of files that are here and can be read on a disk."""

    def __init__(self, engine: Engine, disks: Disks) -> None:
        """Prepare.

        Args:
            engine: that knows the files.
            disks: that they lie on.
        """
        self._engine, self._disks = engine, disks

    def contradiction(self, files: Iterable[tuple[CentreFile, Candidate]]) -> OtherTags | None:
        """The first file that has a table otherwise than a file before it, or here.

        Args:
            files: of the load, whose content is not here.
        """
        known: dict[tuple[str, str], _Known | None] = {}
        for file, candidate in files:
            if not any(each.name.startswith("/") for each in candidate.facts.devices):
                continue
            with opened(file.source) as fd:
                tables = read_tail(fd).tables
            for table in tables:
                key = candidate.path.sg, table.name
                if key not in known:
                    known[key] = self._here(*key)
                before = known[key]
                if before is not None and not before.table.agrees_with(table):
                    reason = (
                        f"table {table.name} has the tags {', '.join(table.tags)}, and "
                        f"{', '.join(before.table.tags)} in {before.where}: a device would be "
                        "taken for another"
                    )
                    return OtherTags(candidate.path.text, reason)
                known[key] = _longer(before, _Known(table, candidate.path.text))
        return None

    def _here(self, database: str, table: str) -> _Known | None:
        found: _Known | None = None
        for row, place in self._files(database, table):
            with suppress(OSError, ValueError):  # what cannot be read is no reason to refuse
                for each in read_tail(place).tables:
                    if each.name == table:
                        found = _longer(found, _Known(each, row.physical))
        return found

    def _files(self, database: str, table: str) -> list[tuple[FileRow, str]]:
        """Some that have devices of a table, and where they are."""
        found: list[tuple[FileRow, str]] = []
        trees, begin = self._disks.standing(), in_database(f"{quote_node(table)}:", database)
        with self._engine.reading() as state:
            if state.schema.nodes.kind_at((ROOT, f"/{database}", table)) is None:
                return []
            between = pauses(self._engine.reading(), commits=True)
            for directory in state.file_table.directories():
                if directory.split("/", 2)[1] != database:
                    continue
                for row in state.file_table.group(GroupKey.of(directory)):
                    between()
                    if not row.visible or not any(each.startswith(begin) for each in row.devices):
                        continue
                    place = place_of(trees, row)
                    if place is not None:
                        found.append((row, place))
                    if len(found) == _LOOKED_AT:
                        return found
        return found


def _longer(one: _Known | None, other: _Known) -> _Known:
    return other if one is None or len(other.table.tags) > len(one.table.tags) else one
