"""Lives of a queue and of a log: a process is killed at any step, starts again, and goes on.

Held against the list of what happened: each event is taken at least once, those of a kind in order,
no more wait than may, and what was dropped is counted.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import crash
from common.crash import SimulatedCrash
from common.hooks import event_queue
from tests.support import tiers
from tests.support.hooked import REFUSED, Commits, Ticks, Way, delivery, event, queue

_LIMIT = 4


class Countdown:
    """Kills at the n-th step."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, name: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise SimulatedCrash(name)


class Life:
    """What happened, and what was taken, over several processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = Commits()
        self.way = Way()
        self.put: list[str] = []
        self.number = 0
        self.dropped = 0
        self.start()

    def start(self) -> None:
        self.queue = queue(self.root, limit=_LIMIT)
        self.delivery = delivery(self.queue, self.way, log=self.log, ticks=Ticks())

    def again(self) -> None:
        self.queue.close()
        self.start()

    def happens(self, kind: str) -> None:
        self.number += 1
        said = f"{kind}-{self.number}"
        if kind in ("loaded", "conflict"):
            self.log.commits.append([event(said, kind, ident=said)])  # type: ignore[arg-type]
        elif self.queue.put(event(said, kind, ident=said)):  # type: ignore[arg-type]
            self.put.append(said)

    def steps(self, count: int, *, refused: bool) -> None:
        self.way.outcomes.clear()
        if refused:
            self.way.outcomes.append(REFUSED)
        for _ in range(count):
            if self.delivery.step() != 0.0:
                break

    def run(self, what: tuple[Any, ...]) -> None:
        kind, at = what[0], what[-1]
        try:
            with crash.arm(Countdown(at)):
                if kind == "happens":
                    self.happens(what[1])
                elif kind == "restart":
                    self.again()
                else:
                    self.steps(what[1], refused=what[2])
        except SimulatedCrash:
            self.again()
        assert len(self.queue._waiting) <= _LIMIT

    def judge(self) -> None:
        self.steps(10_000, refused=False)
        told = [each for each in self.way.taken if each.kind == "dropped"]
        taken = [each.id for each in self.way.taken if each.kind != "dropped"]
        committed = [each.id for commit in self.log.commits for each in commit]
        # At least once, and where it was more often the one comes behind the other.
        assert set(committed) <= set(taken)
        once = list(dict.fromkeys(taken))
        for kind in ("loaded", "conflict", "late", "disk"):
            of_kind = [each for each in once if each.startswith(kind)]
            assert of_kind == sorted(of_kind, key=lambda each: int(each.partition("-")[2])), kind
        missing = set(self.put) - set(taken)
        assert sum(each.what["events"] for each in told) >= len(missing)
        assert not self.queue.untold
        assert self.queue.head() is None


_ACTIONS = st.one_of(
    st.tuples(
        st.just("happens"),
        st.sampled_from(["loaded", "conflict", "late", "disk"]),
        st.integers(0, 12),
    ),
    st.tuples(st.just("steps"), st.integers(1, 6), st.booleans(), st.integers(0, 30)),
    st.tuples(st.just("restart"), st.integers(0, 8)),
)


@settings(max_examples=tiers.examples(150), deadline=None)
@given(st.lists(_ACTIONS, max_size=30))
def test_each_event_is_taken_at_least_once_in_order_whatever_dies_when(actions):
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patched:
        patched.setattr(event_queue, "_SLACK", 500)
        life = Life(Path(root))
        for action in actions:
            life.run(action)
        with suppress(SimulatedCrash):
            life.judge()
        life.queue.close()
