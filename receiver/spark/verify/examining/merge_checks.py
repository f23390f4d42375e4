"""What is proved of a merged file: itself, and that it gives what its inputs give.

It is decoded like any other. Then its inputs are merged anew, as they, their ranks and what is
deleted of them are now, and each series is compared: how many points, and a sum of times and
values. A large compaction is compared in shares, each of which takes some devices.
"""

from __future__ import annotations

import os
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from common.errors import TsferryError
from common.tsfile import Corrupt
from common.tsfile.byte_source import source_of
from receiver.compaction.making.device_rows import DeviceRows
from receiver.compaction.making.file_standing import FileStanding
from receiver.compaction.making.input_files import InputFiles
from receiver.compaction.making.merged_sums import (
    SeriesSums,
    add_sums,
    differences,
    sums_in_file,
    sums_of_rows,
)
from receiver.compaction.making.survey import survey
from receiver.compaction.worth_merging.merge_asked import MergeAsked
from receiver.points.errors import DamagedData, UnsupportedData
from receiver.points.reader import TsFileReader
from receiver.spark.report.results import Severity
from receiver.spark.verify.examining.file_checks import OUTPUT_STEPS, check_part, opened
from receiver.spark.verify.examining.findings import Findings
from receiver.spark.verify.examining.limits import TimeIsUp, time_limit
from receiver.spark.verify.examining.parts import FilePart
from receiver.storage.reading.ranged_file import RangedFile

if TYPE_CHECKING:
    from receiver.spark.report.results import Finding
    from receiver.spark.verify.examining.parts import Expected
    from receiver.superseding.asking import FileAsked, NotesAsked

__all__ = ["CompactionAsked", "MergePart", "MergePartResult", "check_merge_part"]

_MEMORY: Final = 256 << 20
"""Bytes that decoded points and open inputs take, about."""


@dataclass(frozen=True, slots=True)
class CompactionAsked:
    """A compaction that holds.

    Attributes:
        ident: of it.
        outputs: what its files must show.
        inputs: that they stand for; where their bytes are is found out by who reads them.
        notes: deletions of their senders, as readers apply them.
        database: that tables are in.
        roots: data directories, in the order to look in.
        name: of all of it, for messages: where an output would lie.
    """

    ident: int
    outputs: tuple[Expected, ...]
    inputs: tuple[FileAsked, ...]
    notes: tuple[NotesAsked, ...]
    database: str
    roots: tuple[str, ...]
    name: str = ""

    def asked(self) -> MergeAsked:
        """The question of a merge, with the places of the inputs on this machine."""
        files = tuple(
            msgspec.structs.replace(each, path=self._path(each.physical)) for each in self.inputs
        )
        return MergeAsked(files, self.notes, self.database, "", "", 0, _MEMORY)

    def _path(self, physical: str) -> str | None:
        paths = (f"{root}/{physical}" for root in self.roots)
        return next(filter(os.path.exists, paths), None)


@dataclass(frozen=True, slots=True)
class MergePart:
    """One piece of work.

    Attributes:
        number: of the compaction among those of the run.
        compaction: itself.
        output: number of the output that is looked at as a whole; None to compare points.
        share: of the devices, those that are compared: one of `shares`.
        shares: how many there are.
        weight: bytes that it reads, about.
    """

    number: int
    compaction: CompactionAsked
    output: int | None
    share: int
    shares: int
    weight: int


@dataclass(slots=True)
class MergePartResult:
    """What a worker says of a part.

    Attributes:
        number: as in `MergePart`.
        output: likewise.
        absent: the output was in none of the roots.
        host: of the worker, if it was absent.
        size: bytes found.
        points: decoded and found good.
        compared: whether the devices of this part were merged anew, and compared.
        findings: of an output each, with its number.
        seconds: spent.
    """

    number: int
    output: int | None
    absent: bool = False
    host: str = ""
    size: int = 0
    points: int = 0
    compared: bool = False
    findings: tuple[tuple[int, Finding], ...] = ()
    seconds: float = 0.0


