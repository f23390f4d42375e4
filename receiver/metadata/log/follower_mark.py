"""The mark of a directory that is a copy: an engine that writes never opens it.

What such a one committed would be in no log but its own, and gone with the next copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import ConfigError

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = ["FOLLOWER_MARK", "refuse_copy"]

FOLLOWER_MARK = "follower.json"


def refuse_copy(tree: Tree) -> None:
    """See that a schema directory is no copy.

    Raises:
        ConfigError: it is one.
    """
    if tree.exists(FOLLOWER_MARK):
        raise ConfigError(
            f"schema_dir: {tree.path} belongs to a node that follows a receiver and only reads "
            f"({FOLLOWER_MARK}): serve it with --follow, or name another directory"
        )
