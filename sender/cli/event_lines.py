"""`sync --jsonl`: an object a line as things happen, for logs; `docs/json.md` has the members."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

from common.console.json_form import json_form
from sender.round.round_words.round_report import worst
from sender.round.round_words.shown_rounds import RoundShown

if TYPE_CHECKING:
    from sender.send.sent_bytes.progress import Told

__all__ = ["EVENT_SHAPES", "EventLines"]

_ENDED: Final = "ended"
EVENT_SHAPES: Final = {
    "planned": "PlannedLine",
    "sent": "SentLine",
    "loaded": "LoadedLine",
    "refused": "RefusedLine",
    _ENDED: "EndedLine",
}
"""Event -> the type of its line, in `sender.cli.event_shapes`."""


class EventLines:
    """Writes the lines, each whole and at once; any thread may call.

    Args:
        stream: standard output, unless told otherwise.
        clock: seconds since the epoch.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._clock = clock
        self._lock = threading.Lock()

    def show(self, told: Told) -> None:
        """Write what happened; how far a round is, is nothing for a log."""
        happened = getattr(told, "happened", None)
        if happened is not None:
            self._write(happened, told.receiver, getattr(told, "members", {}))

    def ended(self, reports: Mapping[str, RoundShown]) -> int:
        """Write the end of each round; the exit code of the command."""
        for name, report in reports.items():
            self._write(_ENDED, name, report)
        return worst([int(report["exit_code"]) for report in reports.values()])

    def _write(self, event: str, receiver: str, members: Mapping[str, Any]) -> None:
        form = json_form({"event": event, "at": self._clock(), "receiver": receiver})
        form |= json_form(members, RoundShown if event == _ENDED else None)
        with self._lock:
            self._stream.write(json.dumps(form, ensure_ascii=True) + "\n")
            self._stream.flush()
