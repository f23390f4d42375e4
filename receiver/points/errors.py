"""What can be wrong with the data of a TsFile, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from common.errors import EXIT_NOT_LOADED, Integrity, Permanent

__all__ = ["DamagedData", "DataError", "DataPlace", "UnsupportedData"]


@dataclasses.dataclass(frozen=True, slots=True)
class DataPlace:
    """Where in a file something is; what is not known (yet) is None.

    Attributes:
        file: its name, for people.
        device: its one text form.
        measurement: ``""`` is the time column of an aligned device.
        chunk: offset of the chunk's header.
        page: number within the chunk, from 0.
        offset: of the very bytes, absolute.
    """

    file: str
    device: str | None = None
    measurement: str | None = None
    chunk: int | None = None
    page: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        parts = [self.file]
        if self.device is not None:
            parts.append(f"device {self.device}")
        if self.measurement is not None:
            parts.append(f"series {self.measurement}" if self.measurement else "time column")
        if self.chunk is not None:
            parts.append(f"chunk at {self.chunk}")
        if self.page is not None:
            parts.append(f"page {self.page}")
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ", ".join(parts)


class DamagedData(Integrity):
    """What a file holds cannot be decoded, or is not what the file itself says of it."""

    slug = "damaged-data"
    exit_code = EXIT_NOT_LOADED

    def __init__(self, reason: str, place: DataPlace) -> None:
        super().__init__(f"{place}: {reason}", extra=_extra(place))
        self.reason = reason
        self.place = place

    def __reduce__(self) -> tuple[Callable[..., DamagedData], tuple[str, DataPlace]]:
        return type(self), (self.reason, self.place)


class UnsupportedData(Permanent):
    """What a file holds is not read: an old version, encryption, an encoding, too large a page."""

    slug = "unsupported-data"
    exit_code = EXIT_NOT_LOADED
    http_status = 422

    def __init__(self, reason: str, place: DataPlace) -> None:
        super().__init__(f"{place}: {reason}", extra=_extra(place))
        self.reason = reason
        self.place = place

    def __reduce__(self) -> tuple[Callable[..., UnsupportedData], tuple[str, DataPlace]]:
        return type(self), (self.reason, self.place)


DataError: TypeAlias = DamagedData | UnsupportedData


def _extra(place: DataPlace) -> dict[str, object]:
    return {key: value for key, value in dataclasses.asdict(place).items() if value is not None}
