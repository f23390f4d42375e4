"""Short histories of an edge: what is superseded by them, and what never may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.wire import Propagate
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.retired import partition_of
from receiver.node import Node
from tests.support.node_world import World
from tests.support.proving import SameProcess, Site, deletion, in_this_process

S1 = "sequence/root.sg/0/0/1-1-0-0.tsfile"
S2 = "sequence/root.sg/0/0/2-2-0-0.tsfile"
S3 = "sequence/root.sg/0/0/3-3-0-0.tsfile"
U1 = "unsequence/root.sg/0/0/9-9-0-0.tsfile"
PRODUCT = "sequence/root.sg/0/0/1-1-1-0.tsfile"
CROSS = "sequence/root.sg/0/0/1-1-0-1.tsfile"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with World(tmp_path).still_node() as node:
        yield node


@pytest.fixture
def reading(node: Node) -> SameProcess:
    return in_this_process(node)


@pytest.fixture
def site(node: Node, reading: SameProcess) -> Site:
    del reading
    return Site(node)


def sweep(site: Site) -> int:
    """Prove what can be proved, which changes no answer."""
    before = site.answer()
    proved = site.node.prover.run_once()
    assert site.answer() == before
    return proved


def test_what_a_compaction_made_of_files_supersedes_them(site: Site) -> None:
    site.round({S1: {"a": {1: 1, 2: 2}}, S2: {"a": {3: 3}, "b": {3: 3}}})
    site.round({PRODUCT: {"a": {1: 1, 2: 2, 3: 3}, "b": {3: 3}}}, [S1, S2])
    assert sweep(site) == 2
    assert site.state(S1) is site.state(S2) is FileState.SUPERSEDED
    assert site.row(S1).rests == (site.row(PRODUCT).physical,)


def test_a_file_with_one_point_that_exists_nowhere_else_stays(site: Site) -> None:
    site.round({S1: {"a": {1: 1, 2: 2}}})
    site.round({PRODUCT: {"a": {1: 1}}}, [S1])
    assert sweep(site) == 0
    row = site.row(S1)
    found = site.node.prover.found(partition_of(row.physical), row.physical)
    assert found is not None
    assert [(each.measurement, each.first, each.last, each.points) for each in found.exclusive] == [
        ("a", 2, 2, 1)
    ]


def test_equal_values_below_prove_nothing(site: Site) -> None:
    site.round({S1: {"a": {1: 7}}, U1: {"a": {1: 7}}})
    site.round({}, [U1])
    assert sweep(site) == 0
    assert site.state(U1) is FileState.RETIRED


def test_a_file_that_stands_higher_by_the_name_that_is_left_wakes_what_lies_below(
    site: Site,
) -> None:
    site.round({S1: {"a": {1: 7}}, U1: {"a": {1: 1}}})
    site.round({}, [U1])
    assert sweep(site) == 0
    row, name = site.row(S1), "unsequence/root.sg/0/0/10-10-0-0.tsfile"
    site.node.engine.commit([
        records.FileNamed(row.physical, name),
        records.FileUnnamed(row.physical, S1, site.look + 1),
    ])  # fmt: skip
    assert sweep(site) == 1


def test_what_is_stored_above_and_deleted_there_is_not_given_there(site: Site) -> None:
    site.round({S1: {"a": {1: 1}}})
    site.round({PRODUCT: {"a": {1: 1}}}, [S1])
    site.note(PRODUCT, "a", 1, 1, floor=0)  # no look could have told that it is of S1 too
    assert sweep(site) == 0


def test_what_was_deleted_in_another_storage_group_is_still_given(site: Site) -> None:
    other = "sequence/root.other/0/0/2-2-0-0.tsfile"
    site.round({S1: {"a": {1: 1}}, other: {"a": {5: 1}}})
    site.round({}, [S1])
    row = site.row(other)
    site.node.engine.commit([
        records.DeletionsNoted(
            site.uuid, row.path, row.physical, "mods", 0, deletion("a", 0, 9), site.look
        )
    ])  # fmt: skip
    assert site.node.prover.run_once() == 0


def test_a_file_of_which_everything_was_deleted_gives_nothing(site: Site) -> None:
    site.round({S1: {"a": {1: 1}}, S2: {"a": {5: 1}}})
    site.round({}, [S1])
    assert sweep(site) == 0
    site.note(S2, "a", 0, 9, floor=site.look)
    assert sweep(site) == 1
    assert site.row(S1).rests == ()


def test_the_upper_of_two_that_end_after_each_other_stays(site: Site) -> None:
    """The edge's TTL, or its operator, takes the upper file away before the lower."""
    site.round({S1: {"a": {1: 1, 2: 2}}, U1: {"a": {1: 3}}})
    site.round({}, [U1])
    assert sweep(site) == 0
    site.round({}, [S1])
    assert sweep(site) == 0
    assert site.answer()["a", 1] == 3


