import pytest

from common.wire import Result
from receiver.metadata.model import records
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.file_index import GroupKey
from receiver.metadata.state.tables.sender_tables import tasks as task_tables
from tests.support.metadata import A, B, load, path, physical, seen, token


@pytest.fixture
def state():
    state = State()
    commit(state, seen(), seen(B))
    return state


def commit(state, *ops):
    state.apply(records.Commit(state.newest + 1, ops))


def span(first, last, device="root.t.d1"):
    return {device: (first, last)}


def test_the_file_list_of_a_partition_is_ordered_by_time(state):
    spans = [(30, 40), (10, 20), (30, 35), (50, 60), (0, 5)]
    for number, (first, last) in enumerate(spans):
        commit(state, load(path(f"{number}-1-0"), number, devices=span(first, last)))
    key = GroupKey("sequence", "root.t", "0", "0")
    assert [(row.first, row.last) for row in state.file_table.group(key)] == sorted(spans)
    commit(state, records.FileDeleted(physical(path("2-1-0"), 2), "gone"))
    assert (30, 35) not in [(row.first, row.last) for row in state.file_table.group(key)]
    commit(state, load(path("9-1-0", kind="unsequence"), 9, devices=span(1, 2)))
    assert len(state.file_table.group(key)) == 4
    assert [row.parsed.kind for row in state.file_table.partition("root.t", "0", 0)] == [
        "sequence"
    ] * 4 + ["unsequence"]
    assert state.file_table.group(GroupKey("sequence", "root.none", "0", "0")) == []


def test_a_file_without_points_has_its_place(state):
    commit(state, load(devices={"root.t.d1": None}), load(path("2-2-0"), 2))
    assert [row.first for row in state.file_table.group(GroupKey.of(path()))] == [None, 1]


def test_two_senders_may_have_files_of_one_name(state):
    commit(state, load(tag=1), load(tag=2, sender=B, devices=span(1, 2, "root.t.other")))
    assert state.file_table.live(A, path()).physical != state.file_table.live(B, path()).physical
    assert [row.physical for row in state.file_table.catalogue(None, 10)] == [
        physical(path(), 1),
        physical(path(), 2),
    ]
    assert (
        len(state.file_table.inventory(A, None, 10))
        == len(state.file_table.inventory(B, None, 10))
        == 1
    )


def test_a_retired_file_leaves_the_inventory_and_stays_in_the_catalogue(state):
    commit(state, load())
    commit(state, records.FileRetired(physical(path(), 1)))
    assert state.file_table.inventory(A, None, 10) == []
    assert state.file_table.held(A, path()) is None
    [row] = state.file_table.catalogue(None, 10)
    assert row.state is FileState.RETIRED
    assert row.visible
    assert state.file_table.totals().files == 1


def test_a_retired_file_that_returns_is_in_the_inventory_and_can_be_wanted_again(state):
    name = physical(path(), 1)
    commit(state, load())
    commit(state, records.FileRetired(name))
    commit(state, records.FileReturned(name))
    assert state.file_table.live(A, path()).state is FileState.LIVE
    assert [row.physical for row in state.file_table.inventory(A, None, 10)] == [name]
    assert state.file_table.totals() == (1, 101)
    commit(state, records.FileQuarantined(name, "bad"))
    assert [row.physical for row in state.file_table.wanted(A)] == [name]


def test_a_quarantined_file_is_wanted_again_and_not_visible(state):
    commit(state, load())
    commit(state, records.FileQuarantined(physical(path(), 1), "bad page"))
    assert state.file_table.catalogue(None, 10) == []
    assert state.file_table.directories() == []
    assert [row.state for row in state.file_table.inventory(A, None, 10)] == [FileState.QUARANTINED]
    assert [row.reason for row in state.file_table.wanted(A)] == ["bad page"]
    assert state.file_table.totals() == (0, 0)
    commit(state, records.FileRestored(physical(path(), 1)))
    assert state.file_table.wanted(A) == []
    assert state.file_table.live(A, path()).reason is None
    assert state.file_table.totals(A) == (1, 101)


def test_a_file_is_verified_as_of_its_last_verification_until_it_is_found_bad(state):
    one, two = physical(path(), 1), physical(path("2-2-0"), 2)
    commit(state, load(), load(path("2-2-0"), 2))
    seen_at = state.changed("file", one)
    commit(state, records.FileVerified([one]))
    first = state.newest
    assert [state.files[each].verified for each in (one, two)] == [first, 0]
    assert state.changed("file", one) == seen_at  # nobody's decision about the file is overtaken
    commit(state, records.FileVerified([one, two]))
    assert [state.files[each].verified for each in (one, two)] == [state.newest] * 2 > [first]
    assert (
        state.file_table.verified(),
        state.file_table.verified(A),
        state.file_table.verified(B),
    ) == (2, 2, 0)
    commit(state, records.FileRetired(one))
    assert state.file_table.verified(A) == 2
    commit(state, records.FileQuarantined(one, "bad"))
    assert (state.file_table.verified(A), state.files[one].verified) == (1, 0)
    commit(state, records.FileRestored(one))
    assert (state.file_table.verified(A), state.files[one].verified) == (1, 0)
    commit(state, records.FileDeleted(two, "gone"))
    assert state.file_table.verified() == 0


