"""The ``.resource`` of a file that we wrote: what a database has beside each of its own.

A server that finds none makes one of the file itself, so this spares it the reading of the tail.
Kind 1 with paths for version 3 (servers of 0.12 and 1.0), kind 3 with segments for version 4 (2.0).
Nothing is said of plans, deletions and progress: there are none. See ``common.tsfile.resource``.
"""

from __future__ import annotations

import struct
from typing import Final

from common.tsfile import Tail
from receiver.writing.structures import device_bytes

__all__ = ["resource_of"]

_VERSION: Final = 1
_KINDS: Final = {3: 1, 4: 3}
_NO_PLANS: Final = struct.pack(">qq", -(2**63), 2**63 - 1)
_TIMES: Final = struct.Struct(">qq").pack
_INT32: Final = struct.Struct(">i").pack


def resource_of(tail: Tail) -> bytes:
    """The content of the resource of a file with this tail; without devices that have no point."""
    version = tail.version or 4
    devices = [each for each in tail.devices if each.start is not None and each.end is not None]
    times = [_TIMES(each.start, each.end) for each in devices]
    names = []
    for number, device in enumerate(devices):
        if version == 3:
            path = (device.segments[0] or "").encode()
            names.append(_INT32(len(path)) + path + _INT32(number))
        else:
            names.append(device_bytes(device.segments, version) + _INT32(number))
    head = bytes((_VERSION, _KINDS[version])) + _INT32(len(devices))
    return b"".join((head, *times, *names, _NO_PLANS))
