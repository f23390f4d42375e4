"""Names: which paths exist in tsferry's world, and how foreign words become file names.

A path is relative to its data directory, POSIX, prefix included:

    sequence/root.turbine/0/0/1581324718762-101-1.tsfile
    kind     storage group/virtual group/time partition/file name

Both ends parse every path at the door; what `FilePath.parse` lets through can be a line of a log,
a path beneath a directory and a cell of a terminal table, and needs no second look anywhere.
"""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from functools import cache, lru_cache

import msgspec

from common.errors import NameRefusedError

__all__ = [
    "RESOURCE",
    "SUFFIX",
    "FilePath",
    "Kind",
    "Stem",
    "check_component",
    "check_file_name",
    "endpoint_dir",
    "escape",
    "is_sender_uuid",
    "is_task_id",
    "parse_stem",
    "storage_group_of",
    "unescape",
]

MAX_NAME = 200
"""Bytes of a file name, UTF-8: leaves room for `.<tag>.resource` and temporary suffixes in 255."""
MAX_PATH = 1024
"""Bytes of a whole path, UTF-8."""
RESOURCE = ".resource"
SUFFIX = ".tsfile"

RESERVED = frozenset(
    {
        "current_local_files.txt",
        "last_local_files.txt",
        "load.log",
        "local_files.state",
        "sync.end",
        "sync.lock",
        "sync.log",
        "uuid.txt",
    }
)
_PARTITION = re.compile(r"-?(0|[1-9][0-9]{0,18})\Z")
_PLAIN_FILE = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,60}(?:\.[0-9a-f]{16})?\.tsfile\Z")
"""Nearly all names are like this, physical ones too, and need no closer look."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
"""What nothing can be wrong with but its length; nearly all names are of this kind."""
_HEX32 = re.compile(r"[0-9a-f]{32}\Z")
_STEM = re.compile(
    r"(?P<created>[0-9]{1,19})-(?P<version>[0-9]{1,19})-(?P<inner>[0-9]{1,9})"
    r"(?:-(?P<cross>[0-9]{1,9}))?(?P<tag>\.[0-9a-f]{16})?\Z"
)
_ORIGINAL = "-0-0.tsfile"
"""How the name of a file ends that no compaction made, as of nearly all that are new."""
_TAG = re.compile(r"\.[0-9a-f]{16}\Z")
_TAG_LENGTH = 17
_INT64 = 1 << 63

# Control characters, invisible formats (right-to-left override, zero width), the two line breaks
# that are no controls, lone surrogates (names that are no UTF-8) and noncharacters. Written out
# and not asked of `unicodedata`, whose answers change with the version of Python: a name that one
# end takes the other has to take, and a log has to read back after an upgrade.
_BAD = (
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u180e"
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff0-\\ufffb\\ufffe\\uffff"
    "\\ud800-\\udfff\\ufdd0-\\ufdef\\U000110bd\\U000110cd\\U00013430-\\U0001343f"
    "\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e00ff"
    "\\U000e01f0-\\U000e0fff"
    + "".join(f"\\U{plane:04x}fffe\\U{plane:04x}ffff" for plane in range(1, 17))
    + "]"
)


@cache
def _bad() -> re.Pattern[str]:
    """Names of printable ASCII have none of it: most programs never need the pattern."""
    return re.compile(_BAD)


class Kind(StrEnum):
    """The two spaces of a database: in time order, and late."""

    SEQUENCE = "sequence"
    UNSEQUENCE = "unsequence"


_KINDS: dict[str, Kind] = {each.value: each for each in Kind}


class Stem(msgspec.Struct, frozen=True):
    """The numbers in `<creation ms>-<version>-<inner>[-<cross>]`, where a name has that form."""

    created: int
    version: int
    inner: int
    cross: int

    @property
    def compactions(self) -> tuple[int, int]:
        """(cross, inner): greater means compacted more often."""
        return (self.cross, self.inner)


def check_component(text: str, what: str, *, limit: int = 255) -> str:
    """Return `text` if it is safe as one component of a path, of at most `limit` bytes.

    Raises:
        NameRefusedError: it is not; the message shows it escaped and says why.
    """
    fault = _fault(text, limit)
    if fault is not None:
        shown = ascii(text if len(text) <= 80 else text[:77] + "...")
        raise NameRefusedError(f"{what} {shown}: {fault}" if text else f"{what}: {fault}")
    return text


def _fault(text: str, limit: int) -> str | None:
    if not text:
        return "empty"
    if _PLAIN.match(text) is None and (fault := _odd_fault(text)) is not None:
        return fault
    size = len(text.encode())
    if size > limit:
        return f"{size} bytes, at most {limit} are allowed"
    return "is a reserved word" if text in RESERVED else None


def _odd_fault(text: str) -> str | None:
    if text in (".", ".."):
        return "leaves its directory"
    if "/" in text or "\\" in text:
        return "has a slash or back slash"
    if not (text.isascii() and text.isprintable()) and (found := _bad().search(text)):
        return f"has the character U+{ord(found[0]):04X}"
    if len(text) >= 2 and text[1] == ":" and text[0].isascii() and text[0].isalpha():
        return "begins with a drive letter"
    if text != text.strip():
        return "begins or ends with white space"
    return None


class FilePath(msgspec.Struct, frozen=True, order=True, gc=False):
    """The path of a TsFile (or its resource) relative to its data directory, checked.

    Attributes:
        kind: `sequence` or `unsequence`.
        sg: storage group, such as `root.turbine`; one directory, whatever dots or `_` it has.
        vsg: virtual storage group (data region).
        partition: number of the time partition.
        name: file name, ending in `.tsfile` or `.tsfile.resource`.
    """

    kind: Kind
    sg: str
    vsg: str
    partition: int
    name: str

    @classmethod
    def parse(cls, text: str) -> FilePath:
        """Check and cut a path.

        Raises:
            NameRefusedError: anything about it is not as this module's docstring has it.
        """
        directory, _, name = text.rpartition("/")
        if _PLAIN_FILE.match(name) and (place := _place(directory)) is not None:
            return cls(*place, name)
        return cls._looked_at(text)

    @classmethod
    def _looked_at(cls, text: str) -> FilePath:
        """The same, and what is wrong with it."""
        if len(text) > MAX_PATH or len(text.encode("utf-8", "surrogatepass")) > MAX_PATH:
            raise NameRefusedError(f"path {text[:60]!a}...: longer than {MAX_PATH} bytes")
        pieces = text.split("/")
        if len(pieces) != 5:
            raise NameRefusedError(
                f"path {text!a}: {len(pieces)} components, expected 5: "
                "sequence|unsequence/<storage group>/<virtual group>/<partition>/<name>.tsfile"
            )
        first, sg, vsg, partition, name = pieces
        kind = _KINDS.get(first)
        if kind is None:
            raise NameRefusedError(
                f"path {text!a}: begins with {first!a}, expected sequence or unsequence"
            )
        check_component(sg, "storage group", limit=MAX_NAME)
        check_component(vsg, "virtual storage group", limit=MAX_NAME)
        if not _is_partition(partition):
            raise NameRefusedError(f"path {text!a}: time partition {partition!a} is no integer")
        check_file_name(name)
        return cls(kind, sys.intern(sg), sys.intern(vsg), int(partition), name)

    @property
    def text(self) -> str:
        """The path as it stands in logs and on the wire."""
        return "/".join((self.kind, self.sg, self.vsg, str(self.partition), self.name))

    def __str__(self) -> str:
        return self.text

    @property
    def directory(self) -> str:
        """The directory part, without a trailing slash."""
        return "/".join((self.kind, self.sg, self.vsg, str(self.partition)))

    @property
    def is_resource(self) -> bool:
        """Whether this is the `.resource` beside a TsFile."""
        return self.name.endswith(RESOURCE)

    @property
    def resource(self) -> FilePath:
        """The path of the resource that belongs to this TsFile."""
        return self if self.is_resource else self._named(self.name + RESOURCE)

    @property
    def tsfile(self) -> FilePath:
        """The path of the TsFile that this resource belongs to."""
        return self._named(self.name.removesuffix(RESOURCE)) if self.is_resource else self

    @property
    def group(self) -> tuple[str, str, int]:
        """(storage group, virtual group, partition): what compactions never cross."""
        return (self.sg, self.vsg, self.partition)

    @property
    def stem(self) -> Stem | None:
        """The numbers of the name; None for a file that no database named."""
        return parse_stem(self.tsfile.name)

    @property
    def is_product(self) -> bool:
        """Whether a compaction made it, as the counts in its name tell."""
        if self.name.endswith(_ORIGINAL):
            return False
        stem = self.stem
        return stem is not None and stem.compactions != (0, 0)

    def physical(self, tag: str) -> FilePath:
        """The name under which the receiver keeps this file: the stem, then `.<tag>`.

        A tag of an earlier receiver on the way is replaced, so names do not grow with each hop.

        Args:
            tag: 16 hex digits, unique to one load.
        """
        assert _TAG.match(f".{tag}"), tag
        base = _TAG.sub("", self.tsfile.name.removesuffix(SUFFIX))
        named = self._named(f"{base}.{tag}{SUFFIX}")
        return named.resource if self.is_resource else named

    def _named(self, name: str) -> FilePath:
        return FilePath(self.kind, self.sg, self.vsg, self.partition, name)


@lru_cache(maxsize=256)
def _place(directory: str) -> tuple[Kind, str, str, int] | None:
    """What a directory says of each path in it; None if it is none, or too long to say so.

    Lists are in order: it is looked at once for all files in it.
    """
    if len(directory) > MAX_PATH // 2:
        return None
    try:
        path = FilePath._looked_at(f"{directory}/x{SUFFIX}")
    except NameRefusedError:
        return None
    return path.kind, path.sg, path.vsg, path.partition


def storage_group_of(path: str) -> str:
    """The storage group of a checked path, a physical one too."""
    return path.split("/", 2)[1]


def parse_stem(name: str) -> Stem | None:
    """The numbers of a TsFile's name; None for a file that no database named."""
    found = _STEM.match(name.removesuffix(SUFFIX))
    if found is None:
        return None
    created, version, inner, cross = found.group("created", "version", "inner", "cross")
    return Stem(int(created), int(version), int(inner), int(cross or 0))


