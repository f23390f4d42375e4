r"""The text form of a schema log, as Apache IoTDB 0.10 and 0.11 keep it in `mlog.txt`.

A line is an operation, its number first:

    0,<path>,<type>,<encoding>,<compression>,<k=v&k=v>,<alias>,<tlog offset>   a series is created
    1,<path>                             a series is deleted, or a storage group if it is one
    2,<path>                             a storage group is set
    10,<path>,<ttl>                      milliseconds; 9223372036854775807 for none
    11,<path>                            a storage group is deleted
    12,<path>,<tlog offset>              where the tags of a series are from now on
    13,<path>,<alias>                    its other name

Types, encodings and compressions are the numbers of the TsFile format. Properties, alias and offset
may be empty; version 0.8 wrote neither. Nobody ever quoted a comma, so a name may hold some: fields
are counted from the right, and where that gives no sense a line counts if it can be cut in one way
only. Lines end with ``\n`` or ``\r\n``; a last one without its end never happened.

What this form cannot say (a line break in a name, a comma in an alias, a device whose series share
a time column), our own files say in a wider one, which begins with the line `HEADER`. There a back
slash begins an escape: ``\xHH``, ``\uHHHH`` or ``\UHHHHHHHH``. It has one more line, ``#aligned,
<device>`` without the blank; other lines that begin with ``#`` are comments. A plain reader skips
all of them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from common.errors import Permanent
from receiver.metadata.model.paths import IllegalPathError, Nodes, format_path, parse_lax

__all__ = [
    "FOREVER",
    "HEADER",
    "AlignedDevice",
    "BadLine",
    "ChangeAlias",
    "ChangeOffset",
    "CreateSeries",
    "DeletePath",
    "DeleteStorageGroup",
    "MlogLineError",
    "MlogRecord",
    "SetStorageGroup",
    "TtlLine",
    "iter_lines",
    "needs_wide",
    "parse_line",
    "print_line",
]

HEADER: Final = "#tsferry mlog 1"
FOREVER: Final = (1 << 63) - 1
"""The TTL that stands for none."""
MAX_LINE: Final = 1 << 20
"""Bytes of a line: more than any path, alias and properties together."""

_PLAIN: Final = re.compile(r"root(?:\.[A-Za-z_][A-Za-z0-9_]*+)*")
_USUAL: Final = re.compile(
    rf"({_PLAIN.pattern}),([0-9]{{1,3}}),([0-9]{{1,3}}),([0-9]{{1,3}}),,([^,\\\\]*+),([0-9]{{0,18}})"
)
"""What follows the number of nearly every line that makes a series, and has one meaning only."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_CODE: Final = re.compile(r"[0-9]{1,3}")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.?))", re.DOTALL)
_UNSAFE: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNSAFE_FIELD: Final = re.compile(r"[\\,&=\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SHOWN: Final = 200
_NO_PROPS: Final[Mapping[str, str]] = MappingProxyType({})
_MOST_FIELDS: Final = 16
"""Of a line that is read in all ways: their number grows with the square of this."""


class MlogLineError(Permanent):
    """A line is no operation of a schema log; the message says why."""

    slug = "mlog-line"


# -- records -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateSeries:
    """``0``: codes as in TsFile; `offset` is where its tags are in the tlog, -1 without any."""

    path: Nodes
    type: int
    encoding: int
    compression: int
    props: Mapping[str, str] = field(default_factory=dict)
    alias: str | None = None
    offset: int = -1


@dataclass(frozen=True, slots=True)
class DeletePath:
    """``1``: a series, or a storage group with all that is below it."""

    path: Nodes


@dataclass(frozen=True, slots=True)
class SetStorageGroup:
    """``2``."""

    path: Nodes


@dataclass(frozen=True, slots=True)
class TtlLine:
    """``10``: in milliseconds, None for ever."""

    path: Nodes
    ttl: int | None


@dataclass(frozen=True, slots=True)
class DeleteStorageGroup:
    """``11``."""

    path: Nodes


@dataclass(frozen=True, slots=True)
class ChangeOffset:
    """``12``."""

    path: Nodes
    offset: int


@dataclass(frozen=True, slots=True)
class ChangeAlias:
    """``13``: None takes it away."""

    path: Nodes
    alias: str | None


@dataclass(frozen=True, slots=True)
class AlignedDevice:
    """``#aligned``: of the wider form; the device's series share one time column."""

    path: Nodes


MlogRecord = (
    CreateSeries
    | DeletePath
    | SetStorageGroup
    | TtlLine
    | DeleteStorageGroup
    | ChangeOffset
    | ChangeAlias
    | AlignedDevice
)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no operation.

    Attributes:
        number: of the line, from 1.
        offset: of its first byte in the log.
        text: of it, shortened; bytes that are no UTF-8 as escapes.
        reason: in words.
    """

    number: int
    offset: int
    text: str
    reason: str


# -- reading -------------------------------------------------------------------------------------


def iter_lines(
    data: bytes, *, start: int = 0, wide: bool = False
) -> Iterator[tuple[int, MlogRecord | BadLine]]:
    """The whole lines of a log one by one, as (offset in the log, what it is); see `parse`."""
    at = number = 0
    while (end := data.find(b"\n", at)) >= 0:
        number += 1
        raw = data[at : end - 1 if data[end - 1 : end] == b"\r" and end > at else end]
        if start + at == 0 and raw == HEADER.encode():
            wide = True
        elif raw.strip():
            try:
                record = _parse_bytes(raw, wide)
            except MlogLineError as error:
                yield start + at, BadLine(number, start + at, _shown(raw), error.message)
            else:
                if record is not None:
                    yield start + at, record
        at = end + 1


def _parse_bytes(raw: bytes, wide: bool) -> MlogRecord | None:
    if len(raw) > MAX_LINE:
        raise MlogLineError(f"it has {len(raw)} bytes, at most {MAX_LINE} are read")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MlogLineError(f"byte {error.start} is no UTF-8") from error
    if text.startswith("#") and not text.startswith("#aligned,"):
        return None
    return parse_line(text, wide=wide)


def _shown(raw: bytes) -> str:
    text = raw[: _SHOWN * 4].decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def parse_line(text: str, *, wide: bool = False) -> MlogRecord:
    """Read one line, without its end.

    Raises:
        MlogLineError: it is no operation.
    """
    if "\0" in text:
        raise MlogLineError("it holds a NUL")
    kind, comma, rest = text.partition(",")
    reader = _READERS.get(kind)
    if reader is None:
        known = _OTHERS.get(kind)
        what = f"{known} is not taken over" if known else f"{kind[:20]!a} is no operation"
        raise MlogLineError(what)
    if not comma or not rest:
        raise MlogLineError("it ends after its number")
    return reader(rest, wide)


def _create(rest: str, wide: bool) -> CreateSeries:
    usual = _USUAL.fullmatch(rest)
    if usual is not None:
        path, *numbers, alias, offset = usual.groups()
        codes = kind, encoding, compression = tuple(map(int, numbers))
        if max(codes) <= 255:
            nodes, at = _split(path), int(offset) if offset else -1
            return CreateSeries(nodes, kind, encoding, compression, _NO_PROPS, alias or None, at)
    fields = rest.split(",")
    if len(fields) > 6:
        found = _cut(fields, len(fields) - 6, len(fields) - 2, wide)
        if found is not None:
            return found
    ways = [] if wide else _other_ways(fields)
    if len(ways) == 1:
        return ways[0]
    if ways:
        raise MlogLineError("commas in its names let it be read in more than one way")
    if len(fields) > 6 and all(map(_CODE.fullmatch, fields[-6:-3])):
        _path(",".join(fields[:-6]), wide)  # says what is wrong with it, if that is
    raise MlogLineError(
        "expected path, type, encoding, compression, properties, alias, tlog offset"
    )


def _other_ways(fields: list[str]) -> list[CreateSeries]:
    """Every way to cut the fields: a comma may be anywhere, and 0.8 wrote fewer fields."""
    ways: list[CreateSeries] = []
    if len(fields) > _MOST_FIELDS:
        return ways
    for codes in range(1, len(fields) - 2):
        for alias in range(codes + 4, len(fields)):
            found = _cut(fields, codes, alias, wide=False)
            if found is not None and found not in ways:
                ways.append(found)
        if all("=" in each for each in fields[codes + 3 :]):
            old = [*fields[: codes + 3], "&".join(fields[codes + 3 :]), "", ""]
            found = _cut(old, codes, codes + 4, wide=False)
            if found is not None and found not in ways:
                ways.append(found)
    return ways


def _cut(fields: list[str], codes: int, alias: int, wide: bool) -> CreateSeries | None:
    """The series, where the codes and the alias begin at these fields; None if it is none."""
    numbers = fields[codes : codes + 3]
    offset = fields[-1]
    if not all(map(_CODE.fullmatch, numbers)):
        return None
    if any(int(each) > 255 for each in numbers) or (offset and not _is_offset(offset)):
        return None
    try:
        props = _props(",".join(fields[codes + 3 : alias]), wide)
        path = _path(",".join(fields[:codes]), wide)
    except MlogLineError:
        return None
    name = _field(",".join(fields[alias:-1]), wide)
    kind, encoding, compression = map(int, numbers)
    at = int(offset) if offset else -1
    return CreateSeries(path, kind, encoding, compression, props, name or None, at)


def _props(text: str, wide: bool) -> Mapping[str, str]:
    if not text:
        return _NO_PROPS
    found: dict[str, str] = {}
    for each in text.split("&"):
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise MlogLineError(f"{each[:40]!a} is no property")
        found[_field(key, wide)] = _field(value, wide)
    return found


def _is_offset(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and -1 <= int(text) <= FOREVER


def _ttl(rest: str, wide: bool) -> TtlLine:
    path, _, number = rest.rpartition(",")
    if not path or not _NUMBER.fullmatch(number) or int(number) > FOREVER:
        raise MlogLineError("expected path, ttl")
    ttl = int(number)
    if ttl <= 0:
        raise MlogLineError(f"a TTL of {ttl} is none; expected milliseconds from 1 up")
    return TtlLine(_path(path, wide), None if ttl == FOREVER else ttl)


def _offset(rest: str, wide: bool) -> ChangeOffset:
    path, _, number = rest.rpartition(",")
    if not path or not _is_offset(number):
        raise MlogLineError("expected path, tlog offset")
    return ChangeOffset(_path(path, wide), int(number))


def _alias(rest: str, wide: bool) -> ChangeAlias:
    path, comma, alias = rest.rpartition(",")
    if not comma:
        raise MlogLineError("expected path, alias")
    return ChangeAlias(_path(path, wide), _field(alias, wide) or None)


def _path(text: str, wide: bool) -> Nodes:
    if _PLAIN.fullmatch(text):
        return _split(text)
    try:
        return parse_lax(_field(text, wide))
    except IllegalPathError as error:
        raise MlogLineError(error.message) from error


def _split(text: str) -> Nodes:
    return tuple(map(sys.intern, text.split(".")))  # the same nodes come again and again


def _field(text: str, wide: bool) -> str:
    return _ESCAPE.sub(_unescape, text) if wide and "\\" in text else text


def _unescape(found: re.Match[str]) -> str:
    digits = found[1] or found[2] or found[3]
    if digits is None or int(digits, 16) > 0x10FFFF:
        raise MlogLineError(f"{found[0]!a} is no escape")
    return chr(int(digits, 16))


_READERS: Final[Mapping[str, Callable[[str, bool], MlogRecord]]] = {
    "0": _create,
    "1": lambda rest, wide: DeletePath(_path(rest, wide)),
    "2": lambda rest, wide: SetStorageGroup(_path(rest, wide)),
    "10": _ttl,
    "11": lambda rest, wide: DeleteStorageGroup(_path(rest, wide)),
    "12": _offset,
    "13": _alias,
    "#aligned": lambda rest, wide: AlignedDevice(_path(rest, wide)),
}
_OTHERS: Final = {
    "3": "a set of aligned series",
    "4": "a device without series",
    "5": "a schema template",
    "6": "a schema template",
    "61": "a schema template",
    "14": "a continuous query",
    "15": "a continuous query",
    "31": "an index",
    "32": "an index",
}


# -- writing -------------------------------------------------------------------------------------


def print_line(record: MlogRecord, *, wide: bool = False) -> str:
    """A record as its line, without its end.

    In the plain form a record that needs the wider one comes out as something else; `dump` finds
    out by reading its lines again.
    """
    path = format_path(record.path)
    if wide:
        path = _UNSAFE.sub(_escaped, path)
    match record:
        case CreateSeries():
            pairs = (
                f"{_write(key, wide)}={_write(value, wide)}" for key, value in record.props.items()
            )
            codes = f"{record.type},{record.encoding},{record.compression}"
            alias = _write(record.alias or "", wide)
            offset = "" if record.offset < 0 else str(record.offset)
            return f"0,{path},{codes},{'&'.join(pairs)},{alias},{offset}"
        case DeletePath():
            return f"1,{path}"
        case SetStorageGroup():
            return f"2,{path}"
        case TtlLine():
            return f"10,{path},{FOREVER if record.ttl is None else record.ttl}"
        case DeleteStorageGroup():
            return f"11,{path}"
        case ChangeOffset():
            return f"12,{path},{record.offset}"
        case ChangeAlias():
            return f"13,{path},{_write(record.alias or '', wide)}"
        case AlignedDevice():
            return f"#aligned,{path}"


def needs_wide(record: MlogRecord) -> bool:
    """Whether the plain form has no line for a record."""
    return not _is_plain(print_line(record), record)


def _is_plain(line: str, record: MlogRecord) -> bool:
    if isinstance(record, AlignedDevice) or _UNSAFE.search(line.replace("\\", "")):
        return False
    if isinstance(record, CreateSeries):
        texts = (record.alias or "", *record.props, *record.props.values())
        if any("," in each for each in texts):
            return False  # read back here perhaps, and by nobody else
    try:
        return parse_line(line) == record
    except MlogLineError:
        return False


def _write(text: str, wide: bool) -> str:
    return _UNSAFE_FIELD.sub(_escaped, text) if wide else text


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
