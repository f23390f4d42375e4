"""What is in storage groups that a transaction deletes, and was changed since it began."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from receiver.metadata.commit.group_deletion import files_of
from receiver.metadata.model.paths import format_path, parse_stored
from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.schema.tree_columns.node_tree import FREE, KIND

if TYPE_CHECKING:
    from receiver.metadata.state.state import State

__all__ = ["unseen_below"]


def unseen_below(state: State, groups: Iterable[str], since: int) -> str | None:
    """A series or file in storage groups that was made, changed or deleted since; None for none.

    Args:
        state: committed.
        groups: their paths.
        since: the time that was seen.
    """
    wanted = {parse_stored(each) for each in groups}
    tree = state.schema.tree
    late = (view(tree.created) > since) | (view(tree.deleted) > since)
    for row in np.flatnonzero(late & (view(tree.kind) & KIND != FREE)).tolist():
        nodes = tree.nodes(row)
        if any(nodes[:end] in wanted for end in range(2, len(nodes))):
            return format_path(nodes)
    held, _ = files_of(state, wanted)
    return next((row.physical for row in held), None)
