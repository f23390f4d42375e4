"""What a TsFile holds, decoded: every point of versions 3 and 4, as numpy arrays and Arrow batches.

    with TsFileReader("a.tsfile") as file:
        for device in file.tail.devices:
            for batch in file.read_device(device.name):     # time, then one column a measurement
                ...
            for found in file.summaries(device):            # every page decoded and checked
                ...

Nothing is believed: lengths are checked before they are used, decoded points against the file's
own statistics. What does not hold is ``DamagedData``, what is not read is ``UnsupportedData``;
both name the file, device, measurement, chunk, page and offset. Needs numpy, numba and pyarrow.

Rooms: `page_data` pages and how they are packed, `encodings`, `deleted` what deletion files say.
"""

from receiver.points.chunks import ChunkRef, ChunkSummary, PointBlock
from receiver.points.columns import Column, arrow_type
from receiver.points.encodings import Binaries
from receiver.points.errors import DamagedData, DataPlace, UnsupportedData
from receiver.points.reader import TsFileReader

__all__ = [
    "Binaries",
    "ChunkRef",
    "ChunkSummary",
    "Column",
    "DamagedData",
    "DataPlace",
    "PointBlock",
    "TsFileReader",
    "UnsupportedData",
    "arrow_type",
]
