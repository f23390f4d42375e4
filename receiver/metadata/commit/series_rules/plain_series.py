"""One more series of a device that has some: what most commits of many threads are.

All that the rules ask of it is asked here at once, in fewer calls: where many threads commit,
each begins with cold caches, and a transaction judges its statements in its own thread. What is
taken here the rules take, and note the same; of all else they say themselves what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.metadata.model.paths import parse_stored
from receiver.metadata.model.types import check_codes
from receiver.metadata.schema.tree_columns.node_tree import ALIGNED, KIND, LEAF, ROOT_ROW

if TYPE_CHECKING:
    from receiver.metadata.commit.touched import Touched
    from receiver.metadata.model import records
    from receiver.metadata.schema import Schema

__all__ = ["takes_plain_series"]

_SHORT: Final = 1024
"""Characters of a path and of a name that are far within the limits."""


def takes_plain_series(schema: Schema, op: records.SeriesCreated, touched: Touched) -> bool:
    """Whether it is such a series, nothing is against it, and `touched` has what it changes.

    Args:
        schema: committed, with nothing of the same commit over it.
        op: the whole of what the commit has to do with the schema.
        touched: of that commit.

    Raises:
        SchemaRefusedError, IllegalPathError: as the rules.
    """
    names, path = op.names, op.device
    if (
        not len(names) == len(op.types) == len(op.encodings) == len(op.compressions) == 1
        or op.aliases is not None
        or op.tags is not None
        or op.attributes is not None
        or op.props is not None
        or not 0 < len(name := names[0]) <= _SHORT
        or len(path) > _SHORT
    ):
        return False
    tree = schema.tree
    row = tree.known(parse_stored(path))
    if row <= ROOT_ROW:
        return False
    kind = tree.kind[row]
    if (
        kind & KIND >= LEAF
        or not tree.leaves[tree.ref[row]]
        or bool(kind & ALIGNED) != op.aligned
        or tree.storage_group(row) < 0
    ):
        return False
    known = tree.names.find(name)
    if known >= 0 and tree.child(row, known) >= 0:
        return False
    check_codes(path, names, op.types, op.encodings, op.compressions)
    touched.written.add((path, name))
    return True
