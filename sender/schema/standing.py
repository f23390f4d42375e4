"""What a round did with the schema, for people and machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from common.wire import SchemaPosition
    from sender.schema.notes import SchemaMemory

__all__ = ["SchemaReport", "schema_lines", "schema_standing"]

_SHOWN = 10


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

    def as_json(self) -> dict[str, Any]:
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


def schema_standing(memory: SchemaMemory) -> dict[str, Any] | None:
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


def schema_lines(schema: dict[str, Any] | None) -> list[str]:
    """The same as the lines of `status`."""
    if schema is None:
        return []
    lines = []
    if schema["offset"] is not None:
        text = f"{schema['applied']} records applied there"
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
