"""What stands for files holds as long as it gives what they give, and no commit longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.errors import ConflictError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow
from tests.support.metadata import A, B, digest, load, path, physical, seen

OUTPUT = "sequence/root.t/0/0/merged-7-0.tsfile"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "e") as engine:
        engine.commit([seen(), seen(B, "other")])
        yield engine


def name(number: int) -> str:
    return physical(path(f"{number}-{number}-0"), number)


def loaded(engine: Engine, number: int, first: int, last: int, **changes: Any) -> None:
    device = changes.pop("device", "root.t.d1")
    changes = {"first_look": 5, "closed_look": 5} | changes
    logical = changes.pop("logical", path(f"{number}-{number}-0"))
    engine.commit([load(logical, number, devices={device: (first, last)}, **changes)])


def newest(engine: Engine) -> int:
    with engine.reading() as state:
        return state.newest


def compacted(engine: Engine, *numbers: int, ident: int = 7, **changes: Any) -> records.Op:
    output = records.CompactionOutput(
        f"sequence/root.t/0/0/merged-{ident}-0.tsfile",
        10,
        digest("out"),
        4,
        [records.DeviceRange("root.t.d1", 1, 29)],
        1,
        29,
        1,
        10,
    )
    op = records.FilesCompacted(ident, newest(engine), [name(each) for each in numbers], [output])
    return msgspec.structs.replace(op, **changes)


def compact(engine: Engine, *numbers: int, ident: int = 7) -> None:
    engine.commit([compacted(engine, *numbers, ident=ident)])


def row(engine: Engine, ident: int = 7) -> CompactedRow:
    with engine.reading() as state:
        return state.compacted_table.rows[ident]


@pytest.fixture
def two(engine: Engine) -> Engine:
    """Two files of a device, and what stands for them."""
    loaded(engine, 1, 1, 9)
    loaded(engine, 2, 20, 29)
    compact(engine, 1, 2)
    return engine


def test_what_stands_for_files_is_there_after_a_start_from_a_checkpoint(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "e") as engine:
        engine.commit([seen()])
        loaded(engine, 1, 1, 9)
        loaded(engine, 2, 20, 29)
        compact(engine, 1, 2)
        before = row(engine)
        engine.checkpoint()
    with Engine.open(tmp_path / "e") as engine, engine.reading() as state:
        again = state.compacted_table.rows[7]
        assert again == before
        assert again.inputs == [name(1), name(2)]
        assert list(again.outputs[0].devices.ranges()) == [("root.t.d1", 1, 29)]
        assert state.compacted_table.of_input(name(2)) is again
        assert state.compacted_table.of_input(name(3)) is None


@pytest.mark.parametrize(
    "op",
    [
        records.FileDeleted(name(1), "gone"),
        records.FileDeleted(name(1), "expired"),
        records.FileQuarantined(name(2), "rot"),
        records.FileNamed(name(2), path("3-3-0"), 9),
        records.FileRetired(name(1), 4),
        records.ListBegun(A, 9),
        records.OwnerSet("root.t.d1", B, "moved"),
        records.OwnerSet("root.t.d1", None, "released"),
        records.DeletionsNoted(A, path("1-1-0"), name(1), "mods", 0, b"x", 0),
        records.DeletionsNoted(
            A, path("9-9-0"), None, "mods", 0, b"DELETION,root.t.**,1,29,40\n", 5
        ),
        records.DeletionsNoted(A, path("9-9-0"), None, "mods2", 0, b"x", 5),
    ],
)
def test_a_commit_that_changes_what_inputs_give_dissolves(two: Engine, op: records.Op) -> None:
    ts = two.commit([op])
    assert row(two).dissolved == ts
    with two.reading() as state:
        assert not state.compacted_table.of_sender(A)
        assert [each.id for each in state.compacted_table.at(ts - 1)] == [7]
        assert not state.compacted_table.at(ts)


@pytest.mark.parametrize(
    "op",
    [
        records.FileRetired(name(1), 5),
        records.FileRetired(name(1)),
        records.FileVerified([name(1)]),
        records.FileNamed(name(2), path("3-3-0")),
        records.OwnerSet("root.t.d9", B, "another device"),
        records.DeletionsNoted(A, path("9-9-0"), None, "mods2", 0, b"x", 4),
        records.DeletionsNoted(A, path("9-9-0"), None, "mods2", 0, b"x", 5, False),
        records.DeletionsNoted(A, path("9-9-0", sg="root.u"), None, "mods2", 0, b"x", 5),
        records.DeletionsNoted(B, path("9-9-0"), None, "mods2", 0, b"x", 5),
        records.DeletionsNoted(
            A, path("9-9-0"), None, "mods", 0, b"DELETION,root.t.**,1,30,40\n", 5
        ),
    ],
)
def test_what_changes_no_answer_dissolves_nothing(two: Engine, op: records.Op) -> None:
    two.commit([op])
    assert not row(two).dissolved


def test_records_that_were_only_kept_dissolve_when_they_hide(two: Engine) -> None:
    noted = records.DeletionsNoted(
        A, path("1-1-0"), name(1), "mods", 0, b"x", 5, applied=False, kept=True
    )
    two.commit([noted])
    assert not row(two).dissolved
    two.commit([records.KeptRecordsApplied(A, path("1-1-0"), name(1), "mods", [1])])
    assert row(two).dissolved


@pytest.mark.parametrize("times", ["1,9", "30,40"])
def test_a_deletion_file_that_begins_anew_gives_points_back(engine: Engine, times: str) -> None:
    """Be it points that are in no output, since they were deleted when it was made."""
    before = f"DELETION,root.t.d1.*,1,{times}\n".encode()
    loaded(engine, 1, 1, 9)
    loaded(engine, 2, 20, 45)
    engine.commit([records.DeletionsNoted(A, path("1-1-0"), name(1), "mods", 0, before, 5)])
    compact(engine, 1, 2)
    engine.commit([records.DeletionsNoted(A, path("1-1-0"), name(1), "mods", 0, b"y", 0, False)])
    assert row(engine).dissolved


def test_what_comes_between_inputs_dissolves_and_what_stands_above_does_not(two: Engine) -> None:
    loaded(two, 3, 5, 25)  # a higher version: above both
    assert not row(two).dissolved
    loaded(two, 4, 10, 19, logical=path("0-0-0"))  # below, between their times
    assert not row(two).dissolved
    loaded(two, 5, 25, 26, logical=path("4-1-0"))  # above the first, below the second
    assert row(two).dissolved


def test_the_end_of_an_input_dissolves_where_another_had_ended_before_one_came(
    engine: Engine,
) -> None:
    """Their order may have circles, and of a circle the one that was listed longest counts."""
    loaded(engine, 1, 1, 9)
    engine.commit([records.FileRetired(name(1), 6)])
    loaded(engine, 2, 5, 29, first_look=7, closed_look=7)
    compact(engine, 1, 2)
    engine.commit([records.FileRetired(name(2), 8)])
    assert row(engine).dissolved


def test_a_file_of_another_sender_with_a_device_dissolves(two: Engine) -> None:
    two.commit([records.OwnerSet("root.t.d1", None, "released")])
    compact(two, 1, 2, ident=8)
    loaded(two, 3, 50, 60, sender=B)
    assert row(two, 8).dissolved


@pytest.mark.parametrize("state", ["quarantined", "superseded", "deleted"])
def test_a_file_that_is_visible_again_dissolves_what_has_its_device(
    engine: Engine, state: str
) -> None:
    loaded(engine, 3, 5, 25)
    engine.commit([records.FileRetired(name(3), 7)])
    hidden: dict[str, tuple[records.Op, records.Op]] = {
        "quarantined": (records.FileQuarantined(name(3), "rot"), records.FileRestored(name(3))),
        "superseded": (records.FileSuperseded(name(3), ()), records.FileRevived(name(3))),
        "deleted": (
            records.FileDeleted(name(3), "gone"),
            records.FileUndeleted(name(3), [records.DeviceRange("root.t.d1", 5, 25)]),
        ),
    }
    out, back = hidden[state]
    engine.commit([out])
    loaded(engine, 1, 1, 9)
    loaded(engine, 2, 20, 29)
    compact(engine, 1, 2)
    engine.commit([back])
    assert row(engine).dissolved


def test_what_is_said_of_a_file_that_nobody_knows_is_refused_by_name(two: Engine) -> None:
    origin = records.FileOrigin(A, path("9-9-0"), [])
    for op in (
        records.FileUndeleted(name(9), [records.DeviceRange("root.t.d1", 5, 25)]),
        records.OriginNoted(name(9), origin),
        records.FileRestored(name(9)),
        records.FileRetired(name(9), 4),
    ):
        with pytest.raises(RefusedCommitError, match="there is no file"):
            two.commit([op])
    assert not row(two).dissolved


def test_inputs_taken_in_anew_leave_what_stood_for_them(two: Engine) -> None:
    loaded(two, 3, 25, 28)
    ts = two.commit([compacted(two, 1, 2, 3, ident=8)])
    assert row(two).dissolved == ts
    assert not row(two, 8).dissolved


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"at": 1}, ConflictError),
        ({"inputs": [name(1), name(1)]}, RefusedCommitError),
        ({"inputs": []}, RefusedCommitError),
        ({"inputs": [name(1), name(9)]}, ConflictError),
        ({"id": 0}, RefusedCommitError),
        ({"output": {"physical": "sequence/root.t/0/1/merged-7-0.tsfile"}}, RefusedCommitError),
        ({"output": {"physical": "sequence/root.t/0/0/1-1-0-0.tsfile"}}, RefusedCommitError),
        ({"output": {"md5": "none"}}, RefusedCommitError),
        ({"output": {"size": -1}}, RefusedCommitError),
        ({"output": {"points": 21}}, RefusedCommitError),
        ({"output": {"last": 28}}, RefusedCommitError),
        ({"output": {"last": None}}, RefusedCommitError),
        ({"output": {"devices": [records.DeviceRange("root.t.d2", 1, 29)]}}, RefusedCommitError),
        ({"twice": True}, RefusedCommitError),
    ],
)
def test_what_cannot_stand_for_its_inputs_is_refused(
    engine: Engine, change: dict[str, Any], error: type[Exception]
) -> None:
    loaded(engine, 1, 1, 9)
    loaded(engine, 2, 20, 29)
    op = compacted(engine, 1, 2)
    assert isinstance(op, records.FilesCompacted)
    outputs = [msgspec.structs.replace(op.outputs[0], **change.pop("output", {}))]
    if change.pop("twice", False):
        outputs *= 2
    with pytest.raises(error):
        engine.commit([msgspec.structs.replace(op, outputs=outputs, **change)])
    with engine.reading() as state:
        assert not state.compacted_table.rows


def test_an_id_and_a_name_are_taken_once(two: Engine) -> None:
    with pytest.raises(RefusedCommitError):
        two.commit([compacted(two, 1, 2)])
    op = compacted(two, 1, 2, ident=8)
    assert isinstance(op, records.FilesCompacted)
    outputs = [msgspec.structs.replace(op.outputs[0], physical=OUTPUT)]
    with pytest.raises(RefusedCommitError):
        two.commit([msgspec.structs.replace(op, outputs=outputs)])


@pytest.mark.parametrize("between", ["file", "deletion", "transfer", "other sender"])
def test_what_came_since_the_inputs_were_read_wins(engine: Engine, between: str) -> None:
    loaded(engine, 1, 1, 9)
    loaded(engine, 2, 20, 29)
    op = compacted(engine, 1, 2)
    if between == "file":
        loaded(engine, 3, 5, 25, logical=path("4-1-0"))
    elif between == "deletion":
        engine.commit([records.DeletionsNoted(A, path("9-9-0"), None, "mods2", 0, b"x", 5)])
    elif between == "transfer":
        engine.commit([records.OwnerSet("root.t.d1", B, "moved")])
    else:
        engine.commit([records.OwnerSet("root.t.d1", None, "released")])
        loaded(engine, 3, 50, 60, sender=B)
    with pytest.raises(ConflictError):
        engine.commit([op])


def test_what_came_since_and_stands_above_is_no_hindrance(engine: Engine) -> None:
    loaded(engine, 1, 1, 9)
    loaded(engine, 2, 20, 29)
    op = compacted(engine, 1, 2)
    loaded(engine, 3, 5, 25)
    loaded(engine, 4, 5, 25, sender=B, device="root.t.d3")
    engine.commit([op])
    assert not row(engine).dissolved


def test_inputs_of_two_senders_or_partitions_are_refused(engine: Engine) -> None:
    loaded(engine, 1, 1, 9)
    loaded(engine, 2, 20, 29, sender=B, device="root.t.d2")
    with pytest.raises(RefusedCommitError):
        engine.commit([compacted(engine, 1, 2)])
    far = path("3-3-0", part=1)
    loaded(engine, 3, 30, 31, logical=far)
    op = compacted(engine, 1, inputs=[name(1), physical(far, 3)])
    with pytest.raises(RefusedCommitError):
        engine.commit([op])


@pytest.mark.parametrize("first", [True, False])
def test_a_compaction_has_its_commit_for_itself(engine: Engine, first: bool) -> None:
    loaded(engine, 1, 1, 9)
    loaded(engine, 2, 20, 29)
    ops = [compacted(engine, 1, 2), records.FileDeleted(name(1), "gone")]
    with pytest.raises(RefusedCommitError):
        engine.commit(ops if first else ops[::-1])


def test_only_what_is_dissolved_is_forgotten_and_once(two: Engine) -> None:
    with pytest.raises(RefusedCommitError):
        two.commit([records.CompactionForgotten(7)])
    two.commit([records.CompactionDissolved(7, "damaged")])
    with pytest.raises(RefusedCommitError):
        two.commit([records.CompactionDissolved(7, "damaged")])
    with two.reading() as state:
        assert [each.reason for each in state.compacted_table.dissolved()] == ["damaged"]
    two.commit([records.CompactionForgotten(7)])
    with two.reading() as state:
        assert not state.compacted_table.rows


def test_what_an_edge_brings_beside_ends_what_stands_for_loads_of_its_devices(
    engine: Engine,
) -> None:
    """A file of another partition may have their times, and what was first looked at before."""
    centre = centre_uuid(engine.uuid)
    engine.commit([seen(centre, "centre")])
    for number in (1, 2):
        loaded(
            engine, number, number * 10, number * 10 + 9, sender=centre, owner=A,
            first_look=9, closed_look=9,
        )  # fmt: skip
    compact(engine, 1, 2)
    loaded(engine, 3, 12, 40, logical=path("3-3-0", part=1))
    assert row(engine).dissolved
