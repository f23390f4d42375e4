"""Paths of the schema, as users write them and as they are kept.

A path is its bare nodes, from the root down: ``("root", "turbine", "d1", "s1")``. As text the nodes
are joined by dots. A node of letters of ASCII, digits, ``_`` and U+2E80 to U+9FFF may stand as it
is; any other stands in back-ticks or double quotes, a quote inside it doubled: ``root.sg.`a.b```,
``root.sg."a b"``. The one form that is stored and shown (`format_path`) has back-ticks, and only
where they are needed; there a number is quoted too, as Apache IoTDB wants it.

A pattern has wildcards, in nodes without quotes: ``*`` is one level, ``**`` one level or more (so
``root.sg.**`` is all below ``root.sg``, and ``root.**.s1`` does not match ``root.s1``), and ``s*``
any text within its level. In quotes a star is a star.

Devices of files have names of their own (`common.tsfile.device_names`); `device_nodes` says where
in the tree they stand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Final

from common.errors import EXIT_USAGE, Permanent
from common.tsfile import device_names

__all__ = [
    "BARE",
    "MANY",
    "MAX_NODES",
    "MAX_PATH_TEXT",
    "ONE",
    "ROOT",
    "IllegalPathError",
    "Nodes",
    "PartialPattern",
    "Pattern",
    "PatternStep",
    "Wildcard",
    "device_name",
    "device_nodes",
    "directory_nodes",
    "format_path",
    "is_below",
    "is_outside_tree",
    "parse_lax",
    "parse_path",
    "parse_pattern",
    "parse_stored",
    "quote_node",
]

Nodes = tuple[str, ...]
"""Bare node names from ``root`` down."""

ROOT: Final = "root"
MAX_NODES: Final = 255
"""Nodes of a path: far beyond any tree in use, and a walk down it stays bounded."""
MAX_PATH_TEXT: Final = 1 << 16
"""Characters of a path's text."""

quote_node = device_names.quote_node

_PLAIN: Final = re.compile(r"root(?:\.[A-Za-z_\u2E80-\u9FFF][A-Za-z0-9_\u2E80-\u9FFF]*+)*")
"""A path that is its own stored form: no node has quotes, or reads as a number."""
BARE: Final = re.compile(r"[A-Za-z0-9_\u2E80-\u9FFF]++")
"""A node that needs no quotes."""
_BARE_STARS: Final = re.compile(r"[A-Za-z0-9_\u2E80-\u9FFF*]++")
_LAX: Final = re.compile(r"[^.]++")
_QUOTED: Final = {
    "`": re.compile(r"`((?:[^`]++|``)*)`(?!`)"),
    '"': re.compile(r'"((?:[^"]++|"")*)"(?!")'),
}
_CACHED: Final = 1 << 13


class IllegalPathError(Permanent):
    """A text is no path or pattern; `extra`: path, position (characters before the fault)."""

    slug = "illegal-path"
    exit_code = EXIT_USAGE


def _illegal(text: str, position: int, why: str) -> IllegalPathError:
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    return IllegalPathError(
        f"illegal path {shown!r}, character {position + 1}: {why}",
        extra={"path": shown, "position": position},
    )


# -- paths ---------------------------------------------------------------------------------------


@lru_cache(_CACHED)
def parse_path(text: str) -> Nodes:
    """The nodes of a path that a user wrote.

    Raises:
        IllegalPathError: it is none: an empty node, a quote without its end, a character that needs
            quotes, a wildcard, or it does not begin at ``root``.
    """
    return _split_plain(text) or tuple(node for node, _ in _scan(text, BARE))


@lru_cache(_CACHED)
def parse_stored(text: str) -> Nodes:
    """The nodes of a path in its stored form, the only one that records may hold.

    Raises:
        IllegalPathError: the text is no path, or another form of one.
    """
    if plain := _split_plain(text):
        return plain
    nodes = tuple(node for node, _ in _scan(text, BARE))
    if (form := format_path(nodes)) != text:
        raise _illegal(text, 0, f"this is not its stored form, which is {form}")
    return nodes


def parse_lax(text: str) -> Nodes:
    """The nodes of a path that an older database wrote: without quotes all but dots are allowed.

    Raises:
        IllegalPathError: a node is empty, a quote has no end, or it does not begin at ``root``.
    """
    return tuple(node for node, _ in _scan(text, _LAX))


def format_path(nodes: Sequence[str]) -> str:
    """The one text of a path; `parse_stored` undoes it."""
    text = ".".join(nodes)
    if _PLAIN.fullmatch(text) and text.count(".") == len(nodes) - 1:
        return text
    return ".".join(map(quote_node, nodes))


