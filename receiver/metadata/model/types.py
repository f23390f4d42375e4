"""Data types, encodings and compressions: by name and by code, and which of them go together.

The codes are those of the TsFile format (`common.tsfile.layout`). Legal is what any version of
Apache IoTDB accepts when a series is created: 0.10 to 0.12 had REGULAR for integers, 0.13 to 1.x
FREQ for numbers, later ones CHIMP, SPRINTZ and RLBE, and CAMEL for DOUBLE; a schema that comes from
such a database must be taken in. Source: `SchemaUtils.checkDataTypeWithEncoding` of apache/iotdb,
`TSEncoding` of apache/tsfile, and the table "Encoding" of the user guides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, TypeVar

from common.tsfile.layout import Compression, DataType, Encoding
from receiver.metadata.model.errors import (
    EncodingRefusedError,
    SchemaRefusedError,
    UnknownCompressionError,
    UnknownEncodingError,
    UnknownTypeError,
)
from receiver.metadata.model.paths import quote_node

__all__ = [
    "COMPRESSION_TEXTS",
    "ENCODING_TEXTS",
    "TYPES",
    "TYPE_TEXTS",
    "check_codes",
    "compression_named",
    "default_encoding",
    "encoding_named",
    "type_named",
]

_E = Encoding
_INTEGERS: Final = frozenset(
    {
        _E.PLAIN,
        _E.RLE,
        _E.TS_2DIFF,
        _E.REGULAR,
        _E.GORILLA,
        _E.ZIGZAG,
        _E.FREQ,
        _E.CHIMP,
        _E.SPRINTZ,
        _E.RLBE,
    }
)
_FLOATS: Final = frozenset(
    {
        _E.PLAIN,
        _E.RLE,
        _E.TS_2DIFF,
        _E.GORILLA_V1,
        _E.GORILLA,
        _E.FREQ,
        _E.CHIMP,
        _E.SPRINTZ,
        _E.RLBE,
    }
)
_TEXTS: Final = frozenset({_E.PLAIN, _E.DICTIONARY})
_LEGAL: Final[dict[DataType, frozenset[Encoding]]] = {
    DataType.BOOLEAN: frozenset({_E.PLAIN, _E.RLE}),
    DataType.INT32: _INTEGERS,
    DataType.INT64: _INTEGERS,
    DataType.FLOAT: _FLOATS,
    DataType.DOUBLE: _FLOATS | {_E.CAMEL},
    DataType.TEXT: _TEXTS,
    DataType.TIMESTAMP: _INTEGERS,
    DataType.DATE: _INTEGERS,
    DataType.BLOB: frozenset({_E.PLAIN}),
    DataType.STRING: _TEXTS,
    DataType.OBJECT: frozenset({_E.PLAIN}),
}
TYPES: Final = tuple(_LEGAL)
"""Data types that a series can have; VECTOR and UNKNOWN are none."""

_DEFAULTS: Final = {
    DataType.BOOLEAN: _E.RLE,
    DataType.INT32: _E.TS_2DIFF,
    DataType.INT64: _E.TS_2DIFF,
    DataType.FLOAT: _E.GORILLA,
    DataType.DOUBLE: _E.GORILLA,
    DataType.TIMESTAMP: _E.TS_2DIFF,
    DataType.DATE: _E.TS_2DIFF,
}

# Pairs (type, encoding), so that a whole column is checked by set operations.
_PAIRS: Final = frozenset(
    (data_type, encoding) for data_type, legal in _LEGAL.items() for encoding in legal
)
_ENCODINGS: Final = frozenset(map(int, Encoding))
_COMPRESSIONS: Final = frozenset(map(int, Compression))

Named = TypeVar("Named", bound=IntEnum)


class _Texts(dict[int, str]):
    """Names by code; a file may hold a code of a version that comes after ours."""

    def __init__(self, codes: type[IntEnum]) -> None:
        # Looked up a million times in a long answer, where an enumeration costs a microsecond each.
        super().__init__({int(each): each.name for each in codes})

    def __missing__(self, code: int) -> str:
        return f"UNKNOWN({code})"


TYPE_TEXTS: Final = _Texts(DataType)
"""What a data type is called, by its code; `UNKNOWN(23)`, where it has no name."""
ENCODING_TEXTS: Final = _Texts(Encoding)
"""The same of an encoding."""
COMPRESSION_TEXTS: Final = _Texts(Compression)
"""The same of a compression."""


def default_encoding(data_type: DataType) -> Encoding:
    """The encoding of a series that was created without one, as in Apache IoTDB."""
    return _DEFAULTS.get(data_type, _E.PLAIN)


def type_named(text: str) -> DataType:
    """The data type of that name, in any case.

    Raises:
        UnknownTypeError: there is none.
    """
    found = _named(DataType, text)
    if found is None or found not in _LEGAL:
        raise UnknownTypeError(
            f"{text!r} is no data type; there are {_names(TYPES)}", extra={"type": text}
        )
    return found


def encoding_named(text: str) -> Encoding:
    """The encoding of that name, in any case.

    Raises:
        UnknownEncodingError: there is none.
    """
    found = _named(Encoding, text)
    if found is None:
        raise UnknownEncodingError(
            f"{text!r} is no encoding; there are {_names(Encoding)}", extra={"encoding": text}
        )
    return found


def compression_named(text: str) -> Compression:
    """The compression of that name, in any case.

    Raises:
        UnknownCompressionError: there is none.
    """
    found = _named(Compression, text)
    if found is None:
        raise UnknownCompressionError(
            f"{text!r} is no compression; there are {_names(Compression)}",
            extra={"compression": text},
        )
    return found


def check_codes(
    device: str, names: Sequence[str], types: bytes, encodings: bytes, compressions: bytes
) -> None:
    """See that each series has a type, an encoding that is legal for it, and a compression.

    Args:
        device: for the message.
        names: of the measurements, as many as each of the columns has codes.
        types: codes of `DataType`.
        encodings: codes of `Encoding`.
        compressions: codes of `Compression`.

    Raises:
        UnknownTypeError, UnknownEncodingError, UnknownCompressionError, EncodingRefusedError: of
            the first series for which it does not hold.
    """
    if _are_legal(types, encodings, compressions):
        return
    for name, data_type, encoding, compression in zip(
        names, types, encodings, compressions, strict=True
    ):
        _check(f"{device}.{quote_node(name)}", data_type, encoding, compression)


@lru_cache(4096)
def _are_legal(types: bytes, encodings: bytes, compressions: bytes) -> bool:
    # Devices are mostly alike: the same columns come again and again.
    return _PAIRS.issuperset(zip(types, encodings, strict=True)) and _COMPRESSIONS.issuperset(
        compressions
    )


def _check(path: str, data_type: int, encoding: int, compression: int) -> None:
    if data_type not in _LEGAL:
        raise _refusal(UnknownTypeError, path, f"{data_type} is no data type")
    if encoding not in _ENCODINGS:
        raise _refusal(UnknownEncodingError, path, f"{encoding} is no encoding")
    legal = _LEGAL[DataType(data_type)]
    if encoding not in legal:
        raise _refusal(
            EncodingRefusedError,
            path,
            f"the encoding {Encoding(encoding).name} is not for {DataType(data_type).name}, "
            f"which can have {_names(legal)}",
        )
    if compression not in _COMPRESSIONS:
        raise _refusal(UnknownCompressionError, path, f"{compression} is no compression")


def _refusal(kind: type[SchemaRefusedError], path: str, why: str) -> SchemaRefusedError:
    return kind(f"{path}: {why}", extra={"path": path})


def _named(kind: type[Named], text: str) -> Named | None:
    return kind.__members__.get(text.upper())


def _names(members: Iterable[IntEnum]) -> str:
    return ", ".join(each.name for each in sorted(members))
