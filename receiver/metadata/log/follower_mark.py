"""The marks of directories that have no engine of their own: one that writes never opens them.

What was committed into a copy would be in no log but its own, and gone with the next copy; a
storage node has a master elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.errors import ConfigError, DamagedError

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = [
    "FOLLOWER_MARK",
    "STORAGE_NODE_MARK",
    "FollowerMark",
    "copy_name",
    "read_mark",
    "refuse_copy",
]

FOLLOWER_MARK = "follower.json"
STORAGE_NODE_MARK = "storage-node.json"
_MOST = 1 << 16


class FollowerMark(msgspec.Struct, frozen=True, kw_only=True):
    """What the mark of a node's directory says; that of a copy in it says nothing.

    Attributes:
        engine: uuid of the engine that is followed; empty before the first contact.
        incarnation: the highest of its owners that was ever seen.
        copy: number of the copy that is read, 0 before the first.
    """

    engine: str = ""
    incarnation: int = 0
    copy: int = 0


def read_mark(tree: Tree) -> FollowerMark | None:
    """The mark of a directory, None if it has none.

    Raises:
        DamagedError: it is damaged.
    """
    try:
        return from_json(tree.read(FOLLOWER_MARK, limit=_MOST), FollowerMark)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(
            f"{tree.path}/{FOLLOWER_MARK}: {error}; the directory is a copy and can be thrown away"
        ) from None


def copy_name(number: int) -> str:
    """The directory of a copy."""
    return f"copy-{number}"


def refuse_copy(tree: Tree) -> None:
    """See that a schema directory is an engine's own.

    Raises:
        ConfigError: it is a copy, or a storage node's.
    """
    if tree.exists(FOLLOWER_MARK):
        raise ConfigError(
            f"schema_dir: {tree.path} belongs to a node that follows a receiver and only reads "
            f"({FOLLOWER_MARK}): serve it with --follow, or name another directory"
        )
    if tree.exists(STORAGE_NODE_MARK):
        raise ConfigError(
            f"schema_dir: {tree.path} belongs to a storage node, which has no engine "
            f"({STORAGE_NODE_MARK}): serve it with --node, or name another directory"
        )