def is_below(nodes: Nodes, ancestor: Nodes) -> bool:
    """Whether a path lies strictly below another."""
    return len(nodes) > len(ancestor) and nodes[: len(ancestor)] == ancestor


def _split_plain(text: str) -> Nodes | None:
    if len(text) > MAX_PATH_TEXT or not _PLAIN.fullmatch(text) or text.count(".") >= MAX_NODES:
        return None
    return tuple(text.split("."))


def _scan(text: str, bare: re.Pattern[str]) -> list[tuple[str, bool]]:
    """The nodes of a text, each with whether it was in quotes."""
    if not text:
        raise _illegal(text, 0, "it is empty")
    if len(text) > MAX_PATH_TEXT:
        raise _illegal(text, MAX_PATH_TEXT, f"it is longer than {MAX_PATH_TEXT} characters")
    found: list[tuple[str, bool]] = []
    position = 0
    while True:
        node, quoted, end = _scan_node(text, position, bare)
        if not found and (quoted or node != ROOT):
            raise _illegal(text, 0, "a path begins with root")
        found.append((node, quoted))
        if len(found) > MAX_NODES:
            raise _illegal(text, end, f"it has more than {MAX_NODES} nodes")
        if end == len(text):
            return found
        position = end + 1


def _scan_node(text: str, position: int, bare: re.Pattern[str]) -> tuple[str, bool, int]:
    """(bare name, whether it was in quotes, where it ends) of the node that begins here."""
    mark = text[position : position + 1]
    if mark in _QUOTED:
        found = _QUOTED[mark].match(text, position)
        if found is None:
            raise _illegal(text, position, f"the quote {mark} has no end")
        node, end = found[1].replace(mark * 2, mark), found.end()
    else:
        found = bare.match(text, position)
        node, end = ("", position) if found is None else (found[0], found.end())
    if not node:
        if end == position and mark not in ("", "."):
            raise _misplaced(text, position, mark)
        raise _illegal(text, position, "the node is empty")
    if text[end : end + 1] not in ("", "."):
        raise _misplaced(text, end, text[end], after_quote=mark in _QUOTED)
    return node, mark in _QUOTED, end


def _misplaced(
    text: str, position: int, mark: str, *, after_quote: bool = False
) -> IllegalPathError:
    if after_quote:
        return _illegal(text, position, f"after the quoted node a dot is expected, not {mark!r}")
    if mark == "*":
        return _illegal(text, position, "a wildcard stands only in a pattern; quote a real *")
    return _illegal(text, position, f"a node with {mark!r} needs back-ticks around it")


# -- patterns ------------------------------------------------------------------------------------


class Wildcard(Enum):
    """A step of a pattern that takes any node."""

    ONE = "*"
    MANY = "**"
    """One level or more."""


ONE: Final = Wildcard.ONE
MANY: Final = Wildcard.MANY


