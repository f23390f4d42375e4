"""One bit of a TsFile turned over, and what reading it then comes to."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
from pathlib import Path
from typing import Any

from receiver.points import ChunkSummary, DamagedData, TsFileReader, UnsupportedData


class Outcome(enum.StrEnum):
    DETECTED = "detected"
    HARMLESS = "harmless"
    SILENT = "silent"


@dataclasses.dataclass(frozen=True)
class Flip:
    """A flip, its outcome, and why: what was found, or of a silent one which series differs."""

    offset: int
    bit: int
    outcome: Outcome
    why: str = ""


def read_all(path: Path) -> dict[tuple[str, str], str]:
    """(device, series) -> digest over its points, every chunk proved.

    Raises:
        DamagedData, UnsupportedData: what the file holds is not what it says.
    """
    found = {}
    with TsFileReader(path, text="binary") as file:
        for device in file.tail.devices:
            for summary in file.summaries(device):
                if not isinstance(summary, ChunkSummary):
                    raise summary
            for series in device.series():
                digest = hashlib.blake2b()
                for batch in file.read_series(device, series.measurement):
                    for column in batch.columns:
                        digest.update(repr(column.to_pylist()).encode())
                found[device.name, series.measurement] = f"{digest.hexdigest()} {series.data_type}"
    return found


class Flipper:
    """A file of its own, turned over bit by bit."""

    def __init__(self, content: bytes, path: Path) -> None:
        self._path = path
        self._content = content
        path.write_bytes(content)
        self._good = read_all(path)
        self._fd = os.open(path, os.O_RDWR)

    def close(self) -> None:
        os.close(self._fd)

    def flip(self, offset: int, bit: int) -> Flip:
        """Turn one bit over, read, turn it back."""
        os.pwrite(self._fd, bytes([self._content[offset] ^ 1 << bit]), offset)
        try:
            found: Any = read_all(self._path)
        except (DamagedData, UnsupportedData) as error:
            return Flip(offset, bit, Outcome.DETECTED, error.reason)
        finally:
            os.pwrite(self._fd, self._content[offset : offset + 1], offset)
        if found == self._good:
            return Flip(offset, bit, Outcome.HARMLESS)
        keys = sorted(found.items() ^ self._good.items())
        return Flip(offset, bit, Outcome.SILENT, " ".join(map(repr, keys[0][0])))
