"""What the server asks the process that compares files, and what it is answered."""

from __future__ import annotations

import msgspec

__all__ = ["CompareAnswer", "CompareAsked", "ComparedDevice", "ComparedFile", "SharedPoint"]


class _Compared(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of what is asked and answered."""


class ComparedFile(_Compared, frozen=True):
    """A file.

    Attributes:
        path: of its bytes.
        name: that it is called by.
        group: its storage group, or database.
        is_new: whether it is to be loaded; else it is there already.
    """

    path: str
    name: str
    group: str
    is_new: bool


class ComparedDevice(_Compared, frozen=True):
    """A device that several files have in the same times.

    Attributes:
        name: of it, as the catalogue has it.
        files: numbers of those, in what is asked.
        first: the earliest time that is looked at.
        last: the latest.
    """

    name: str
    files: list[int]
    first: int
    last: int


class CompareAsked(_Compared, frozen=True):
    """Devices, and the files that they are looked for in.

    Attributes:
        files: of any of the devices.
        devices: that are compared.
        among_new: whether two new files may have no point in common either.
    """

    files: list[ComparedFile]
    devices: list[ComparedDevice]
    among_new: bool


class SharedPoint(_Compared, frozen=True):
    """A point that two files have.

    Attributes:
        device: as the catalogue has it.
        measurement: of it; empty for the row of a table.
        time: of the point.
        new: number of the file that is to be loaded.
        other: of the other one.
    """

    device: str
    measurement: str
    time: int
    new: int
    other: int


class CompareAnswer(_Compared, frozen=True):
    """The first point that is found twice; what could not be compared.

    Attributes:
        shared: None where there is none.
        unread: why files could not be read; empty if they could.
    """

    shared: SharedPoint | None
    unread: str = ""
