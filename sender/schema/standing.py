"""What a round did with the schema, for people and machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from common.console.terminal import counted

if TYPE_CHECKING:
    from common.wire import SchemaPosition
    from sender.schema.notes import SchemaMemory

__all__ = [
    "SchemaAhead",
    "SchemaFailed",
    "SchemaReport",
    "SchemaShown",
    "SchemaStanding",
    "schema_lines",
    "schema_standing",
]

_SHOWN = 10


class SchemaShown(TypedDict):
    """What a round did with the schema.

    Attributes:
        bytes: of the log that travelled.
        whole: why all of it was sent; null if it went on.
        offset: bytes of the log that the receiver has applied; null for none.
        applied: records of it that are applied there.
        unapplied: records that could not be.
        problem: why it was not brought to its end; null if it was.
    """

    bytes: int
    whole: str | None
    offset: int | None
    applied: int
    unapplied: int
    problem: str | None


class SchemaAhead(TypedDict):
    """What a round would do with the schema.

    Attributes:
        bytes: of the log that would travel.
        whole: why all of it would; null if it goes on.
        problem: why it cannot.
    """

    bytes: int
    whole: str | None
    problem: str | None


class SchemaFailed(TypedDict):
    """A record of the schema log that is not applied.

    Attributes:
        record: as it stands in the log.
    """

    record: str
    reason: str


class SchemaStanding(TypedDict):
    """How far the schema log is applied at a receiver.

    Attributes:
        offset: bytes of the log that are applied; null for none.
        applied: records of it that are applied there.
        unapplied: records that could not be.
        failed: the first of these.
        problem: why it does not go on; null if it does.
        unread: what of the log cannot be read.
    """

    offset: int | None
    applied: int
    unapplied: int
    failed: list[SchemaFailed]
    problem: str | None
    unread: list[str]


@dataclass
class SchemaReport:
    """What a round did with the schema.

    Attributes:
        bytes: of the log that travelled.
        whole: why all of it was sent, None if it went on.
        position: what the receiver has applied.
        problem: why it was not brought to its end, None if it was.
    """

    bytes: int = 0
    whole: str | None = None
    position: SchemaPosition | None = None
    problem: str | None = None

    def as_json(self) -> SchemaShown:
        """As `sync --json` shows it."""
        there = self.position
        return {
            "bytes": self.bytes,
            "whole": self.whole,
            "offset": None if there is None else there.offset,
            "applied": 0 if there is None else there.applied,
            "unapplied": 0 if there is None else there.unapplied,
            "problem": self.problem,
        }


def schema_standing(memory: SchemaMemory) -> SchemaStanding | None:
    """What `status --json` shows of the schema; None if there never was any."""
    there = memory.position
    if there is None and memory.problem is None and not memory.unread:
        return None
    return {
        "offset": None if there is None else there.offset,
        "applied": 0 if there is None else there.applied,
        "unapplied": 0 if there is None else there.unapplied,
        "failed": []
        if there is None
        else [{"record": each.record, "reason": each.reason} for each in there.failed],
        "problem": memory.problem,
        "unread": memory.unread,
    }


def schema_lines(schema: SchemaStanding | None) -> list[str]:
    """The same as the lines of `status`."""
    if schema is None:
        return []
    lines = []
    if schema["offset"] is not None:
        text = f"{counted(schema['applied'], 'record')} applied there"
        if schema["unapplied"]:
            text += f", {schema['unapplied']} not"
        lines.append(f"  schema          {text}")
    lines += [f"    {each['record']}: {each['reason']}" for each in schema["failed"][:_SHOWN]]
    more = schema["unapplied"] - _SHOWN
    if more > 0 and schema["failed"]:
        lines.append(f"    ... and {more} more (--json lists the first hundred)")
    lines += [f"    not read: {each}" for each in schema["unread"]]
    if schema["problem"] is not None:
        lines.append(f"  schema problem  {schema['problem']}")
    return lines
