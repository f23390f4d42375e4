"""Types, encodings and compressions: known by name and code, and only legal pairs are taken."""

import pytest

from common.tsfile.layout import Compression, DataType, Encoding
from receiver.metadata.model.errors import (
    EncodingRefusedError,
    UnknownCompressionError,
    UnknownEncodingError,
    UnknownTypeError,
)
from receiver.metadata.model.types import (
    TYPES,
    check_codes,
    compression_named,
    default_encoding,
    encoding_named,
    type_named,
)

NUMBERS = {"PLAIN", "RLE", "TS_2DIFF", "GORILLA", "FREQ", "CHIMP", "SPRINTZ", "RLBE"}
INTEGERS = NUMBERS | {"REGULAR", "ZIGZAG"}
FLOATS = NUMBERS | {"GORILLA_V1"}
TABLE = {
    "BOOLEAN": {"PLAIN", "RLE"},
    "INT32": INTEGERS,
    "INT64": INTEGERS,
    "FLOAT": FLOATS,
    "DOUBLE": FLOATS | {"CAMEL"},
    "TEXT": {"PLAIN", "DICTIONARY"},
    "TIMESTAMP": INTEGERS,
    "DATE": INTEGERS,
    "BLOB": {"PLAIN"},
    "STRING": {"PLAIN", "DICTIONARY"},
    "OBJECT": {"PLAIN"},
}


def legal(code: int, encoding: int) -> bool:
    try:
        check_codes("root.d", ["s"], bytes([code]), bytes([encoding]), b"\x01")
    except (UnknownTypeError, EncodingRefusedError):
        return False
    return True


def test_what_any_database_accepts_is_legal_and_nothing_else():
    found = {
        data_type.name: {encoding.name for encoding in Encoding if legal(data_type, encoding)}
        for data_type in DataType
    }
    assert {name: encodings for name, encodings in found.items() if encodings} == TABLE
    assert {each.name for each in TYPES} == set(TABLE)
    for data_type in TYPES:
        assert default_encoding(data_type).name in TABLE[data_type.name]


def test_the_first_series_that_is_wrong_is_named():
    columns = (b"\x01\x02\x00", b"\x02\x02\x04", b"\x01\x01\x01")
    with pytest.raises(EncodingRefusedError, match=r"root\.d\.`a b`: .*TS_2DIFF.*BOOLEAN"):
        check_codes("root.d", ["x", "y", "a b"], *columns)


@pytest.mark.parametrize("text", ["INT32", "int32", "Int32"])
def test_names_are_read_in_any_case(text):
    assert type_named(text) is DataType.INT32
    assert encoding_named("ts_2diff") is Encoding.TS_2DIFF
    assert compression_named("Snappy") is Compression.SNAPPY


@pytest.mark.parametrize("text", ["", "INT", "VECTOR", "UNKNOWN", "1", "INT32 "])
def test_what_is_no_type_is_refused_with_those_that_are(text):
    with pytest.raises(UnknownTypeError, match=r"BOOLEAN, INT32, .*OBJECT") as caught:
        type_named(text)
    assert repr(text) in caught.value.message


def test_what_is_no_encoding_or_compression_is_refused_with_those_that_are():
    with pytest.raises(UnknownEncodingError, match=r"'X' .*PLAIN, DICTIONARY"):
        encoding_named("X")
    with pytest.raises(UnknownCompressionError, match=r"'X' .*UNCOMPRESSED, SNAPPY"):
        compression_named("X")