def test_a_retired_file_in_quarantine_is_not_wanted_and_comes_back_retired(state):
    name = physical(path(), 1)
    commit(state, load())
    commit(state, records.FileRetired(name), records.FileQuarantined(name, "bad"))
    assert state.file_table.wanted(A) == []
    commit(state, records.FileRestored(name))
    assert state.files[name].state is FileState.RETIRED
    assert state.file_table.inventory(A, None, 10) == []


def test_a_quarantined_file_that_is_gone_at_the_edge_is_wanted_no_more(state):
    name = physical(path(), 1)
    commit(state, load())
    commit(state, records.FileQuarantined(name, "bad"))
    commit(state, records.FileRetired(name))
    assert state.file_table.wanted(A) == []
    assert state.files[name].state is FileState.QUARANTINED
    commit(state, load(tag=2))
    assert state.file_table.live(A, path()).physical == physical(path(), 2)


def test_a_deleted_row_knows_its_times_and_is_kept_until_forgotten(state):
    name = physical(path(), 1)
    commit(state, load())
    created = state.newest
    commit(state, records.FileDeleted(name, "superseded"))
    [row] = state.file_table.deleted()
    assert (row.created, row.deleted, row.reason) == (created, state.newest, "superseded")
    assert row.devices.names() == ["root.t.d1"]
    commit(state, records.FileForgotten(name))
    assert state.file_table.deleted() == []
    assert name not in state.files


def test_the_first_load_claims_and_the_claim_has_its_commit(state):
    commit(state, load(devices={"root.t.d1": (1, 2), "root.t.d2": (1, 2)}))
    claimed = state.newest
    commit(state, load(path("2-2-0"), 2, devices={"root.t.d2": (1, 2), "root.t.d3": (1, 2)}))
    assert state.owners["root.t.d2"].since == claimed
    assert state.owners["root.t.d3"].since == state.newest
    assert state.owners["root.t.d1"] is state.owners["root.t.d2"], "one row for 10,000 devices"
    assert state.owner_table.changed == state.newest
    commit(state, load(path("3-3-0"), 3, devices={"root.t.d1": (3, 4)}))
    assert state.owner_table.changed == state.newest - 1


def test_rows_that_were_taken_out_do_not_change(state):
    commit(state, load())
    row = state.file_table.live(A, path())
    commit(state, records.FileRetired(row.physical))
    assert row.state is FileState.LIVE


def test_pages_go_through_everything_once(state):
    names = [path(f"{number}-1-0", part=number % 3) for number in range(50)]
    commit(state, *(load(name, number) for number, name in enumerate(names)))
    for page in (1, 7, 50, 51):
        seen_paths, after = [], None
        while rows := state.file_table.inventory(A, after, page):
            seen_paths += [row.path for row in rows]
            after = rows[-1].path
        assert seen_paths == sorted(names)


def test_tokens_are_found_by_hash(state):
    commit(state, token())
    assert state.token_table.by_hash(token().hash).id == "t1"
    commit(state, records.TokenRevoke("t1"))
    assert state.token_table.by_hash(token().hash) is None


def test_the_outcome_of_a_task_comes_back_and_the_sender_row_names_it(state):
    outcomes = [
        records.FileOutcome("p", Result.LOADED),
        records.FileOutcome("q", Result.CONFLICT, device="d", owner=B, hold=True, reason="why"),
    ]
    commit(state, records.TaskDone(A, "01" * 16, outcomes))
    row = state.task_table.get(A, "01" * 16)
    assert row.outcomes == outcomes
    assert row.commit == state.newest
    assert (state.senders[A].last_task, state.senders[A].last_commit) == ("01" * 16, state.newest)
    assert not state.task_table.has(B, "01" * 16)


def test_memory_of_tasks_is_bounded_and_keeps_the_newest(state, monkeypatch):
    monkeypatch.setattr(task_tables, "KEPT_OUTCOMES", 1000)
    many = [records.FileOutcome("p", Result.LOADED)] * 400
    for number in range(300):
        commit(state, records.TaskDone(A, f"{number:032x}", []))
    assert not state.task_table.has(A, f"{43:032x}")
    assert state.task_table.has(A, f"{44:032x}")
    for number in range(300, 304):
        commit(state, records.TaskDone(A, f"{number:032x}", many))
    assert [state.task_table.has(A, f"{number:032x}") for number in range(300, 304)] == [
        False,
        False,
        True,
        True,
    ]
    commit(state, records.TaskDone(A, f"{400:032x}", many * 10))
    assert len(state.task_table.get(A, f"{400:032x}").outcomes) == 4000


