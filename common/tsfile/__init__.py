"""The tail of a TsFile, versions 3 and 4, read with the standard library alone.

    verdict = read_status(fd)              # is it a TsFile, is it closed? microseconds
    tail = read_tail(fd)                   # devices, series, statistics
    for device in tail.devices:
        device.name, device.start, device.end, device.point_count
        for series in device.series():
            series.measurement, series.data_type, series.count, series.statistics

``tail_digest`` and the parser of ``.resource`` files stand beside it (``identity``, ``resource``).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.tsfile.byte_source import TsFileOrigin
    from common.tsfile.device import Device, DeviceTotals
    from common.tsfile.device_names import parse_name, quote_node, split_database, split_path
    from common.tsfile.footer import TableColumn, TableSchema
    from common.tsfile.layout import ColumnCategory, Compression, DataType, Encoding
    from common.tsfile.outlines import Outline, read_outlines
    from common.tsfile.primitives import Corrupt
    from common.tsfile.series import Chunk, Series
    from common.tsfile.statistics import Statistics, Value
    from common.tsfile.tail import MAX_INDEX_BYTES, Tail, read_tail
    from common.tsfile.tail_status import Status, TailVerdict, read_status

__all__ = [
    "MAX_INDEX_BYTES",
    "Chunk",
    "ColumnCategory",
    "Compression",
    "Corrupt",
    "DataType",
    "Device",
    "DeviceTotals",
    "Encoding",
    "Outline",
    "Series",
    "Statistics",
    "Status",
    "TableColumn",
    "TableSchema",
    "Tail",
    "TailVerdict",
    "TsFileOrigin",
    "Value",
    "parse_name",
    "quote_node",
    "read_outlines",
    "read_status",
    "read_tail",
    "split_database",
    "split_path",
]

_HOMES = {
    "TsFileOrigin": "byte_source",
    "Device": "device",
    "DeviceTotals": "device",
    "parse_name": "device_names",
    "quote_node": "device_names",
    "split_database": "device_names",
    "split_path": "device_names",
    "TableColumn": "footer",
    "TableSchema": "footer",
    "ColumnCategory": "layout",
    "Compression": "layout",
    "DataType": "layout",
    "Encoding": "layout",
    "Outline": "outlines",
    "read_outlines": "outlines",
    "Corrupt": "primitives",
    "Chunk": "series",
    "Series": "series",
    "Statistics": "statistics",
    "Value": "statistics",
    "MAX_INDEX_BYTES": "tail",
    "Tail": "tail",
    "read_tail": "tail",
    "Status": "tail_status",
    "TailVerdict": "tail_status",
    "read_status": "tail_status",
}


def __getattr__(name: str) -> object:
    """What is asked for is loaded then: a sender that has nothing to send reads no tails."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
