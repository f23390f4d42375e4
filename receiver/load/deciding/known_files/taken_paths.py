"""Who has which path of a sender while a task is decided: committed state, and what it changes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.model.ranks import name_rank
from receiver.metadata.state.packed_file import whole
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from receiver.load.deciding.known_files.candidates import Candidate
    from receiver.metadata.model.ranks import NameRank
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow, OwnerRow

__all__ = ["TakenPaths", "last_transfer"]

_Group: TypeAlias = tuple[str, str, int]


def last_transfer(owners: Mapping[str, OwnerRow], devices: Iterable[str]) -> int:
    """The last commit behind which all of some devices were transferred; 0 if one never was.

    Where only some were, the file is cut (`receiver.metadata.state.transfer_cuts`).

    Args:
        owners: committed.
        devices: of a file.
    """
    rows = (owners.get(each) for each in devices)
    return min(
        (0 if row is None or row.changed == row.created else row.changed for row in rows), default=0
    )


class TakenPaths:
    """Paths of one sender. A file that has lost its last one is retired."""

    def __init__(
        self,
        state: State,
        sender: str,
        last_looks: Mapping[str, int],
        look: int = 0,
        copies: Iterable[Candidate] = (),
    ) -> None:
        """Begin with what is committed.

        Args:
            state: committed.
            sender: whose paths.
            last_looks: of a path that is told as gone, the last look that had it.
            look: that the task follows; 0 of a sender that takes none.
            copies: files that came from a link, and are gone.
        """
        self._copies = copies
        self._table = state.file_table
        self._owners = state.owners
        self._sender = sender
        self._last_looks = last_looks
        self._look = look
        self._at: dict[str, FileRow | None] = {}
        self._paths: dict[str, list[str]] = {}
        self._ended: dict[str, FileRow] = {}
        self._renewed: set[str] = set()
        self._ending: dict[_Group, dict[str, tuple[int, int]]] | None = None

    def held(self, path: str) -> FileRow | None:
        """The file that takes a path now, as it is committed."""
        if path in self._at:
            return self._at[path]
        return self._table.held(self._sender, path)

    def has_path(self, row: FileRow) -> bool:
        """Whether a file has any path now."""
        return bool(self._paths_of(row))

    def ends_with(self, row: FileRow, gone: Collection[str]) -> bool:
        """Whether a file has no path but those that are gone."""
        return all(each in gone for each in self._paths_of(row))

    def ended(self) -> list[FileRow]:
        """Files that had a path and have none any more."""
        return list(self._ended.values())

    def last_look(self, path: str) -> int:
        """The last look that had a path that is told as gone; 0 where that was not told."""
        return self._last_looks.get(path, 0)

    def free(self, path: str, last: int = 0) -> list[records.Op]:
        """Take a path from the file that has it, if one has it.

        Args:
            path: that is free from now on.
            last: the last look that had it there; what was told of its end, if 0.
        """
        row = self.held(path)
        if row is None:
            return []
        self._at[path] = None
        paths = self._paths_of(row)
        before = paths[0]
        paths.remove(path)
        if paths:
            below = _below_the_highest(paths)
            paths[:] = [*paths[len(below) :], *below]
            look = self._going_on(row, before, paths[0])
            return [records.FileUnnamed(row.physical, path, look), *_put_behind(row, below)]
        self._ended[row.physical] = row
        last = last or self.last_look(path)
        # A look that did not get to all of a directory counts for none of it, and yet has files.
        return [records.FileRetired(row.physical, last and max(last, row.first_look))]

    def renew(self, row: FileRow, physical: str) -> list[records.Op]:
        """Let a file that is loaded under `first_of` one that it replaces take its other paths.

        Args:
            row: the one that goes, with the same content.
            physical: the new file.
        """
        paths = list(self._paths_of(row))
        anew = msgspec.structs.replace(whole(row), physical=physical, state=FileState.LIVE)
        self._renewed.add(physical)
        self._paths[physical] = paths
        self._at.update(dict.fromkeys(paths, anew))
        return [records.FileNamed(physical, each) for each in paths[1:]]

    def is_renewed(self, row: FileRow) -> bool:
        """Whether a file was loaded in this commit, for another path of one that it replaces."""
        return row.physical in self._renewed

    def give_back(self, row: FileRow, path: str) -> None:
        """Undo a `free` whose operations are not committed."""
        self._at[path] = row
        paths = self._paths_of(row)
        paths.insert(0 if path == row.path else len(paths), path)
        self._ended.pop(row.physical, None)

    def give(self, row: FileRow, path: str) -> list[records.Op]:
        """Give a free path to a file, retired or superseded ones too."""
        paths = self._paths_of(row)
        self._at[path] = row
        if paths:
            named = records.FileNamed(row.physical, path, self._higher(row, paths[0], path))
            paths[:] = named.among(paths)
            return [named]
        paths.append(path)
        just_now = self._ended.pop(row.physical, None) is not None
        ops: list[records.Op] = []
        if row.state is FileState.SUPERSEDED and not just_now:
            ops.append(records.FileRevived(row.physical))
        look = self._going_on(row, row.path, path) if just_now else self._returned(row, path)
        closed = min(look, self._look)  # what is deleted from now on is deleted of it
        return [*ops, records.FileReturned(row.physical, path, look, closed)]

    def _returned(self, row: FileRow, path: str) -> int:
        """The look from which on a file ranks that had ended; 0 if it ranks as it did.

        What another sender listed of its devices meanwhile had ended before it is listed again.
        """
        since = last_transfer(self._owners, row.devices)
        if since >= row.last_look:
            return max(self._look, since + 1)
        if path != row.path and not _is_ranked(row.path, path):
            return self._look
        return self._anew(row.path, path)

    def _anew(self, before: str, after: str) -> int:
        """The look from which on a file ranks by another name; 0 if that ranks as the old one.

        A compaction may make the very content of a file that it takes, under a name of another
        rank: what it was together with under the old name does not stand above it by the new one.

        Args:
            before: the path that it had.
            after: the one that it has.
        """
        old, new = name_rank(FilePath.parse(before)), name_rank(FilePath.parse(after))
        return 0 if old == new else self._look

    def _going_on(self, row: FileRow, before: str, after: str) -> int:
        """The same of a file that no look was without.

        As a later generation of itself all others stand to it as they did: it was renamed, or
        compacted alone. Not so where another one ended with the old name: a compaction may have
        taken both, and what it made has the points of this one as they are above.
        """
        old, new = name_rank(FilePath.parse(before)), name_rank(FilePath.parse(after))
        if old and new and _is_later_generation(old, new) and not self._end_beside(row):
            return 0
        return self._anew(before, after)

    def _end_beside(self, row: FileRow) -> bool:
        """Whether files of its partition end in the task that may have times of its own."""
        if self._ending is None:
            self._ending = self._spans_ending()
        spans = self._ending.get(row.parsed.group, {})
        return any(
            device in spans and spans[device][0] <= last and first <= spans[device][1]
            for device, first, last in row.devices.ranges()
        )

    def _spans_ending(self) -> dict[_Group, dict[str, tuple[int, int]]]:
        """Of the files that end in the task, by partition and device: first and last time."""
        found: dict[_Group, dict[str, tuple[int, int]]] = defaultdict(dict)
        ending = [(each.path.group, each.ranges) for each in self._copies]
        for path in self._last_looks:
            row = self.held(path) or self._table.held(self._sender, path)
            if row is not None and self.ends_with(row, self._last_looks):
                ending.append((FilePath.parse(path).group, row.devices.ranges()))
        for group, ranges in ending:
            spans = found[group]
            for device, first, last in ranges:
                begin, end = spans.get(device, (first, last))
                spans[device] = (min(begin, first), max(end, last))
        return found

    def _higher(self, row: FileRow, before: str, after: str) -> int:
        """The look from which on a file with both names ranks by the second one; 0 if it does not.

        The database has the content once more, above what came between: as where a point was
        written over, and now has the value again that it had. Of names that no database gave the
        one that came last counts, unless the others end in the task: then it was renamed.
        """
        if not _is_ranked(before, after):
            return 0 if self.ends_with(row, self._last_looks) else self._look
        old, new = name_rank(FilePath.parse(before)), name_rank(FilePath.parse(after))
        if old is None or new is None or new < old or _is_later_generation(old, new):
            return 0
        return self._anew(before, after)

    def first_of(self, row: FileRow) -> str:
        """The path that a file ranks by now."""
        return self._paths_of(row)[0]

    def _paths_of(self, row: FileRow) -> list[str]:
        found = self._paths.get(row.physical)
        if found is None:
            found = self._paths[row.physical] = list(row.paths) if row.held else []
        return found


def _is_ranked(*paths: str) -> bool:
    """Whether a database gave one of some names."""
    return any(name_rank(FilePath.parse(each)) is not None for each in paths)


def _below_the_highest(paths: Sequence[str]) -> list[str]:
    """Of the names of a file those that come before the highest: it ranks by its first."""

    def rank(path: str) -> tuple[int, ...]:
        return name_rank(FilePath.parse(path)) or ()

    return list(paths[: paths.index(max(paths, key=rank))])


def _put_behind(row: FileRow, names: Iterable[str]) -> Iterator[records.Op]:
    for each in names:
        yield records.FileUnnamed(row.physical, each)
        yield records.FileNamed(row.physical, each)


def _is_later_generation(old: NameRank, new: NameRank) -> bool:
    """Whether a name is that of the same file, compacted or renamed once more."""
    return old[:3] == new[:3] and old[3] <= new[3] and old[4] <= new[4]
