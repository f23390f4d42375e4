"""Tables of files beside plain dictionaries: every question has the same answer."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from common.formats.linelog import parse_paths
from common.names import FilePath, Kind
from sender.kept.loaded_list.list_state import list_pieces
from sender.select.entry import Entry, EntryState
from sender.select.found import LOCAL_FILES, LocalFile, ResourceStat
from sender.select.listed_table import (
    LISTED_FILES,
    last_time,
    listed_sum,
    rows_of_kind,
    unsettled,
)
from sender.select.path_table import (
    PathTable,
    differing,
    directory_of,
    have_same_paths,
    having,
    joined,
    lacking,
    one_of_each_directory,
    with_changes,
)
from tests.support import tiers

DIRS = [Path("/d0"), Path("/d1")]
NAMES = ["1-1-0-0.tsfile", "2-2-0-0.tsfile", "10-1-0-0.tsfile", "ü-ß.tsfile", "x.tsfile"]

paths = st.builds(
    lambda kind, sg, partition, name: FilePath.parse(f"{kind}/{sg}/0/{partition}/{name}"),
    st.sampled_from(["sequence", "unsequence"]),
    st.sampled_from(["root.a", "root.ü"]),
    st.sampled_from([-1, 2, 10]),
    st.sampled_from(NAMES),
)
numbers = st.integers(0, 2)
times = st.none() | st.sampled_from([-(2**63), -1, 0, 2**63 - 1])
entries = st.builds(
    lambda *facts: Entry(*facts),
    paths,
    st.sampled_from(DIRS),
    numbers,
    numbers,
    numbers | st.just(2**64 - 1),
    st.sampled_from(["", "0" * 32, "ab" * 16]),
    times,
    times,
    st.sampled_from([EntryState.LOADED, EntryState.LISTED, EntryState.ENDED]),
)
resources = st.none() | st.builds(lambda *each: ResourceStat(*each), numbers, numbers, numbers)


@st.composite
def local_files(draw):
    path, data_dir = draw(paths), draw(st.sampled_from(DIRS))
    elsewhere = draw(st.sampled_from(["", path.name, f"sync-sender/x/snapshot/{path.text}"]))
    sizes = (draw(numbers), draw(numbers), draw(numbers))
    return LocalFile(path, data_dir, elsewhere, *sizes, draw(resources))


class Play(RuleBasedStateMachine):
    """A list and a scan, each as a table and as a dictionary."""

    def __init__(self):
        super().__init__()
        self.listed, self.listed_dict = PathTable(LISTED_FILES), {}
        self.files, self.files_dict = PathTable(LOCAL_FILES), {}

    @rule(added=st.lists(entries, max_size=4), removed=st.lists(paths, max_size=3))
    def change_the_list(self, added, removed):
        before, as_it_was = self.listed, dict(self.listed_dict)
        self.listed = with_changes(self.listed, added, removed)
        self.listed_dict = with_changes(self.listed_dict, added, removed)
        assert dict(before) == as_it_was  # whoever has it still has it
        changed = {path for path, each in self.listed_dict.items() if as_it_was.get(path) != each}
        found = dict(differing(self.listed, before))
        assert changed <= found.keys()
        assert found.items() <= self.listed_dict.items()
        same = self.listed_dict.keys() == as_it_was.keys()
        assert have_same_paths(self.listed, before) is same

    @rule(added=st.lists(local_files(), max_size=4), removed=st.lists(paths, max_size=3))
    def change_the_scan(self, added, removed):
        self.files = with_changes(self.files, added, removed)
        self.files_dict = with_changes(self.files_dict, added, removed)

    @rule(data=st.data())
    def list_what_was_scanned(self, data):
        if self.files_dict:
            file = data.draw(st.sampled_from(list(self.files_dict.values())))
            entry = Entry.of(file, "cd" * 16, None)
            self.listed = self.listed.changed([entry])
            self.listed_dict[file.path] = entry

    @rule(other=st.lists(entries, max_size=6))
    def join_another_list(self, other):
        table, plain = PathTable.of(LISTED_FILES, other), {each.path: each for each in other}
        assert dict(having(table, self.listed)) == {
            path: each for path, each in plain.items() if path in self.listed_dict
        }
        self.listed = joined(self.listed, table, lambda one, new: one.state is EntryState.LISTED)
        for path, each in plain.items():
            known = self.listed_dict.get(path)
            if known is None or known.state is EntryState.LISTED:
                self.listed_dict[path] = each

    @invariant()
    def is_the_same(self):
        for table, plain in ((self.listed, self.listed_dict), (self.files, self.files_dict)):
            assert dict(table.items()) == plain
            assert {each.path: each for each in table.values()} == plain
            assert set(table) == plain.keys()
            assert len(table) == len(plain)
            everywhere = {directory_of(path) for path in plain}
            assert {directory_of(path) for path in one_of_each_directory(table)} == everywhere
        of_one = [each for each in self.listed_dict.values() if each.data_dir == DIRS[0]]
        content = b"".join(list_pieces(PathTable.of(LISTED_FILES, of_one)))
        assert parse_paths(content) == (sorted(each.path for each in of_one), None)
        for path in {*self.listed_dict, *self.files_dict}:
            assert self.listed.get(path) == self.listed_dict.get(path)
            assert (path in self.files) is (path in self.files_dict)

    @invariant()
    def answers_are_the_same(self):
        listed, files = self.listed_dict, self.files_dict
        assert dict(lacking(self.listed, self.files)) == dict(lacking(listed, files))
        assert dict(lacking(self.files, self.listed)) == dict(lacking(files, listed))

        def found(files, listed):
            return {file.path: (file, entry) for file, entry in unsettled(files, listed)}

        assert found(self.files, self.listed) == found(files, listed)
        assert listed_sum(self.listed) == listed_sum(listed)
        assert last_time(self.listed) == last_time(listed)
        for kind in Kind:
            assert {each.path: each for each in rows_of_kind(self.listed, kind)} == {
                each.path: each for each in rows_of_kind(listed, kind)
            }


Play.TestCase.settings = settings(
    max_examples=tiers.examples(30), stateful_step_count=15, deadline=None
)
TestPlay = Play.TestCase


@given(entries)
def test_what_no_file_can_have_is_brought_to_what_one_can(entry):
    wild = replace(entry, size=2**70, mtime_ns=-(2**70), inode=-1, md5="no md5", first_time=2**64)
    (kept,) = PathTable.of(LISTED_FILES, [wild]).values()
    assert kept.identity == (2**63 - 1, -(2**63), 2**64 - 1)
    assert (kept.md5, kept.first_time) == ("", None)
    assert (kept.path, kept.state, kept.last_time) == (entry.path, entry.state, entry.last_time)
