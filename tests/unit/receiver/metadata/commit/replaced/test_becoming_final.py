"""What was merged takes the place of its inputs for good where nothing can tell the two apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.errors import ConflictError, TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.model.ranks import LOWEST_LOOK, stands_above
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow
from tests.support.metadata import A, B, digest, load, path, physical, seen

DEVICE = "root.t.d1"
LOOKS = LOWEST_LOOK * 2
OUTPUTS = tuple(f"sequence/root.t/0/0/merged-7-{number}.tsfile" for number in (1, 2))


def name(number: int) -> str:
    return physical(path(f"{number}-{number}-0"), number)


def loads(number: int, first: int, last: int, look: int = 5, **changes: Any) -> records.FileLoaded:
    look += LOOKS
    logical = changes.pop("logical", path(f"{number}-{number}-0"))
    device = changes.pop("device", DEVICE)
    changes = {"content": f"{number}", "first_look": look, "closed_look": look} | changes
    return load(logical, number, devices={device: (first, last)}, **changes)


def output(number: int, first: int, last: int) -> records.CompactionOutput:
    ranges = [records.DeviceRange(DEVICE, first, last)]
    md5 = digest(f"out {number}")
    return records.CompactionOutput(OUTPUTS[number - 1], 10, md5, 4, ranges, first, last, 1, 10)


def compact(engine: Engine, *numbers: int, outputs: Sequence[records.CompactionOutput]) -> None:
    with engine.reading() as state:
        newest = state.newest
    engine.commit([records.FilesCompacted(7, newest, [name(each) for each in numbers], outputs)])


def retire(engine: Engine, *numbers: int, last: int = 9) -> None:
    engine.commit([records.FileRetired(name(each), LOOKS + last) for each in numbers])


def final(outputs: int = 1) -> records.CompactionFinal:
    made = [records.FinalOutput(each, digest(f"tail {each}")) for each in OUTPUTS[:outputs]]
    return records.CompactionFinal(7, made)


def row(engine: Engine, physical: str) -> FileRow:
    with engine.reading() as state:
        return state.files[physical]


def states(engine: Engine) -> dict[str, str]:
    with engine.reading() as state:
        return {each.physical: str(each.state) for each in state.files.values()}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "e") as engine:
        engine.commit([seen(), seen(B, "other")])
        yield engine


@pytest.fixture
def merged(engine: Engine) -> Engine:
    """Two files that overlap, of which the second came later, merged into one."""
    engine.commit([loads(1, 1, 9)])
    engine.commit([loads(2, 5, 29, look=7)])
    compact(engine, 1, 2, outputs=[output(1, 1, 29)])
    return engine


@pytest.fixture
def ended(merged: Engine) -> Engine:
    retire(merged, 1, 2)
    return merged


def test_outputs_are_retired_files_in_the_place_of_their_inputs(ended: Engine) -> None:
    with ended.reading() as state:
        before = state.file_table.listed.of(A)
    ended.commit([final()])
    made = row(ended, OUTPUTS[0])
    inputs = [row(ended, name(each)) for each in (1, 2)]
    assert (made.state, made.retired, made.sender, made.registered) == ("retired", True, A, True)
    assert made.rank[:4] == (inputs[1].rank.name, LOOKS + 7, LOOKS + 7, LOOKS + 9)
    assert all(stands_above(made.rank, each.rank) for each in inputs)
    assert [(each.state, each.rests) for each in inputs] == [("superseded", OUTPUTS[:1])] * 2
    with ended.reading() as state:
        assert state.file_table.listed.of(A) == before
        assert state.file_table.inventory(A, None, 9) == []
        assert list(state.compacted_table.holding()) == []
        assert state.compacted_table.at(state.newest) == []
        assert state.compacted_table.dissolved() == [], "their bytes would go"


def test_what_they_are_made_of_is_known_after_a_start_and_behind_the_inputs(
    tmp_path: Path, ended: Engine
) -> None:
    ended.commit([final()])
    loaded = max(row(ended, name(each)).created for each in (1, 2))
    contents = sorted((digest(f"{each}"), path(f"{each}-{each}-0")) for each in (1, 2))
    for reason in ("superseded", ""):
        for each in (1, 2):
            gone = name(each)
            ended.commit([
                records.FileDeleted(gone, "superseded") if reason else records.FileForgotten(gone)
            ])  # fmt: skip
    ended.checkpoint()
    ended.close()
    with Engine.open(tmp_path / "e") as engine, engine.reading() as state:
        maker = state.compacted_table.finals.maker(OUTPUTS[0])
        assert maker is not None
        assert sorted(maker.made_of) == contents
        assert maker.news == loaded
        md5, where = contents[0]
        assert state.compacted_table.finals.with_leaf(A, where, md5) == [maker]
        assert state.compacted_table.finals.with_leaf(B, where, md5) == []
        assert state.compacted_table.finals.with_leaf(A, where, contents[1][0]) == []
        assert set(state.files) == {OUTPUTS[0]}


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        ([records.FileReturned(name(2))], "holds no more|is live"),
        ([loads(3, 40, 49, look=6), loads(4, 1, 1, look=8)], "does not stand above|holds no more"),
        ([loads(3, 5, 6, look=8)], "does not stand above all of it"),
        ([loads(3, 5, 6, look=8), records.FileQuarantined(name(3), "rot")], "does not stand above"),
        ([records.OwnerSet(DEVICE, B, "moved")], "holds no more|went to another sender"),
        (
            [records.DeletesHeld("ab" * 16, A, "root.t", [name(1)], False, "too many")],
            "are held",
        ),
        (
            [records.QuarantinePut(A, path("8-8-0"), "d" * 32, 9, False, "no room")],
            "is in quarantine",
        ),
        (
            [
                records.DeletionsNoted(
                    A, path("8-8-0"), None, "mods", 0, b"DELETION,root.t.d1.s,1,5,6\n", 9,
                    applied=False,
                )
            ],
            "may be applied yet",
        ),
    ],
)  # fmt: skip
def test_they_do_not_become_files_where_something_may_come_between(
    ended: Engine, ops: list[records.Op], why: str
) -> None:
    for op in ops:
        ended.commit([op])
    before = states(ended)
    with pytest.raises(TsferryError, match=f"{why}|no compaction 7"):
        ended.commit([final()])
    assert states(ended) == before


def test_nor_while_one_is_at_the_edge(merged: Engine) -> None:
    retire(merged, 1)
    with pytest.raises(ConflictError, match="is live"):
        merged.commit([final()])


def test_nor_where_others_ended_below_and_may_come_back(engine: Engine) -> None:
    engine.commit([loads(1, 1, 9), records.FileRetired(name(1), LOOKS + 6)])
    engine.commit([loads(2, 1, 9, look=7)])
    engine.commit([records.FileSuperseded(name(1), [name(2)])])
    compact(engine, 2, outputs=[output(1, 1, 9)])
    retire(engine, 2)
    with pytest.raises(ConflictError, match="does not stand above all of it"):
        engine.commit([final()])
    engine.commit([records.FileDeleted(name(1), "superseded")])
    with pytest.raises(ConflictError, match="does not stand above all of it"):
        engine.commit([final()])
    engine.commit([records.FileForgotten(name(1))])
    engine.commit([final()])
    assert states(engine) == {OUTPUTS[0]: "retired", name(2): "superseded"}


def test_nor_where_the_ends_that_were_told_lie_before_the_looks(engine: Engine) -> None:
    engine.commit([loads(1, 1, 9, look=7)])
    retire(engine, 1, last=6)
    compact(engine, 1, outputs=[output(1, 1, 9)])
    with pytest.raises(ConflictError, match="behind the ends of all"):
        engine.commit([final()])


def test_a_file_that_ended_above_is_no_hindrance(ended: Engine) -> None:
    ended.commit([loads(3, 5, 6, look=8)])
    ended.commit([records.FileRetired(name(3), LOOKS + 9)])
    ended.commit([final()])
    above, made = row(ended, name(3)), row(ended, OUTPUTS[0])
    assert stands_above(above.rank, made.rank)


def test_a_file_that_comes_between_too_late_is_refused_by_name(ended: Engine) -> None:
    ended.commit([final()])
    before = states(ended)
    for late in (
        loads(3, 5, 6, look=9, logical=path("1-1-0", kind="sequence").replace("1-1", "3-0")),
        loads(1, 5, 6, look=4, logical=path("9-9-0")),
        loads(4, 5, 6, look=6),
    ):
        with pytest.raises(ConflictError, match="merged for good") as refused:
            ended.commit([late])
        assert refused.value.extra["file"] == OUTPUTS[0]
    assert states(ended) == before
    ended.commit([loads(3, 40, 49, look=6)])  # apart
    ended.commit([loads(4, 5, 6, look=8)])  # above all, by its name
    ended.commit([loads(5, 5, 6, look=10, logical=path("1-0-0"))])  # first looked at later
    ended.commit([loads(6, 5, 6, look=1 - LOOKS, logical=path("copy"))])  # loaded below all
    made = row(ended, OUTPUTS[0]).rank
    assert [stands_above(row(ended, each).rank, made) for each in
            (name(4), physical(path("1-0-0"), 5), physical(path("copy"), 6))] == [
        True, True, False]  # fmt: skip


def test_a_bad_output_falls_back_to_its_inputs_with_all_others(engine: Engine) -> None:
    engine.commit([loads(1, 1, 9), loads(2, 5, 29)])
    compact(engine, 1, 2, outputs=[output(1, 1, 9), output(2, 10, 29)])
    retire(engine, 1, 2)
    engine.commit([final(2)])
    engine.commit([records.FileQuarantined(OUTPUTS[0], "rot")])
    assert states(engine) == {
        name(1): "retired", name(2): "retired", OUTPUTS[0]: "deleted", OUTPUTS[1]: "deleted",
    }  # fmt: skip
    with engine.reading() as state:
        assert state.file_table.lost() == []


def test_a_bad_output_whose_inputs_are_gone_is_lost_and_the_others_come_back(ended: Engine) -> None:
    ended.commit([final()])
    ended.commit([records.FileDeleted(name(1), "superseded")])
    ended.commit([records.FileQuarantined(OUTPUTS[0], "rot")])
    assert states(ended) == {
        name(1): "deleted", name(2): "retired", OUTPUTS[0]: "quarantined",
    }  # fmt: skip
    with ended.reading() as state:
        assert [each.physical for each in state.file_table.lost()] == [OUTPUTS[0]]


def test_an_input_comes_back_only_with_the_end_of_what_it_is_in(ended: Engine) -> None:
    ended.commit([final()])
    with pytest.raises(RefusedCommitError, match="merged for good"):
        ended.commit([records.FileRevived(name(1))])
    ended.commit([records.FileDeleted(OUTPUTS[0], "operator")])
    assert row(ended, name(1)).state is FileState.RETIRED


def test_what_a_proof_rests_on_a_merged_file_and_others_comes_back_with_one_of_them(
    ended: Engine,
) -> None:
    ended.commit([final()])
    ended.commit([loads(3, 5, 40, look=8, logical=path("9-9-0")), loads(4, 35, 40, look=12)])
    below = physical(path("9-9-0"), 3)
    ended.commit([records.FileRetired(below, LOOKS + 11)])
    ended.commit([records.FileSuperseded(below, [OUTPUTS[0], name(4)])])
    ended.commit([records.FileQuarantined(name(4), "rot")])
    assert row(ended, below).state is FileState.RETIRED


def test_what_files_are_made_of_is_forgotten_behind_them(ended: Engine) -> None:
    ended.commit([final()])
    with pytest.raises(RefusedCommitError, match="files are known"):
        ended.commit([records.CompactionForgotten(7)])
    ended.commit([records.FileDeleted(OUTPUTS[0], "operator")])
    with pytest.raises(RefusedCommitError, match="files are known"):
        ended.commit([records.CompactionForgotten(7)])
    ended.commit([records.FileForgotten(OUTPUTS[0])])
    ended.commit([records.CompactionForgotten(7)])
    with ended.reading() as state:
        assert state.compacted_table.rows == {}
        assert state.compacted_table.finals.maker(OUTPUTS[0]) is None


def test_merged_files_come_by_a_merge_alone_and_with_nothing_else(ended: Engine) -> None:
    with pytest.raises(RefusedCommitError, match="called as merged files are"):
        ended.commit([loads(3, 40, 41, physical="sequence/root.t/0/0/merged-9-1.tsfile")])
    with pytest.raises(RefusedCommitError, match="makes a compaction final"):
        ended.commit([final(), loads(3, 40, 41)])
    with pytest.raises(RefusedCommitError, match="with other changes"):
        ended.commit([loads(3, 40, 41), final()])
    with pytest.raises(RefusedCommitError, match="outputs are others"):
        ended.commit([final(2)])


def test_a_file_of_another_partition_is_looked_at_where_it_reaches_over(ended: Engine) -> None:
    """A flat layout, or another interval: its name says partition 1, its times are of 0."""
    there = "sequence/root.t/0/1/5-5-0.tsfile"
    early = loads(5, 8, 60, look=6, logical=there)
    apart = loads(6, 40, 60, look=6, logical="sequence/root.t/0/1/6-6-0.tsfile")
    ended.commit([apart])
    ended.commit([final()])
    with pytest.raises(ConflictError, match="stands between files that were merged for good"):
        ended.commit([early])
    ended.commit([loads(7, 8, 60, look=11, logical="sequence/root.t/0/1/7-7-0.tsfile")])


@pytest.mark.parametrize("hidden", [False, True])
def test_what_another_partition_has_of_its_times_keeps_it_from_being_final(
    ended: Engine, hidden: bool
) -> None:
    there = "sequence/root.t/0/1/6-6-0.tsfile"
    ended.commit([loads(6, 28, 60, look=20, logical=there)])
    if hidden:
        ended.commit([records.FileQuarantined(physical(there, 6), "rot")])
    with pytest.raises(ConflictError, match="of another partition overlaps it"):
        ended.commit([final()])


def test_a_final_output_is_merged_again_as_any_file(ended: Engine) -> None:
    ended.commit([final()])
    ended.commit([loads(3, 5, 6, look=10)])
    retire(ended, 3, last=12)
    with ended.reading() as state:
        newest = state.newest
    ended.commit([records.FilesCompacted(8, newest, [OUTPUTS[0], name(3)], [output(2, 1, 29)])])
    ended.commit([records.CompactionFinal(8, [records.FinalOutput(OUTPUTS[1], digest("t"))])])
    assert states(ended) == {
        name(1): "superseded", name(2): "superseded", name(3): "superseded",
        OUTPUTS[0]: "superseded", OUTPUTS[1]: "retired",
    }  # fmt: skip
    assert row(ended, OUTPUTS[1]).rank[:4] == (
        row(ended, name(3)).rank.name, LOOKS + 10, LOOKS + 10, LOOKS + 12)  # fmt: skip
    with ended.reading() as state:
        maker = state.compacted_table.finals.maker(OUTPUTS[1])
        assert maker is not None
        assert len(maker.made_of) == 3
    ended.commit([records.FileQuarantined(OUTPUTS[1], "rot")])
    assert states(ended)[OUTPUTS[0]] == states(ended)[name(3)] == "retired"
    assert states(ended)[name(1)] == "superseded"


def verdict(*outputs: records.CompactionOutput, ident: int = 7) -> records.CompactionVerified:
    read = [records.VerifiedOutput(each.physical, each.size, each.md5) for each in outputs]
    return records.CompactionVerified(ident, read, "receiver")


def compaction(engine: Engine, ident: int = 7) -> CompactedRow:
    with engine.reading() as state:
        return state.compacted_table.rows[ident]


def test_that_it_was_compared_is_known_after_a_start_with_and_without_a_checkpoint(
    tmp_path: Path, merged: Engine
) -> None:
    assert compaction(merged).verified == 0, "a log without a verdict has none"
    at = merged.commit([verdict(output(1, 1, 29))])
    merged.close()
    for number in range(3):
        with Engine.open(tmp_path / "e") as again:
            row = compaction(again)
            assert (row.verified, row.verifier) == (at, "receiver")
            if number == 0:
                again.checkpoint()
            else:
                retire(again, number)
    with Engine.open(tmp_path / "e") as again:
        again.commit([final()])
        assert compaction(again).verified == at


def test_a_verdict_is_of_the_very_bytes_that_readers_are_given(merged: Engine) -> None:
    made = output(1, 1, 29)
    for other in (
        [],
        [msgspec.structs.replace(made, size=11)],
        [msgspec.structs.replace(made, md5=digest("other"))],
        [msgspec.structs.replace(made, physical=OUTPUTS[1])],
        [made, output(2, 30, 31)],
    ):
        with pytest.raises(RefusedCommitError, match="its outputs are others"):
            merged.commit([verdict(*other)])
    with pytest.raises(RefusedCommitError, match="no compaction 8 that holds"):
        merged.commit([verdict(made, ident=8)])
    assert compaction(merged).verified == 0


def test_what_is_merged_anew_needs_a_verdict_anew(merged: Engine) -> None:
    made = output(1, 1, 29)
    merged.commit([verdict(made)])
    merged.commit([records.CompactionDissolved(7, "late data")])
    with pytest.raises(RefusedCommitError, match="no compaction 7 that holds"):
        merged.commit([verdict(made)])
    again = msgspec.structs.replace(made, physical=OUTPUTS[0].replace("-7-", "-8-"))
    with merged.reading() as state:
        newest = state.newest
    merged.commit([records.FilesCompacted(8, newest, [name(1), name(2)], [again])])
    assert compaction(merged, 8).verified == 0
    with pytest.raises(RefusedCommitError, match="its outputs are others"):
        merged.commit([verdict(made, ident=8)])


def test_a_verdict_that_came_with_what_changes_an_input_is_worth_nothing(merged: Engine) -> None:
    merged.commit([verdict(output(1, 1, 29)), records.FileQuarantined(name(1), "bad")])
    assert compaction(merged).dissolved
    with pytest.raises(RefusedCommitError, match="no compaction 7 that holds"):
        merged.commit([final()])
