"""Packed files answer as their rows do, and nobody sees which of them are packed."""

import weakref

import msgspec
import pytest

from common.errors import DamagedError
from receiver.metadata.model import records
from receiver.metadata.state.packed_file import whole
from receiver.metadata.state.packed_files import COLUMNS
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.file_tables.retired import partition_of
from tests.support.checkpointing import frozen_sections, pack, thawed
from tests.support.committing import do, fresh
from tests.support.file_life import FileLife
from tests.support.metadata import A, B, digest, load, path, physical, plain, seen

WIDE = 1 << 40
LOOKS = records.OriginLooks("ef" * 16, 1, 2, 0, 4, physical(path(), 3))
ROOT = records.ManifestMeta(1, 10, digest("root"))
ALIKE = [
    load(path("1-1-0"), resource=records.ResourceMeta(7, digest("r")), manifest=ROOT),
    load(path("2-1-0"), devices={}, first=5, last=5, manifest=records.ManifestMeta(0, 10)),
    load(path("3-1-0", kind="unsequence", sg="root.é", part=9), first_look=3, closed_look=4),
    load(path("4-1-0"), devices={"root.t.d1": (-9, WIDE), "root.t.d2": None, "root.t.ü": (5, 6)}),
    load(path("5-1-0"), devices={f"root.t.d{each}": (each, 300 + each) for each in range(40)}),
    load(path("6-1-0"), devices={"root.t.d1": (-WIDE, 0)}, data_dir="/é", version=3, size=WIDE),
]
DIFFERENT = [
    load(devices={}),
    load(physical="sequence/root.t/0/0/other.0000000000000001.tsfile"),
    load(path("1.x-1-0")),
    load(tail=digest("x").upper()),
    load(task="t"),
    load(manifest=records.ManifestMeta(2, 10)),
    load(series=1 << 32),
    load(origin=records.FileOrigin(B, path(), [LOOKS])),
]


def answers(row):
    """What a row says, all of it."""
    fields = msgspec.structs.asdict(whole(row))
    asked = {name: getattr(row, name) for name in fields}
    derived = ("rank", "held", "visible", "paths", "parsed", "author", "closed", "compactions")
    told = {name: getattr(row, name) for name in derived}
    for each in (fields, asked):
        devices = each.pop("devices")
        ids, base, offsets = devices.parts()
        told["devices"] = devices.names(), [*devices.ranges()], ids, base, offsets
    assert asked == fields
    return asked | told


@pytest.mark.parametrize("op", ALIKE)
def test_a_packed_file_answers_as_its_row_does(op):
    state = fresh()
    do(state, seen(), op)
    row = state.files[op.physical]
    for retire in (False, True):
        if retire:
            do(state, records.FileRetired(op.physical, 7))
            row = whole(state.files[op.physical])
            assert answers(state.files[op.physical]) == answers(row)
        pack(state)
        assert not state.files.young
        found = state.files[op.physical]
        assert answers(found) == answers(row)
        assert found.devices.parts() == row.devices.parts()


@pytest.mark.parametrize("op", DIFFERENT)
def test_a_file_with_what_few_have_stays_a_row(op):
    state = fresh()
    do(state, seen(), op, load(path("7-7-0"), 7))
    pack(state)
    assert [*state.files.young] == [op.physical]
    assert len(state.files) == 2
    assert plain(thawed(frozen_sections(state))) == plain(state)


class Life(FileLife):
    """Random commits for two states, of which one has its files packed now and then."""

    def __init__(self, seed):
        self.states = [fresh(), fresh()]
        super().__init__(seed)

    @property
    def state(self):
        return self.states[0]

    def do(self, *ops):
        for state in self.states:
            do(state, *ops)


def found(state):
    """All that is asked of files, in small pages too."""
    table, rows = state.file_table, sorted(state.files)
    pages = []
    for sender in (A, B):
        after = None
        while page := table.inventory(sender, after, 3):
            pages.append([(row.path, row.physical) for row in page])
            after = page[-1].path
    after = None
    while page := table.catalogue(after, 3):
        pages.append([row.physical for row in page])
        after = page[-1].physical
    every = [state.files[each] for each in rows]
    return (
        plain(state),
        pages,
        [len(state.files), *rows],
        [sorted(row.physical for row in table.of_tail(each.tail)) for each in every],
        [getattr(table.held(row.sender, row.path), "physical", None) for row in every],
        [[row.physical for row in table.listed_by(sender)] for sender in (A, B)],
        sorted(table.gone.where()),
        (table.gone.retired_files, table.gone.retired_bytes),
        [each in state.files for each in (*rows, "no")],
        sorted(row.physical for row in state.files.of({A}, held=False)),
        sorted(row.physical for row in state.files.of(registered=False, sizes={101, 102})),
        beside(state),
        counted(state, every),
    )


def counted(state, every):
    """How many files each sender has in each group, which is what its rows come to."""
    groups = {row.parsed.sg for row in every}
    asked = [(group, each, held) for group in groups for each in (A, B) for held in (0, 1)]
    counts = {each: state.file_table.count_in(*each[:2], held=bool(each[2])) for each in asked}
    for (group, sender, held), count in counts.items():
        mine = [
            row for row in every if row.visible and (row.parsed.sg, row.sender) == (group, sender)
        ]
        assert count == sum(row.held or not held for row in mine)
    return counts


