"""The time that timestamps go by: the wall clock while it is believed, else the boot clock's pace.

The wall clock is held against the boot clock, which nobody sets. The difference of the two is the
*offset*; it changes only when the wall clock is set. Within `jump` of the offset that was right
last the wall clock is followed. Beyond, it is in doubt: the time goes on from where it was, at the
pace of the boot clock, until the wall clock stands right again, the kernel calls it synchronised,
senders' clocks agree with it, or an operator confirms it.

A start compares with what was believed last: exactly where the boot is the same, else with the
newest timestamp and `clock.json`. A machine that was off for longer than `jump` is in doubt then,
for nothing tells that from a wrong clock; so is one whose clock stands before the newest timestamp.

When the clock is followed over a step of a minute or more, what was wrong before is known: the
correction is committed (`records.ClockCorrected`), and only behind it anything is deleted by the
new time.
"""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.clock.clock_record import ClockRecord, read_record, write_record
from receiver.metadata.clock.senders_clocks import WRITTEN, SendersClocks
from receiver.metadata.model.timestamps import LATEST, from_seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver.metadata.clock.machine_clock import MachineClock
    from receiver.metadata.model.true_times import TrueTimes

__all__ = ["ClockDoubt", "ClockStep", "JudgedClock", "LoggedClock"]

log = logging.getLogger(__name__)

_STEP = 60.0
"""Seconds: a smaller change of the clock needs no correction of what was before."""
_RENEWED = 600.0
"""Seconds after which the record is renewed though nothing has changed."""
_ASKED = 1.0
"""Seconds between two questions to the kernel and to senders' words while the clock is in doubt."""
_SURE = ("synchronised", "senders")
"""Who knows it for sure: what was committed before is right too. The word of one is not enough."""
_ENDS = (
    "That ends when the clock stands right again, when the kernel calls it synchronised (NTP), "
    "when senders' clocks agree with it, or with `tsferry-receiver clock confirm` if it is right"
)


class ClockDoubt(NamedTuple):
    """That the time does not follow the wall clock.

    Attributes:
        since: the time when that began, seconds since the epoch.
        ahead: seconds by which the wall clock is ahead of the time; less than 0 for behind.
        text: the same for people, and what ends it.
    """

    since: float
    ahead: float
    text: str


class ClockStep(NamedTuple):
    """A change of the clock that was followed and is to be committed.

    Attributes:
        since: the first timestamp that the clock gave wrongly.
        is_log_ahead: where the time is earlier than was believed, it is the first that is ahead of
            the time instead: the log itself is.
        booted: the first timestamp of this boot, where the log is ahead: all since then are.
        by: seconds by which the time was later than it was believed to be.
        offset: that is right.
        why: see `records.ClockCorrected`.
        is_sure: whether somebody else says that the clock is right.
    """

    since: int
    is_log_ahead: bool
    booted: int | None
    by: float
    offset: float
    why: str
    is_sure: bool


class LoggedClock(NamedTuple):
    """What the log tells a start.

    Attributes:
        newest: the newest timestamp, 0 where there is none.
        times: the moments of timestamps.
        corrected: the commit of the last correction, 0 without one.
        boot: of the last correction.
        offset: of the last correction.
        is_judged: whether all new timestamps are of a clock that was judged.
    """

    newest: int
    times: TrueTimes
    corrected: int
    boot: str
    offset: float
    is_judged: bool


@dataclass(slots=True)
class _Standing:
    """How the clock stands; see `ClockRecord` for what has the same name there."""

    offset: float
    applied: float
    anchor: float
    since: int
    is_log_ahead: bool = False
    doubted_since: float | None = None
    most: float = math.inf
    """Offset beyond which the time is not believed in doubt, where the log itself is ahead."""
    chain: int = 0
    began: float | None = None
    booted: int | None = None

    def is_sure_since(self, ts: int) -> None:
        """What was given before `ts` is right: nothing that is learnt later concerns it."""
        self.since = self.chain = ts
        self.began = self.booted = None
        self.is_log_ahead = False


