"""The parts of a statement, from its words: what the parser calls for each rule of the grammar.

The methods of `Reader` have the names of the rules; each gets the values of the rule's parts. What
the grammar cannot tell (a path's form, a number's range, a clause that comes twice) is told here.
"""

# ruff: noqa: D102  # the methods of `Reader` are rules, and the grammar says what they mean
from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from common.errors import TsferryError
from common.tsfile.layout import Encoding
from receiver.metadata.commit.operations import NewSeries
from receiver.metadata.model.alterations import (
    AddAttributes,
    AddTags,
    Drop,
    Rename,
    SetValues,
    Upsert,
)
from receiver.metadata.model.errors import SchemaRefusedError
from receiver.metadata.model.paths import (
    BARE,
    IllegalPathError,
    Nodes,
    Pattern,
    parse_path,
    parse_pattern,
)
from receiver.metadata.model.types import compression_named, encoding_named, type_named
from receiver.metadata.query import questions as query
from receiver.metadata.sql import statements as sql
from receiver.metadata.sql.lexing import Word, shown

__all__ = ["Misfit", "Reader"]

T = TypeVar("T")

MAX_COUNT: Final = (1 << 63) - 1
_DIGITS: Final = 19
_WHOLE: Final = re.compile(r"-?[0-9]+")
_DURATION: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d|w)", re.IGNORECASE)
_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}


