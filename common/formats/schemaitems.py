"""What is said of a schema, free of any log's form: the end state of each thing that changed.

The same items come out of an IoTDB text log (`receiver.load.schema.end_state`), travel from a
receiver to the next centre (`GET /v1/schema/changes`, and the blocks of a task), and are what `mlog
dump` and `mlog import` work on. As text they are JSON objects, one a line; `is` says which. Paths
stand in their stored form (`receiver.metadata.model.paths`), codes are those of the TsFile format.

A member that is not there says nothing: what is known already stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from common.wire import Count, Struct

__all__ = [
    "Altered",
    "Dropped",
    "Group",
    "GroupDropped",
    "Item",
    "SchemaChanges",
    "SeriesItem",
    "encode_items",
    "read_items",
]

Code = Annotated[int, msgspec.Meta(ge=0, le=255)]
Texts = dict[str, str]


class _Base(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is"):
    """Of all items.

    Attributes:
        path: of the thing.
    """

    path: str


class Group(_Base, frozen=True, kw_only=True, omit_defaults=True, tag="group"):
    """A storage group that is there.

    Attributes:
        path: its name.
        ttl: in milliseconds, None for ever.
    """

    ttl: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)] | UnsetType | None = UNSET


class GroupDropped(_Base, frozen=True, kw_only=True, omit_defaults=True, tag="no group"):
    """A storage group that was deleted.

    Attributes:
        path: its name.
    """


class SeriesItem(_Base, frozen=True, kw_only=True, omit_defaults=True, tag="series"):
    """A series that is there.

    Attributes:
        path: of the series.
        type: TSDataType.
        encoding: TSEncoding.
        compression: CompressionType.
        aligned: whether its device shares one time column.
        alias: its other name, None for none.
        props: what the encoder was told.
        tags: all of them.
        attributes: all of them; given where `tags` are.
        tags_at: where these are in the tlog of whoever tells it, -1 for nowhere; for people.
        replaces: it was deleted and made again, which has not been told before: one of that name
            with another type gives way.
    """

    type: Code
    encoding: Code
    compression: Code
    aligned: bool = False
    alias: str | UnsetType | None = UNSET
    props: Texts = {}
    tags: Texts | UnsetType = UNSET
    attributes: Texts | UnsetType = UNSET
    tags_at: int = -1
    replaces: bool = False


class Altered(_Base, frozen=True, kw_only=True, omit_defaults=True, tag="altered"):
    """A series that was made earlier and has another alias, or other tags, since.

    Attributes:
        path: of the series.
        alias: None for none.
        tags: all of them.
        attributes: all of them; given where `tags` are.
    """

    alias: str | UnsetType | None = UNSET
    tags: Texts | UnsetType = UNSET
    attributes: Texts | UnsetType = UNSET


class Dropped(_Base, frozen=True, kw_only=True, omit_defaults=True, tag="no series"):
    """A series that was deleted, and not made again.

    Attributes:
        path: of the series.
        old: the deletion may have been told before: it must take nothing that holds loaded data.
    """

    old: bool = False


Item = Group | GroupDropped | SeriesItem | Altered | Dropped


class SchemaChanges(Struct, frozen=True, kw_only=True):
    """`GET /schema/changes?after=<commit>&limit=<n>&cursor=<next>`: a page of items.

    Attributes:
        engine: uuid of the engine whose commits these are.
        after: the commit from which on changes are told; 0: it is the whole schema, because that
            was asked for or history does not reach back.
        commit: the commit up to which all pages go.
        items: storage groups, then series by path, those that are gone among them.
        next: cursor of the page after, None for the last.
    """

    engine: str
    after: Count
    commit: Count
    items: list[Item]
    next: str | None = None


_decoder: msgspec.json.Decoder[Item] = msgspec.json.Decoder(Item)
_encoder = msgspec.json.Encoder()


def encode_items(items: Iterable[Item]) -> bytes:
    """Items as JSON lines; JSON has no raw line break inside."""
    return b"".join(_encoder.encode(each) + b"\n" for each in items)


def read_items(data: bytes) -> Iterator[tuple[bytes, Item | str]]:
    """The whole lines, each with its item, or why it is none."""
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        line = data[at:end]
        at = end + 1
        found: Item | str
        try:
            found = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            found = str(error)
        yield line, found