def check_merge_part(part: MergePart, limit: float | None = None) -> MergePartResult:
    """Work off a part; raises nothing for whatever the files are.

    Args:
        part: what to do.
        limit: seconds after which it is given up.
    """
    begun = time.monotonic()
    found = _whole(part, limit) if part.output is not None else _Comparison(part).run(limit)
    found.seconds = time.monotonic() - begun
    return found


def _whole(part: MergePart, limit: float | None) -> MergePartResult:
    assert part.output is not None
    expected = part.compaction.outputs[part.output]
    checked = check_part(
        FilePart(0, 0, 1, part.weight, expected), limit=limit, steps=OUTPUT_STEPS
    ).result
    return MergePartResult(
        part.number,
        part.output,
        checked.absent,
        checked.host,
        checked.size,
        findings=tuple((part.output, each) for each in checked.findings),
    )


class _Comparison:
    """Decodes some devices of all outputs, merges them of all inputs, and compares."""

    def __init__(self, part: MergePart) -> None:
        self._part, self._compaction = part, part.compaction
        self._result = MergePartResult(part.number, None)
        self._found = [Findings() for _ in range(max(1, len(part.compaction.outputs)))]
        self._sums: dict[str, SeriesSums] = {}
        self._where: dict[str, int] = {}

    def run(self, limit: float | None) -> MergePartResult:
        try:
            with time_limit(limit):
                if all(map(self._decoded, range(len(self._compaction.outputs)))):
                    self._compare()
        except TimeIsUp:
            self._found[0].unproved("limit", f"given up after {limit:g} seconds")
        except MemoryError:
            self._found[0].unproved("limit", "there was not memory enough")
        self._result.findings = tuple(
            (at, each) for at, found in enumerate(self._found) for each in found.kept
        )
        return self._result

    def _takes(self, device: str) -> bool:
        return zlib.crc32(device.encode(errors="surrogatepass")) % self._part.shares == (
            self._part.share
        )

    def _decoded(self, at: int) -> bool:
        """Sum up an output; whether that could be done."""
        expected, found = self._compaction.outputs[at], self._found[at]
        try:
            with opened(expected) as here:
                source = here if isinstance(here, RangedFile) else source_of(here)
                with TsFileReader(source, name=expected.physical, text="binary") as reader:
                    for device in reader.tail.devices:
                        if self._takes(device.name):
                            sums = sums_in_file(reader, device)
                            add_sums(self._sums.setdefault(device.name, {}), sums)
                            self._where[device.name] = at
                            self._result.points += sum(
                                int(each[0]) for name, (_, each) in sums.items() if name
                            )
        except FileNotFoundError:
            return False  # who looks at it as a whole says so
        except DamagedData as error:
            place = error.place
            found.add(
                Severity.BAD, "pages", error.reason, device=place.device,
                measurement=place.measurement, offset=place.chunk,
            )  # fmt: skip
            return False
        except Corrupt as error:
            found.bad("structure", str(error))
            return False
        except UnsupportedData as error:
            found.unproved("unsupported", error.reason)
            return False
        except (OSError, TsferryError) as error:
            found.unproved("read", str(error))
            return False
        return True

    def _compare(self) -> None:
        try:
            merged = self._merged()
        except (OSError, TsferryError, Corrupt) as error:
            # Of the outputs that says nothing, and of the inputs their own verdicts do.
            detail = f"not compared with the files that it stands for: {error}"
            self._found[0].add(Severity.NOTE, "merged", detail)
            return
        for device in dict.fromkeys((*self._sums, *merged)):
            found = self._found[self._where.get(device, 0)]
            apart = differences(self._sums.get(device, {}), merged.get(device, {}))
            for name, detail in apart:
                found.add(Severity.BAD, "merged", detail, device=device, measurement=name)
        self._result.compared = True

    def _merged(self) -> dict[str, SeriesSums]:
        asked = self._compaction.asked()
        with InputFiles(asked, lambda: False) as files:
            standing = FileStanding.of_asked(asked.files)
            return {
                device.name: sums_of_rows(DeviceRows(files, standing, device, _MEMORY // 3))
                for device in survey(files).devices
                if self._takes(device.name)
            }
