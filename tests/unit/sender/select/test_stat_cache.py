"""What was read of files is known while they do not change, however it is held."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from sender.select import stat_cache
from sender.select.found import LocalFile, Span
from sender.select.stat_cache import KnownFile, StatCache
from tests.support.site import path

D0 = Path("/d0")
KINDS = {
    "sound": {"judged": True},
    "timed": {"judged": True, "timed": True, "span": Span(-5, 1 << 62)},
    "without a point": {"judged": True, "timed": True},
    "not judged": {},
    "open": {"judged": True, "open": True, "problem": "unsealed: no magic"},
    "read": {"judged": True, "md5": "a" * 32},
}


def fill(known: KnownFile, values: dict) -> None:
    for key, value in values.items():
        setattr(known, key, value)


def where(directory: int) -> str:
    return f"sequence/root.a/0/{directory}"


@pytest.mark.parametrize("seed", range(6))
def test_records_are_what_they_were_whatever_was_asked_meanwhile(seed):
    chance = random.Random(seed)
    cache = StatCache()
    model: dict[tuple[int, str], KnownFile] = {}
    for scan in range(1, 6):
        cache.begin()
        met = set()
        for _ in range(400):
            directory, number = chance.randrange(12), chance.randrange(8)
            name = f"{number}-\udcff.tsfile" if number == 7 else f"{number}-1-0.tsfile"
            identity = (number, chance.choice([1, 1, 1, 2]), (1 << 64) - 1)
            known = cache.at(D0, where(directory), name, identity, float(scan))
            before = model.get((directory, name))
            if before is None or before.identity != identity:
                before = model[directory, name] = KnownFile(identity, float(scan))
            before.round = scan
            met.add((directory, name))
            assert known == before
            if chance.random() < 0.3:
                kinds = list(KINDS.values()) if directory % 2 else [KINDS["sound"], KINDS["timed"]]
                values = chance.choice(kinds)
                fill(known, values)
                fill(before, values)
        cache.end()
        model = {at: each for at, each in model.items() if at in met}
        assert len(cache) == len(model)
    assert len(cache._bytes) > 5, "most of them are bytes"


def test_many_sound_files_are_bytes_and_no_objects():
    cache = StatCache()
    cache.begin()
    for number in range(1000):
        known = cache.at(D0, where(number // 100), f"{number}-1-0.tsfile", (1, 2, 3), 4.0)
        known.judged = True
    cache.end()
    assert sum(len(each._others) for each in cache._bytes.values()) == 0
    assert len(cache._objects) == stat_cache._OBJECTS
    assert len(cache.paths()) == 1000


def test_what_is_listed_by_now_is_forgotten_wherever_it_is_held():
    cache = StatCache()
    files = [LocalFile(path(f"{n}-1-0.tsfile", partition=n), D0, "", 1, 2, 3) for n in range(20)]
    for each in files:
        cache.of(each).judged = True
    cache.forget(files[::2])
    assert sorted(cache.paths()) == sorted(each.path for each in files[1::2])
    assert len(cache) == 10
    cache.forget([msgspec.structs.replace(each, elsewhere="nowhere/x") for each in files])
    assert len(cache) == 10


def test_a_scan_forgets_what_it_did_not_meet_also_of_a_directory_that_it_met():
    cache = StatCache()
    cache.begin()
    for directory in range(10):
        for name in ("1-1-0.tsfile", "2-1-0.tsfile"):
            cache.at(D0, where(directory), name, (1, 2, 3), 4.0).judged = True
    cache.end()
    cache.begin()
    for directory in range(5):
        cache.at(D0, where(directory), "1-1-0.tsfile", (1, 2, 3), 9.0)
    cache.end()
    assert {str(each) for each in cache.paths()} == {
        f"{where(directory)}/1-1-0.tsfile" for directory in range(5)
    }
    assert cache.at(D0, where(0), "1-1-0.tsfile", (1, 2, 3), 9.0).since == 4.0