class PartialPattern:
    """A step with stars inside its level, such as ``s*``."""

    __slots__ = ("_first", "_last", "_middle", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._first, *self._middle, self._last = text.split("*")

    def matches(self, node: str) -> bool:
        """Whether a node has this form."""
        # Each piece at the first place where it fits: no star ever has to be tried again, as a
        # regular expression would, for hours.
        end = len(node) - len(self._last)
        position = len(self._first)
        if position > end or not (node.startswith(self._first) and node.endswith(self._last)):
            return False
        for piece in self._middle:
            found = node.find(piece, position, end)
            if found < 0:
                return False
            position = found + len(piece)
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartialPattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Partial({self.text!r})"


PatternStep = str | Wildcard | PartialPattern


class Pattern:
    """Which paths are meant; made by `parse_pattern`, equal if the steps are.

    To walk a tree with it, keep a state for each node on the way down: `START` above the root,
    then `advance` with the name of each child; 0 is the end of the way, for nothing below matches.

    Attributes:
        steps: a text is a node as it is.
        prefix: the nodes before the first wildcard; all of them, where there is none.
        text: the one form of it.
    """

    START: Final = 1
    __slots__ = ("_accept", "_all", "prefix", "steps", "text")

    def __init__(self, steps: Sequence[PatternStep]) -> None:
        self.steps = tuple(steps)
        self.text = ".".join(map(_step_text, self.steps))
        prefix = []
        for step in self.steps:
            if not isinstance(step, str):
                break
            prefix.append(step)
        self.prefix: Nodes = tuple(prefix)
        last = len(self.steps)
        self._accept = 1 << last

    @classmethod
    def of(cls, nodes: Sequence[str]) -> Pattern:
        """The pattern of exactly one path."""
        return cls(nodes)

    @property
    def is_path(self) -> bool:
        """Whether it has no wildcard: then it means the path `prefix` alone."""
        return len(self.prefix) == len(self.steps)

    def below(self) -> Pattern:
        """All that is below what this one matches."""
        return Pattern((*self.steps, MANY))

    def matches(self, nodes: Nodes) -> bool:
        """Whether a path is meant."""
        if self.is_path:
            return nodes == self.steps
        state = self.START
        for node in nodes:
            state = self.advance(state, node)
            if not state:
                return False
        return self.is_match(state)

    def advance(self, state: int, node: str) -> int:
        """The state at a child of that name."""
        # Bit i: the first i steps have taken all nodes so far.
        after = 0
        for i, step in enumerate(self.steps):
            if not state >> i & 1:
                continue
            if step is MANY:
                after |= 3 << i
            elif (
                step is ONE
                or (isinstance(step, str) and step == node)
                or (isinstance(step, PartialPattern) and step.matches(node))
            ):
                after |= 2 << i
        return after

    def is_match(self, state: int) -> bool:
        """Whether a node with this state is meant."""
        return bool(state & self._accept)

    def takes_child(self, state: int) -> bool:
        """Whether a child of a node with this state may be meant."""
        return bool(state & self._accept >> 1)

    def literals(self, state: int) -> tuple[str, ...] | None:
        """The only names of children that lead on from a state; None: any may."""
        found = []
        for i, step in enumerate(self.steps):
            if state >> i & 1:
                if not isinstance(step, str):
                    return None
                if step not in found:
                    found.append(step)
        return tuple(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.steps == self.steps

    def __hash__(self) -> int:
        return hash(self.steps)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def _step_text(step: PatternStep) -> str:
    if isinstance(step, str):
        return quote_node(step)
    return step.value if isinstance(step, Wildcard) else step.text


@lru_cache(_CACHED)
def parse_pattern(text: str) -> Pattern:
    """The pattern that a user wrote; a path is one too.

    Raises:
        IllegalPathError: it is none (see `parse_path`).
    """
    steps: list[PatternStep] = []
    position = 0
    for node, quoted in _scan(text, _BARE_STARS):
        if quoted or "*" not in node:
            steps.append(node)
        elif node in ("*", "**"):
            steps.append(Wildcard(node))
        elif "**" in node:
            position = text.index(node)
            raise _illegal(text, position, f"** stands alone in its node, not as in {node}")
        else:
            steps.append(PartialPattern(node))
    return Pattern(steps)


# -- devices of files ----------------------------------------------------------------------------

_OUTSIDE: Final = "/"
"""Node below root for tree devices that have no place there: of files without ``root``."""


@lru_cache(_CACHED)
def device_nodes(name: str) -> Nodes:
    """Where a device stands in the tree, by its name in `FileLoaded` and `DeviceRange`.

    A tree device stands where its path says. A table device ``/<database>/<table>:<tags>`` stands
    at ``("root", "/<database>", "<table>", ":<tags>")``. No two devices have the same place: a tree
    device whose path does not begin with ``root``, or has a slash where a database has it, stands
    below ``("root", "/")`` with its whole path.

    Raises:
        IllegalPathError: it begins as a table device and is none.
    """
    if name.startswith("/"):
        database, device = device_names.split_database(name)
        try:
            is_table, parts = device_names.parse_name(device)
        except ValueError as error:
            raise _illegal(name, 0, str(error)) from error
        if not is_table:
            raise _illegal(name, 0, "no table stands behind the database")
        table = parts[0] or ""
        tags = device[len(quote_node(table)) + 1 :]
        return (ROOT, f"/{database}", table, f":{tags}")
    nodes = tuple(device_names.split_path(name))
    if nodes[0] != ROOT or is_outside_tree(nodes):
        return (ROOT, _OUTSIDE, *nodes)
    return nodes


def directory_nodes(name: str) -> Nodes:
    """Where a storage group, or a database of tables, stands, by the name of its directory.

    Raises:
        IllegalPathError: it is no path, and begins like one.
    """
    return device_nodes(name) if name.split(".", 1)[0] == ROOT else (ROOT, f"/{name}")


def is_outside_tree(nodes: Nodes) -> bool:
    """Whether no tree of a database has this place: of a table, or of a device without root."""
    return len(nodes) > 1 and nodes[1].startswith("/")


def device_name(nodes: Nodes) -> str:
    """The name of the device that stands at a place: `device_nodes`, undone."""
    if is_outside_tree(nodes):
        if nodes[1] == _OUTSIDE:
            return device_names.tree_name(nodes[2:])
        if len(nodes) == 4 and nodes[3].startswith(":"):
            return device_names.in_database(f"{quote_node(nodes[2])}{nodes[3]}", nodes[1][1:])
    return format_path(nodes)
