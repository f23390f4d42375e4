"""Brings the files of a restored engine back from the store into its data directories.

A file comes under a temporary name, is compared with the MD5 of its row, flushed, and moved to its
own, in the first directory that has room. What stands whole already is left, wherever, so a restore
that was cut off goes on. A file that was never
uploaded is not invented: it goes to quarantine with the reason, where its sender is asked for it.
One that storage nodes are to have is left to the server, which asks them, as `fsck` leaves it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from common.console.step_progress import StepCounter, untold
from common.digests import md5_of_fd
from common.durable import free_bytes
from common.errors import NoSpaceError, TsferryError
from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.placed_files import holding_nodes, placed_nodes
from receiver.metadata.state.table_rows import FileState
from receiver.storage.cache.object_fetching import fetch_beside, settle_fetched
from receiver.storage.stores.incarnation import incarnations
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_keys import data_key, resource_key, stored_key
from receiver.storage.stores.object_store import ObjectMissingError

if TYPE_CHECKING:
    from common.console.step_progress import ToldProgress
    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.records import Commit
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["RestoredFiles", "is_of_restore", "restore_files", "stands"]

_BATCH = 1000
_PARALLEL = 8
"""Files that are fetched at once."""
_NEVER = "it was not in the object store when this receiver was restored from there"
_GIVEN_UP: Final = "superseded"


class RestoredFiles(NamedTuple):
    """What became of the files.

    Attributes:
        fetched: that came from the store.
        bytes: of them.
        there: that stood in the data directory already.
        lacking: paths at their senders, of those that were not in the store.
        left: that stay in the store only.
        given_up: paths at their senders, of those that were not in the store either, and whose
            points other files give.
        at_nodes: how many were not in the store, and are to be at storage nodes.
    """

    fetched: int
    bytes: int
    there: int
    lacking: list[tuple[str, str]]
    left: int
    given_up: list[tuple[str, str]]
    at_nodes: int


class _Due(NamedTuple):
    row: FileRow
    keys: list[str]
    """Of its object; one of them, where no commit tells."""
    is_told: bool
    """Whether a commit tells of all of it, its resource too."""


class _Brought(NamedTuple):
    came: bool
    is_whole: bool
    """Whether its resource is here too."""


class _Wanted(NamedTuple):
    rel: str
    key: str
    size: int
    md5: str


def restore_files(
    store: ObjectStore,
    engine: Engine,
    trees: Sequence[Tree],
    *,
    keep: int = 0,
    most: int | None = None,
    without_nodes: bool = False,
    told: ToldProgress = untold,
) -> RestoredFiles:
    """Fetch all that the engine knows and the store has.

    An upload that no commit in the store tells of is looked for under the key that it would have.

    Args:
        store: where the objects are.
        engine: open for writing.
        trees: the data directories that they go to.
        keep: bytes that are to stay free in each, while another has room.
        most: bytes that are fetched, those that were loaded last first; None for all. Others that
            a commit tells of are fetched when they are needed.
        without_nodes: storage nodes are gone too: what is not in the store is left to none.
        told: called with each file that is done with.

    Raises:
        StoreAwayError, StoreRefusedError: of the store; calling again goes on.
        NoSpaceError: the disk is full; calling again goes on.
    """
    numbers = incarnations(store, engine.uuid)
    with engine.reading() as state:
        places = state.uploaded_table.rows
        due = [
            _due(row, places.get(row.physical), engine.uuid, numbers)
            for row in state.files.values()
            if row.physical in places or row.visible or row.state is FileState.SUPERSEDED
        ]
    whole = len(due)
    if most is not None:
        due = list(_fitting(due, most))
    lacking: list[FileRow] = []
    bare: list[FileRow] = []
    fetched = size = there = 0
    counter = StepCounter("files", len(due), sum(each.row.size for each in due), told)
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="restore") as pool:
        for batch in _batches(due):
            results = pool.map(lambda each: _bring(store, trees, keep, each), batch)
            for each, brought in zip(batch, results, strict=True):
                counter.done(each.row.size)
                if brought is None:
                    lacking.append(each.row)
                    continue
                if not brought.is_whole:
                    bare.append(each.row)
                if brought.came:
                    fetched, size = fetched + 1, size + each.row.size
                else:
                    there += 1
            _settle(trees, sorted({each.row.physical.rpartition("/")[0] for each in batch}))
    nowhere = lacking if without_nodes else _at_no_node(engine, lacking)
    at_nodes, lacking = len(lacking) - len(nowhere), nowhere
    given = [row for row in lacking if row.state is FileState.SUPERSEDED]
    lacking = [row for row in lacking if row.state is not FileState.SUPERSEDED]
    _give_up(engine, given)
    _ask_again(engine, lacking)
    lacking = _still_wanted(engine, lacking)
    _note_bare(engine, bare)
    return RestoredFiles(
        fetched=fetched,
        bytes=size,
        there=there,
        lacking=[(row.sender, row.path) for row in lacking],
        left=whole - len(due),
        given_up=[(row.sender, row.path) for row in given],
        at_nodes=at_nodes,
    )


def is_of_restore(commit: Commit) -> bool:
    """Whether a commit may be of a restore that was cut off behind it."""
    asked = [op for op in commit.ops if not _follows(op)]
    return bool(asked) and all(map(_is_asked, asked))


def _follows(op: records.Record) -> bool:
    """Whether an operation is one that the engine adds to those of a restore."""
    match op:
        case records.FileDeleted(physical=physical, reason=reason):
            return is_merged(physical) and reason == "replaced"
    return isinstance(op, records.FileRevived | records.FileReturned | records.CompactionDissolved)


def _is_asked(op: records.Record) -> bool:
    match op:
        case records.FileQuarantined(reason=reason):
            return reason == _NEVER
        case records.ResourceNoted(resource=resource):
            return resource is None
        case records.FileDeleted(reason=reason):
            return reason == _GIVEN_UP
    return False


def _fitting(due: list[_Due], most: int) -> Iterator[_Due]:
    """Those that fit, and those that no commit tells of: whether they are there is not known."""
    for each in sorted(due, key=lambda each: each.row.created, reverse=True):
        resource = each.row.resource
        most -= each.row.size + (0 if resource is None else resource.size)
        if most >= 0 or not each.is_told:
            yield each


def _batches(due: list[_Due]) -> Iterator[list[_Due]]:
    rest = iter(due)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _due(row: FileRow, told: UploadedRow | None, engine: str, numbers: list[int]) -> _Due:
    """Where it was told to be first: in a backup it may be where it was put before that."""
    keys = [data_key(engine, number, row.physical) for number in numbers]
    if told is not None:
        keys.insert(0, stored_key(engine, told))
    is_told = told is not None and (row.resource is None or row.resource.md5 == told.resource)
    return _Due(row, list(dict.fromkeys(keys)), is_told)


def _bring(store: ObjectStore, trees: Sequence[Tree], keep: int, due: _Due) -> _Brought | None:
    """Fetch a file and its resource; None if the store has none of it."""
    row, physical, came = due.row, FilePath.parse(due.row.physical), False

    def bring(rel: str, places: Sequence[str], size: int, digest: str) -> bool:
        nonlocal came
        if any(stands(tree, rel, size, digest) for tree in trees):
            return True
        for place in places:
            with suppress(ObjectMissingError, ContentChangedError):
                _fetch_somewhere(store, trees, keep, _Wanted(rel, place, size, digest))
                came = True
                return True
        return False

    is_whole = True
    if row.resource is not None:
        digest = row.resource.md5
        places = [resource_key(key, digest) for key in due.keys]
        is_whole = bring(physical.resource.text, places, row.resource.size, digest)
    if not bring(physical.text, due.keys, row.size, row.md5):
        return None
    return _Brought(came, is_whole)


def stands(tree: Tree, rel: str, size: int, digest: str) -> bool:
    """Whether a file is there, with this content."""
    try:
        fd = tree.open_read(rel)
    except (OSError, TsferryError):
        return False
    try:
        return os.fstat(fd).st_size == size and md5_of_fd(fd) == digest
    finally:
        os.close(fd)


def _fetch_somewhere(store: ObjectStore, trees: Sequence[Tree], keep: int, wanted: _Wanted) -> None:
    """Fetch an object into the first directory that has room, or into any that takes it."""
    roomy = [tree for tree in trees if free_bytes(tree.path) >= wanted.size + keep]
    order = [*roomy, *(tree for tree in trees if tree not in roomy)]
    for tree in order[:-1]:
        try:
            return _fetch(store, tree, wanted)
        except NoSpaceError:
            continue
    return _fetch(store, order[-1], wanted)


def _fetch(store: ObjectStore, tree: Tree, wanted: _Wanted) -> None:
    tree.make_dirs(wanted.rel.rpartition("/")[0])
    fetched = fetch_beside(store, tree, wanted.key, wanted.size, wanted.md5)
    tree.rename(fetched, wanted.rel, sync=False)


def _note_bare(engine: Engine, bare: list[FileRow]) -> None:
    """Nothing waits for a resource that is nowhere: readers need none."""
    for begin in range(0, len(bare), _BATCH):
        some = [row for row in bare[begin : begin + _BATCH] if row.visible]
        if some:
            engine.commit([records.ResourceNoted(row.physical, None) for row in some])


def _settle(trees: Sequence[Tree], folders: Sequence[str]) -> None:
    """Have the names of what was brought last, where it came to and where it was until then."""
    for tree in trees:
        for folder in folders:
            if tree.exists(folder):
                tree.sync_dir(folder)
        settle_fetched(tree)


def _at_no_node(engine: Engine, lacking: Sequence[FileRow]) -> list[FileRow]:
    """Those that no storage node is to have: of others nobody has been asked yet.

    Such a file stays as it is for readers, who find it at a node. In quarantine it would be asked
    of its sender, who may have let go of it for what the nodes have proved.
    """
    with engine.reading() as state:
        return [
            row
            for row in lacking
            if not (placed_nodes(state, row.physical) or holding_nodes(state, row.physical))
        ]


def _give_up(engine: Engine, given: list[FileRow]) -> None:
    """Forget superseded files that are nowhere, as `fsck` does.

    Before what they rest on is quarantined, where that is nowhere too: they would come back into
    sight without bytes. What is sent again is not taken to be here for them, either.
    """
    for begin in range(0, len(given), _BATCH):
        engine.commit(
            [records.FileDeleted(row.physical, _GIVEN_UP) for row in given[begin : begin + _BATCH]]
        )


def _still_wanted(engine: Engine, lacking: list[FileRow]) -> list[FileRow]:
    """Without merged files in whose place what they are made of is read again."""
    with engine.reading() as state:
        now = [state.files.get(row.physical) for row in lacking]
    return [
        row
        for row, known in zip(lacking, now, strict=True)
        if known is None or known.state is not FileState.DELETED
    ]


def _ask_again(engine: Engine, lacking: list[FileRow]) -> None:
    """Quarantine what is nowhere here: its senders are asked for it, and readers are not misled."""
    seen = [row for row in lacking if row.visible]  # those of a restore before are quarantined
    for begin in range(0, len(seen), _BATCH):
        some = seen[begin : begin + _BATCH]
        engine.commit([records.FileQuarantined(row.physical, _NEVER) for row in some])
