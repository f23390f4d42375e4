"""Files merged into few: what a reader gets of them, written, decoded again and compared.

A function of files: it needs no engine, and runs in a process of its own. What it gives has been
flushed with its names; stopped, or after an error, nothing of it stays (of a process that was
killed temporary files may, and outputs that nobody committed).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.durable import Tree
from receiver.compaction.making.chunk_runs import MergeSpan
from receiver.compaction.making.device_rows import DeviceRows
from receiver.compaction.making.file_standing import FileStanding
from receiver.compaction.making.input_files import InputFiles
from receiver.compaction.making.merge_outputs import MergeOutputs
from receiver.compaction.making.survey import survey
from receiver.compaction.merge_pace import MergePace
from receiver.compaction.worth_merging.merge_asked import ContradictingFilesError, MergeAnswer
from receiver.compaction.worth_merging.time_windows import (
    count_of,
    time_windows,
    windows_one_by_one,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.compaction.making.survey import Survey
    from receiver.compaction.worth_merging.merge_asked import MergeAsked

__all__ = ["merge_files"]

_MOST_WINDOWS: Final = 20_000
"""Of one merge: no more than it may have files, each counted twice."""


def merge_files(
    asked: MergeAsked,
    stopped: Callable[[], bool] = lambda: False,
    pace: MergePace | None = None,
) -> MergeAnswer:
    """Merge files into outputs.

    Args:
        asked: which, and where to.
        stopped: is asked now and then.
        pace: of reading and writing; left out, as it is asked for.

    Raises:
        ContradictingFilesError: files have something in ways that exclude each other.
        MergeDiffersError: an output is not what was merged.
        DamagedData, UnsupportedData: a file is not what was loaded, or cannot be read.
        StoppedError: it was to stop.
        OSError, NoSpaceError: of the disk.
    """
    began = time.monotonic()
    pace = pace or MergePace(asked.bytes_per_second, stopped)
    with Tree(Path(asked.directory)) as tree, InputFiles(asked, stopped, pace) as files:
        seen = survey(files)
        standing = FileStanding.of_asked(asked.files)
        with MergeOutputs(tree, asked, seen, pace) as outputs:
            for window in _windows(seen, asked.interval):
                for device in seen.devices:
                    if not window.meets(device.first, device.last):
                        continue
                    rows = DeviceRows(files, standing, device, asked.memory // 3)
                    *spans, last = rows.spans(asked.target_bytes, window)
                    for span in spans:
                        outputs.add(rows, span, whole=False)
                    outputs.add(rows, last, whole=True)
                outputs.cut()
            done = outputs.end()
    return MergeAnswer(done, seen.points, seen.read_bytes, time.monotonic() - began)


def _windows(seen: Survey, interval: int) -> list[MergeSpan]:
    """The time partitions that devices have rows of; one without limits where that is all.

    Raises:
        ContradictingFilesError: they are too many.
    """
    windows = time_windows(((each.first, each.last) for each in seen.devices), interval)
    count = count_of(windows)
    if count <= 1:
        return [MergeSpan()]
    if count > _MOST_WINDOWS:
        raise ContradictingFilesError(
            f"their points may be of {count} time partitions, and none is to be in a file with "
            f"others: {_MOST_WINDOWS} are cut at most"
        )
    return [MergeSpan(*each) for each in windows_one_by_one(windows, interval)]
