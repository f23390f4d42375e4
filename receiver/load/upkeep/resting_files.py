"""Superseded files that are read again once what gives their points is found to be lost.

Where storage nodes do not count, such a file is lost as well, and is forgotten. Not so in the run
that gives up what it rests on: nodes may have it, and nobody else has its points then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.state.placed_files import is_left_to_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.load.upkeep.fsck_findings import Found
    from receiver.metadata.engine import Engine

__all__ = ["left_at_nodes"]

_REPAIR = (
    "keep it: what gives its points is lost; with the server up, fsck --repair brings it back from "
    "a storage node"
)


def left_at_nodes(engine: Engine, found: Sequence[Found]) -> list[Found]:
    """The findings, where superseded files are left to nodes if what they rest on is given up.

    Args:
        engine: open.
        found: by a check that lets storage nodes not count.
    """
    given_up = {each.path for each in found if each.is_bad_file and not each.elsewhere}
    with engine.reading() as state:
        return [
            msgspec.structs.replace(each, elsewhere="nodes", repair=_REPAIR)
            if each.path in given_up and is_left_to_nodes(state, each.path, given_up)
            else each
            for each in found
        ]
