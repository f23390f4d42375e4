"""Files merged into few: what a reader gets of them, written, decoded again and compared.

A function of files: it needs no engine, and runs in a process of its own. What it gives has been
flushed with its names; stopped, or after an error, nothing of it stays (of a process that was
killed temporary files may, and outputs that nobody committed).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from common.durable import Tree
from receiver.compaction.device_rows import DeviceRows
from receiver.compaction.file_standing import FileStanding
from receiver.compaction.input_files import InputFiles
from receiver.compaction.merge_asked import MergeAnswer
from receiver.compaction.merge_outputs import MergeOutputs
from receiver.compaction.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.compaction.merge_asked import MergeAsked

__all__ = ["merge_files"]


def merge_files(asked: MergeAsked, stopped: Callable[[], bool] = lambda: False) -> MergeAnswer:
    """Merge files into outputs.

    Args:
        asked: which, and where to.
        stopped: is asked now and then.

    Raises:
        ContradictingFilesError: files have something in ways that exclude each other.
        MergeDiffersError: an output is not what was merged.
        DamagedData, UnsupportedData: a file is not what was loaded, or cannot be read.
        StoppedError: it was to stop.
        OSError, NoSpaceError: of the disk.
    """
    began = time.monotonic()
    with Tree(Path(asked.directory)) as tree, InputFiles(asked, stopped) as files:
        seen = survey(files)
        standing = FileStanding(asked.files)
        with MergeOutputs(tree, asked, seen) as outputs:
            for device in seen.devices:
                rows = DeviceRows(files, standing, device, asked.memory // 3)
                *spans, last = rows.spans(asked.target_bytes)
                for span in spans:
                    outputs.add(rows, span, whole=False)
                outputs.add(rows, last, whole=True)
            done = outputs.end()
    return MergeAnswer(done, seen.points, seen.read_bytes, time.monotonic() - began)
