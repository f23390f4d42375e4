"""`clock.json` beside the log: what was believed of the clock of this machine, and of which boot.

It is of the machine and not of the engine, so it is in no log: after a restart on the same boot it
says exactly how long the receiver was away, and after another boot what was believed last.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.durable import Tree
from common.errors import TsferryError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RECORD", "ClockRecord", "read_record", "write_record"]

log = logging.getLogger(__name__)

RECORD = "clock.json"


class ClockRecord(msgspec.Struct, kw_only=True, frozen=True):
    """What was believed last; offsets are seconds since the epoch at which the boot clock began.

    Attributes:
        v: version; 1 of 0.1.0 has only the first two.
        believed: what the time was, seconds since the epoch.
        doubt: why the wall clock was not believed, None where it was.
        doubted_since: what the time was believed to be when that began.
        boot_id: of the machine's boot that the rest is about.
        offset: that the believed time goes by.
        noted: that the timestamps of the log are corrected to.
        anchor: of the clock as it was last known to be right, or began.
        since: the first timestamp that hangs on that clock.
        chain: the first timestamp that nothing has confirmed, of earlier boots too.
        began: offset of the wall clock when this boot was first seen, where it was in doubt then.
        booted: the first timestamp of this boot, where it began in doubt.
        is_log_ahead: whether timestamps of before may be ahead of the time.
        most: offset that the time does not pass while in doubt, where the log itself is ahead.
        corrected: the newest correction in the log.
    """

    v: int = 2
    believed: float
    doubt: str | None = None
    doubted_since: float | None = None
    boot_id: str | None = None
    offset: float = 0.0
    noted: float = 0.0
    anchor: float = 0.0
    since: int = 0
    chain: int = 0
    began: float | None = None
    booted: int | None = None
    is_log_ahead: bool = False
    most: float | None = None
    corrected: int = 0


def read_record(directory: Path) -> ClockRecord | None:
    """The record; one that cannot be read counts as none."""
    try:
        with Tree(directory) as tree:
            return from_json(tree.read(RECORD), ClockRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_record(directory: Path, record: ClockRecord) -> bool:
    """Write it; False if that cannot be done now."""
    try:
        with Tree(directory) as tree:
            tree.write_atomic(RECORD, msgspec.json.encode(record))
    except (TsferryError, OSError) as error:
        log.warning("what is believed of the clock cannot be noted: %s", error)
        return False
    return True
