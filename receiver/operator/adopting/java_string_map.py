"""Reads a map of strings as the serialization of Java writes a HashMap.

The receiver of the old sync tool keeps its owners of devices so: `<system dir>/sync/device_owner`.
The form is protocol 2 of the Object Serialization Stream (head `AC ED 00 05`): one object of that
class, whose own data is a block of its two counts, then its keys and values. A string that was
written before is a reference to it. Anything else is no such map: the file is then not believed.
"""

from __future__ import annotations

from typing import Final, NoReturn

from common.errors import DamagedError

__all__ = ["read_string_map"]

_HEAD: Final = bytes.fromhex("aced0005")
_CLASS: Final = (
    b"\x73\x72\x00\x11java.util.HashMap"
    + bytes.fromhex("0507dac1c31660d1")  # its serialVersionUID
    + b"\x03\x00\x02F\x00\x0aloadFactorI\x00\x09threshold\x78\x70"
)
"""A new object, its class with both fields, no class above it that is serialized."""
_FIELDS: Final = 8
_BLOCK: Final = b"\x77\x08"
_STRING, _LONG_STRING, _REFERENCE, _END = 0x74, 0x7C, 0x71, b"\x78"
_FIRST_STRING: Final = 0x7E0002
"""Handle of the first string: the class and the object have the two before it."""


def read_string_map(content: bytes, called: str) -> dict[str, str]:
    """The map that a file has.

    Args:
        content: all of it.
        called: what an error calls the file.

    Raises:
        DamagedError: it is no such map, or not whole; nothing of it is believed then.
    """
    return _Reader(content, called).map()


class _Reader:
    def __init__(self, content: bytes, called: str) -> None:
        self._content = memoryview(content)
        self._called = called
        self._at = 0
        self._strings: list[str] = []

    def map(self) -> dict[str, str]:
        self._expect(_HEAD, "no Java object")
        self._expect(_CLASS, "another object than a java.util.HashMap")
        self._take(_FIELDS)
        self._expect(_BLOCK, "a map without its counts")
        self._take(4)
        pairs = self._number(4)
        found: dict[str, str] = {}
        for _ in range(pairs):
            key = self._string()
            found[key] = self._string()
        self._expect(_END, "more than the map has")
        if len(found) != pairs:
            self._fail("a key that is there twice")
        if self._at != len(self._content):
            self._fail("more behind the map")
        return found

    def _string(self) -> str:
        kind = self._number(1)
        if kind == _REFERENCE:
            handle = self._number(4) - _FIRST_STRING
            if not 0 <= handle < len(self._strings):
                self._fail("a reference to no string")
            return self._strings[handle]
        if kind not in (_STRING, _LONG_STRING):
            self._fail("something that is no string")
        size = self._number(2 if kind == _STRING else 8)
        text = self._text(bytes(self._take(size)))
        self._strings.append(text)
        return text

    def _text(self, data: bytes) -> str:
        """Java's own UTF-8: zero is two bytes, what lies above U+FFFF a pair of surrogates."""
        try:
            halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            return halves.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeError:
            self._fail("a string that is no text")

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _take(self, size: int) -> memoryview:
        piece = self._content[self._at : self._at + size]
        if len(piece) != size:
            self._fail("its end is missing")
        self._at += size
        return piece

    def _expect(self, wanted: bytes, otherwise: str) -> None:
        if bytes(self._content[self._at : self._at + len(wanted)]) != wanted:
            self._fail(otherwise if len(self._content) > self._at else "its end is missing")
        self._at += len(wanted)

    def _fail(self, what: str) -> NoReturn:
        raise DamagedError(
            f"{self._called}: no map of strings as Java writes it (byte {self._at}: {what})"
        )
