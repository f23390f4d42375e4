"""Types and codecs of a file's series, small enough to be sent from a worker to the driver.

Files of the same devices have the same outline, byte for byte, so the driver compares few.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from receiver.load.schema.registering import read_series

if TYPE_CHECKING:
    from common.tsfile import Tail
    from common.tsfile.byte_source import ByteSource

__all__ = ["DeviceOutline", "pack_outline", "unpack_outline"]


class DeviceOutline(msgspec.Struct, frozen=True, array_like=True):
    """The series of one device, as the schema names it.

    Attributes:
        device: its path in the stored form.
        names: bare names of its series.
        types: code of each.
        encodings: code of the first chunk of each.
        compressions: the same.
    """

    device: str
    names: tuple[str, ...]
    types: bytes
    encodings: bytes
    compressions: bytes


def pack_outline(source: ByteSource, tail: Tail, database: str) -> bytes:
    """The outline of an open file.

    Raises:
        OSError: the file cannot be read.
        Corrupt: a chunk is not what the index says.
        IllegalPathError: a device has a name that is no path.
    """
    devices = [
        DeviceOutline(each.device, tuple(each.names), each.types, each.encodings, each.compressions)
        for each in read_series(source, tail, database)
    ]
    return zlib.compress(msgspec.msgpack.encode(devices), 1)


def unpack_outline(packed: bytes) -> list[DeviceOutline]:
    """Undo `pack_outline`."""
    return msgspec.msgpack.decode(zlib.decompress(packed), type=list[DeviceOutline])
