"""What the files of a stage come to by a rank: a few plain lines to hold servers and readers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receiver.points.deleted.deletions import Deletions
from receiver.points.reader import TsFileReader

Points = dict[int, Any]


@dataclass(frozen=True, order=True)
class Name:
    """Of a TsFile; ordered as servers of 2.x rank equal times, and tsferry."""

    unsequence: bool
    version: int
    created: int
    inner: int
    cross: int
    path: Path

    @classmethod
    def of(cls, path: Path) -> Name:
        created, version, inner, cross = map(int, path.name.removesuffix(".tsfile").split("-"))
        return cls("unsequence" in path.parts, version, created, inner, cross, path)


Rank = Callable[[Name], Any]


def by_kind(name: Name) -> Any:
    """Unsequence above sequence, then version, then time of creation: 2.x."""
    return name


def by_version(name: Name) -> Any:
    """The version alone, whatever the kind: 0.12 and 1.0."""
    return name.version, name.created


def closed(stage: Path) -> list[Name]:
    """The TsFiles of a stage that have their resource."""
    return [
        Name.of(each)
        for each in stage.rglob("*.tsfile")
        if each.with_name(each.name + ".resource").exists()
    ]


def _opened(stage: Path, rank: Rank) -> Iterator[TsFileReader]:
    """From the lowest to the highest."""
    for name in sorted(closed(stage), key=rank):
        with TsFileReader(name.path, deletions=Deletions.beside(name.path)) as file:
            yield file


def series_of(stage: Path, rank: Rank, floor: int | None = None) -> dict[str, Points]:
    """Path of a series -> its points; of a time from the highest file, no time below `floor`."""
    found: dict[str, Points] = {}
    for file in _opened(stage, rank):
        for device in file.tail.devices:
            for series in file.columns(device).values():
                if not series.measurement:
                    continue
                points = found.setdefault(f"{device.name}.{series.measurement}", {})
                for batch in file.read_series(device, series.measurement, start=floor):
                    points.update(
                        zip(
                            batch.column("time").to_pylist(),
                            batch.column("value").to_pylist(),
                            strict=True,
                        )
                    )
    return {path: dict(sorted(points.items())) for path, points in found.items() if points}


def rows_of(stage: Path, rank: Rank) -> dict[tuple[str | None, ...], dict[int, dict[str, Any]]]:
    """Device of a table -> time -> column -> value: a null of a higher file hides nothing."""
    found: dict[tuple[str | None, ...], dict[int, dict[str, Any]]] = {}
    for file in _opened(stage, rank):
        for device in file.tail.devices:
            rows = found.setdefault(tuple(device.segments or ()), {})
            for batch in file.read_device(device):
                for each in batch.to_pylist():
                    row = rows.setdefault(each.pop("time"), {})
                    for column, value in each.items():
                        if value is not None or column not in row:
                            row[column] = value
    return found