def _is_partition(text: str) -> bool:
    return _PARTITION.match(text) is not None and text != "-0" and -_INT64 <= int(text) < _INT64


def check_file_name(name: str) -> str:
    """Return `name` if it may name a TsFile or a resource, else raise `NameRefusedError`.

    The tag of a physical name does not count towards `MAX_NAME`, so the name that a receiver gives
    to any file that it takes is one that it, and the next receiver, takes as well.
    """
    check_component(name, "file name", limit=MAX_NAME + _TAG_LENGTH + len(RESOURCE))
    base = name.removesuffix(RESOURCE)
    if not base.endswith(SUFFIX) or base == SUFFIX:
        raise NameRefusedError(f"file name {name!a}: does not end in .tsfile or .tsfile.resource")
    if len(base.encode()) > MAX_NAME and len(_untagged(base).encode()) > MAX_NAME:
        raise NameRefusedError(f"file name {name!a}: longer than {MAX_NAME} bytes")
    if name.startswith("."):
        raise NameRefusedError(f"file name {name!a}: hidden files are not shipped")
    return name


def _untagged(base: str) -> str:
    return _TAG.sub("", base.removesuffix(SUFFIX)) + SUFFIX


def is_sender_uuid(text: str) -> bool:
    """Whether `text` is a sender's uuid: 32 lower-case hex digits."""
    return _HEX32.match(text) is not None


