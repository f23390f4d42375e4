"""Line logs against a model: any order of calls, any cut, any garbage behind it, then on."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from common.durable import Tree
from common.errors import ProtocolError
from common.formats.linelog import (
    LoadLog,
    Phase,
    SyncLog,
    parse_lines,
    parse_load,
    parse_paths,
    parse_sync,
)
from common.names import FilePath, Kind
from tests.support import tiers

NAME = st.text("abcäß风_ -.,%", min_size=1, max_size=8).map(lambda text: f"r{text}r")
PATHS = st.builds(
    FilePath,
    st.sampled_from(Kind),
    NAME,
    NAME,
    st.integers(-(2**63), 2**63 - 1),
    NAME.map(lambda text: f"{text}.tsfile"),
)
GARBAGE = st.one_of(st.just(b""), st.integers(1, 5000).map(bytes), st.binary(max_size=200))
TASKS = ["0" * 32, "1" * 32]


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)), GARBAGE)
def test_lines_before_garbage_are_read_exactly(lines, garbage):
    data = "".join(f"{line}\n" for line in lines).encode()
    read = parse_lines(data + garbage)
    assert read.lines[: len(lines)] == lines
    assert read.good_bytes >= len(data)
    assert (read.problem is None) == (read.good_bytes == len(data + garbage))


@given(st.binary(max_size=300))
def test_the_good_part_of_anything_is_good(data):
    for parse in (parse_lines, parse_sync, parse_load):
        read = parse(data)
        again = parse(data[: read.good_bytes])
        assert again.problem is None
        assert again.good_bytes == read.good_bytes <= len(data)


@given(st.sets(PATHS), st.data())
def test_a_cut_list_is_a_beginning_of_the_list(paths, data):
    content = "".join(f"{each}\n" for each in sorted(paths)).encode()
    cut = data.draw(st.integers(0, len(content)))
    read, problem = parse_paths(content[:cut])
    assert read == sorted(paths)[: content[:cut].count(b"\n")]
    assert (problem is None) == (cut == 0 or content[:cut].endswith(b"\n"))


@given(st.lists(st.tuples(st.booleans(), PATHS), max_size=20), st.data())
@settings(max_examples=tiers.examples(50))
def test_a_load_log_cut_anywhere_goes_on(steps, data):
    with tempfile.TemporaryDirectory() as directory, Tree(Path(directory)) as tree:
        tree.append_file("load.log").close()
        deleted, loaded, lines = set(), set(), []
        for is_load, path in steps:
            log = LoadLog.open(tree, "load.log")
            log.record(**{"loaded" if is_load else "deleted": [path, path]})
            log.close()
            known = loaded if is_load else deleted
            if path not in known:
                known.add(path)
                lines.append((is_load, path))
        content = tree.read("load.log")
        assert parse_load(content).problem is None
        cut = data.draw(st.integers(0, len(content)))
        left = lines[: content[:cut].count(b"\n")]
        tree.write_atomic("load.log", content[:cut] + data.draw(st.integers(0, 9)) * b"\0")
        log = LoadLog.open(tree, "load.log")
        assert log.state.loaded == {path for is_load, path in left if is_load}
        assert log.state.deleted == {path for is_load, path in left if not is_load}
        log.record(loaded=[path for _, path in steps])
        log.close()
        assert parse_load(tree.read("load.log")).loaded == {path for _, path in steps} | {
            path for is_load, path in left if is_load
        }


class SyncLogMachine(RuleBasedStateMachine):
    """A SyncLog against lists of lines; cuts and reopenings at any time."""

    @initialize()
    def begin(self):
        self.directory = tempfile.TemporaryDirectory()
        self.tree = Tree(Path(self.directory.name))
        self.log = SyncLog.open(self.tree, "sync.log")
        self.task = None
        self.phase = Phase.NONE
        self.deleted: list[FilePath] = []
        self.files: list[FilePath] = []

    def teardown(self):
        if hasattr(self, "log"):
            self.log.close()
            self.tree.close()
            self.directory.cleanup()

    def refused(self, call, *arguments):
        before = self.tree.read("sync.log")
        try:
            call(*arguments)
        except ProtocolError:
            assert self.tree.read("sync.log")[: len(before)] == before
            return True
        return False

    @rule(task=st.sampled_from(TASKS))
    def start(self, task):
        refused = self.refused(self.log.start, task)
        assert refused == (self.task not in (None, task))
        if not refused and self.task is None:
            self.task, self.phase = task, Phase.STARTED

    @rule(paths=st.lists(PATHS, max_size=4))
    def delete(self, paths):
        refused = self.refused(self.log.deleted, paths)
        new = [path for path in dict.fromkeys(paths) if path not in self.deleted]
        late = self.phase.value > Phase.DELETING.value
        assert refused == (self.task is None or (late and bool(new)))
        if not refused:
            self.deleted += new
        self.at_least(Phase.DELETING)

    @rule(paths=st.lists(PATHS, max_size=4))
    def send(self, paths):
        refused = self.refused(self.log.files, paths)
        new = [path for path in dict.fromkeys(paths) if path not in self.files]
        late = self.phase.value > Phase.SENDING.value
        assert refused == (self.task is None or (late and bool(new)))
        if not refused:
            self.files += new
        self.at_least(Phase.SENDING)

    @rule(phase=st.sampled_from(Phase))
    def reach(self, phase):
        refused = self.refused(self.log.reach, phase)
        assert refused == (self.task is None and phase.value > Phase.STARTED.value)
        self.at_least(phase)

    def at_least(self, phase):
        if self.task is not None and phase.value > self.phase.value:
            self.phase = phase

    @rule(tail=GARBAGE)
    def die_and_come_back(self, tail):
        self.log.close()
        content = self.tree.read("sync.log")
        if parse_sync(content + tail).good_bytes != len(content):
            tail = b""  # garbage that happens to be ours
        self.tree.write_atomic("sync.log", content + tail)
        self.log = SyncLog.open(self.tree, "sync.log")
        assert self.tree.read("sync.log") == content

    @precondition(lambda self: self.task is not None)
    @rule(share=st.floats(0, 1))
    def lose_the_end(self, share):
        """A cut of the last bytes: what the log then says is what counts."""
        self.log.close()
        content = self.tree.read("sync.log")
        self.tree.write_atomic("sync.log", content[: int(len(content) * share)])
        self.log = SyncLog.open(self.tree, "sync.log")
        state = self.log.state
        assert self.deleted[: len(state.deleted)] == state.deleted
        assert self.files[: len(state.files)] == state.files
        assert state.phase.value <= self.phase.value
        assert state.task in (None, self.task)
        self.task, self.phase = state.task, state.phase
        self.deleted, self.files = list(state.deleted), list(state.files)

    @invariant()
    def disk_memory_and_model_agree(self):
        if not hasattr(self, "log"):
            return
        content = self.tree.read("sync.log")
        state = parse_sync(content)
        assert dataclasses.replace(self.log.state, problem=None) == state
        assert (state.problem, state.good_bytes) == (None, len(content))
        assert (state.task, state.phase) == (self.task, self.phase)
        assert (state.deleted, state.files) == (self.deleted, self.files)


TestSyncLog = SyncLogMachine.TestCase
TestSyncLog.settings = settings(max_examples=tiers.examples(40), stateful_step_count=20)
