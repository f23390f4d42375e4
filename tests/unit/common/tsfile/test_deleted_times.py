"""Which times a deletion file is about, without knowing its series."""

from __future__ import annotations

import struct

import pytest

from common.tsfile.deletion_records import deleted_times
from common.tsfile.primitives import Malformed

LEAST, MOST = -(1 << 63), (1 << 63) - 1


def record(start: int, end: int, path: bytes = b"root.d") -> bytes:
    return b"\x01" + struct.pack(">qq", start, end) + bytes([2 * len(path)]) + path


@pytest.mark.parametrize(
    ("content", "span"),
    [
        (b"", (0, -1)),
        (b"DELETION,root.d.s,100,5,9\n", (5, 9)),
        (b"DELETION,root.d.s,100,5,9\r\n\nDELETION,root.e.s,1,-7,6\n", (-7, 9)),
        (b"DELETION,root.d.s,100,9\n", (LEAST, 9)),
    ],
)
def test_times_of_lines(content: bytes, span: tuple[int, int]) -> None:
    assert deleted_times(content, "mods") == span


@pytest.mark.parametrize(
    ("content", "span"),
    [
        (b"", (0, -1)),
        (record(LEAST, MOST), (LEAST, MOST)),
        (record(5, 9) + record(-7, 6, b"root.**"), (-7, 9)),
    ],
)
def test_times_of_records(content: bytes, span: tuple[int, int]) -> None:
    assert deleted_times(content, "mods2") == span


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (b"DELETION,root.d.s,100,5,9", "mods"),
        (b"nonsense\n", "mods"),
        (record(5, 9)[:-1], "mods2"),
        (record(5, 9)[:10], "mods2"),
        (b"\x07" + bytes(20), "mods2"),
    ],
)
def test_what_is_no_whole_record_has_no_times(content: bytes, form: str) -> None:
    with pytest.raises(Malformed):
        deleted_times(content, form)
