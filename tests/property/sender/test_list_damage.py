"""The files of the list, cut off, flipped and zeroed at every byte."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from common.names import FilePath
from common.wire import Result
from sender.kept.loaded_list.list_state import ListFacts, list_digest, read_state, state_pieces
from sender.round.recovery import recover
from sender.select.entry import Entry, EntryState
from sender.select.listed_table import LISTED_FILES
from sender.select.path_table import PathTable
from tests.support.site import Site, done, inventory, path, rebuild, tsfile

PATHS = [path(f"{n}-1-0.tsfile", sg=sg) for n in (1, 2) for sg in ("root.a", "root.b_c d ü")]
D = Path("/d")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"))
    for number, each in enumerate(PATHS):
        made.put(each, tsfile(value=number))
    made.load_all()
    return made


def damages(content):
    for at in range(len(content)):
        yield content[:at]
    for at in range(0, len(content), 7):
        yield content[:at] + b"\0" * (len(content) - at)
        yield content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :]
    yield content + b"\0" * 4096
    yield content + b"sequence/root.z/0/0/1-1-0.tsfile\n"


@pytest.mark.parametrize("name", ["last_local_files.txt", "local_files.state"])
def test_no_damage_to_the_list_stops_the_start_or_goes_unnoticed(site, name):
    where = site.sender_dir() / name
    good = where.read_bytes()
    known = site.ledger().entries
    assert len(known) == len(PATHS)
    try:
        for content in damages(good):
            if content == good:
                continue  # it ends in zeros
            where.write_bytes(content)
            ledger = site.ledger()
            assert ledger.doubts, content[-60:]
            trusted = {at: e for at, e in ledger.entries.items() if e.md5}
            assert trusted.items() <= known.items()
    finally:
        where.write_bytes(good)


def test_after_any_damage_the_inventory_puts_all_right(site):
    known = dict(site.ledger().entries)
    scan = site.scan()
    good = {}
    for name in ("last_local_files.txt", "local_files.state"):
        good[name] = (site.sender_dir() / name).read_bytes()
    for name, content in good.items():
        for cut in range(0, len(content), 41):
            (site.sender_dir() / name).write_bytes(content[:cut])
            ledger = site.ledger()
            rebuild(ledger, inventory(list(known.values())), scan.files)
            todo = site.plan(ledger)
            assert todo.tasks == ()
            ledger.refresh(todo.refreshed)
            again = site.ledger()
            assert not again.doubts
            assert {at: e.md5 for at, e in again.entries.items()} == {
                at: e.md5 for at, e in known.items()
            }


@pytest.mark.slow
def test_every_truncation_of_the_sync_log_folds_only_what_was_committed(tmp_path):
    task = "ab" * 16
    site = Site(tmp_path)
    for number, each in enumerate(PATHS):
        site.put(each, tsfile(value=number))
    ledger = site.load_all()
    ledger.fold(removed=PATHS[1:])
    site.remove(PATHS[0])
    files = [each for at, each in site.scan(ledger.entries).files.items() if at in PATHS[1:]]
    logs = site.logs()
    logs.begin(task, dict.fromkeys(PATHS, site.data_dirs[0]))
    logs.deleted([PATHS[0]])
    logs.files(PATHS[1:])
    ledger.sent(site.entry(each) for each in files)
    logs.end()
    logs.close()
    answer = done(task, {PATHS[0]: Result.DELETED, PATHS[1]: Result.LOADED})
    log = (site.sender_dir() / "sync.log").read_bytes()
    base = site.sender_dir()
    before = {each.name: each.read_bytes() for each in base.iterdir() if each.is_file()}
    first_line = len(f"sync start {task}\n")
    for cut in range(len(log) + 1):
        for name, content in before.items():
            (base / name).write_bytes(content)
        (base / "sync.log").write_bytes(log[:cut])
        recover(site.ledger(), site.logs(), site.snapshot(), site.dirs, {task: answer}.get)
        expected = {PATHS[1]} if cut >= first_line else {PATHS[0]}
        assert set(site.ledger().entries) == expected, cut
        assert not (base / "sync.log").exists()


# -- the state file alone --------------------------------------------------------------------------

names = st.integers(1, 10**18).map(lambda n: f"{n}-1-0.tsfile")
paths = st.builds(
    lambda kind, sg, partition, name: FilePath.parse(f"{kind}/{sg}/0/{partition}/{name}"),
    st.sampled_from(["sequence", "unsequence"]),
    st.sampled_from(["root.a", "root.a_b", "root.ü", 'root."x"', "root.a,b"]),
    st.integers(-(10**6), 10**6),
    names,
)
big = st.integers(0, 2**63 - 1)
times = st.none() | st.integers(-(2**63), 2**63 - 1)
entries = st.builds(
    lambda *facts: Entry(*facts),
    paths,
    st.just(D),
    big,
    big,
    big,
    st.integers(0, 2**128 - 1).map(lambda n: f"{n:032x}") | st.just(""),
    times,
    times,
    st.sampled_from([EntryState.LOADED, EntryState.LISTED]),
)


def read(content):
    return read_state(io.BytesIO(content), D)


@given(st.lists(entries, max_size=20), st.lists(entries, max_size=5), st.binary(max_size=9))
def test_what_is_written_is_read_back(loaded, sent, list_content):
    def table(rows):
        return PathTable.of(LISTED_FILES, rows)

    left = [each for each in sent if each.path not in {at.path for at in loaded}]
    facts = ListFacts(
        (list_digest([list_content]),),
        table(loaded),
        table(left),
        table(replace(each, state=EntryState.SENT) for each in sent),
    )
    assert dict(facts.listed) == {each.path: each for each in loaded}
    assert read(b"".join(state_pieces(facts))) == (facts, None)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_with_a_reason(content):
    facts, problem = read(content)
    assert problem
    assert facts == ListFacts()