class JudgedClock:
    """See the module; safe in threads.

    Attributes:
        senders: what their clocks show.
        changed: called when there is something to commit or to tell, from any thread; quick.
    """

    def __init__(
        self,
        machine: MachineClock,
        directory: Path,
        logged: LoggedClock,
        *,
        jump: float,
        times: Callable[[], TrueTimes],
        senders_known: Callable[[], int] = lambda: 2,
    ) -> None:
        """Compare the clock with what was believed last; nothing is written yet.

        Args:
            machine: its clocks.
            directory: of the schema, where the record is.
            logged: what the log tells.
            jump: seconds; a greater change is in doubt.
            times: the moments of timestamps, as they are corrected now.
            senders_known: how many there are.
        """
        self._machine = machine
        self._directory = directory
        self._jump = jump
        self._times = times
        self._senders_known = senders_known
        self._newest = logged.newest
        self._corrected = logged.corrected
        self._lock = threading.Lock()
        self._why = "step"
        self._is_sure = False
        self._is_forced = False
        self._asked = -math.inf
        self._saved: tuple[float, ClockRecord] | None = None
        self.senders = SendersClocks(machine.boot_id)
        self.changed: Callable[[], None] = lambda: None
        self._standing = self._start(logged, read_record(directory))
        with self._lock:
            self._judge("restart")
            standing = self._standing
            if not logged.is_judged and not self._is_forced and standing.doubted_since is None:
                self._follow(standing.offset, "begun", sure=False)

    # -- asking ------------------------------------------------------------------------------

    def allocate(self, newest: int) -> int:
        """A timestamp greater than the newest: that of the time.

        Until a step of the clock is committed they go on as before, so that it holds for all of
        them.
        """
        with self._lock:
            now = self._judge() + self._standing.applied
            ts = max(self._times().first(from_seconds(now)), newest + 1)
            self._newest = ts
        return ts

    def __call__(self) -> float:
        """The time, seconds since the epoch."""
        with self._lock:
            return self._judge() + self._standing.offset

    def cautious(self) -> float:
        """The time by which something may be deleted: the earliest that it may be."""
        with self._lock:
            boot, standing = self._judge(), self._standing
            offset = min(standing.offset, standing.applied)
            if standing.doubted_since is not None:
                wall = self._machine.wall()
                if math.isfinite(wall):
                    offset = min(offset, wall - boot)
                offset = min(offset, standing.most)
            return boot + offset

    def doubt(self) -> ClockDoubt | None:
        """That the time does not follow the wall clock, None while it does."""
        with self._lock:
            boot = self._judge()
            since = self._standing.doubted_since
            if since is None:
                return None
            ahead = self._machine.wall() - (boot + self._standing.offset)
            return ClockDoubt(since, ahead, self._doubt_text())

    # -- what others know --------------------------------------------------------------------

    def heard(self, sender: str, machine: str, clock: float) -> None:
        """A sender told what its clock shows; see `SendersClocks.heard`."""
        with self._lock:
            self.senders.heard(sender, machine, clock, self._machine.boot())
            if self._standing.doubted_since is not None:
                self._asked = -math.inf
                self._judge()

    def confirm(self) -> str | None:
        """An operator says that the wall clock is right; returns why it was not believed.

        Raises:
            ValueError: it shows nothing that could be a time.
        """
        with self._lock:
            boot = self._judge()
            offset = self._machine.wall() - boot
            if not _is_time(boot + offset):
                raise ValueError(f"the clock shows {_text(boot + offset)}")
            before = None if self._standing.doubted_since is None else self._doubt_text()
            self._standing.anchor = offset
            self._follow(offset, "operator", sure=True)
            return before

    # -- looking after it --------------------------------------------------------------------

    def look(self, *, renew: bool = False) -> None:
        """See whether the clock is known to be right, and renew the record where that is due.

        Args:
            renew: whether it is due in any case.
        """
        with self._lock:
            boot, standing = self._judge(), self._standing
            if standing.doubted_since is None and self._who(boot, standing.offset) in _SURE:
                standing.anchor = standing.offset
                if self._step() is None:
                    standing.is_sure_since(self._newest + 1)
            record = self._record(boot)
            if not renew and not self._is_due(boot, record):
                return
            before, self._saved = self._saved, (boot, record)
        self._tell(None if before is None else before[1], record)
        if not write_record(self._directory, record):
            with self._lock:
                self._saved = before

    def pending(self) -> ClockStep | None:
        """A step that is to be committed."""
        with self._lock:
            self._judge()
            return self._step()

    def _step(self) -> ClockStep | None:
        standing = self._standing
        by = standing.offset - standing.applied
        if abs(by) < _STEP and not self._is_forced:
            return None
        since = standing.since
        if standing.began is not None:
            # An outage and a clock that was wrong before it look the same. What nobody confirmed is
            # taken for as young as it may be: that keeps it too long, and deletes nothing too soon.
            since = min(since, standing.chain)
        return ClockStep(
            since,
            standing.is_log_ahead,
            standing.booted,
            by,
            standing.offset,
            self._why,
            self._is_sure,
        )

    def time_of(self, step: ClockStep) -> float:
        """What the time is by a step, seconds since the epoch."""
        return self._machine.boot() + step.offset

    def settled(self, step: ClockStep, ts: int) -> None:
        """A step was committed: from here on timestamps and what is deleted go by the new time."""
        with self._lock:
            standing = self._standing
            standing.applied = step.offset
            self._corrected = ts
            self._why, self._is_sure, self._is_forced = "step", False, False
            standing.is_log_ahead = False
            if step.is_sure:
                standing.is_sure_since(ts + 1)

    def _record(self, boot: float) -> ClockRecord:
        standing = self._standing
        return ClockRecord(
            believed=boot + min(standing.offset, standing.most),
            doubt=None if standing.doubted_since is None else self._doubt_text(),
            doubted_since=standing.doubted_since,
            boot_id=self._machine.boot_id,
            offset=standing.offset,
            noted=standing.applied,
            anchor=standing.anchor,
            since=standing.since,
            chain=standing.chain,
            began=standing.began,
            booted=standing.booted,
            is_log_ahead=standing.is_log_ahead,
            most=standing.most if math.isfinite(standing.most) else None,
            corrected=self._corrected,
        )

    def _is_due(self, boot: float, record: ClockRecord) -> bool:
        if self._saved is None:
            return True
        at, before = self._saved
        same = (before.doubted_since, before.corrected) == (record.doubted_since, record.corrected)
        return not same or not 0 <= boot - at < _RENEWED

    def _tell(self, before: ClockRecord | None, now: ClockRecord) -> None:
        was = before is not None and before.doubt is not None
        if now.doubt is not None and not was:
            log.error("timestamps do not follow the clock: %s", now.doubt)
        elif was and now.doubt is None:
            log.warning("timestamps follow the clock", extra={"time": _text(now.believed)})

    # -- judging -----------------------------------------------------------------------------

    def _start(self, logged: LoggedClock, record: ClockRecord | None) -> _Standing:
        wall, boot = self._machine.wall(), self._machine.boot()
        if not logged.newest:
            offset = wall - boot if _is_time(wall) else -boot
            return _Standing(offset, offset, offset, since=0)
        behind = logged.times.seconds(logged.newest) - boot
        if record is not None and record.boot_id == self._machine.boot_id:
            same = _of_same_boot(record, logged, self._machine.boot_id)
            if same.offset >= behind - _STEP:
                return same
        last = behind if record is None else max(behind, record.believed - boot)
        since = chain = 0 if record is None else _unsure_since(record)
        if record is not None and record.boot_id is None and record.doubt is not None:
            # 0.1.0 did not believe the clock, and gave timestamps by it all the same.
            most = record.believed - boot
            since = logged.newest + 1
            return _Standing(behind, behind, most, since, True, record.believed, most)
        if _is_time(wall) and abs(wall - boot - last) <= self._jump:
            offset = wall - boot
            if offset < behind - _STEP:
                return _Standing(offset, behind, offset, since, is_log_ahead=True)
            return _Standing(offset, offset, offset, since)
        was_time = last + boot >= WRITTEN  # or the clock began without a battery, in 1970
        if was_time and (record is None or record.doubt is None):
            since = logged.newest + 1
        return _Standing(
            last,
            last,
            last,
            since,
            True,
            boot + last,
            chain=chain,
            began=wall - boot,
            booted=logged.newest + 1,
        )

    def _judge(self, why: str = "step") -> float:
        """Follow the wall clock or not; returns the boot clock. The caller holds the lock."""
        wall, boot = self._machine.wall(), self._machine.boot()
        standing, offset = self._standing, wall - boot
        if abs(offset - standing.anchor) <= self._jump and _is_time(wall):
            if standing.doubted_since is not None:
                self._follow(offset, "right again", sure=False)
            elif abs(offset - standing.offset) >= _STEP:
                self._follow(offset, why, sure=False)
            else:
                standing.offset = offset
            return boot
        if _is_time(wall) and (who := self._asks(boot, offset)):
            standing.anchor = offset
            self._follow(offset, who, sure=who in _SURE)
        elif standing.doubted_since is None:
            standing.doubted_since = boot + standing.offset
            self.changed()
        return boot

    def _asks(self, boot: float, offset: float) -> str:
        if boot - self._asked < _ASKED:
            return ""
        self._asked = boot
        return self._who(boot, offset)

    def _who(self, boot: float, offset: float) -> str:
        """Who says that the wall clock is right; empty for nobody."""
        if self._machine.synchronised():
            return "synchronised"
        agreed = self.senders.agree(offset, boot, known=self._senders_known())
        return "" if not agreed else "senders" if agreed > 1 else "one sender"

    def _follow(self, offset: float, why: str, *, sure: bool) -> None:
        standing = self._standing
        standing.offset, standing.doubted_since, standing.most = offset, None, math.inf
        self._why, self._is_sure = why, sure
        self._is_forced |= why in ("operator", "begun")
        self.changed()

    def _doubt_text(self) -> str:
        wall, time = self._machine.wall(), self._machine.boot() + self._standing.offset
        since = self._standing.doubted_since
        return (
            f"the clock says {_text(wall)}, {_text(time)} was expected, "
            f"and time goes on from there since {_text(time if since is None else since)}. {_ENDS}"
        )


def _unsure_since(record: ClockRecord) -> int:
    """The first timestamp that nothing has confirmed."""
    return record.since if record.began is None else min(record.since, record.chain)


def _of_same_boot(record: ClockRecord, logged: LoggedClock, boot_id: str) -> _Standing:
    """As the record has it, or the correction that was committed after it was written."""
    if logged.corrected > record.corrected and logged.boot == boot_id:
        offset = logged.offset
        return _Standing(offset, offset, offset, logged.corrected + 1)
    most = math.inf if record.most is None else record.most
    return _Standing(
        record.offset,
        record.noted,
        record.anchor,
        record.since,
        record.is_log_ahead,
        record.doubted_since,
        most,
        record.chain,
        record.began,
        record.booted,
    )


def _is_time(seconds: float) -> bool:
    return 0 < seconds < LATEST


def _text(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s"
