"""Writes files of doubles to a running database, in the Python that has its client.

    DIR/0.12.0/client/bin/python scripts/bench/sync_tool_writer.py PORT FILES

Each file is one device's, of SERIES series with ROWS rows, a second apart, about 1 MB. Imports
nothing of this project: that Python does not have it.
"""

import random
import sys

from iotdb.Session import Session  # type: ignore[import-not-found]
from iotdb.utils.IoTDBConstants import (  # type: ignore[import-not-found]
    Compressor,
    TSDataType,
    TSEncoding,
)
from iotdb.utils.Tablet import Tablet  # type: ignore[import-not-found]

DEVICES, SERIES, ROWS = 20, 25, 4_800
BEGIN = 1_600_000_000_000


def main() -> None:
    port, files = int(sys.argv[1]), int(sys.argv[2])
    session = Session("127.0.0.1", port, "root", "root")
    session.open(False)
    session.set_storage_group("root.b")
    names = [f"s{number}" for number in range(SERIES)]
    double = TSDataType.DOUBLE
    for device in range(DEVICES):
        for name in names:
            path = f"root.b.d{device}.{name}"
            session.create_time_series(path, double, TSEncoding.PLAIN, Compressor.UNCOMPRESSED)
    numbers = random.Random(1)
    rows = [[numbers.random() for _ in names] for _ in range(ROWS)]
    for file in range(files):
        times = [BEGIN + (file * ROWS + row) * 1000 for row in range(ROWS)]
        turned = rows[file:] + rows[:file]
        device = f"root.b.d{file % DEVICES}"
        session.insert_tablet(Tablet(device, names, [double] * SERIES, turned, times))
        session.execute_non_query_statement("flush")
    session.close()


if __name__ == "__main__":
    main()
