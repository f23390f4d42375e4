"""A device that several files have rows of, opened in all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.tsfile import Device
    from receiver.points import TsFileReader
    from receiver.points.device_merge import DeviceMerge, Standing
    from receiver.spark.source.read_plans.overlapping import MergedFile
    from receiver.spark.source.read_plans.selection import TimeRange

__all__ = ["DeviceCopy", "MergedDevice", "Succession"]


class Succession:
    """The standing of so many files that have no time in common: each stands above those before.

    Attributes:
        steps: see `receiver.points.device_merge.Standing`.
    """

    def __init__(self, count: int) -> None:
        self.steps: Sequence[int] = range(count)

    def top(self, sources: Sequence[int]) -> int:
        """See there."""
        return max(sources)


class DeviceCopy(NamedTuple):
    """What one file has of it.

    Attributes:
        merged: which file, and its part in the answer.
        reader: that file, opened.
        device: as it has it.
    """

    merged: MergedFile
    reader: TsFileReader
    device: Device


@dataclass(frozen=True, slots=True)
class MergedDevice:
    """What of a device is read together.

    Attributes:
        name: as the result has it.
        copies: more than one.
        span: times.
        ladder: how the files stand to each other.
    """

    name: str
    copies: tuple[DeviceCopy, ...]
    span: TimeRange
    ladder: Standing

    @property
    def files(self) -> list[str]:
        """Names of the files."""
        return [each.merged.file.name for each in self.copies]

    @property
    def is_table(self) -> bool:
        """Whether it is of a table."""
        return self.copies[0].device.is_table

    @property
    def is_plain(self) -> bool:
        """Whether all that the files have is to be given, and their order has no circle."""
        return self.ladder.steps is not None and all(each.merged.is_fresh for each in self.copies)

    def merge(self, measurements: Sequence[str], *, origins: bool) -> DeviceMerge:
        """Its rows; see `DeviceMerge`."""
        # Only here: what plans needs no compiler.
        from receiver.points.device_merge import DeviceMerge, MergeSource

        sources = [
            MergeSource(each.reader, each.device, each.merged.counts, each.merged.before)
            for each in self.copies
        ]
        return DeviceMerge(sources, self.ladder, measurements, origins=origins)
