"""Whether the machine's clock can be believed as far as deleting by it goes.

The wall clock is compared with one that nobody sets: it is implausible when it stands further from
where it should stand than `jump`. It is plausible again once it stands there, or when an operator
says that it is right. What was last believed is kept in `clock.json` beside the metadata engine, so
a restart changes nothing; without that file the newest commit is what a start compares with. Time
in which the receiver did not run cannot be told from a wrong clock: a start after longer than
`jump` asks the operator too.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.durable import Tree
from common.errors import TsferryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["RECORD", "ClockWatch", "noted_doubt"]

log = logging.getLogger(__name__)

RECORD = "clock.json"
_OFTEN = 8
"""The record is renewed each time that the clock has gone on by this part of `jump`."""


class _Record(msgspec.Struct, kw_only=True):
    """What was last believed.

    Attributes:
        v: version.
        believed: the wall clock when it was last plausible, seconds since the epoch.
        doubt: why it is not believed since, None while it is.
    """

    v: int = 1
    believed: float
    doubt: str | None = None


class ClockWatch:
    """Judges the wall clock; calls are for one thread at a time."""

    def __init__(
        self,
        directory: Path,
        *,
        newest_commit: float,
        jump: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        """Read the record; nothing is written yet.

        Args:
            directory: of the schema, where the record is.
            newest_commit: time of the newest commit before this start, seconds since the epoch.
            jump: seconds that are too far.
            clock: seconds since the epoch, as the machine has it.
            monotonic: seconds that nobody sets.
        """
        self._directory = directory
        self._jump = jump
        self._clock = clock
        self._monotonic = monotonic
        found = _read(directory)
        self._written = found
        self._doubt = None if found is None else found.doubt
        self._told = False
        believed = newest_commit if found is None else found.believed
        if found is not None and found.doubt is None and 0 < newest_commit - believed <= jump:
            believed = newest_commit  # commits went on after the record was last renewed
        self._believed = believed, monotonic()

    @property
    def doubt(self) -> str | None:
        """Why the clock was not believed when it was last judged, None if it was."""
        return self._doubt

    def judge(self, *, in_use: bool = True) -> str | None:
        """Compare the clocks; returns why the wall clock is not believed, None if it is.

        Args:
            in_use: whether anything goes by it; otherwise nothing is written or logged.
        """
        wall, steady = self._clock(), self._monotonic()
        expected = self._believed[0] + steady - self._believed[1]
        if abs(wall - expected) <= self._jump:
            self._believe(wall, steady, in_use=in_use)
        else:
            doubt = (
                f"the clock says {_text(wall)}, about {_text(expected)} was expected; "
                "put it right, or run `tsferry-receiver ttl resume` if it is"
            )
            self._disbelieve(doubt, in_use=in_use)
        return self._doubt

    def confirm(self) -> None:
        """An operator says that the clock is right as it is now.

        Raises:
            NoSpaceError, FailedSyncError: that could not be noted for the next start.
        """
        wall = self._clock()
        self._believe(wall, self._monotonic(), in_use=False)
        self._write(_Record(believed=wall))

    def _believe(self, wall: float, steady: float, *, in_use: bool) -> None:
        self._believed = wall, steady
        self._doubt = None
        self._told = False
        if not in_use:
            return
        old = self._written
        if old is not None and old.doubt is not None:
            log.warning("the clock is believed again, TTL goes on", extra={"clock": _text(wall)})
            self._note(_Record(believed=wall))
        elif old is None or abs(wall - old.believed) >= self._jump / _OFTEN:
            self._note(_Record(believed=wall))

    def _disbelieve(self, doubt: str, *, in_use: bool) -> None:
        self._doubt = doubt
        if in_use and not self._told:
            log.error("TTL is suspended: %s", doubt)
            self._told = True
        if in_use and (self._written is None or self._written.doubt is None):
            self._note(_Record(believed=self._believed[0], doubt=doubt))

    def _note(self, record: _Record) -> None:
        """Write the record; what cannot be written now is written with the next judgement."""
        try:
            self._write(record)
        except (TsferryError, OSError) as error:
            log.warning("what is believed of the clock cannot be noted: %s", error)

    def _write(self, record: _Record) -> None:
        with Tree(self._directory) as tree:
            tree.write_atomic(RECORD, msgspec.json.encode(record))
        self._written = record


def noted_doubt(directory: Path) -> str | None:
    """Why the clock was not believed when that was last noted in this directory, None if it was."""
    found = _read(directory)
    return None if found is None else found.doubt


def _read(directory: Path) -> _Record | None:
    """The record; one that cannot be read counts as none."""
    try:
        with Tree(directory) as tree:
            return from_json(tree.read(RECORD), _Record)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _text(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s"
