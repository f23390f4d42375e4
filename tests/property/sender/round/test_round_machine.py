"""Any order of edits, rounds, failures and deaths, against a dictionary of what is where."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from common import crash
from common.crash import SimulatedCrash
from common.errors import UnreachableError
from common.wire import Result
from tests.support import tiers
from tests.support.model_centre import Centre, load, local_round
from tests.support.site import Site, digest, path, tsfile

NAMES = [path(f"{n}-1-{c}.tsfile", partition=p) for n in (1, 2) for c in (0, 1) for p in (0, 1)]
at = st.sampled_from(NAMES)
directory = st.integers(0, 1)
FAILURES = [Result.CONFLICT, Result.MISSING, Result.QUARANTINED]


class Rounds(RuleBasedStateMachine):
    """`here` is what stands in the data directories: path -> (directory, value)."""

    @initialize()
    def begin(self):
        shm = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.site = Site(self.root, dirs=2)
        self.centre = Centre()
        numbers = itertools.count(1)
        self.task_id = lambda: f"{next(numbers):032x}"
        self.here: dict = {}
        self.ages = itertools.count(1)

    def teardown(self):
        if hasattr(self, "root"):
            self.site.dirs.close()
            shutil.rmtree(self.root)

    # -- edits -----------------------------------------------------------------------------

    @rule(where=at, number=directory, value=st.integers(0, 5))
    def write(self, where, number, value):
        if where in self.here:
            number = self.here[where][0]
        self.site.put(where, tsfile(value=value), data_dir=number, age=3600 + next(self.ages))
        self.here[where] = (number, value)

    @rule(where=at)
    def delete(self, where):
        if where in self.here:
            self.site.remove(where, self.here.pop(where)[0])

    @rule(where=at)
    def move(self, where):
        if where in self.here:
            number, value = self.here[where]
            self.site.put(where, tsfile(value=value), data_dir=1 - number)
            self.site.remove(where, number)
            self.here[where] = (1 - number, value)

    @rule(where=at)
    def touch(self, where):
        if where in self.here:
            number, value = self.here[where]
            self.site.put(where, tsfile(value=value), data_dir=number, age=next(self.ages))

    @rule(name=st.sampled_from(["last_local_files.txt", "local_files.state"]), number=directory)
    def lose(self, name, number):
        (self.site.sender_dir(number) / name).unlink(missing_ok=True)

    # -- rounds ----------------------------------------------------------------------------

    @rule()
    def whole_round(self):
        local_round(self.site, self.centre, self.task_id)

    @rule(bad=st.sets(at), result=st.sampled_from(FAILURES))
    def round_in_which_files_fail(self, bad, result):
        def fate(where):
            return result if where in bad else load(where)

        local_round(self.site, self.centre, self.task_id, fate)

    @rule(n=st.integers(1, 260), again=st.integers(0, 120))
    def round_that_dies(self, n, again):
        for left in (n, again):
            count = itertools.count(1)

            def hook(name, left=left, count=count):
                if next(count) == left:
                    raise SimulatedCrash(name)

            try:
                with crash.arm(hook):
                    local_round(self.site, self.centre, self.task_id)
            except SimulatedCrash:
                pass

    @rule()
    def round_without_a_receiver(self):
        before = dict(self.site.ledger().entries)
        self.centre.up = False
        try:
            if self.site.logs().left_over():
                local_round(self.site, self.centre, self.task_id)
        except UnreachableError:
            assert self.site.ledger().entries == before
        finally:
            self.centre.up = True

    # -- what always holds -----------------------------------------------------------------

    @invariant()
    def what_is_listed_is_loaded(self):
        if not hasattr(self, "site"):
            return
        listed = self.site.ledger().entries
        for where, entry in listed.items():
            if entry.md5:
                # Between a commit and its folding the list may lag behind, never run ahead.
                known = {md5 for path_, md5 in self.centre.loads if path_ == where}
                assert entry.md5 in known

    @rule()
    def quiet_rounds(self):
        for _ in range(3):
            local_round(self.site, self.centre, self.task_id)
        expected = {where: digest(tsfile(value=value)) for where, (_, value) in self.here.items()}
        assert self.centre.loaded == expected
        ledger = self.site.ledger()
        assert {where: e.md5 for where, e in ledger.entries.items()} == expected
        assert {where: e.data_dir for where, e in ledger.entries.items()} == {
            where: self.site.data_dirs[number] for where, (number, _) in self.here.items()
        }
        assert self.site.snapshot().leftovers() == []


Rounds.TestCase.settings = settings(
    max_examples=tiers.examples(25),
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestRounds = Rounds.TestCase
