"""Files on the disks that no row names, and that nobody is about to name."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.durable import Tree
from common.errors import NameRefusedError, TsferryError
from common.names import RESOURCE, FilePath, Kind
from receiver.load.deciding.known_files.candidates import physical_name
from receiver.load.folder.current_task import TASK_RECORD, TaskRecord
from receiver.load.folder.sender_folder import FOLDERS_ROOT, Folders
from receiver.load.merged_files import expected_outputs
from receiver.load.upkeep.fsck_findings import STRAY, Found
from receiver.metadata.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.load.folder.sender_folder import SenderFolder

__all__ = ["find_strays", "folders_in", "strays_among"]

_AT_ONCE = 10_000
"""Names on the disk that are compared with the rows at once."""


def find_strays(engine: Engine, trees: Sequence[Tree]) -> Iterator[Found]:
    """Files in `sequence/` and `unsequence/` that neither a row nor a task under way names."""
    on_disk = ((tree, rel) for tree in trees for kind in Kind for rel, _ in tree.files(kind))
    unnamed: list[tuple[Tree, str]] = []
    while some := list(islice(on_disk, _AT_ONCE)):
        unnamed += _without_rows(engine, some)
    for tree, rel in strays_among(engine, trees, unnamed):
        repair = f"move it to {STRAY}/{rel}"
        detail = f"no row names it (in {tree.path})"
        yield Found(kind="stray", path=rel, detail=detail, repair=repair)


def strays_among(
    engine: Engine, trees: Sequence[Tree], unnamed: list[tuple[Tree, str]]
) -> Iterator[tuple[Tree, str]]:
    """Of files without a row those that no task, and no merge, is about to name either.

    Args:
        engine: the metadata engine.
        trees: all data directories that are there.
        unnamed: where each is, and its name there.
    """
    expected = {name for tree in trees for name in _expected(tree)}
    merging = {
        name for tree in trees for several in expected_outputs(tree).values() for name in several
    }
    unnamed = _without_rows(engine, unnamed)  # what a task has committed meanwhile has its row
    with engine.reading() as state:
        merging |= {
            each.physical for row in state.compacted_table.rows.values() for each in row.outputs
        }
    for tree, rel in unnamed:
        if rel.removesuffix(RESOURCE) not in expected and rel not in merging:
            yield tree, rel


def _without_rows(engine: Engine, names: list[tuple[Tree, str]]) -> list[tuple[Tree, str]]:
    with engine.reading() as state:
        return [each for each in names if each[1].removesuffix(RESOURCE) not in state.files]


def _expected(tree: Tree) -> Iterator[str]:
    """Physical names of the files that tasks with an end are about to commit."""
    for folder in folders_in(tree):
        try:
            record = from_json(tree.read(folder.at(TASK_RECORD)), TaskRecord)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            record = None
        names = [(record.task, each.path) for each in record.manifest or ()] if record else []
        with suppress(OSError, TsferryError):
            staged = folder.staged.recorded()
            names += [(each.single, each.path) for each in staged if each.single is not None]
        for task, text in names:
            try:
                yield physical_name(folder.uuid, task, FilePath.parse(text)).text
            except NameRefusedError:
                continue


def folders_in(tree: Tree) -> list[SenderFolder]:
    """What senders have in a data directory; none, where it is not its own."""
    folders = Folders([tree])
    return [] if FOLDERS_ROOT in folders.misplaced() else list(folders.in_directory(tree))
