"""What the calls of a write take and answer: rows of a job that become one load at the centre."""

from __future__ import annotations

from typing import Annotated

import msgspec

from common.wire import Struct

__all__ = [
    "KnownDevice",
    "KnownDevicesAnswer",
    "KnownDevicesRequest",
    "StagedPart",
    "WriteCommit",
    "WriteOpened",
    "WriteRequest",
]

_HEX = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class WriteRequest(Struct, frozen=True, kw_only=True):
    """`PUT /v1/writes/<task>`: begin a write; its id is made by who asks.

    Attributes:
        owner: as of `CentreLoadRequest`.
        others: the same.
        on_duplicate: the same.
    """

    owner: str = ""
    others: list[str] = msgspec.field(default_factory=list)
    on_duplicate: str = "error"


class WriteOpened(Struct, frozen=True, kw_only=True):
    """What files of a write have to be.

    Attributes:
        owner: uuid of whoever gets devices that nobody owns.
        interval: width of a partition, in the unit of the timestamps; a file is of one.
        time_unit: of the timestamps.
        block: bytes of a file that come at once, at most.
    """

    owner: str
    interval: int
    time_unit: str
    block: int


class KnownDevicesRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/writes/<task>/devices`: what is known of devices, by their names."""

    devices: list[str]


class KnownDevice(Struct, frozen=True, kw_only=True):
    """What is known of a device.

    Attributes:
        group: storage group that a device of the tree model lies in; None of one in none.
        owner: uuid of its owner; empty for none, and where it is not told.
        refused: why rows of it would be, None if they would not.
        aligned: whether its series share their times; None without series.
        types: of its series, by name: codes of TSDataType.
    """

    group: str | None = None
    owner: str = ""
    refused: str | None = None
    aligned: bool | None = None
    types: dict[str, int] = msgspec.field(default_factory=dict)


class KnownDevicesAnswer(Struct, frozen=True, kw_only=True):
    """What is known of devices, in the order in which they were asked for."""

    devices: list[KnownDevice]


class StagedPart(Struct, frozen=True, kw_only=True):
    """A file that came whole.

    Attributes:
        attempt: of the task that wrote it, 32 hex digits: another attempt's files are others.
        number: of the file in it.
        group: storage group, or database.
        partition: number of the partition of time.
        size: bytes.
        md5: of them.
    """

    attempt: _HEX
    number: Annotated[int, msgspec.Meta(ge=0, lt=10**9)]
    group: str
    partition: int
    size: int
    md5: _HEX


class WriteCommit(Struct, frozen=True, kw_only=True):
    """`POST /v1/writes/<task>/commit`: load these, all in one commit or none; others go."""

    parts: list[StagedPart]
    """The files to be loaded."""
