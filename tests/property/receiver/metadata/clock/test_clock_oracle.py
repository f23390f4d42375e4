"""An engine on a machine with wrong clocks, held against what the time truly is."""

from __future__ import annotations

import datetime
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.timestamps import to_seconds
from tests.support import tiers
from tests.support.wrong_clocks import WrongMachine

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
JUMP = HOUR
HISTORY = 3 * DAY
SLACK = 400.0
"""Seconds: steps that need no correction, and by which senders' clocks may differ."""

ERRORS = st.sampled_from(
    [0.0, 30.0, -30.0, 50 * 60.0, -50 * 60.0, 2 * DAY, -2 * DAY, 2 * YEAR, -2 * YEAR, -1.89e9]
)
PAUSES = st.sampled_from([1.0, 90.0, HOUR, 20 * HOUR, 2 * DAY, 30 * DAY])


class Clocks(RuleBasedStateMachine):
    """Each commit is remembered with the time that it was truly made, and the boot of that."""

    @initialize(error=ERRORS)
    def begin(self, error: float) -> None:
        shm = Path("/dev/shm")
        self.home = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.machine = WrongMachine(error=error)
        self.boots = self.blurred = 0
        self.commits: list[tuple[int, float, int]] = []
        self.open()
        self.commit()

    def open(self) -> None:
        self.engine = Engine.open(
            self.home / "schema",
            options=EngineOptions(history=HISTORY, clock_jump=JUMP),
            clock=self.machine.clock,
            background=False,
        )

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
            shutil.rmtree(self.home)

    # -- what happens ------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        ts = self.engine.commit([records.KeysWritten([], {"k": str(len(self.commits))})])
        assert not self.commits or ts > self.commits[-1][0]
        self.commits.append((ts, self.machine.true, self.boots))

    @rule(seconds=PAUSES)
    def time_passes(self, seconds: float) -> None:
        self.machine.passes(seconds)

    @rule()
    def looked_after(self) -> None:
        self.engine.collect()

    @rule(error=ERRORS)
    def the_clock_is_set(self, error: float) -> None:
        if abs(error) <= JUMP or abs(error - self.machine.error) <= 2 * JUMP:
            self.blurred = len(self.commits)  # it may be followed, and back again
        self.machine.is_set(error)

    @rule()
    def ntp_comes_through(self) -> None:
        self.machine.synchronises()
        self.settles()

    @rule(off=st.sampled_from([0.0, HOUR, DAY]), by=st.sampled_from([10.0, -20.0]))
    def senders_come(self, off: float, by: float) -> None:
        self.machine.passes(off)
        for number in range(2):
            self.engine.clock.heard(str(number) * 32, f"edge {number}", self.machine.true + by)
        if abs(self.machine.error) <= 250:
            self.settles()

    @rule()
    def one_sender_lies(self) -> None:
        clock = self.machine.true + self.machine.error
        self.engine.clock.heard("f" * 32, "liar", clock)

    @precondition(lambda self: self.machine.error == 0)
    @rule()
    def an_operator_confirms(self) -> None:
        self.engine.confirm_clock()
        self.settles()

    @rule(kill=st.booleans(), checkpoint=st.booleans(), seconds=PAUSES)
    def the_process_restarts(self, kill: bool, checkpoint: bool, seconds: float) -> None:
        self.ends(kill=kill, checkpoint=checkpoint)
        self.machine.passes(seconds)
        self.open()

    @rule(
        kill=st.booleans(),
        off=PAUSES,
        battery=st.sampled_from(["good", "stops", "wrong"]),
        error=ERRORS,
    )
    def the_machine_restarts(self, kill: bool, off: float, battery: str, error: float) -> None:
        self.ends(kill=kill, checkpoint=False)
        now = self.machine.error
        after = {"good": now, "stops": now - off, "wrong": error}[battery]
        self.machine.reboots(off=off, error=after)
        self.boots += 1
        self.open()

    def ends(self, *, kill: bool, checkpoint: bool) -> None:
        if checkpoint:
            self.engine.checkpoint()
        record = self.home / "schema" / "clock.json"
        left = record.read_bytes()
        self.engine.close()
        if kill:  # what it writes at its end was never written
            record.write_bytes(left)

    # -- what must hold ----------------------------------------------------------------------

    def age(self, ts: int) -> float:
        """How old a commit is by what deletes by its age."""
        with self.engine.reading() as state:
            return self.engine.clock.cautious() - state.clock.times.seconds(ts)

    def slack(self, boot: int) -> float:
        """What is believed without evidence: within the jump in a boot, and at each boot after."""
        return SLACK + JUMP * (1 + self.boots - boot)

    @invariant()
    def nothing_is_older_than_it_is(self) -> None:
        if not hasattr(self, "engine"):
            return
        for ts, made, boot in self.commits[-30:]:
            slack = self.slack(boot)
            assert self.age(ts) <= self.machine.true - made + slack, (ts, made, boot)

    @invariant()
    def history_never_goes_early(self) -> None:
        if not hasattr(self, "engine"):
            return
        for ts, made, boot in self.commits[-30:]:
            slack = self.slack(boot)
            if self.machine.true - made < HISTORY - slack:
                self.engine.check_answerable(ts)

    def settles(self) -> None:
        """The clock is known to be right: all goes by it again."""
        clock, machine = self.engine.clock, self.machine
        machine.passes(2.0)  # the kernel is asked once a second
        clock()
        self.engine.collect()
        assert clock.doubt() is None
        assert abs(clock() - machine.true) <= SLACK
        assert abs(clock.cautious() - machine.true) <= SLACK
        self.commit()
        ahead = to_seconds(self.commits[-1][0]) - machine.true
        with self.engine.reading() as state:
            moment = state.clock.times.seconds(self.commits[-1][0])
        assert abs(moment - machine.true) <= SLACK
        machine.passes(600.0)
        self.commit()
        left = to_seconds(self.commits[-1][0]) - machine.true
        assert left <= max(SLACK, ahead - 290.0), "timestamps come back to the time"
        assert left >= -SLACK
        self.same_boot_is_exact()

    def same_boot_is_exact(self) -> None:
        for ts, made, boot in self.commits[-20:]:
            if boot == self.boots:
                assert self.age(ts) >= self.machine.true - made - SLACK - JUMP, (ts, made)
        here = [each for each in self.commits[self.blurred :] if each[2] == self.boots]
        for ts, made, _ in here[-20:]:
            assert self.age(ts) >= self.machine.true - made - SLACK, (ts, made)
        for (before, earlier, _), (after, later, _) in zip(here[-20:], here[-19:], strict=False):
            if later - earlier > 3 * SLACK:
                middle = datetime.datetime.fromtimestamp((earlier + later) / 2, datetime.UTC)
                try:
                    assert before <= self.engine.at(middle) < after
                except HistoryGoneError:
                    assert self.machine.true - earlier > HISTORY - SLACK - JUMP * self.boots


TestClocks = Clocks.TestCase
TestClocks.settings = settings(
    max_examples=tiers.examples(40),
    stateful_step_count=25,
    deadline=None,
    report_multiple_bugs=False,
)
