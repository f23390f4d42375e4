"""Crash points: a death where it is asked for, and nothing otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from common import crash

PROGRAM = """
from common import crash
for turn in range(3):
    crash.point("one.step")
    crash.point("other.step")
    print(turn, flush=True)
"""


def run(wanted):
    environment = {**os.environ, "TSFERRY_CRASH_AT": wanted}
    if wanted is None:
        del environment["TSFERRY_CRASH_AT"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=False
    )
    return done.returncode, done.stdout.decode().split()


@pytest.mark.parametrize(
    ("wanted", "code", "output"),
    [
        ("", 0, ["0", "1", "2"]),
        ("never.step", 0, ["0", "1", "2"]),
        ("one.step", -signal.SIGKILL, []),
        ("one.step:2", -signal.SIGKILL, ["0"]),
        ("other.step:3", -signal.SIGKILL, ["0", "1"]),
        ("one.step:4", 0, ["0", "1", "2"]),
        ("*", -signal.SIGKILL, []),
        ("*:5", -signal.SIGKILL, ["0", "1"]),
        ("*:7", 0, ["0", "1", "2"]),
    ],
)
def test_the_process_dies_at_the_passage_named(wanted, code, output):
    assert run(wanted) == (code, output)


def test_an_armed_hook_sees_every_point_and_goes_with_its_context():
    seen = []
    crash.point("before")
    with crash.arm(seen.append):
        crash.point("a")
        with crash.arm(lambda name: seen.append(name.upper())):
            crash.point("b")
        crash.point("c")
    crash.point("after")
    assert seen == ["a", "B", "c"]


def test_a_simulated_crash_passes_through_handlers_of_errors():
    assert not issubclass(crash.SimulatedCrash, Exception)
