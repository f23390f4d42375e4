"""Records of the log about compacted files: files that readers read in place of several others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from common.wire.base import CommitTs
from receiver.metadata.model.records.record_parts import DeviceRange, RawTime, Record

MergeVerifier: TypeAlias = Literal["verification", "receiver"]
"""Who compared merged files with what they stand for."""


class CompactionOutput(Record, frozen=True):
    """A file that a compaction made; see `FileLoaded` for what the fields say.

    Attributes:
        series: how many are in it.
        points: how many are in it.
    """

    physical: str
    size: int
    md5: str
    version: int
    devices: Sequence[DeviceRange]
    first: RawTime | None
    last: RawTime | None
    series: int
    points: int
    data_dir: str = ""


class FilesCompacted(Record, frozen=True, tag=83):
    """From this commit on readers may read the outputs in place of the inputs.

    The inputs stay what they are. They are visible files of one sender and one partition, and as of
    `at` no other visible file has times of a device in common with one of them.

    Attributes:
        id: nobody else's.
        at: the commit as of which the inputs, their order and the deletions in them are merged.
        inputs: their physical paths.
        outputs: none where nothing is left of the inputs.
    """

    id: CommitTs
    at: CommitTs
    inputs: Sequence[str]
    outputs: Sequence[CompactionOutput]


class CompactionDissolved(Record, frozen=True, tag=84):
    """Readers read the inputs again: `reason` says what has changed."""

    id: CommitTs
    reason: str


class VerifiedOutput(Record, frozen=True):
    """An output as it was when it was compared; see `CompactionVerified`."""

    physical: str
    size: int
    md5: str


class CompactionVerified(Record, frozen=True, tag=109):
    """The inputs of a compaction were merged anew, and its outputs are just that.

    It is about these very bytes: who merges the inputs once more makes another compaction, and
    nothing is said of that one. It holds as long as the compaction does, since whatever changes
    what readers get of an input dissolves it.

    Attributes:
        id: of the compaction.
        outputs: all of its outputs, with the size and MD5 of what was read.
        by: who compared: `verification` (`tsferry-verify`), or `receiver` by itself, in another
            process than the one that merged.
    """

    id: CommitTs
    outputs: Sequence[VerifiedOutput]
    by: MergeVerifier


class FinalOutput(Record, frozen=True):
    """An output that becomes a file.

    Attributes:
        tail: xxh3-128 of its last 64 KiB, as of a loaded one.
    """

    physical: str
    tail: str


class CompactionFinal(Record, frozen=True, tag=86):
    """The outputs of a compaction are files from now on, and its inputs superseded by them.

    It stands before the operations that do so, which the engine adds: for each output `FileLoaded`
    and `FileRetired`, for each input `FileSuperseded`. From then on the compaction says what the
    outputs are made of, and is forgotten behind the last of them.

    Attributes:
        id: of the compaction.
        outputs: all of its outputs.
    """

    id: CommitTs
    outputs: Sequence[FinalOutput]


class CompactionForgotten(Record, frozen=True, tag=85):
    """The outputs of a dissolved compaction are gone from the disk; so may be its row.

    Of a final one: the rows of the files that they became are forgotten.
    """

    id: CommitTs