def test_several_uppers_prove_together_and_two_generations_in_one_sweep(site: Site) -> None:
    site.round({S1: {"a": {1: 1}}, S2: {"a": {2: 1}}, U1: {"a": {1: 2}}})
    site.round({CROSS: {"a": {1: 2}}}, [S1, U1])
    site.round({PRODUCT: {"a": {1: 2, 2: 1}}}, [CROSS, S2])
    assert sweep(site) == 4
    assert {site.row(each).rests for each in (S1, S2, U1, CROSS)} == {(site.row(PRODUCT).physical,)}


def test_equal_content_above_is_a_proof_without_decoding(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("decoded")

    site.marks = False
    site.round({S1: {"a": {1: 1}}})
    site.round({}, [S1])
    other = Site(site.node, "b" * 32, marks=False)
    site.node.engine.commit([records.OwnerSet("root.sg.d1", None, "moved")])
    other.round({S2: {"a": {1: 1}}})
    site.points |= other.points
    monkeypatch.setattr("receiver.superseding.partition_proof.TsFileReader", refuse)
    assert sweep(site) == 1


@pytest.fixture
def twins(site: Site) -> Site:
    """Two senders' files of one content, the second above the first, and both retired."""
    site.marks = False
    site.round({S1: {"a": {1: 1, 2: 2}}})
    site.round({}, [S1])
    other = Site(site.node, "b" * 32, marks=False)
    site.node.engine.commit([records.OwnerSet("root.sg.d1", None, "moved")])
    other.round({S2: {"a": {1: 1, 2: 2}}})
    other.round({}, [S2])
    site.points |= other.points
    return site


def test_of_two_with_equal_content_the_upper_stays(twins: Site) -> None:
    assert sweep(twins) == 1
    assert twins.state(S1) is FileState.SUPERSEDED
    assert twins.state(S2) is FileState.RETIRED


def test_a_record_that_spares_its_own_file_may_hide_points_of_the_equal_one_above(
    site: Site,
) -> None:
    site.marks = False
    site.round({S1: {"a": {1: 1, 2: 2}}})
    site.round({}, [S1])
    low = site.row(S1)
    site.node.engine.commit([
        records.DeletionsNoted(
            site.uuid, low.path, low.physical, "mods", 0,
            b"DELETION,root.sg.d1.a,1,0,9\n", 2**60,
        )
    ])  # fmt: skip
    anew = records.FileLoaded(
        sender=low.sender, path=S2, physical=S2.replace("2-2-0-0", "2-2-0-0." + "a" * 16),
        size=low.size, md5=low.md5, tail=low.tail, version=low.version,
        devices=[records.DeviceRange(*each) for each in low.devices.ranges()],
        first=low.first, last=low.last, series=low.series, points=low.points, task=low.task,
        resource=None, manifest=None, data_dir=low.data_dir,
        first_look=site.look + 1, closed_look=site.look + 1,
    )  # fmt: skip
    data = site.node.config.data_dirs[0]
    (data / anew.physical).write_bytes((data / low.physical).read_bytes())
    site.node.engine.commit([anew])
    assert site.node.prover.run_once() == 0


def test_equal_content_of_which_something_was_deleted_is_no_proof(twins: Site) -> None:
    row = twins.row(S2)
    record = deletion("a", 2, 2)
    twins.node.engine.commit([
        records.DeletionsNoted(row.sender, row.path, row.physical, "mods", 0, record, 0)
    ])  # fmt: skip
    twins.deleted.append((row.physical, "a", 2, 2, 0))
    assert sweep(twins) == 0


def test_of_a_sender_in_mode_never_nothing_is_proved_until_it_is_in_another(site: Site) -> None:
    site.round({S1: {"a": {1: 1}}}, propagate=Propagate.NEVER)
    site.round({PRODUCT: {"a": {1: 1}}}, [S1], propagate=Propagate.NEVER)
    assert sweep(site) == 0
    assert site.node.prover.progress().waiting_files == 0
    site.round({}, propagate=Propagate.REPLACED)
    assert sweep(site) == 1


def test_bytes_that_are_not_those_that_were_loaded_prove_nothing(site: Site) -> None:
    site.round({S1: {"a": {1: 1}}})
    site.round({PRODUCT: {"a": {1: 1}}}, [S1])
    bad = site.node.load.disks.trees[0].path / site.row(PRODUCT).physical
    good = bad.read_bytes()
    bad.write_bytes(good[:-20] + bytes([good[-20] ^ 1]) + good[-19:])
    assert sweep(site) == 0
    assert site.state(S1) is FileState.RETIRED


@pytest.mark.parametrize("which", [S1, PRODUCT])
def test_a_file_that_is_not_on_the_disk_neither_proves_nor_is_proved(
    site: Site, which: str
) -> None:
    site.round({S1: {"a": {1: 1}}})
    site.round({PRODUCT: {"a": {1: 1}}}, [S1])
    (site.node.load.disks.trees[0].path / site.row(which).physical).unlink()
    assert sweep(site) == 0


def test_what_cannot_be_decoded_to_the_points_that_were_loaded_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    import receiver.superseding.partition_proof as module

    real = module.given_times
    monkeypatch.setattr(
        module,
        "given_times",
        lambda *args: (each._replace(stored=each.stored - 1) for each in real(*args)),
    )
    site.round({S1: {"a": {1: 1, 2: 2}}})
    site.round({PRODUCT: {"a": {1: 1, 2: 2}}}, [S1])
    assert sweep(site) == 0


def test_quarantine_of_the_upper_brings_the_lower_back_and_it_is_proved_again_later(
    site: Site,
) -> None:
    site.round({S1: {"a": {1: 1}}})
    site.round({PRODUCT: {"a": {1: 1}}}, [S1])
    assert sweep(site) == 1
    bad = site.row(PRODUCT).physical
    site.node.engine.commit([records.FileQuarantined(bad, "rot")])
    assert site.answer() == {("a", 1): 1}
    assert sweep(site) == 0
    site.node.engine.commit([records.FileRestored(bad)])
    assert sweep(site) == 1


def test_only_what_touches_a_remainder_wakes_it(site: Site, reading: SameProcess) -> None:
    site.round({S1: {"a": {1: 1, 5: 5}}, S2: {"a": {20: 1}, "b": {30: 1}}})
    site.round({}, [S1, S2])
    sweep(site)
    assert len(reading.judged) == 2
    site.round({S3: {"a": {100: 1}}})
    sweep(site)
    assert len(reading.judged) == 2, "a file elsewhere in time wakes nothing"
    site.round({U1: {"a": {1: 2, 5: 2}}})
    assert sweep(site) == 1
    assert reading.judged[2:] == [site.row(S1).physical]
    asked = len(reading.asked)
    sweep(site)
    assert len(reading.asked) == asked, "nothing has happened"


def test_a_deletion_wakes_only_what_it_may_hide(site: Site, reading: SameProcess) -> None:
    site.round({S1: {"a": {1: 1}}, S2: {"a": {9: 1}}, S3: {"b": {50: 1}}})
    site.round({}, [S1, S2])
    sweep(site)
    site.note(S3, "a", 0, 5, floor=site.look)
    answered: list[str] = []
    ask = reading.ask

    def listening(asked, stopped):  # type: ignore[no-untyped-def]
        found = ask(asked, stopped)
        answered.extend(each.physical for each in found.proofs)
        return found

    reading.ask = listening  # type: ignore[method-assign]
    assert sweep(site) == 1
    assert answered == [site.row(S1).physical]
    row = site.row(S2)
    assert site.node.prover.found(partition_of(row.physical), row.physical) is not None


def test_of_very_many_series_the_devices_are_kept(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.superseding.partition_proof._MOST_RANGES", 2)
    site.round({S1: {"a": {1: 1}, "b": {3: 1}, "c": {2: 1, 9: 1}}, S2: {"a": {50: 1}}})
    site.round({}, [S1])
    assert sweep(site) == 0
    row = site.row(S1)
    found = site.node.prover.found(partition_of(row.physical), row.physical)
    assert found is not None
    (one,) = found.exclusive
    assert (one.measurement, one.first, one.last, one.points) == ("", 1, 9, 4)
    for series in "abc":
        site.note(S2, series, 0, 9, floor=site.look)
    assert sweep(site) == 1


def test_a_deletion_made_after_a_compaction_holds_in_what_was_compacted(site: Site) -> None:
    site.round({S1: {"a": {1: 1, 2: 2}}, U1: {"a": {1: 3}}})
    before = site.look
    site.round({CROSS: {"a": {1: 3, 2: 2}}}, [S1, U1])
    site.note(CROSS, "a", 1, 1, floor=before)
    assert site.answer() == {("a", 2): 2}
    assert sweep(site) == 2
    site.node.engine.commit([records.FileDeleted(site.row(CROSS).physical, "operator")])
    assert site.answer() == {("a", 2): 2}, "it holds in what came back, too"


def test_files_that_were_changed_while_they_were_read_are_looked_at_again(
    site: Site, reading: SameProcess
) -> None:
    site.round({S1: {"a": {1: 1}}})
    site.round({PRODUCT: {"a": {1: 1}}}, [S1])
    ask = reading.ask

    def overtaken(asked, stopped):  # type: ignore[no-untyped-def]
        found = ask(asked, stopped)
        site.node.engine.commit([
            records.FileNamed(site.row(PRODUCT).physical, "sequence/root.sg/0/0/7-7-0-0.tsfile")
        ])  # fmt: skip
        return found

    reading.ask = overtaken  # type: ignore[method-assign]
    assert sweep(site) == 0
    reading.ask = ask  # type: ignore[method-assign]
    assert sweep(site) == 1


def test_times_in_slices_are_the_same_as_at_once(site: Site) -> None:
    many = {time: time for time in range(1000)}
    site.round({S1: {"a": many, "b": {5: 1, 900: 1}}, S2: {"a": {2000: 1}}})
    site.round({PRODUCT: {"a": many, "b": {5: 1, 900: 1}}}, [S1, S2])
    site.node.prover.work._most_points = 64
    assert sweep(site) == 1
    row = site.row(S2)
    assert site.node.prover.found(partition_of(row.physical), row.physical) is not None
