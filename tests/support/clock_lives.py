"""The clock of an engine over long lives of a machine, in memory: no disk, no thread, no program.

What judges the clock is the real thing (`JudgedClock`, `correction`, `TrueTimes`, `Horizon`); the
log is a list of timestamps, `clock.json` a variable. The machine's clock is set, synchronised,
confirmed; the process and the machine end and begin again. After each step no commit may count as
older than it is, and once it is known what the time is, those whose clock was known to be right,
and all of this boot, have the moments at which they were made.
"""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from receiver.metadata.clock import judged_clock
from receiver.metadata.clock.correcting import correction
from receiver.metadata.clock.judged_clock import JudgedClock, LoggedClock
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.timestamps import from_seconds
from receiver.metadata.state.history_window import HistoryWindow, Horizon
from receiver.metadata.state.tables.clock_corrections import NEVER, ClockCorrections
from tests.support.wrong_clocks import WrongMachine

if TYPE_CHECKING:
    import pytest

    from receiver.metadata.clock.clock_record import ClockRecord

__all__ = ["DAY", "HOUR", "YEAR", "ClockLife"]

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
HISTORY = 3 * DAY
SLACK = 400.0
"""Seconds: steps that need no correction, and by which senders' clocks may differ."""
ERRORS = (0.0, 30.0, -30.0, 3000.0, -3000.0, 2 * DAY, -2 * DAY, 2 * YEAR, -2 * YEAR, -1.89e9)
PAUSES = (1.0, 90.0, HOUR, 20 * HOUR, 2 * DAY, 30 * DAY)
_OPTIONS = EngineOptions(history=HISTORY, clock_jump=HOUR)
_SHOWN = 60


