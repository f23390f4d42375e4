"""The engine on a disk whose power is cut: what was acknowledged is there, and whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from receiver.metadata.engine import Engine
from tests.support import powercut, tiers
from tests.support.architecture import ROOT
from tests.support.metadata import has_commit, log_file, plain, seen
from tests.support.schema_commits import everything

# Commits numbered senders, each with its epoch, from four threads; says what it was told.
PROGRAM = """
import sys, threading
from pathlib import Path
from receiver.metadata.model import records
from receiver.metadata.engine import Engine
engine = Engine.open(Path(sys.argv[1]))
out = threading.Lock()

def work(first):
    for number in range(first, 60, 4):
        uuid = f"{number:032x}"
        seen = records.SenderSeen(uuid, "x" * 50 * number, f"dir-{number}")
        ts = engine.commit([seen, records.EpochSet(uuid, f"1.{number}", None, None, True)])
        with out:
            print(ts, uuid, flush=True)

threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("end", flush=True)
"""


@pytest.mark.few(6)
@pytest.mark.parametrize("passage", [1, 4, 9, 13, 17, 18, 19, 20, 21, 22, 50, 100])
def test_an_acknowledged_commit_survives_a_death_and_a_power_cut(tmp_path, passage):
    with powercut.disk(tmp_path) as disk:
        home = disk.path / "schema"
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(home)],
            env={**os.environ, "TSFERRY_CRASH_AT": f"*:{passage}"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == -9, done.stderr
        # In few, large batches the death may come behind the end, while it closes; it may also
        # tear the last line.
        whole = done.stdout.rpartition("\n")[0].splitlines()
        acknowledged = [line.split() for line in whole if line != "end"]
        disk.cut()
        with Engine.open(home) as engine:
            with engine.reading() as state:
                first = plain(state)
            assert all(has_commit(engine, int(ts)) for ts, _ in acknowledged)
        senders = first["senders"]
        assert {uuid for _, uuid in acknowledged} <= set(senders)
        assert all(row.epoch for row in senders.values()), "a commit is there as a whole"
        assert all(row.created == row.changed for row in senders.values())
        disk.cut()
        with Engine.open(home) as engine, engine.reading() as state:
            assert plain(state) == first, "recovery that is run twice gives the same"
        disk.unmount()
        disk.check()


def test_a_cut_during_recovery_gives_the_same(tmp_path):
    with powercut.disk(tmp_path) as disk:
        home = disk.path / "schema"
        Engine.open(home).close()
        whole = log_file(home).stat().st_size
        with log_file(home).open("ab") as file:
            file.write(b"TSFm" + bytes(3000))
        disk.unmount()
        for passage in tiers.sample(range(1, 12), 5):
            disk.mount()
            opening = "import sys, pathlib; from receiver.metadata.engine import Engine\n"
            opening += "Engine.open(pathlib.Path(sys.argv[1])).close()"
            subprocess.run(
                [sys.executable, "-c", opening, str(home)],
                env={**os.environ, "TSFERRY_CRASH_AT": f"*:{passage}"},
                cwd=ROOT,
                capture_output=True,
                check=False,
                timeout=120,
            )
            disk.off()
        disk.mount()
        with Engine.open(home) as engine:
            assert engine.newest_commit
            assert log_file(home).stat().st_size == whole


# Commits tagged series and keys, and takes a checkpoint after every second commit.
CHECKPOINTS = """
import sys
from pathlib import Path
from receiver.metadata.model import records
from receiver.metadata.engine import Engine
from receiver.metadata.model.engine_options import EngineOptions
engine = Engine.open(Path(sys.argv[1]), options=EngineOptions(history=0.0), background=False)
print(engine.commit([records.StorageGroupSet("root.t")]), "", flush=True)
for number in range(9):
    made = records.SeriesCreated(
        f"root.t.d{number}", ["s"], b"\\3", b"\\x08", b"\\1", tags=[{"n": "x" * 100 * number}]
    )
    ts = engine.commit([made, records.KeysWritten([], {"n": str(number)})])
    print(ts, number, flush=True)
    if number % 2:
        engine.collect()
        engine.checkpoint()
print("end", flush=True)
"""


@pytest.mark.few(7)
@pytest.mark.parametrize("passage", range(30, 130, 6))
def test_a_checkpoint_survives_a_death_and_a_power_cut_at_its_steps(tmp_path, passage):
    with powercut.disk(tmp_path) as disk:
        home = disk.path / "schema"
        done = subprocess.run(
            [sys.executable, "-c", CHECKPOINTS, str(home)],
            env={**os.environ, "TSFERRY_CRASH_AT": f"*:{passage}"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == -9, done.stderr
        lines = [line for line in done.stdout.splitlines()[1:] if line != "end"]
        acknowledged = [line.split()[1] for line in lines]
        disk.cut()
        with Engine.open(home, background=False) as engine:
            first = everything(engine)
        there = {nodes[-2] for nodes in first["schema"]["series"]}
        assert {f"d{number}" for number in acknowledged} <= there
        keys, values = first["schema"]["keys"]
        assert len(there) == (int(values[0]) + 1 if keys else 0), "a commit is there as a whole"
        for nodes, row in first["schema"]["series"].items():
            assert row["labels"] == ({"n": "x" * 100 * int(nodes[-2][1:])}, {})
        disk.cut()
        with Engine.open(home, background=False) as engine:
            assert everything(engine) == first, "recovery that is run twice gives the same"
            engine.commit([seen()])
            engine.checkpoint()
            after = everything(engine)
        disk.cut()
        with Engine.open(home, background=False) as engine:
            assert everything(engine) == after
        disk.unmount()
        disk.check()
