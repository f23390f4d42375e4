"""Long lives of a machine whose clock goes wrong keep nothing too long, and nothing too short."""

from __future__ import annotations

import random

import pytest

from tests.support.clock_lives import DAY, ERRORS, HOUR, YEAR, ClockLife

Steps = list[tuple[object, ...]]

SCENES: dict[str, tuple[float, Steps]] = {
    "what was confirmed stays where it was": (
        -3000.0,
        [
            ("synchronises",),
            ("is_set", 2 * DAY),
            ("reboots", True, 30 * DAY, "stops", 0.0),
            ("commit",),
            ("synchronises",),
        ],
    ),
    "a boot in doubt is off as a whole, what the time has come up with too": (
        2 * DAY,
        [
            ("reboots", False, HOUR, "wrong", -2 * DAY),
            ("commit",),
            ("passes", 30 * DAY),
            ("synchronises",),
        ],
    ),
    "so it is where the clock stood right again in between": (
        2 * DAY,
        [
            ("reboots", False, 90.0, "wrong", -3000.0),
            ("is_set", -2 * DAY),
            ("commit",),
            ("is_set", 2 * DAY),
            ("commit",),
            ("passes", 3 * DAY),
            ("synchronises",),
        ],
    ),
    "a clock without a battery that is believed once more confirms nothing": (
        -1.89e9,
        [
            ("reboots", False, HOUR, "wrong", 3000.0),
            ("commit",),
            ("is_set", 2 * DAY),
            ("is_set", -1.89e9),
            ("passes", 20 * HOUR),
            ("synchronises",),
        ],
    ),
    "an outage and a clock that was wrong before it look the same": (
        -2 * YEAR,
        [
            ("passes", 2 * DAY),
            ("reboots", True, 1.0, "wrong", 3000.0),
            ("passes", HOUR),
            ("synchronises",),
        ],
    ),
    "nor does a further boot make sure what was before": (
        -2 * DAY,
        [
            ("passes", 2 * DAY),
            ("reboots", True, 1.0, "wrong", 0.0),
            ("is_set", -2 * DAY),
            ("reboots", True, HOUR, "good", 0.0),
            ("passes", 2 * DAY),
            ("synchronises",),
        ],
    ),
    "a step within the jump overrules nobody": (
        -1.89e9,
        [
            ("synchronises",),
            ("passes", 30 * DAY),
            ("is_set", 30.0),
            ("senders_come", 10.0),
            ("is_set", 3000.0),
            ("is_set", -3000.0),
            ("passes", 1.0),
            ("synchronises",),
        ],
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_life(scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, steps = SCENES[scene]
    life = ClockLife(monkeypatch, error=error)
    for name, *arguments in steps:
        life.do(str(name), *arguments)


def test_many_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(300):
        chance = random.Random(seed)
        ClockLife(monkeypatch, error=chance.choice(ERRORS)).goes_on(chance, 40)
