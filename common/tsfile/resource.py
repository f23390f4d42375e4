"""``.tsfile.resource``: what a database writes beside a TsFile when it has closed it.

A resource is shipped with its TsFile and decides nothing, so this parser is as tolerant as can
be: per-device times, or "opaque" and why. Layout, big-endian: byte version, byte kind of time
index, int32 n, n x (int64 start, int64 end), n x (device id, int32 index into them), then two
int64 plan indices, a str (2.x: path of a file of deletions that several TsFiles share, and behind
it int64 where in it this one's begin; otherwise null) and progress, which is left alone. A device
id is an int32-prefixed path (1.x), a vstr path, or uvarint-prefixed segments (2.x); the file does
not say which, so the one is taken that makes the indices a permutation. Source: apache/iotdb,
``TsFileResource``, ``ArrayDeviceTimeIndex``, ``PlainDeviceTimeIndex``, and files of servers: 0.12
and 1.0 write kind 1, 2.0 kind 3; 0.12 has the name of a ``.mods`` in that str, or nothing there,
as 1.0 has. Times may be wider than the file's: they keep what was deleted before it was written.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from common.tsfile.device_names import device_name
from common.tsfile.primitives import (
    INT32,
    TIMES,
    Malformed,
    read_int64,
    read_str,
    read_uvarint,
    read_vstr,
)

__all__ = ["DeviceTimes", "Resource", "parse_resource"]

_HEAD: Final = 6  # version, kind, number of devices
_LEAST_DEVICE: Final = 16 + 1 + 4  # times, an empty id, its index
_OPEN: Final = -(2**63)
_PLAN_INDICES: Final = 16
_SHARED_SUFFIX: Final = ".mods2"

_ReadId: TypeAlias = Callable[[bytes, int], tuple[str, int]]


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceTimes:
    """A device and its range of times; ``end`` is None while the database had it open."""

    name: str
    start: int
    end: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """What a resource says.

    Attributes:
        version: of its layout, None if there is no byte of it.
        devices: per-device times; empty when ``opaque``.
        opaque: why they could not be read; empty when they could.
        shared_deletions: name of a shared file of deletions (without its directory), and the
            offset from which on it concerns this TsFile.
    """

    version: int | None
    devices: tuple[DeviceTimes, ...] = ()
    opaque: str = ""
    shared_deletions: tuple[str, int] | None = None


def parse_resource(content: bytes) -> Resource:
    """Parse a resource. Never raises on bad content."""
    if len(content) < _HEAD:
        version = content[0] if content else None
        return Resource(version, opaque=f"{len(content)} bytes are too few for a resource")
    version, (number,) = content[0], INT32(content, 2)
    if not 0 <= number <= (len(content) - _HEAD) // _LEAST_DEVICE:
        return Resource(
            version, opaque=f"{number} devices at offset 2, more than there is room for"
        )
    for read_id in (_read_segments, _read_path, _read_short_path):
        try:
            devices, pos = _read_devices(content, number, read_id)
            return Resource(version, devices, shared_deletions=_shared_deletions(content, pos))
        except (Malformed, IndexError, struct.error):
            continue
    return Resource(version, opaque=f"none of the known forms of ids fits at {_ids_at(number)}")


def _ids_at(number: int) -> int:
    return _HEAD + 16 * number


def _shared_deletions(content: bytes, pos: int) -> tuple[str, int] | None:
    try:
        path, at = read_str(content, pos + _PLAN_INDICES)
        if path is None or not path.endswith(_SHARED_SUFFIX):
            return None
        return path.replace("\\", "/").rpartition("/")[2], read_int64(content, at)[0]
    except (Malformed, IndexError, struct.error):
        return None


def _read_devices(
    content: bytes, number: int, read_id: _ReadId
) -> tuple[tuple[DeviceTimes, ...], int]:
    pos = _ids_at(number)
    devices: dict[int, DeviceTimes] = {}
    for _ in range(number):
        name, pos = read_id(content, pos)
        (at,) = INT32(content, pos)
        if at in devices or not 0 <= at < number:
            raise Malformed("an index that is no permutation's", pos)
        start, end = TIMES(content, _HEAD + 16 * at)
        devices[at] = DeviceTimes(name, start, None if end == _OPEN else end)
        pos += 4
    return tuple(devices[at] for at in range(number)), pos


def _read_segments(buf: bytes, pos: int) -> tuple[str, int]:
    number, at = read_uvarint(buf, pos)
    if not 0 < number <= len(buf) - at:
        raise Malformed("a device id without segments", pos)
    segments: list[str | None] = []
    for _ in range(number):
        segment, at = read_vstr(buf, at)
        segments.append(segment)
    return device_name(tuple(segments), table=_is_of_a_table(segments)), at


def _is_of_a_table(segments: Sequence[str | None]) -> bool:
    """There are no schemas here to tell it; but whatever a database has as a tree is below root."""
    first = segments[0] or ""
    return None in segments or not (first == "root" or first.startswith("root."))


def _read_path(buf: bytes, pos: int) -> tuple[str, int]:
    return _named(*read_str(buf, pos), pos)


def _read_short_path(buf: bytes, pos: int) -> tuple[str, int]:
    return _named(*read_vstr(buf, pos), pos)


def _named(name: str | None, behind: int, pos: int) -> tuple[str, int]:
    if not name:
        raise Malformed("a device id without a name", pos)
    return device_name((name,), table=False), behind