def test_quarantine_entries_are_found_by_path(state):
    put = records.QuarantinePut
    commit(state, put(A, path(), "02", 1, False, "no space"), put(A, path(), "01", 1, True, "bad"))
    created = state.newest
    assert [row.digest for row in state.quarantine_table.at_path(A, path())] == ["01", "02"]
    commit(state, put(A, path(), "02", 1, True, "still"))
    row = state.quarantine[A, path(), "02"]
    assert (row.created, row.changed, row.hold, row.reason) == (created, created + 1, True, "still")
    commit(state, records.QuarantineDrop(A, path(), "01"), records.QuarantineDrop(A, path(), "02"))
    assert state.quarantine_table.at_path(A, path()) == []


def test_epochs_stand_in_the_sender_row(state):
    commit(state, records.EpochSet(A, "2.x", "1.y", "03" * 16, True))
    row = state.senders[A]
    assert (row.epoch, row.previous, row.epoch_task, row.confirmed) == (
        "2.x",
        "1.y",
        "03" * 16,
        True,
    )


def orders(state):
    """Files in each state and devices, as their sorted indexes have them."""
    files = {each: state.file_table.among(each, None, 99) for each in FileState}
    assert files[FileState.LIVE] == files[FileState.RETIRED]
    return {
        "visible": [row.physical for row in files[FileState.LIVE]],
        "quarantined": [row.physical for row in files[FileState.QUARANTINED]],
        "deleted": [row.physical for row in files[FileState.DELETED]],
        "devices": [device for device, _ in state.owner_table.page(None, 99)],
    }


def test_every_file_is_in_the_order_of_its_state_and_every_owned_device_in_that_of_devices(state):
    one, two, three = (physical(path(f"{n}-1-0"), n) for n in (1, 2, 3))
    commit(state, *(load(path(f"{n}-1-0"), n, devices=span(n, n, f"root.d{n}")) for n in (3, 1, 2)))
    assert orders(state) == {
        "visible": [one, two, three],
        "quarantined": [],
        "deleted": [],
        "devices": ["root.d1", "root.d2", "root.d3"],
    }
    commit(state, records.FileQuarantined(two, "bad"), records.FileRetired(one))
    commit(state, records.OwnerSet("root.d2", None, "free"), records.OwnerSet("root.d3", B, "x"))
    commit(state, records.FileRetired(two), records.FileDeleted(three, "gone"))
    now = {"visible": [one], "quarantined": [two], "deleted": [three]}
    assert orders(state) == now | {"devices": ["root.d1", "root.d3"]}
    commit(state, records.FileRestored(two), records.FileForgotten(three))
    now = {"visible": [one, two], "quarantined": [], "deleted": []}
    assert orders(state) == now | {"devices": ["root.d1", "root.d3"]}
    commit(state, records.FileQuarantined(two, "bad"), records.FileDeleted(one, "gone"))
    commit(state, records.FileDeleted(two, "expired"), load(tag=9, devices=span(1, 2, "root.d2")))
    assert [row.physical for row in state.file_table.quarantined()] == []
    assert orders(state) == {
        "visible": [physical(path(), 9)],
        "quarantined": [],
        "deleted": [one, two],
        "devices": ["root.d1", "root.d2", "root.d3"],
    }
    assert state.file_table.among(FileState.DELETED, one, 1) == [state.files[two]]
    assert state.owner_table.page("root.d1", 1) == [("root.d2", state.owners["root.d2"])]
    commit(state, records.OwnerSet("root.d0", A, "given"))
    assert orders(state)["devices"] == ["root.d0", "root.d1", "root.d2", "root.d3"]


@pytest.mark.parametrize("tail", ["ab" * 16, "AB" * 16, "a b", "odd", ""])
def test_a_tail_is_found_as_it_was_told_and_not_otherwise(state, tail):
    names = [path(f"{each}-1-0") for each in range(3)]
    for number, name in enumerate(names):
        commit(state, load(name, number, tail=tail))
    found = [row.path for row in state.file_table.of_tail(tail)]
    assert found == names
    assert {row.tail for row in state.files.values()} == {tail}
    for other in {"ab" * 16, "AB" * 16, "ab", "odd", ""} - {tail}:
        assert state.file_table.of_tail(other) == []
    commit(state, records.FileDeleted(physical(names[1], 1), "gone"))
    commit(state, records.FileDeleted(physical(names[0], 0), "gone"))
    assert [row.path for row in state.file_table.of_tail(tail)] == names[2:]
    commit(state, records.FileDeleted(physical(names[2], 2), "gone"))
    assert state.file_table.of_tail(tail) == []
