"""What is proved of one file, and how: a list of steps, each of which finds problems or none.

The steps run inside Spark workers, one file after the other, and never raise for what a file
contains: a bad file becomes findings. A further proof (decoding every page) is one more step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from common.digests import md5_of_fd
from common.names import FilePath
from common.tsfile import Status, Tail, read_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["STEPS", "Expected", "Finding", "Verdict", "check_file"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the catalogue says of a file.

    Attributes:
        physical: path beneath the data directory, unique.
        locations: where the file may be, absolute; the first that exists counts.
        size: bytes.
        md5: 32 hex digits.
        devices: names of its devices, as committed.
        series: count of series that the receiver read when it loaded the file.
        points: count of points, likewise.
        manifest_series: count of series in the sender's manifest, None if it sent none.
        manifest_points: count of points, likewise.
    """

    physical: str
    locations: Sequence[str]
    size: int
    md5: str
    devices: Sequence[str]
    series: int
    points: int
    manifest_series: int | None
    manifest_points: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: the check that found it, and what it found."""

    check: str
    detail: str


@dataclass(slots=True)
class Verdict:
    """What the steps have learned of a file so far.

    Attributes:
        findings: what is wrong; empty for a good file.
        size: bytes found.
        series: series counted.
        points: points counted.
        spans: (device, first time, last time) of every device that has points.
    """

    findings: list[Finding] = field(default_factory=list)
    size: int = 0
    series: int = 0
    points: int = 0
    spans: list[tuple[str, int, int]] = field(default_factory=list)

    def find(self, check: str, detail: str) -> None:
        """Note a problem."""
        self.findings.append(Finding(check, detail))


@dataclass(slots=True)
class _Open:
    """A file under inspection; the tail is read once and shared by the steps."""

    fd: int
    expected: Expected
    verdict: Verdict
    tail: Tail | None = None


Step = Callable[[_Open], bool]
"""A check; False when the steps after it have nothing left to stand on."""


def _size(file: _Open) -> bool:
    file.verdict.size = os.fstat(file.fd).st_size
    if file.verdict.size != file.expected.size:
        file.verdict.find("size", f"{file.verdict.size} bytes, {file.expected.size} were loaded")
    return file.verdict.size > 0


def _digest(file: _Open) -> bool:
    found = md5_of_fd(file.fd)
    if found != file.expected.md5:
        file.verdict.find("md5", f"{found}, {file.expected.md5} was loaded")
    return True


def _structure(file: _Open) -> bool:
    file.tail = read_tail(file.fd, structure=True, chunk_headers=True)
    if file.tail.status is not Status.COMPLETE:
        file.verdict.find("structure", f"{file.tail.status}: {file.tail.reason}")
        return False
    return True


def _counts(file: _Open) -> bool:
    assert file.tail is not None
    verdict, expected = file.verdict, file.expected
    verdict.series, verdict.points = file.tail.series_count, file.tail.point_count
    for what, found, loaded, sent in (
        ("series", verdict.series, expected.series, expected.manifest_series),
        ("points", verdict.points, expected.points, expected.manifest_points),
    ):
        if found != loaded:
            verdict.find("counts", f"{found} {what}, {loaded} were loaded")
        if sent is not None and found != sent:
            verdict.find("manifest", f"{found} {what}, the sender's manifest has {sent}")
    return True


def _devices(file: _Open) -> bool:
    assert file.tail is not None
    found = set()
    database = FilePath.parse(file.expected.physical).sg
    for device in file.tail.devices:
        name = device.name_in(database)
        found.add(name)
        if device.start is not None and device.end is not None:
            file.verdict.spans.append((name, device.start, device.end))
    for name in sorted(found.symmetric_difference(file.expected.devices)):
        where = "in the file only" if name in found else "in the catalogue only"
        file.verdict.find("devices", f"{name} is {where}")
    return True


STEPS: tuple[Step, ...] = (_size, _digest, _structure, _counts, _devices)


def check_file(expected: Expected, steps: Sequence[Step] = STEPS) -> Verdict:
    """Run the steps over one file; an unreadable one is a finding like any other."""
    verdict = Verdict()
    try:
        fd = _open_first(expected.locations)
    except FileNotFoundError:
        verdict.find("present", f"not there: {', '.join(expected.locations)}")
        return verdict
    except OSError as error:
        verdict.find("present", f"cannot be opened: {error}")
        return verdict
    try:
        file = _Open(fd, expected, verdict)
        for step in steps:
            if not step(file):
                break
    except (OSError, MemoryError) as error:
        verdict.find("read", f"{type(error).__name__}: {error}")
    finally:
        os.close(fd)
    return verdict


def _open_first(locations: Sequence[str]) -> int:
    for location in locations:
        if Path(location).is_file():
            return os.open(location, os.O_RDONLY | os.O_CLOEXEC)
    raise FileNotFoundError(locations[0] if locations else "no location")