class ClockLife:
    """One life.

    Attributes:
        steps: what was done, for who reads a failure.
        made: of each commit its timestamp, when it was truly made, and in which boot.
        known: numbers of the commits whose clock was known to be right.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *, error: float) -> None:
        self._record: ClockRecord | None = None
        patch.setattr(judged_clock, "read_record", lambda _: self._record)
        patch.setattr(judged_clock, "write_record", self._write)
        self.steps: list[tuple[object, ...]] = [("begin", error)]
        self.machine = WrongMachine(error=error, boot_id="0")
        self.boot = 0
        self.made: list[tuple[int, float, int]] = []
        self.known: set[int] = set()
        self._corrections = ClockCorrections()
        first = max(1, from_seconds(self.machine.clock.wall()))
        made = self._corrections.operations()[records.EngineMade]
        made(records.EngineMade("0" * 32, judged=True), first)
        self._window = HistoryWindow(array("Q", [first]), 1, 0)
        self._newest = first
        self._open()
        self.commit()

    def _write(self, _: Path, record: ClockRecord) -> bool:
        self._record = record
        return True

    def _open(self) -> None:
        row = self._corrections.row
        logged = LoggedClock(
            newest=self._newest,
            times=self._corrections.times,
            corrected=row.changed,
            boot=row.boot,
            offset=row.offset,
            is_judged=row.judged_since < NEVER,
        )
        self.clock = JudgedClock(
            self.machine.clock,
            Path(),
            logged,
            jump=HOUR,
            times=lambda: self._corrections.times,
            senders_known=lambda: 3,
        )
        self._horizon = Horizon(_OPTIONS, self._corrections, clock=self.clock.cautious)
        self.looked_after()

    def _allocate(self) -> int:
        ts = self.clock.allocate(self._newest)
        assert ts > self._newest, self.steps
        self._newest = ts
        return ts

    # -- what happens ------------------------------------------------------------------------

    def commit(self) -> None:
        ts = self._allocate()
        self._window.add(ts)
        self.made.append((ts, self.machine.true, self.boot))

    def looked_after(self) -> None:
        """As `Setting.settle`, and the history is cut."""
        while (step := self.clock.pending()) is not None:
            now = self.clock.time_of(step)
            times, commits = self._corrections.times, self._window.commits
            ts, boot_id = self._allocate(), self.machine.boot_id
            op = correction(step, times, commits, now=now, ts=ts, boot_id=boot_id)
            self._corrections.operations()[records.ClockCorrected](op, ts)
            self._window.add(ts)
            self.clock.settled(step, ts)
        self.clock.look()
        self._window.move(self._horizon.now(self._window))

    def passes(self, seconds: float) -> None:
        self.machine.passes(seconds)

    def is_set(self, error: float) -> None:
        self.machine.is_set(error)

    def synchronises(self) -> None:
        self.machine.synchronises()
        self._is_right(sure=True)

    def senders_come(self, by: float) -> None:
        for number in range(2):
            self.clock.heard(str(number) * 32, f"edge {number}", self.machine.true + by)
        if abs(self.machine.error) <= 250:
            self._is_right(sure=True)

    def one_lies(self) -> None:
        self.clock.heard("f" * 32, "liar", self.machine.true + self.machine.error)

    def is_confirmed(self) -> None:
        """By an operator, whose word another may put right later."""
        if not self.machine.error:
            self.clock.confirm()
            self._is_right(sure=False)

    def restarts(self, kill: bool, seconds: float) -> None:
        if not kill:
            self.clock.look(renew=True)
        self.passes(seconds)
        self._open()

    def reboots(self, kill: bool, off: float, battery: str, error: float) -> None:
        if not kill:
            self.clock.look(renew=True)
        now = self.machine.error
        after = {"good": now, "stops": now - off, "wrong": error}[battery]
        self.machine.reboots(off=off, error=after)
        self.boot += 1
        self.machine.boot_id = str(self.boot)
        self._open()

    # -- many of them ------------------------------------------------------------------------

    def do(self, name: str, *arguments: object) -> None:
        """One step, and see that all is as it must be."""
        self.steps.append((name, *arguments))
        getattr(self, name)(*arguments)
        self.clock()
        self.looked_after()  # the engine wakes for it as soon as the clock is judged
        self._nothing_is_older_than_it_is()

    def goes_on(self, chance: random.Random, steps: int) -> None:
        """Steps at random."""
        kinds = ["commit"] * 4 + ["passes"] * 3 + ["looked_after", "is_set", "is_set"]
        kinds += ["synchronises", "senders_come", "one_lies", "is_confirmed"]
        kinds += ["restarts", "reboots"]
        for _ in range(steps):
            name = chance.choice(kinds)
            arguments: dict[str, tuple[object, ...]] = {
                "passes": (chance.choice(PAUSES),),
                "is_set": (chance.choice(ERRORS),),
                "senders_come": (chance.choice((10.0, -20.0)),),
                "restarts": (chance.random() < 0.5, chance.choice(PAUSES)),
                "reboots": (
                    chance.random() < 0.5,
                    chance.choice(PAUSES),
                    chance.choice(("good", "stops", "wrong")),
                    chance.choice(ERRORS),
                ),
            }
            self.do(name, *arguments.get(name, ()))

    # -- what must hold ----------------------------------------------------------------------

    def moment(self, ts: int) -> float:
        return self._corrections.times.seconds(ts)

    def _slack(self, boot: int) -> float:
        """What is believed without evidence: within the jump, either way, and at each boot."""
        return SLACK + HOUR * (2 + self.boot - boot)

    def _nothing_is_older_than_it_is(self) -> None:
        now = self.clock.cautious()
        for ts, true, boot in self.made[-_SHOWN:]:
            age, slack = self.machine.true - true, self._slack(boot)
            assert now - self.moment(ts) <= age + slack, (ts, boot, self.steps)
            assert ts >= self._window.oldest or age >= HISTORY - slack, (ts, boot, self.steps)

    def _is_right(self, *, sure: bool) -> None:
        """It is known what the time is: all goes by it, and nothing is kept too long."""
        true = self.machine
        true.passes(2.0)  # the kernel is asked once a second
        self.clock()
        self.looked_after()
        assert self.clock.doubt() is None, self.steps
        assert abs(self.clock() - true.true) <= SLACK, self.steps
        assert abs(self.clock.cautious() - true.true) <= SLACK, self.steps
        self.commit()
        self.clock.look(renew=True)
        assert abs(self.moment(self.made[-1][0]) - true.true) <= SLACK, self.steps
        for number, (ts, made, boot) in enumerate(self.made):
            assert self.moment(ts) <= true.true + SLACK, (number, self.steps)
            if sure and boot == self.boot:
                self.known.add(number)
            if number in self.known:
                off = self.moment(ts) - made
                assert abs(off) <= SLACK + HOUR * (1 + self.boot - boot), (number, off, self.steps)
