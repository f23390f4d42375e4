"""Merged files that are read in place of the files that they stand for; see `CompactedTable`.

A merged file is nobody's: no deletion is applied to it, and every other file that overlaps it
stands above. Its rows are those of its inputs as readers merge them, so whoever asks for rows may
have either; whoever asks what is stored, or which file a row is of, has the inputs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.spark.finder import DataFile

__all__ = ["StandIn", "is_whole_here", "with_stand_ins"]


@dataclass(frozen=True, slots=True)
class StandIn:
    """What stands for several files.

    Attributes:
        inputs: their physical names.
        outputs: what is read instead; none where nothing is left of them.
    """

    inputs: tuple[str, ...]
    outputs: tuple[DataFile, ...]


def is_whole_here(file: DataFile) -> bool:
    """Whether a merged file is on this machine, as long as it was made."""
    for each in file.locations:
        try:
            return os.stat(each).st_size == file.size
        except OSError:
            continue
    return False


def with_stand_ins(files: Iterable[DataFile], stand_ins: Iterable[StandIn]) -> list[DataFile]:
    """Files, with what stands for some of them in their place.

    One that stands for a file which is not wanted is left out: its rows are of that file too.

    Args:
        files: of a catalogue, as of a commit.
        stand_ins: of the same commit.
    """
    kept = {each.name: each for each in files}
    found: list[DataFile] = []
    for each in stand_ins:
        if all(name in kept for name in each.inputs):
            for name in each.inputs:
                del kept[name]
            found += each.outputs
    return [*kept.values(), *found]