def is_task_id(text: str) -> bool:
    """Whether `text` is a task id: 32 lower-case hex digits."""
    return _HEX32.match(text) is not None


def escape(text: str) -> str:
    """A file name for any text, reversibly: all but ASCII letters, digits, `.` and `-` as `%XX`.

    `_` is escaped too, so that `<escaped host>_<port>` has exactly one `_`. A leading dot is
    escaped, so nothing becomes hidden or `..`. The empty text is `%`.
    """
    if not text:
        return "%"
    out: list[str] = []
    for byte in text.encode("utf-8", "surrogatepass"):
        character = chr(byte)
        plain = character.isascii() and (character.isalnum() or character in ".-")
        out.append(character if plain and (out or character != ".") else f"%{byte:02X}")
    return "".join(out)


def unescape(name: str) -> str:
    """The text behind an escaped file name.

    Raises:
        NameRefusedError: `escape` never made this name.
    """
    if name == "%":
        return ""
    out = bytearray()
    at = 0
    try:
        while at < len(name):
            if name[at] == "%":
                out.append(int(name[at + 1 : at + 3], 16))
                at += 3
            else:
                out += name[at].encode("ascii")
                at += 1
        text = out.decode("utf-8", "surrogatepass")
    except ValueError as error:
        raise NameRefusedError(f"{name!a} is no escaped name") from error
    if escape(text) != name:
        raise NameRefusedError(f"{name!a} is no escaped name")
    return text


def endpoint_dir(host: str, port: int) -> str:
    """The directory name `<host>_<port>` of a receiver; IPv6 hosts and odd names are escaped."""
    return f"{escape(host)}_{port}"
