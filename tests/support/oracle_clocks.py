"""Histories at a centre whose clock goes wrong, is put right, and is asked for what was.

What a centre gave at a time is what the judge found of its committed rows when that time truly was.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from receiver.metadata.model.errors import HistoryGoneError
from receiver.node import Node
from receiver.web.app import close, create_app, site_of
from tests.support.edge_shapes import ROW, Points, in_mind
from tests.support.oracle import Oracle, difference, receiver_config, rows_read
from tests.support.oracle_host import InProcess
from tests.support.oracle_play import WEIGHTS, Play, WrongAnswer
from tests.support.proving import in_this_process
from tests.support.web import running
from tests.support.wrong_clocks import WrongMachine

HOUR, DAY = 3600.0, 86400.0
JUMP, HISTORY = HOUR, 2 * DAY
SLACK = 400.0
"""Seconds that times may differ by: steps that need no correction, and senders' clocks."""
CLOCKED = WEIGHTS | {
    "dying_round": 0.0,
    "passes": 8.0,
    "reap": 3.0,
    "goes_wrong": 2.0,
    "comes_right": 3.0,
    "starts_anew": 1.5,
    "asked": 6.0,
}
_WRONG = (2 * DAY, -2 * DAY, 700 * DAY, -700 * DAY, 3 * HOUR, -3 * HOUR)


class ClockedCentre(InProcess):
    """A receiver in this process that goes by a machine's clocks, over its starts.

    Attributes:
        machine: whose clocks; senders are right about what its time truly is.
    """

    def __init__(self, root: Path) -> None:
        config = receiver_config(root)
        metadata = msgspec.structs.replace(config.metadata, history=HISTORY, clock_jump=JUMP)
        self.config = msgspec.structs.replace(config, metadata=metadata)
        now = time.time()
        self.machine = WrongMachine(true=now, booted=now - 100, synchronised=True)
        self._port = 0
        self._open = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        node = Node.open(self.config, clock=self.machine.clock)
        self._open.callback(node.close)
        heard = node.engine.clock.heard

        def right(sender: str, machine: str, clock: float) -> None:
            del clock
            heard(sender, machine, self.machine.true)

        node.engine.clock.heard = right  # type: ignore[method-assign]
        in_this_process(node)
        app = create_app(self.config, node)
        self._open.callback(close, app)
        site = site_of(app)
        server = self._open.enter_context(running(app, gate=site.gate, port=self._port))
        self._open.callback(site.polls.close)
        _, self._port = server.addresses[0]
        super().__init__(node, f"http://127.0.0.1:{self._port}")

    def stop(self) -> None:
        self._open.close()


class Moment(NamedTuple):
    """What was given from a time on: as of a commit, and truly; and in which boot."""

    commit: int
    true: float
    answer: Points
    boot: str


class ClockedPlay(Play):
    """A history at a centre whose clock goes wrong.

    Attributes:
        moments: what was given, one after the other.
        right: whether the clock is known to be right, and what was wrong before is committed.
        known: boots in which it was once; of others nobody knows how long the machine was off.
    """

    def __init__(self, world: Oracle, centre: ClockedCentre, seed: int) -> None:
        super().__init__(world, seed, weights=CLOCKED)
        self.centre, self.machine = centre, centre.machine
        self.moments: list[Moment] = []
        self.right = True
        self.known = {self.machine.boot_id}

    def step(self) -> None:
        super().step()
        with self.centre.reading() as state:
            newest = state.newest
        if self.moments and self.moments[-1].commit == newest:
            return
        answer = {key: value for key, value in self.world.answer().items() if key[0] != ROW}
        if not self.moments or answer != self.moments[-1].answer:
            self.moments.append(Moment(newest, self.machine.true, answer, self.machine.boot_id))
            self._note("moment", newest, self.machine.true)
        self.machine.passes(self.chance.choice([2.0, 90.0, 1300.0]))

    # -- the clock -------------------------------------------------------------------------

    def _passes(self) -> None:
        seconds = self.chance.choice([90.0, HOUR, 5 * HOUR, 20 * HOUR])
        self.machine.passes(seconds)
        self._note("passes", seconds)

    def _goes_wrong(self) -> None:
        """Set by hand, or found so after a boot."""
        error, self.right = self.chance.choice(_WRONG), False
        boots = self.chance.random() < 0.5
        if boots:
            self.centre.stop()
            self.machine.reboots(off=self.chance.choice([60.0, 5 * HOUR]), error=error)
            self.centre.start()
        else:
            self.machine.is_set(error)
        self._note("goes wrong", error, boots)

    def _starts_anew(self) -> None:
        self.centre.stop()
        self.machine.passes(self.chance.choice([1.0, 90.0]))
        self.centre.start()
        self._note("starts anew")

    def _comes_right(self) -> None:
        """NTP comes through, while the receiver runs or does not."""
        stopped = self.chance.random() < 0.5
        if stopped:
            self.centre.stop()
        self.machine.synchronises()
        if stopped:
            self.centre.start()
        self.centre.node.engine.collect()
        self.right = True
        self.known.add(self.machine.boot_id)
        self._note("comes right", stopped)

    def _reap(self) -> None:
        before = self.world.answer()
        self._note("reap", self.centre.node.load.reaper.run_once())
        if (now := self.world.answer()) != before:
            raise WrongAnswer("reaping changed an answer", difference(now, before))

    # -- what was --------------------------------------------------------------------------

    def _asked(self) -> None:
        """What is asked as of a commit, or of a time once it is known, is what was given then."""
        kept = [
            (at, each)
            for at, each in enumerate(self.moments)
            if self.machine.true - self._end(at) < HISTORY - 2 * SLACK
        ]
        if not kept:
            return
        at, moment = self.chance.choice(kept)
        self._expect(moment.commit, moment)
        low, high = moment.true + SLACK, self._end(at) - SLACK
        ends = self.moments[at + 1 : at + 2]
        known = all(each.boot in self.known for each in (moment, *ends))
        if self.right and known and low < high and self.machine.true - low < HISTORY - 2 * SLACK:
            when = datetime.datetime.fromtimestamp((low + high) / 2, datetime.UTC)
            self._expect(when.isoformat().replace("+00:00", "Z"), moment)

    def _end(self, at: int) -> float:
        """Until when a moment's answer was given."""
        return self.moments[at + 1].true if at + 1 < len(self.moments) else self.machine.true

    def _expect(self, as_of: int | str, moment: Moment) -> None:
        self._note("asked", as_of, self.right)
        found: Points = {}
        try:
            for row in rows_read(self.centre.config.schema_dir, as_of):
                key = self.database.shape.series(row["device"], row["measurement"])
                found[key, in_mind(row["time"])] = row["value_long"]
        except HistoryGoneError as error:
            age = self.machine.true - moment.true
            raise WrongAnswer("what was is gone too early", as_of, age, error) from error
        if found != moment.answer:
            raise WrongAnswer("another answer as of", as_of, difference(found, moment.answer))


@contextlib.contextmanager
def clocked(root: Path, mode: str) -> Iterator[tuple[Oracle, ClockedCentre]]:
    """An edge, and a centre whose clock can go wrong."""
    centre = ClockedCentre(root)
    try:
        yield Oracle(root, mode, centre), centre
    finally:
        centre.stop()
