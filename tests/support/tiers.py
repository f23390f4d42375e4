"""How much a run tests: `pytest --tier quick`, `default` or `long`.

quick
    No Spark, nothing that takes over a second, nothing that needs programs of ours as processes:
    for the loop of a developer.
default
    Everything that finds regressions. Of a sweep over many places it takes a sample: all kinds,
    and of each kind those that the seed (`--seed`) chooses.
long
    The whole of the sweeps, more of what is random, and the directories of the tests on the disk
    in place of memory.

A sweep is a list that is handed to `sample`, for `pytest.mark.parametrize` or for a loop. What it
takes keeps its name or number, so whatever the long tier found is reached by that again:
`pytest --tier long 'tests/fault/test_x.py::test_y[place]'`.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

TIERS = ("quick", "default", "long")
MEMORY = Path("/dev/shm")
ROOM = 2 << 30
"""Bytes that the directories of the tests may need at a time, with room to spare."""
_MORE = {"quick": 0.2, "default": 1.0, "long": 20.0}

T = TypeVar("T")
_tier, _seed = "default", 1


def choose(tier: str, seed: int) -> None:
    """Before any test is imported: lists of parameters are made then."""
    global _tier, _seed
    _tier, _seed = tier, seed


def is_long() -> bool:
    return _tier == "long"


def seed() -> int:
    """For what is random and is no sample."""
    return _seed


def examples(usual: int) -> int:
    """How many examples hypothesis tries, of a test that tries so many in the default tier."""
    return max(round(usual * _MORE[_tier]), 2)


def sample(
    places: Iterable[T], keep: int, *, kind: Callable[[T], Hashable] = lambda _: None
) -> list[T]:
    """All places in the long tier; else `keep` of each kind, in their order.

    Which ones depends on the seed, and on nothing else: each worker of a run takes the same.
    """
    everything = list(places)
    if is_long():
        return everything
    numbers: dict[Hashable, list[int]] = {}
    for number, place in enumerate(everything):
        numbers.setdefault(kind(place), []).append(number)
    chance = random.Random(_seed)
    taken = [
        number for each in numbers.values() for number in chance.sample(each, min(keep, len(each)))
    ]
    return [everything[number] for number in sorted(taken)]


def passages(names: Sequence[str], keep: int = 1) -> list[int]:
    """Which passages of crash points to die at, from 1; each point is among them.

    Args:
        names: of the points, as one undisturbed run passes them.
        keep: so many of each point.
    """
    chosen = sample(enumerate(names, 1), keep, kind=lambda passage: passage[1])
    return [number for number, _ in chosen]


def memory() -> Path | None:
    """Where files live in memory, if there is room.

    A test does some dozens of fsync, and on a disk spends most of its time in them. What a file
    system must do for a promise is tested on file systems of its own (`powercut`), and in the long
    tier on whatever the machine has.
    """
    if is_long() or not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM:
        return None
    return MEMORY
