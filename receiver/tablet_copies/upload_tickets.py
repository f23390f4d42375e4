"""What a ticket lets its bearer send to a node: one file of one sender, for one tablet.

The master writes it into the ticket (`read_tickets`), and the node believes it: base64url of JSON,
without padding. Which upload a file is follows from the file, not from the ticket: with another
ticket for the same file the same upload goes on, and a ticket that comes twice begins no second
one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Annotated

import msgspec

from common.decoders import from_json
from common.errors import ForbiddenError
from common.wire import Struct
from common.wire.base import Count

__all__ = ["SentFile", "file_of_ticket", "upload_id"]


class SentFile(Struct, frozen=True, kw_only=True):
    """A file that may be sent to a node.

    Attributes:
        node: uuid of the node.
        sender: uuid of whoever sends it.
        task: that it belongs to there.
        path: there.
        size: bytes.
        tail: digest of its tail.
        md5: of all of it, where the sender has told it.
        tablet: that it will be in.
        generation: of the placement of the tablet.
    """

    node: str
    sender: str
    task: str
    path: Annotated[str, msgspec.Meta(max_length=4096)]
    size: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
    tail: str
    md5: str | None = None
    tablet: str
    generation: Count

    def written(self) -> str:
        """As a ticket has it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @property
    def upload(self) -> str:
        """Id of its upload."""
        return upload_id(self.sender, self.path, self.size, self.tail)


def upload_id(sender: str, path: str, size: int, tail: str) -> str:
    """Which upload a file is at a node: 32 hex digits."""
    text = f"{sender}\n{path}\n{size}\n{tail}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def file_of_ticket(what: str) -> SentFile:
    """What a ticket is for, once it is known to be the master's.

    Raises:
        ForbiddenError: a master of another version wrote it.
    """
    try:
        padded = what + "=" * (-len(what) % 4)
        return from_json(base64.urlsafe_b64decode(padded), SentFile)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise ForbiddenError(f"the ticket is of another version: {error}") from error
