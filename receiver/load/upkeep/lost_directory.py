"""What is lost with a data directory that does not come back, and how its files come again.

Lost is what no other directory and no object store has; a `.resource` that is gone makes no file
lost, for a database makes it anew. It goes the way of what `fsck` finds
missing: a file is put in quarantine, which makes its sender send it again, and shows it as lost
where that has it no more; a superseded one is deleted, for others give its points; what was merged
is dissolved, and its inputs are read. Each is repeatable, so that what was cut off is simply said
once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from common import crash
from common.errors import ConflictError
from receiver.datadirs.disks import is_whole_in
from receiver.load.placing import tree_of
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.metadata.state.placed_files import parts_elsewhere
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.uploaded import InStore

__all__ = ["DirectoryLoss", "find_loss", "take_loss"]

_AT_ONCE: Final = 500
"""Records of a commit."""


@dataclass(frozen=True)
class DirectoryLoss:
    """Files of a directory.

    Attributes:
        wanted: that are nowhere else, and their senders are going to be asked for.
        gone: that are nowhere else, and their senders have no more.
        superseded: that are nowhere else, and are left out by readers.
        merged: ids of compactions of which an output is nowhere else.
        stored: that are in the object store, and are read there.
        elsewhere: that another directory has.
        kept: bytes in quarantine that are nowhere else.
    """

    wanted: tuple[FileRow, ...] = ()
    gone: tuple[FileRow, ...] = ()
    superseded: tuple[FileRow, ...] = ()
    merged: tuple[int, ...] = ()
    stored: int = 0
    elsewhere: int = 0
    kept: int = 0


def find_loss(
    engine: Engine, trees: Sequence[Tree], data_dir: str, *, is_alone: bool = False
) -> DirectoryLoss:
    """What is lost with a directory; nothing is changed.

    Args:
        engine: the metadata engine.
        trees: the data directories that are there; all but the lost one.
        data_dir: the path under which files were loaded into it, as far as is known.
        is_alone: no other directory is away. Then what is nowhere was in this one, whatever path
            stands in the catalogue: disks may have been mounted at others since.
    """
    lost: dict[bool | None, list[FileRow]] = {True: [], False: [], None: []}
    stored = elsewhere = 0
    for row, in_store in _rows(engine):
        if row.data_dir != data_dir:
            if not is_alone or in_store.file or tree_of(trees, row) is not None:
                continue
        elif is_whole_in(trees, row):
            elsewhere += 1
            continue
        elif in_store.file and tree_of(trees, row) is None:
            stored += 1
            continue
        lost[None if row.state is FileState.SUPERSEDED else row.retired].append(row)
    with engine.reading() as state:
        outputs = [
            (row.id, each.physical)
            for row in state.compacted_table.holding()
            for each in row.outputs
            if is_alone or each.data_dir == data_dir
        ]
        kept = [row.kept for row in state.quarantine.values() if row.kept is not None]
    merged = {ident for ident, name in outputs if not any(tree.exists(name) for tree in trees)}
    return DirectoryLoss(
        wanted=tuple(lost[False]),
        gone=tuple(lost[True]),
        superseded=tuple(lost[None]),
        merged=tuple(sorted(merged)),
        stored=stored,
        elsewhere=elsewhere,
        kept=sum(not any(tree.exists(each) for tree in trees) for each in kept),
    )


def _rows(engine: Engine) -> Iterator[tuple[FileRow, InStore]]:
    """Files that readers see, or would see again."""
    for state_of_file in (FileState.LIVE, FileState.SUPERSEDED):
        after: str | None = None
        while True:
            with engine.reading() as state:
                page = state.file_table.among(state_of_file, after, _AT_ONCE)
                told = [(row, parts_elsewhere(state, row)) for row in page]
            yield from told
            if not page:
                break
            after = page[-1].physical


def take_loss(engine: Engine, loss: DirectoryLoss, reason: str) -> int:
    """Have what is lost come again, or be shown; how many files and merges that were.

    Args:
        engine: the metadata engine.
        loss: as it was found.
        reason: of the quarantine.
    """
    count = 0
    # Those first: they would come back, without bytes, with what they rest on in quarantine.
    count += _commit(
        engine, loss.superseded, lambda row: records.FileDeleted(row.physical, "superseded")
    )
    for ident in loss.merged:
        try:
            engine.commit([records.CompactionDissolved(ident, reason)])
        except (ConflictError, RefusedCommitError):
            continue  # it has ended meanwhile
        count += 1
    return count + _commit(
        engine,
        [*loss.wanted, *loss.gone],
        lambda row: records.FileQuarantined(row.physical, reason),
    )


def _commit(
    engine: Engine, rows: Sequence[FileRow], record: Callable[[FileRow], records.Op]
) -> int:
    count = 0
    for begin in range(0, len(rows), _AT_ONCE):
        some = rows[begin : begin + _AT_ONCE]
        count += _commit_some(engine, some, record)
        crash.point("lost.told")
    return count


def _commit_some(
    engine: Engine, rows: Sequence[FileRow], record: Callable[[FileRow], records.Op]
) -> int:
    guards = [Guard("file", row.physical, row.changed) for row in rows]
    try:
        engine.commit([record(row) for row in rows], guards)
    except (GuardFailed, RefusedCommitError):
        if len(rows) == 1:
            return 0  # it was replaced, deleted or put in quarantine meanwhile
        return sum(_commit_some(engine, [row], record) for row in rows)
    return len(rows)
