"""What all wire types stand on: names of headers and types of bodies, the base struct, JSON."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from common.decoders import from_json
from common.errors import ProtocolError

__all__ = [
    "AS_NUMBERS",
    "BASE",
    "BATCH_TYPE",
    "CHECKSUM_MISMATCH",
    "EPOCH_HEADER",
    "OFFSET_TYPE",
    "PROBLEM_TYPE",
    "PROTOCOL",
    "SCHEMA_TYPE",
    "SENDER_HEADER",
    "SIZE_HEADER",
    "TICKET_HEADER",
    "TUS_VERSION",
    "WIDE",
    "CommitTs",
    "Count",
    "Struct",
    "Time",
    "ToldCommit",
    "decode",
    "encode",
]

PROTOCOL = 1
BASE = "/sync/v1"
TUS_VERSION = "1.0.0"
SENDER_HEADER = "Tsferry-Sender"
EPOCH_HEADER = "Tsferry-Epoch"
TICKET_HEADER = "Tsferry-Ticket"
"""What opens a storage node for one thing, in the place of a token."""
SIZE_HEADER = "Tsferry-Decompressed-Size"
"""Bytes of a body with a `Content-Encoding` once it is decompressed, so that they are judged, and
counted, before it is."""
PROBLEM_TYPE = "application/problem+json"
BATCH_TYPE = "application/vnd.tsferry.batch"
SCHEMA_TYPE = "application/vnd.tsferry.schema"
OFFSET_TYPE = "application/offset+octet-stream"
CHECKSUM_MISMATCH = 460
"""HTTP status of the tus checksum extension."""
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A size, offset, number or commit ts. JSON has numbers of any length; what is counted here has to
fit into a file system, a log record and a column of 64 bits, and is refused at the door if not."""
WIDE = "wide"
"""Says in `msgspec.Meta.extra` that a number may take all of 64 bits: commands write it as text."""
AS_NUMBERS = "numbers"
"""Says there that bytes are numbers, which commands write as such; others are base64."""
_INT64 = {"format": "int64"}
Time = Annotated[
    int,
    msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1, extra={WIDE: True}, extra_json_schema=_INT64),
]
"""A raw time of a TsFile, in its own precision."""
CommitTs = Annotated[int, msgspec.Meta(extra={WIDE: True}, extra_json_schema=_INT64)]
"""A commit timestamp, milliseconds << 18 | counter; 0 for none."""

ToldCommit = Annotated[
    int, msgspec.Meta(ge=0, le=(1 << 63) - 1, extra={WIDE: True}, extra_json_schema=_INT64)
]
"""A commit timestamp that a peer tells, which is refused at the door if it is none (`Count`)."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all wire types.

    A member that has its default is left out, so a default is part of the protocol: to change one
    would change what older peers mean by their silence.
    """


T = TypeVar("T")


def encode(value: Struct) -> bytes:
    """A struct as JSON."""
    return msgspec.json.encode(value)


def decode(data: bytes, kind: type[T], what: str) -> T:
    """A struct from JSON.

    Raises:
        ProtocolError: it is not one; `what` names it in the message.
    """
    try:
        return from_json(data, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{what}: {error}") from error
