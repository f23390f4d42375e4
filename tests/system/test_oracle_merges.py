"""Random histories at a centre that merges files meanwhile: readers get the database's answer.

A history that was wrong is told with its seed; the same play of the same seed is it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiers
from tests.support.edge_shapes import ALIGNED, BINARY, PLAIN, TABLE
from tests.support.oracle import Oracle, killable, oracle
from tests.support.oracle_clocks import ClockedPlay, clocked
from tests.support.oracle_damage import DamagedPlay
from tests.support.oracle_deaths import DeadlyPlay
from tests.support.oracle_fading import FadingPlay
from tests.support.oracle_few_values import EXCHANGED, FewValuesPlay
from tests.support.oracle_merges import FINAL, FINAL_DEATHS, OPERATED, MergingTransferLife, merging
from tests.support.oracle_play import RESTORES, TOLD_OTHERWISE, Play
from tests.support.oracle_restores import RestoredPlay, restored_centre
from tests.support.oracle_transfers import shared_centre
from tests.system.test_oracle_plays import MODES, told

STEPS = 150
SHAPES = (PLAIN, ALIGNED, BINARY, TABLE)
KINDS = (
    "operated",
    "transfers",
    "restores",
    "told otherwise",
    "clocks",
    "deaths",
    "damage",
    "few values",
    "fading",
    "final",
    "final restores",
    "final deaths",
    "final fading",
    "centre restores",
)
CASES = tiers.sample(((seed, mode) for seed in range(60) for mode in MODES), 1)
OTHERS = [(seed, MODES[seed % 3], kind) for seed in range(20) for kind in KINDS]


@contextlib.contextmanager
def play_of(kind: str, mode: str, seed: int, root: Path) -> Iterator[Any]:
    shape = SHAPES[seed // 3 % 4]
    if kind in ("deaths", "final deaths"):
        more = FINAL_DEATHS if kind == "final deaths" else {}
        with killable(root) as host:
            yield merging(DeadlyPlay, **more)(Oracle(root, mode, host, shape), host, seed)
        return
    if kind == "transfers":
        # Of a table all series are of one device, which only one can own.
        shapes = (PLAIN, BINARY)
        with shared_centre(root, mode, seed, shapes[seed // 3 % 2], MergingTransferLife) as life:
            yield life
        return
    if kind == "clocks":
        with clocked(root, mode) as (world, centre):
            yield merging(ClockedPlay)(world, centre, seed)
        return
    if kind == "centre restores":
        with restored_centre(root, mode, shape) as world:
            yield merging(RestoredPlay, **FINAL)(world, seed)
        return
    with oracle(root, mode, shape if kind != "damage" else (PLAIN, TABLE)[seed // 3 % 2]) as world:
        if kind == "damage":
            yield merging(DamagedPlay)(world, seed)
        elif kind == "fading":
            yield merging(FadingPlay)(world, seed)
        elif kind == "final":
            yield merging(Play, **OPERATED, **FINAL)(world, seed)
        elif kind == "final restores":
            yield merging(Play, **FINAL)(world, seed, weights=RESTORES)
        elif kind == "final fading":
            yield merging(FadingPlay, **FINAL)(world, seed)
        elif kind == "operated":
            yield merging(Play, **OPERATED)(world, seed)
        elif kind == "few values":
            yield merging(FewValuesPlay)(world, seed, weights=EXCHANGED)
        else:
            weights = {"restores": RESTORES, "told otherwise": TOLD_OTHERWISE}.get(kind)
            yield merging(Play)(world, seed, weights=weights)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "mode"), CASES)
def test_merged_files_are_answered_as_the_database_answers(seed, mode, tmp_path):
    with play_of("plain", mode, seed, tmp_path) as play, told(play):
        play.run(STEPS)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("seed", "mode", "kind"), OTHERS)
def test_so_they_are_whatever_else_goes_wrong(seed, mode, kind, tmp_path):
    with play_of(kind, mode, seed, tmp_path) as play, told(play):
        play.run(STEPS)
        if kind in ("deaths", "final deaths"):
            play.settle()


@pytest.mark.slow
@pytest.mark.long
def test_in_such_histories_merged_files_are_read(tmp_path):
    read = 0
    for seed in range(3):
        with play_of("plain", MODES[seed], seed, tmp_path / f"{seed}") as play:
            play.run(STEPS)
            read += play.merged
    assert read > 20


@pytest.mark.slow
@pytest.mark.few(3)
@pytest.mark.parametrize("points", range(9))
def test_what_is_merged_for_good_is_updated_deleted_and_compacted_at_the_edge(points, tmp_path):
    """The receiver dies at each step of what makes it final; then it is held to the database."""
    with killable(tmp_path) as host:
        play = merging(DeadlyPlay, **FINAL_DEATHS)(Oracle(tmp_path, "replaced", host), host, 1)
        database = play.database
        with told(play):
            for _ in range(2):
                for _ in range(3):
                    play.head += 1
                    database.write("a", play.head)
                for file in database.opened():
                    database.close(file)
            play._fade(dies_in=points)
            assert play.finals
            for late in (2, 3, 5):  # an update of two points, and what comes above it
                database.write("a", late)
                for file in database.opened():
                    database.close(file)
                play._whole_round()
            database.delete("a", 3, 4)
            play._whole_round()
            database.inner(0, late=True)
            play._whole_round()
            play._prove()
            play._merge()
            play._whole_round()
            play.settle()
