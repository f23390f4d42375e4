"""The form of an event, version 1: one JSON object; `docs/hooks.md` has it for those it goes to."""

from __future__ import annotations

import datetime
import json
import secrets
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from common.console.json_form import json_form
from common.decoders import from_json

__all__ = ["EventKind", "EventState", "HookEvent", "HookSource", "made_event"]

EventKind = Literal[
    "round",
    "loaded",
    "conflict",
    "quarantined",
    "lost",
    "deletions_held",
    "late",
    "verification_failed",
    "disk",
    "read_only",
    "dropped",
    "test",
]
"""What can happen; `dropped` and `test` are about the hooks themselves."""

EventState = Literal["happened", "raised", "resolved"]
"""`happened`: it is over with that. `raised`: it stands from now on, until it is `resolved`."""


class HookSource(msgspec.Struct, frozen=True):
    """Who tells.

    Attributes:
        program: `receiver` or `sender`.
        uuid: of the receiver's engine, or of the sender.
        label: the sender's label; of a receiver the name of its host.
    """

    program: Literal["receiver", "sender"]
    uuid: str
    label: str


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event.

    Attributes:
        version: of this form; 1.
        id: the same however often the event is delivered; letters, digits, `-` and `_`.
        kind: what happened.
        state: `happened`; or `raised` and later `resolved`, for what stands in between.
        at: when, in UTC (RFC 3339).
        seconds: when, in seconds since the epoch.
        who: tells it.
        what: happened; its members depend on the kind.
    """

    version: int = 1
    id: str
    kind: EventKind
    state: EventState = "happened"
    at: str
    seconds: float
    who: HookSource
    what: dict[str, Any]

    def line(self) -> bytes:
        """The event as a command and a webhook get it; no newline is in it, nor behind it."""
        return msgspec.json.encode(self)


def made_event(
    who: HookSource,
    kind: EventKind,
    what: msgspec.Struct | Mapping[str, Any],
    *,
    now: float,
    ident: str = "",
    state: EventState = "happened",
) -> HookEvent:
    """Make an event.

    Args:
        who: tells it.
        kind: of it.
        what: happened.
        now: when, in seconds since the epoch.
        ident: that it has for ever; drawn by chance, if left out.
        state: of it.
    """
    seconds = round(now, 3)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return HookEvent(
        id=ident or f"evt_{secrets.token_hex(16)}",
        kind=kind,
        state=state,
        at=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        seconds=seconds,
        who=who,
        what=_as_read_back(what),
    )


def _as_read_back(what: msgspec.Struct | Mapping[str, Any]) -> dict[str, Any]:
    """What happened as JSON has it; a name of a file that is no UTF-8 is told with `?` in it.

    In the form of commands: who reads it in a shell or a browser keeps 53 bits of a number.
    """
    form = json_form(what)
    try:
        content = msgspec.json.encode(form)
    except UnicodeEncodeError:
        text = json.dumps(form, ensure_ascii=False)
        content = text.encode("utf-8", "replace")
    return from_json(content, dict[str, Any])
