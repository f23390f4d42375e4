"""A whole engine directory, damaged at every place: a prefix of the commits, or a named error.

The directory has two checkpoints, log segments, and a tag log that a checkpoint relies on. Every
file is cut at every byte and has every byte changed, one at a time. The long tier does; the others
take some of the places, other ones in each file.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from common.errors import DamagedError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import NewerLogError
from tests.support import schema_view as view
from tests.support import tiers

STEPS = {"log": 23, "tags": 11, "checkpoint": 199}
"""Bytes from one place to the next; checkpoints are large."""
OPTIONS = EngineOptions(checkpoint_rest=1e9)


def create(device, names, **more):
    count = len(names)
    return records.SeriesCreated(
        device, names, b"\x03" * count, b"\x08" * count, b"\x01" * count, **more
    )


COMMITS = [
    [records.StorageGroupSet("root.a"), records.StorageGroupSet("root.b.`c d`")],
    [create("root.a.d1", ["s1", "s2"], tags=[{"k": "v1"}, {}], aliases=["one", None])],
    "checkpoint",
    [create("root.b.`c d`.d", ["é"], attributes=[{"maker": "x"}]), records.TtlSet("root.a", 5)],
    [records.TagsSet("root.a.d1.s2", {"k": "v2"}, {"more": "y"})],
    "checkpoint",
    [records.SeriesDeleted("root.a.**.s1"), create("root.a.d2", ["s1"], tags=[{"k": "v3"}])],
    [records.KeysWritten([], {"key": "value"}), records.TagsSet("root.a.d2.s1", {"z": "1"}, {})],
    [records.StorageGroupDeleted("root.b.`c d`")],
]


@pytest.fixture(scope="module")
def whole():
    """(content by file name, {commit: what is seen then}, the newest commit)."""
    shm = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    seen = {}
    with Engine.open(home, options=OPTIONS) as engine:
        seen[engine.newest_commit] = view.of_engine(engine)
        for ops in COMMITS:
            if ops == "checkpoint":
                engine.checkpoint()
                continue
            engine.commit(ops)
            seen[engine.newest_commit] = view.of_engine(engine)
    content = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
    yield content, seen
    shutil.rmtree(home)


@pytest.fixture
def reopened(whole):
    """Write a directory, open its engine: (newest commit, what is seen), or the error."""
    shm = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    made = 0

    def reopened(content):
        nonlocal made
        made += 1
        home = place / f"{made}"
        home.mkdir()
        for name, data in content.items():
            (home / name).write_bytes(data)
        try:
            with Engine.open(home, options=OPTIONS) as engine:
                return engine.newest_commit, view.of_engine(engine)
        except (DamagedError, NewerLogError) as error:
            found = error
        finally:
            shutil.rmtree(home)
        assert str(home) in found.message, found.message
        return found

    yield reopened
    shutil.rmtree(place)


def kinds(content):
    return {
        "log": [name for name in content if name.startswith("mlog-")],
        "tags": [name for name in content if name.startswith("tlog-")],
        "checkpoint": [name for name in content if name.startswith("mtree.snapshot-")],
    }


def places(content, kind, seed):
    step = 1 if tiers.is_long() else STEPS[kind]
    return range(seed % step, len(content), step)


def test_the_directory_is_what_this_sweep_is_about(whole, reopened):
    content, seen = whole
    found = kinds(content)
    assert len(found["checkpoint"]) == 2
    assert found["log"]
    assert len(found["tags"]) == 1
    newest = max(seen)
    assert reopened(content) == (newest, seen[newest])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["log", "tags", "checkpoint"])
@pytest.mark.parametrize("how", ["cut", "changed"])
def test_every_damage_gives_a_prefix_of_the_commits_or_a_named_error(whole, reopened, kind, how):
    content, seen = whole
    newest = max(seen)
    outcomes = {"whole": 0, "prefix": 0, "error": 0}
    for seed, name in enumerate(kinds(content)[kind], start=5):
        data = content[name]
        for at in places(data, kind, seed * 11):
            if how == "cut":
                damaged = data[:at]
            else:
                damaged = (
                    data[:at] + bytes([data[at] ^ (0x01, 0x80, 0xFF)[at % 3]]) + data[at + 1 :]
                )
            found = reopened(content | {name: damaged})
            if isinstance(found, Exception):
                outcomes["error"] += 1
                continue
            ts, shown = found
            assert ts in seen, f"{name}, byte {at}: a commit {ts} that never was"
            assert shown == seen[ts], f"{name}, byte {at}: not what commit {ts} left"
            outcomes["whole" if ts == newest else "prefix"] += 1
            if kind == "checkpoint" or kind == "tags":
                assert ts == newest, f"{name}, byte {at}: commits are gone that the log has"
    if kind == "checkpoint":
        assert not outcomes["error"], "one checkpoint alone is damaged, and it does not start"


@pytest.mark.slow
def test_damage_to_both_checkpoints_is_never_an_empty_tree(whole, reopened):
    content, seen = whole
    newest = max(seen)
    older, newer = sorted(kinds(content)["checkpoint"])
    for at in places(content[newer], "checkpoint", 3):
        both = {
            name: data[:at] + bytes([data[at % len(data)] ^ 0xFF]) + data[at + 1 :]
            for name, data in ((older, content[older]), (newer, content[newer]))
        }
        found = reopened(content | both)
        if not isinstance(found, Exception):
            assert found == (newest, seen[newest]), at


def test_any_file_that_is_gone_is_made_good_or_named(whole, reopened):
    content, seen = whole
    newest = max(seen)
    for names in kinds(content).values():
        for name in names:
            found = reopened({each: data for each, data in content.items() if each != name})
            if isinstance(found, Exception):
                continue
            assert found == (newest, seen[newest]), f"without {name}"