class Misfit(Exception):
    """A part that cannot stand in its place.

    Attributes:
        why: what is wrong with it.
        span: where it begins and ends in the text; None for the whole.
        cause: the error that it is for those who do not come by way of SQL.
    """

    def __init__(self, why: str, word: object = None, cause: TsferryError | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.cause = cause
        self.span: tuple[int, int] | None = None
        if isinstance(word, Word):
            self.span = (word.start_pos, word.start_pos + len(word))


class Part(NamedTuple):
    """A clause that is put together with others: which, its value, the word to point at."""

    name: str
    value: Any
    word: Word | None = None


def _parts(parts: Iterable[Part]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts:
        if part.name in found:
            raise Misfit(f"{shown(part.name.replace('_', ' '))} is given twice", part.word)
        found[part.name] = part.value
    return found


def _split(children: Sequence[Any]) -> tuple[Pattern | None, list[Part]]:
    """The path that comes first, where there is one, and the clauses behind it."""
    if children and isinstance(children[0], Word):
        return _pattern(children[0]), list(children[1:])
    return None, list(children)


# -- words -----------------------------------------------------------------------------------------


def _path(word: Word) -> Nodes:
    return _as(parse_path, word)


def _pattern(word: Word) -> Pattern:
    return _as(parse_pattern, word)


def _as(parse: Callable[[str], T], word: Word) -> T:
    # `ROOT` is the root too, as keywords go in any case; all other names are as they are.
    text = str(word)
    if text[:4].lower() == "root":
        text = "root" + text[4:]
    try:
        return parse(text)
    except IllegalPathError as error:
        misfit = Misfit(error.message, word, error)
        position = error.extra.get("position")
        if isinstance(position, int):
            begin = word.start_pos + position
            misfit.span = (begin, max(begin + 1, word.start_pos + len(word)))
        raise misfit from None


def _text(word: Word) -> str:
    """A name or value without its quotes."""
    mark = word[0]
    if mark not in "'\"`":
        if "`" in word or '"' in word:
            raise Misfit(f"quotes stand around the whole of a name: {shown(word)}", word)
        return str(word)
    inner = word[1:-1].replace(mark * 2, mark)
    if mark == "`" and len(word) != len(inner) + inner.count("`") + 2:
        raise Misfit(f"back-ticks stand around the whole of a name: {shown(word)}", word)
    return inner


def _name(word: Word) -> str:
    name = _text(word)
    if not name:
        raise Misfit("a name may not be empty", word)
    return name


def _node(word: Word) -> str:
    """A name that becomes a node: what a path would not take bare is not taken here."""
    name = _name(word)
    if word[0] != "`" and not BARE.fullmatch(name):
        raise Misfit(
            f"{shown(word)}: a name with other characters than letters, digits and _ needs "
            "back-ticks around it",
            word,
        )
    return name


def _milliseconds(given: Word, what: str) -> int:
    if given.type == "INT":
        return _count(given)
    found = _DURATION.fullmatch(given)
    if found is None:
        raise Misfit(f"{given[:40]!r} is no {what}: expected milliseconds, or 30d, 12h", given)
    milliseconds = int(found[1]) * _MS[found[2].lower()]
    if milliseconds > MAX_COUNT:
        raise Misfit(f"the {what} is above {MAX_COUNT} milliseconds", given)
    return milliseconds


def _count(word: Word) -> int:
    if len(word) > _DIGITS or int(word) > MAX_COUNT:
        raise Misfit(f"the number is above {MAX_COUNT}", word)
    return int(word)


def _partition(word: Word) -> int:
    """The number of a partition: those of times before 1970 are below 0."""
    if _WHOLE.fullmatch(word) is None:
        raise Misfit(f"{shown(word)}: expected the number of a partition", word)
    return _signed(word)


def _signed(word: Word) -> int:
    if len(word) > _DIGITS + 1 or abs(int(word)) > MAX_COUNT:
        raise Misfit(f"the number is not between -{MAX_COUNT} and {MAX_COUNT}", word)
    return int(word)


def _kind(named: Callable[[str], T], word: Word) -> T:
    try:
        return named(_text(word))
    except SchemaRefusedError as error:
        raise Misfit(error.message, word, error) from None


def _encoding(text: str) -> Encoding:
    # The name that Apache IoTDB had for it before 2.0.
    return encoding_named("DICTIONARY" if text.upper() == "PLAIN_DICTIONARY" else text)


def _moment(text: str, word: Word) -> datetime.datetime:
    try:
        # As on a clock of this machine, where the text does not say otherwise.
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise Misfit(
            f"{text[:40]!r} is no time: expected a commit timestamp, or a time such as "
            "2026-01-31T08:00:00Z",
            word,
        ) from None


def _time(word: Word) -> int:
    """Milliseconds since the epoch."""
    if _WHOLE.fullmatch(word) is not None:
        return _signed(word)
    return round(_moment(_text(word), word).timestamp() * 1000)


def _asking(kind: Callable[..., T], **more: Any) -> Callable[[object, list[Any]], T]:
    """The method of a question that has a path, or none, and clauses behind it."""

    def ask(_: object, children: list[Any]) -> T:
        pattern, parts = _split(children)
        clauses = _parts(parts)
        if pattern is not None:
            clauses["pattern"] = pattern
        return kind(**clauses, **more)

    return ask


class Reader:
    """Makes the value of each rule; without state, so one serves all threads."""

    # -- what changes the schema -------------------------------------------------------------------

    def begin_transaction(self, _: list[Any]) -> sql.BeginTransaction:
        return sql.BeginTransaction()

    def commit_transaction(self, _: list[Any]) -> sql.CommitTransaction:
        return sql.CommitTransaction()

    def roll_back_transaction(self, _: list[Any]) -> sql.RollBackTransaction:
        return sql.RollBackTransaction()

    def show_transactions(self, _: list[Any]) -> sql.ShowTransactions:
        return sql.ShowTransactions()

    def create_snapshot(self, _: list[Any]) -> sql.CreateSnapshot:
        return sql.CreateSnapshot()

    def set_storage_groups(self, children: list[Word]) -> sql.SetStorageGroups:
        return sql.SetStorageGroups(tuple(map(_path, children)))

    def delete_storage_groups(self, children: list[Any]) -> sql.DeleteStorageGroups:
        data = children.pop() if isinstance(children[-1], Part) else None
        patterns = tuple(map(_pattern, children))
        return sql.DeleteStorageGroups(patterns, data is not None, data.value if data else None)

    def with_data(self, children: list[Word]) -> Part:
        return Part("with data", _text(children[0]) if children else None)

    def create_timeseries(self, children: list[Any]) -> sql.CreateTimeseries:
        word: Word = children[0]
        nodes = _path(word)
        if len(nodes) < 3:
            raise Misfit("a series lies below a device: root.<device>.<name>", word)
        parts = _parts(children[1:])
        if "datatype" not in parts:
            raise Misfit("the statement has no DATATYPE", word)
        return sql.CreateTimeseries(nodes[:-1], _series(nodes[-1], parts))

    def create_aligned(self, children: list[Any]) -> sql.CreateAligned:
        return sql.CreateAligned(_path(children[0]), tuple(children[1:]))

    def column(self, children: list[Any]) -> NewSeries:
        return _series(_node(children[0]), _parts(children[1:]))

    def alias(self, children: list[Word]) -> Part:
        return Part("alias", _node(children[0]), children[0])

    def datatype(self, children: list[Word]) -> Part:
        return Part("datatype", _kind(type_named, children[0]), children[0])

    type = datatype

    def encoding(self, children: list[Word]) -> Part:
        return Part("encoding", _kind(_encoding, children[0]), children[0])

    def compression(self, children: list[Word]) -> Part:
        return Part("compression", _kind(compression_named, children[0]), children[0])

    def prop(self, children: list[Word]) -> Part:
        return Part(f"property {_name(children[0])}", _text(children[1]), children[0])

    def tags(self, children: list[Any]) -> Part:
        return Part("tags", children[0])

    def attributes(self, children: list[Any]) -> Part:
        return Part("attributes", children[0])

    def pair(self, children: list[Word]) -> tuple[str, str, Word]:
        return _name(children[0]), _text(children[1]), children[0]

    def pairs(self, children: list[tuple[str, str, Word]]) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value, word in children:
            if name in found:
                raise Misfit(f"{shown(word)} is given twice", word)
            found[name] = value
        return found

    def delete_timeseries(self, children: list[Word]) -> sql.DeleteTimeseries:
        return sql.DeleteTimeseries(tuple(map(_pattern, children)))

    def set_ttl(self, children: list[Word]) -> sql.SetTtl:
        path, given = children
        return sql.SetTtl(_path(path), _milliseconds(given, "TTL"))

    def unset_ttl(self, children: list[Word]) -> sql.SetTtl:
        return sql.SetTtl(_path(children[0]), None)

    def at_once(self, _: list[Word]) -> int:
        return 0

    def never(self, _: list[Word]) -> int:
        return -1

    def after(self, children: list[Word]) -> int:
        return _milliseconds(children[0], "time")

    def set_upload(self, children: list[Any]) -> sql.SetUpload:
        return sql.SetUpload(_path(children[0]), children[1])

    def unset_upload(self, children: list[Word]) -> sql.SetUpload:
        return sql.SetUpload(_path(children[0]), None)

    def create_table(self, children: list[Any]) -> sql.CreateTable:
        parts = _parts(children[1:])
        if parts.pop("as_configured", False):
            raise Misfit("a new table has as many replicas as configured: leave them out")
        return sql.CreateTable(_path(children[0]), **parts)

    def alter_table(self, children: list[Any]) -> sql.AlterTable:
        return sql.AlterTable(_path(children[0]), **_parts(children[1:]))

    def new_name(self, children: list[Word]) -> Part:
        raise Misfit(
            "a table is not renamed: its name stands in the names of its files here, at storage "
            "nodes and in the object store, and at the edges",
            children[0],
        )

    def replicas(self, children: list[Word]) -> Part:
        word = children[0]
        if word.type == "INT":
            return Part("replicas", _count(word), word)
        if word.lower() != "default":
            raise Misfit(f"{shown(word)}: expected a number of replicas, or DEFAULT", word)
        return Part("as_configured", True, word)

    def partitions_at(self, children: list[Word]) -> Part:
        splits = tuple(map(_partition, children))
        return Part("partitions", sql.TablePartitions(splits=splits), children[0])

    def partitions_from(self, children: list[Any]) -> Part:
        begin, end = map(_time, children[:2])
        every = children[2] if len(children) > 2 else None
        return Part("partitions", sql.TablePartitions((), begin, end, every), children[0])

    def every(self, children: list[Word]) -> int:
        return _milliseconds(children[0], "time of a tablet")

    def load_files(self, children: list[Any]) -> sql.LoadFiles:
        paths = tuple(_text(each) for each in children if isinstance(each, Word))
        return sql.LoadFiles(paths, **_parts([each for each in children if isinstance(each, Part)]))

    def load_as(self, children: list[Word]) -> Part:
        return Part("owners", tuple(map(_text, children)), children[0])

    def load_into(self, children: list[Word]) -> Part:
        return Part("group", _text(children[0]), children[0])

    def on_duplicate(self, children: list[Word]) -> Part:
        return Part("on_duplicate", _name(children[0]).lower(), children[0])

    # -- alterations -------------------------------------------------------------------------------

    def alter_timeseries(self, children: list[Any]) -> sql.AlterTimeseries:
        return sql.AlterTimeseries(_path(children[0]), children[1])

    def rename(self, children: list[Word]) -> Rename:
        return Rename(_name(children[0]), _name(children[1]))

    def set_values(self, children: list[Any]) -> SetValues:
        return SetValues(children[0])

    def drop(self, children: list[Word]) -> Drop:
        return Drop(tuple(map(_name, children)))

    def add_tags(self, children: list[Any]) -> AddTags:
        return AddTags(children[0])

    def add_attributes(self, children: list[Any]) -> AddAttributes:
        return AddAttributes(children[0])

    def upsert(self, children: list[Part]) -> Upsert:
        return Upsert(**_parts(children))

    other_name = alias

    # -- what asks ---------------------------------------------------------------------------------

    show_timeseries = _asking(query.ShowTimeseries)
    show_latest = _asking(query.ShowTimeseries, by_heat=True)
    show_devices = _asking(query.ShowDevices)
    show_storage_groups = _asking(query.ShowStorageGroups)
    show_child_paths = _asking(query.ShowChildPaths)
    show_child_nodes = _asking(query.ShowChildNodes)

    def show_ttl(self, children: list[Any]) -> query.ShowTtl:
        groups = tuple(_pattern(child) for child in children if isinstance(child, Word))
        parts = _parts(child for child in children if isinstance(child, Part))
        return query.ShowTtl(groups=groups, **parts)

    def show_upload(self, children: list[Word]) -> query.ShowUpload:
        return query.ShowUpload(groups=tuple(map(_pattern, children)))

    show_files = _asking(query.ShowFiles)
    show_partitions = _asking(query.ShowPartitions)
    show_tables = _asking(query.ShowTables)
    show_tablets = _asking(query.ShowTablets)
    show_nodes = _asking(query.ShowStorageNodes)
    show_cache_slots = _asking(query.ShowCacheSlots)
    show_tasks = _asking(query.ShowTasks)
    show_tag_keys = _asking(query.ShowTagKeys)
    show_tag_values = _asking(query.ShowTagValues)
    count_timeseries = _asking(query.CountTimeseries)
    count_devices = _asking(query.CountDevices)
    count_storage_groups = _asking(query.CountStorageGroups)
    count_nodes = _asking(query.CountNodes)

    def where_is(self, children: list[Word]) -> Part:
        return Part("where", query.TagFilter(_name(children[0]), _text(children[1])), children[0])

    def where_contains(self, children: list[Word]) -> Part:
        key, value = _name(children[0]), _text(children[1])
        return Part("where", query.TagFilter(key, value, contains=True), children[0])

    def by_heat(self, _: list[Any]) -> Part:
        return Part("by_heat", True)

    def level(self, children: list[Word]) -> Part:
        return Part("level", _count(children[0]), children[0])

    def by_level(self, children: list[Part]) -> Part:
        return children[0]

    def key(self, children: list[Word]) -> Part:
        return Part("key", _name(children[0]), children[0])

    def limit(self, children: list[Word]) -> Part:
        return Part("limit", _count(children[0]), children[0])

    def offset(self, children: list[Word]) -> Part:
        return Part("offset", _count(children[0]), children[0])

    def at(self, children: list[Word]) -> Part:
        word = children[0]
        if word.type == "INT":
            return Part("at", _count(word), word)
        return Part("at", _moment("T".join(map(_text, children)), word), word)


def _series(name: str, parts: dict[str, Any]) -> NewSeries:
    props = {
        key.removeprefix("property "): value
        for key, value in parts.items()
        if key.startswith("property ")
    }
    return NewSeries(
        name=name,
        type=parts["datatype"],
        encoding=parts.get("encoding"),
        compression=parts.get("compression"),
        alias=parts.get("alias"),
        tags=parts.get("tags", {}),
        attributes=parts.get("attributes", {}),
        props=props,
    )
