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

Of a test with the mark `few(n)` the other tiers run n of its cases, also of those that fixtures
make, and others of each test: `few(1)` over three modes has each of them with some test.
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
_MORE = {"quick": 0.2, "default": 0.4, "long": 20.0}
"""What was found once is an example of its own in its test, and tried in every tier."""

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
    """How many examples hypothesis tries, of a test for which so many are plenty.

    The default tier, which runs for every change, tries two of five.
    """
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


def part(places: Iterable[T], of: int = 4) -> list[T]:
    """All places in the long tier; else one of so many, for sweeps in which none has a kind."""
    everything = list(places)
    return sample(everything, -(-len(everything) // of))


def few(cases: int, keep: int, *, test: str, certain: Sequence[bool]) -> set[int]:
    """The numbers of the cases of a test that run: all in the long tier; else `keep` of them.

    Those that are certain come first, and there are as many as these are. Which others depends on
    the seed and on the test, so that tests over the same modes do not all have the same one.
    """
    if is_long():
        return set(range(cases))
    first = {number for number in range(cases) if certain[number]}
    others = [number for number in range(cases) if number not in first]
    more = min(max(keep - len(first), 0), len(others))
    return first | {*random.Random(f"{_seed} {test}").sample(others, more)}


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
