"""Keeps the tables of the tree few: small ones are put together, and differences go into parts.

Eight differences of a level become one of the next. When they have an eighth of the rows of the
checkpoint, those of its parts that they touch are written anew; entries that ended before the
history leave them then. Tables of chunks are put together in the same way up to a size, without the
files that the engine has forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from receiver.storage.tree.tree_tables import CHUNKS, NODES, behind, concat, newest_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from receiver.storage.tree.tree_manifests import TreeManifest, TreeTable
    from receiver.storage.tree.tree_objects import TreeObjects
    from receiver.storage.tree.tree_tables import ArrowTable

__all__ = ["PART", "merged", "put_part", "standing"]

PART = 1 << 17
"""Rows of a part of the checkpoint: some 10 MB, and ten times as much in memory."""
_AT_ONCE = 8
"""Tables of one level that become one of the next."""
_LEAST = 20_000
"""Rows of differences that a checkpoint is not made for yet."""
_CHUNKS_AT_MOST = 1 << 19
"""Rows of a table of chunks that others are put into."""


def merged(
    made: TreeManifest,
    objects: TreeObjects,
    *,
    oldest: int,
    forgotten: Callable[[Iterable[str]], set[str]],
) -> TreeManifest:
    """A manifest with fewer tables, which say the same.

    Args:
        made: that is to be put.
        objects: puts and reads tables.
        oldest: the begin of the history: what ended until then may go.
        forgotten: which of some files the engine does not know any more.

    Raises:
        DamagedError: a table is not what was put.
        StoreAwayError, StoreRefusedError: of the store.
    """
    rows = sum(each.rows for each in made.differences)
    if rows > max(_LEAST, sum(each.rows for each in made.checkpoint) // 8):
        made = _swept(_checkpoint(made, objects, oldest), objects, forgotten)
    while together := _eight(made.differences):
        tables = [objects.read(each, NODES) for each in together]
        whole = newest_rows(concat(tables))
        one = objects.make(made.number, "difference", whole, level=together[0].level + 1)
        rest = [each for each in made.differences if each not in together]
        made = replace(made, differences=[*rest, one])
    while together := _eight([each for each in made.chunks if each.rows <= _CHUNKS_AT_MOST // 8]):
        whole = concat([objects.read(each, CHUNKS) for each in together])
        made = _instead(made, objects, together, _without(whole, forgotten))
    return made


def _swept(
    made: TreeManifest, objects: TreeObjects, forgotten: Callable[[Iterable[str]], set[str]]
) -> TreeManifest:
    """With one of the large tables of chunks written anew, if most of it is of no use."""
    large = [each for each in made.chunks if each.rows > _CHUNKS_AT_MOST // 8]
    if not large:
        return made
    one = large[made.number % len(large)]
    whole = objects.read(one, CHUNKS)
    left = _without(whole, forgotten)
    return _instead(made, objects, [one], left) if left.num_rows <= whole.num_rows // 2 else made


def _without(table: ArrowTable, forgotten: Callable[[Iterable[str]], set[str]]) -> ArrowTable:
    """Chunks of files that the engine knows."""
    files = table.column("file")
    gone = forgotten(pc.unique(files).to_pylist())
    return table.filter(pc.invert(pc.is_in(files, pa.array(sorted(gone), pa.string()))))


def _instead(
    made: TreeManifest, objects: TreeObjects, tables: list[TreeTable], whole: ArrowTable
) -> TreeManifest:
    """With one table of chunks in the place of some."""
    one = objects.make(made.number, "chunks", whole, level=tables[0].level + 1)
    return replace(made, chunks=[*(each for each in made.chunks if each not in tables), one])


def _eight(tables: list[TreeTable]) -> list[TreeTable]:
    """The oldest of the lowest level that has enough; none if none has."""
    for level in sorted({each.level for each in tables}):
        of_level = [each for each in tables if each.level == level]
        if len(of_level) >= _AT_ONCE:
            return of_level[:_AT_ONCE]
    return []


def standing(made: TreeManifest, objects: TreeObjects) -> ArrowTable:
    """Of each entry of the first tier the row that counts, but for most files that are seen.

    Those that are seen since they were loaded are left out where they are in the checkpoint alone.
    """
    tables = [objects.read(each, NODES) for each in made.differences]
    for part in made.checkpoint:
        table = objects.read(part, NODES)
        plain = pc.and_(
            pc.equal(table.column("delete_at"), 0),
            pc.equal(table.column("create_at"), table.column("loaded_at")),
        )
        tables.append(table.filter(pc.invert(pc.fill_null(plain, False))))
    return newest_rows(concat([NODES.empty_table(), *tables]))


# -- the checkpoint --------------------------------------------------------------------------------


def _checkpoint(made: TreeManifest, objects: TreeObjects, oldest: int) -> TreeManifest:
    parts = list(_parts(made, objects, oldest))
    # A reader wants a table, be there nothing in it.
    none = [] if parts else [objects.make(made.number, "difference", NODES.empty_table())]
    return replace(made, checkpoint=parts, differences=none, since=max(made.since, oldest))


def _parts(made: TreeManifest, objects: TreeObjects, oldest: int) -> Iterator[TreeTable]:
    left = newest_rows(concat([objects.read(each, NODES) for each in made.differences]))
    waiting = NODES.empty_table()
    last = len(made.checkpoint) - 1
    for number, part in enumerate(made.checkpoint):
        mask = behind(left, *part.until)
        here = left if number == last else left.filter(pc.invert(mask))
        left = NODES.empty_table() if number == last else left.filter(mask)
        if not here.num_rows and not part.ended:
            if waiting.num_rows:
                yield put_part(objects, made.number, waiting)
                waiting = NODES.empty_table()
            yield part
            continue
        whole = newest_rows(concat([objects.read(part, NODES), here]))
        waiting = concat([waiting, whole.filter(_stays(whole, oldest))])
        while waiting.num_rows >= 2 * PART:
            size = _cut(waiting)
            yield put_part(objects, made.number, waiting.slice(0, size))
            waiting = waiting.slice(size)
    waiting = concat([waiting, left.filter(_stays(left, oldest))])
    while waiting.num_rows:
        size = _cut(waiting)
        yield put_part(objects, made.number, waiting.slice(0, size))
        waiting = waiting.slice(size)


def _cut(table: ArrowTable) -> int:
    """How many rows become a part: all of a path stay together, or a row could outlive its end."""
    size: int = table.num_rows
    if size < 2 * PART:
        return size
    paths, cut = table.column("path"), PART
    while cut < size and paths[cut].as_py() == paths[cut - 1].as_py():
        cut += 1
    return cut


def _stays(table: ArrowTable, oldest: int) -> ArrowTable:
    """What ended within the history, or may come back, or has not ended."""
    delete_at = table.column("delete_at")
    is_over = pc.and_(pc.greater(delete_at, 0), pc.less_equal(delete_at, oldest))
    may_come = pc.is_in(table.column("ended_by"), pa.array(["quarantined", "superseded"]))
    return pc.or_(pc.invert(is_over), may_come)


def put_part(objects: TreeObjects, number: int, table: ArrowTable) -> TreeTable:
    """Put a part of a checkpoint, whose rows are in order."""
    end = table.num_rows - 1
    until = (table.column("kind")[end].as_py(), table.column("path")[end].as_py())
    ended = pc.sum(pc.cast(pc.greater(table.column("delete_at"), 0), pa.int64())).as_py()
    part = objects.make(number, "part", table, until=until, ended=ended or 0)
    objects.put([part])  # now: all of them together are large
    return part