def beside(state):
    """Of each file those of other partitions that have a device and a time of it."""
    visible = [row for row in state.files.values() if row.visible and row.first is not None]
    found = {}
    for row in visible:
        key, ids, since = partition_of(row.physical), {*row.devices.ids}, row.changed - 5
        told = state.file_table.beside(key, ids, row.first, row.last, since=max(since, 0))
        found[row.physical] = {each.physical for each in told}
        assert len(found[row.physical]) == len(told)
        assert found[row.physical] == {
            each.physical
            for each in visible
            if partition_of(each.physical) != key
            and each.changed > since
            and each.first <= row.last
            and row.first <= each.last
            and not ids.isdisjoint(each.devices.ids)
        }
    return found


def test_files_elsewhere_are_found_by_device_and_time_packed_or_not():
    state = fresh()
    two = {"root.t.d1": (0, 9), "root.t.d2": (5, 9)}
    ops = [
        load(path("1-1-0"), 1, devices=two),
        load(path("2-2-0", part=1), 2, devices={"root.t.d2": (9, 12)}),
        load(path("3-3-0", part=1), 3, devices={"root.t.d2": (10, 12)}),
        load(path("4-4-0", kind="unsequence"), 4, devices=two),
        load(path("5-5-0", sg="root.u"), 5, devices={"root.t.d1": (-4, 0)}),
        load(path("6-6-0", part=2), 6, devices={"root.t.d3": (0, 9)}),
    ]
    do(state, seen(), *ops)
    wanted = {ops[1].physical, ops[4].physical}
    assert beside(state)[ops[0].physical] == wanted
    pack(state)
    assert not state.files.young
    assert beside(state)[ops[0].physical] == wanted
    do(state, records.FileDeleted(ops[1].physical, "operator"))
    assert beside(state)[ops[0].physical] == {ops[4].physical}


@pytest.mark.parametrize("seed", range(6))
def test_nobody_sees_which_files_are_packed(seed):
    life = Life(seed)
    plain_one, packed_one = life.states
    for number in range(60):
        life.commit()
        if life.chance.random() < 0.2:
            pack(packed_one, meanwhile=life.commit if number % 2 else lambda: None)
            assert found(packed_one) == found(plain_one)
    assert len(packed_one.files.packed)
    again = thawed(frozen_sections(packed_one))
    assert found(again) == found(plain_one)
    life.states = [plain_one, again]
    for _ in range(10):
        life.commit()
    assert found(again) == found(plain_one)


def test_a_row_that_was_taken_stays_as_it_was():
    state = fresh()
    do(state, seen(), ALIKE[0], ALIKE[3])
    pack(state)
    row = state.files[ALIKE[0].physical]
    before = answers(row)
    do(state, records.FileRetired(ALIKE[0].physical, 9))
    assert answers(row) == before
    pack(state)
    do(state, records.FileDeleted(ALIKE[3].physical, "operator"))
    pack(state)
    assert answers(row) == before
    assert state.files[ALIKE[0].physical] != row


def test_a_file_that_ends_while_others_are_packed_does_not_keep_the_table_of_before():
    state = fresh()
    do(state, seen(), ALIKE[0], ALIKE[3])
    pack(state)
    before = weakref.ref(state.files.packed)
    do(state, load(path("8-1-0"), 8))
    pack(state, meanwhile=lambda: do(state, records.FileRetired(ALIKE[0].physical)))
    assert before() is None
    assert isinstance(state.files[ALIKE[0].physical].state, FileState)


@pytest.mark.parametrize("name", [*COLUMNS, "ends", "digests", "entries", "by_path", "by_tail"])
def test_a_column_that_does_not_fit_the_others_is_damage(name):
    state = fresh()
    do(state, seen(), *ALIKE)
    sections = frozen_sections(state)
    section = f"packed-files.{name.replace('_', '-')}"
    for content in (sections[section] * 2, b""):
        with pytest.raises(DamagedError, match="do not fit each other"):
            thawed(sections | {section: content})


@pytest.mark.parametrize("name", ["senders", "directories", "data_dirs", "sets", "id_arrays"])
def test_a_number_that_stands_for_nothing_is_damage(name):
    state = fresh()
    do(state, seen(), *ALIKE)
    sections = frozen_sections(state)
    section = f"packed-files.{name.replace('_', '-')}"
    content = b"\xff" * len(sections[section])
    with pytest.raises(DamagedError, match="do not fit each other"):
        thawed(sections | {section: content})


def test_a_packed_file_is_no_row_that_may_be_changed_by_mistake():
    state = fresh()
    do(state, seen(), ALIKE[0], ALIKE[3])
    pack(state)
    found = state.files[ALIKE[0].physical]
    assert not isinstance(found, FileRow)
    assert isinstance(whole(found), FileRow)
    assert found == whole(found) == state.files[ALIKE[0].physical] == found
    assert found != state.files[ALIKE[3].physical]
    assert hash(found) == hash(whole(found))
