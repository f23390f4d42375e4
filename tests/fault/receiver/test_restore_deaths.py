"""A restore that dies, at any step, and a machine that is lost right behind a restore."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from common import crash
from common.crash import SimulatedCrash
from receiver.metadata.engine import Engine
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.owned_prefix import engine_in
from receiver.storage.stores.store_manifests import StoreManifest
from tests.support import tiers
from tests.support.machine import Machine
from tests.support.node_world import A, B

pytestmark = pytest.mark.slow


class Centre:
    """A lost machine's copies, and a moment before its last task."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.bucket = root / "bucket"
        self.bucket.mkdir()
        self._capsys = capsys
        machine = self.machine("old")
        machine.fill()
        with Engine.read_only(root / "old" / "schema") as engine:
            self.moment = engine.newest_commit
            self.lsn = engine.published().lsn
        machine.fill(B, there=3)
        self.uuid = engine_in(DirectoryStore(self.bucket))

    def machine(self, name: str) -> Machine:
        return Machine(self.root / name, self.bucket, self._capsys)

    def senders(self, name: str) -> set[str]:
        with Engine.read_only(self.root / name / "schema") as engine, engine.reading() as state:
            return {A, B} & set(state.senders)


@pytest.fixture
def centre(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Centre:
    return Centre(tmp_path, capsys)


def restore(machine: Machine, moment: int) -> None:
    assert machine.asked("restore", "--at", str(moment))["lacking"] == []


def test_a_machine_that_is_lost_behind_its_restore_comes_back_as_it_was_restored(
    centre: Centre,
) -> None:
    restore(centre.machine("new"), centre.moment)
    shutil.rmtree(centre.root / "new")
    assert centre.machine("newer").asked("restore")["fetched"] == 2
    assert centre.senders("newer") == {A}
    store = DirectoryStore(centre.bucket)
    forks = []
    found = StoreManifest.newest(store, centre.uuid)
    while found is not None and found.parent:
        if found.number == 1 and found.incarnation > 1:
            forks.append((found.incarnation, found.parent_lsn))
        found = StoreManifest.read(store, found.parent)
    assert (2, centre.lsn) in forks


def test_a_restore_that_dies_anywhere_is_the_one_before_or_itself_and_goes_on(
    centre: Centre,
) -> None:
    kept = centre.root / "kept"
    shutil.copytree(centre.bucket, kept)
    seen: list[str] = []
    with crash.arm(seen.append):
        restore(centre.machine("watched"), centre.moment)
    assert {"storage.restore.taken", "storage.restore.placed", "storage.manifest.put"} <= set(seen)
    for passage in tiers.passages(seen):
        shutil.rmtree(centre.bucket)
        shutil.copytree(kept, centre.bucket)
        one, other = f"new-{passage}", f"newer-{passage}"
        dies(centre.machine(one), centre.moment, passage)
        restore(centre.machine(one), centre.moment)
        assert centre.senders(one) == {A}
        centre.machine(other).asked("restore")
        assert centre.senders(other) == {A}


def dies(machine: Machine, moment: int, passage: int) -> None:
    count = 0

    def die(name: str) -> None:
        nonlocal count
        count += 1
        if count == passage:
            raise SimulatedCrash(name)

    with pytest.raises(SimulatedCrash), crash.arm(die):
        machine.command("restore", "--at", str(moment))
