"""The committed real TsFiles and the rows that their databases say are in them."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.tsfile import split_path

FOLDER = Path(__file__).resolve().parents[1] / "data" / "tsfiles"


@dataclasses.dataclass(frozen=True)
class RealFile:
    """A committed file, or several of the same devices, as the index beside them describes them.

    Attributes:
        paths: the files; of equal times a later one's point is the one that counts.
        writer: what wrote them.
        expected: the rows that the writer itself reads from all of them.
        deletions: whether those are without what their ``.mods`` delete.
        encrypted: whether the pages are, which nobody reads without the key.
    """

    paths: tuple[Path, ...]
    writer: str
    expected: Path
    deletions: bool
    encrypted: bool

    def __str__(self) -> str:
        return f"{self.expected.parent.name}/{self.expected.name.split('.csv')[0]}"


def real_files() -> list[RealFile]:
    """All of ``index.*.json``."""
    found = []
    for index in sorted(FOLDER.glob("index.*.json")):
        for entry in json.loads(index.read_text()):
            names = entry["files"] if "files" in entry else [entry["file"]]
            expected = entry["expected"]
            found.append(
                RealFile(
                    tuple(FOLDER / name for name in names),
                    entry["writer"],
                    FOLDER / expected["file"],
                    expected["deletions"],
                    "encrypted pages" in entry["covers"],
                )
            )
    return found


def expected_rows(file: RealFile) -> dict[tuple[str, str], list[tuple[int, Any]]]:
    """(device, measurement) -> points, values in the form of ``comparable``."""
    found: dict[tuple[str, str], list[tuple[int, Any]]] = {}
    csv.field_size_limit(2**31 - 1)
    with gzip.open(file.expected, "rt", encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text):
            key = row["device"], bare(row["measurement"])
            found.setdefault(key, []).append((int(row["time"]), _parsed(row["type"], row["value"])))
    return {key: sorted(points, key=lambda point: point[0]) for key, points in found.items()}


def bare(measurement: str) -> str:
    """A measurement without back-quotes: databases store some with them and answer without."""
    nodes = split_path(measurement)
    return nodes[0] if len(nodes) == 1 else measurement


def _parsed(kind: str, text: str) -> Any:
    if kind == "BOOLEAN":
        return {"true": True, "false": False}[text]
    if kind in ("INT32", "INT64", "TIMESTAMP"):
        return int(text)
    if kind == "DATE":
        digits = text.rjust(8, "0")
        return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}"
    if kind in ("FLOAT", "DOUBLE"):
        return bits(float.fromhex(text))
    if kind == "BLOB":
        return bytes.fromhex(text)
    return json.loads(text)


def bits(number: float) -> Any:
    """A float that compares by its bits, all NaNs alike."""
    return "NaN" if number != number else struct.pack(">d", number)


def comparable(values: Iterator[Any]) -> list[Any]:
    """Python values of an Arrow array in one form."""
    found = []
    for value in values:
        if isinstance(value, float):
            found.append(bits(value))
        elif hasattr(value, "isoformat"):
            found.append(value.isoformat())
        else:
            found.append(value)
    return found
