"""What a ticket lets its bearer read at a cache node: one file of the object store.

The master writes all of it that the node must know into the ticket (`read_tickets`), so a node
needs no catalogue to give what others ask for, and nobody can have it read anything else.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final

import msgspec

from common.decoders import from_json
from common.errors import ForbiddenError
from common.wire import Struct
from common.wire.base import Count

__all__ = ["CACHED_AT_NODE", "SLOTS_HEADER", "CachedFile", "cached_file_of"]

CACHED_AT_NODE: Final = "/node/v1/cached"
SLOTS_HEADER: Final = "Tsferry-Slots"
"""In each answer: the version of the cache slots that the node has heard of."""


class CachedFile(Struct, frozen=True, kw_only=True):
    """A file that a node gives from what it keeps, or reads in the store.

    Attributes:
        version: of the cache slots by which this node was chosen.
        key: of the object, below the store's prefix.
        size: bytes.
        md5: of all of it.
        blocks: MD5 of the object with the digests of its blocks; empty where there is none.
        before: the node that had the slot in the version before: it is asked for what it has.
        before_ticket: for that one.
    """

    version: Count
    key: Annotated[str, msgspec.Meta(max_length=4096)]
    size: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
    md5: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    blocks: str = ""
    before: str = ""
    before_ticket: str = ""

    def written(self) -> str:
        """As a ticket has it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def cached_file_of(what: str) -> CachedFile:
    """What a ticket is for, once it is known to be the master's.

    Raises:
        ForbiddenError: a master of another version wrote it.
    """
    try:
        padded = what + "=" * (-len(what) % 4)
        return from_json(base64.urlsafe_b64decode(padded), CachedFile)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise ForbiddenError(f"the ticket is of another version: {error}") from error
