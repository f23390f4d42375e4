"""Numbers and names of the TsFile format, versions 3 and 4.

Source: apache/tsfile, ``org.apache.tsfile.file.metadata`` and ``.enums``.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = [
    "FOOTER_SIZE",
    "HEAD_SIZE",
    "INTERNAL_DEVICE",
    "INTERNAL_MEASUREMENT",
    "LEAF_DEVICE",
    "LEAF_MEASUREMENT",
    "MAGIC",
    "SEPARATOR",
    "TIME_COLUMN_FLAG",
    "VALUE_COLUMN_FLAG",
    "VERSIONS",
    "ColumnCategory",
    "Compression",
    "DataType",
    "Encoding",
]

MAGIC: Final = b"TsFile"
VERSIONS: Final = (3, 4)
HEAD_SIZE: Final = 7  # magic, version byte
FOOTER_SIZE: Final = 10  # int32 length of TsFileMetadata, magic
SEPARATOR: Final = 2  # the byte between data section and index

LEAF_DEVICE: Final = 1
INTERNAL_DEVICE: Final = 0
INTERNAL_MEASUREMENT: Final = 2
LEAF_MEASUREMENT: Final = 3

TIME_COLUMN_FLAG: Final = 0x80
VALUE_COLUMN_FLAG: Final = 0x40


class DataType(enum.IntEnum):
    """What a column holds; VECTOR is the time column of an aligned device."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    FLOAT = 3
    DOUBLE = 4
    TEXT = 5
    VECTOR = 6
    UNKNOWN = 7
    TIMESTAMP = 8
    DATE = 9  # an int, yyyymmdd
    BLOB = 10
    STRING = 11
    OBJECT = 12


class Encoding(enum.IntEnum):
    """How the values of a page are encoded."""

    PLAIN = 0
    DICTIONARY = 1
    RLE = 2
    DIFF = 3
    TS_2DIFF = 4
    BITMAP = 5
    GORILLA_V1 = 6
    REGULAR = 7
    GORILLA = 8
    ZIGZAG = 9
    FREQ = 10
    CHIMP = 11
    SPRINTZ = 12
    RLBE = 13
    CAMEL = 14


class Compression(enum.IntEnum):
    """How a page is compressed."""

    UNCOMPRESSED = 0
    SNAPPY = 1
    GZIP = 2
    LZO = 3
    SDT = 4
    PAA = 5
    PLA = 6
    LZ4 = 7
    ZSTD = 8
    LZMA2 = 9


class ColumnCategory(enum.IntEnum):
    """What a column is to its table."""

    TAG = 0
    FIELD = 1
    ATTRIBUTE = 2
    TIME = 3
