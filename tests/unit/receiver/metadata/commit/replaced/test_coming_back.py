"""What a proof hid comes back by the commit that takes the proof away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from receiver.metadata.commit.draft import examine
from receiver.metadata.commit.guards import Guard
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.metadata.model.records import FileOrigin
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.packed_file import whole
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.file_tables.retired import PartitionKey
from tests.support.metadata import load, path, physical, seen

PARTITION = PartitionKey("root.t", "0", "0")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "e") as engine:
        engine.commit([seen()])
        yield engine


def name(number: int) -> str:
    return physical(path(f"{number}-{number}-0"), number)


def loaded(engine: Engine, *numbers: int, first_look: int = 1) -> None:
    for number in numbers:
        looks = {"first_look": first_look, "closed_look": first_look}
        engine.commit([load(path(f"{number}-{number}-0"), number, **looks)])


def retire(engine: Engine, *numbers: int, last: int = 5) -> None:
    engine.commit([records.FileRetired(name(each), last) for each in numbers])


def rest(engine: Engine, number: int, *on: int) -> int:
    return engine.commit([records.FileSuperseded(name(number), [name(each) for each in on])])


def row(engine: Engine, number: int) -> FileRow:
    with engine.reading() as state:
        return state.files[name(number)]


def state_of(engine: Engine, number: int) -> FileState:
    return row(engine, number).state


def test_what_rests_on_a_file_that_goes_into_quarantine_comes_back_with_it(engine: Engine) -> None:
    loaded(engine, 1, 2)
    retire(engine, 1)
    rest(engine, 1, 2)
    ts = engine.commit([records.FileQuarantined(name(2), "rot")])
    assert state_of(engine, 1) is FileState.RETIRED
    assert row(engine, 1).changed == ts
    assert row(engine, 1).rank.last == 5, "a proof and its end change no rank"


@pytest.mark.parametrize("reason", ["operator", "gone", "replaced"])
def test_what_rests_on_a_deleted_file_comes_back_with_it(engine: Engine, reason: str) -> None:
    loaded(engine, 1, 2)
    retire(engine, 1)
    rest(engine, 1, 2)
    engine.commit([records.FileDeleted(name(2), reason)])  # type: ignore[arg-type]
    assert state_of(engine, 1) is FileState.RETIRED


@pytest.mark.parametrize("order", [(2, 3), (3, 2)])
def test_what_rests_on_two_that_go_together_comes_back(
    engine: Engine, order: tuple[int, int]
) -> None:
    loaded(engine, 1, 2, 3)
    retire(engine, 1, 2)
    rest(engine, 1, 2)
    rest(engine, 2, 3)
    engine.commit([records.FileDeleted(name(each), "gone") for each in order])
    assert state_of(engine, 1) is FileState.RETIRED


def test_a_file_past_its_ttl_brings_nothing_back(engine: Engine) -> None:
    loaded(engine, 1, 2, 3)
    retire(engine, 1)
    rest(engine, 1, 2, 3)
    engine.commit([records.FileDeleted(name(2), "expired")])
    assert row(engine, 1).state is FileState.SUPERSEDED
    assert row(engine, 1).rests == (name(3),)


def test_a_proof_of_the_upper_file_itself_brings_nothing_back_and_its_end_brings_the_next(
    engine: Engine,
) -> None:
    loaded(engine, 1, 2, 3)
    retire(engine, 1, 2)
    rest(engine, 1, 2)
    rest(engine, 2, 3)
    assert state_of(engine, 1) is FileState.SUPERSEDED
    engine.commit([records.FileQuarantined(name(3), "rot")])
    assert state_of(engine, 2) is FileState.RETIRED
    assert state_of(engine, 1) is FileState.SUPERSEDED


def test_coming_back_goes_on_through_files_whose_bytes_are_gone(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "e") as engine:
        engine.commit([seen()])
        loaded(engine, 1, 2, 3, 4)
        retire(engine, 1, 2, 3)
        rest(engine, 1, 2)
        rest(engine, 2, 3)
        rest(engine, 3, 4)
        for number in (2, 3):
            engine.commit([records.FileDeleted(name(number), "superseded")])
            engine.commit([records.FileForgotten(name(number))])
        assert row(engine, 1).rests == (name(4),)
        engine.checkpoint()
    with Engine.open(tmp_path / "e") as engine:
        with engine.reading() as state:
            assert [each.physical for each in state.file_table.resting_on(name(4))] == [name(1)]
            assert list(state.file_table.gone.superseded()) == [name(1)]
        engine.commit([records.FileDeleted(name(4), "operator")])
        assert state_of(engine, 1) is FileState.RETIRED


def test_a_proof_ends_where_the_upper_file_is_found_to_have_ended_before_the_lower_came(
    engine: Engine,
) -> None:
    loaded(engine, 1, first_look=4)
    loaded(engine, 2, 3, first_look=1)
    retire(engine, 1)
    rest(engine, 1, 2, 3)
    retire(engine, 2, last=4)
    assert state_of(engine, 1) is FileState.SUPERSEDED
    retire(engine, 3, last=3)
    assert state_of(engine, 1) is FileState.RETIRED


def test_a_file_that_changes_its_name_in_one_commit_supports_what_it_still_stands_above(
    engine: Engine,
) -> None:
    loaded(engine, 1, 3)
    retire(engine, 1)
    rest(engine, 1, 3)
    higher, lower = path("4-4-0"), path("0-0-0")

    def renamed(before: str, after: str, first_look: int = 0) -> list[records.Op]:
        gone = records.FileUnnamed(name(3), before, first_look)
        return [records.FileNamed(name(3), after), gone]

    engine.commit(renamed(path("3-3-0"), higher))
    assert state_of(engine, 1) is FileState.SUPERSEDED
    engine.commit(renamed(higher, lower, first_look=6))
    assert state_of(engine, 1) is FileState.SUPERSEDED, "it stands above what ended before"
    engine.commit(renamed(lower, higher))
    assert state_of(engine, 1) is FileState.SUPERSEDED


def test_a_file_that_gets_a_higher_name_and_loses_its_own_stands_where_that_does(
    engine: Engine,
) -> None:
    loaded(engine, 4, first_look=5)
    loaded(engine, 5, first_look=7)
    retire(engine, 4, last=6)
    rest(engine, 4, 5)
    higher, highest = path("6-6-0"), path("7-7-0")
    engine.commit(
        [records.FileNamed(name(5), higher, 8), records.FileUnnamed(name(5), path("5-5-0"))]
    )
    assert row(engine, 5).rank.first == 8
    assert state_of(engine, 4) is FileState.SUPERSEDED
    engine.commit([records.FileNamed(name(5), highest, 9)])
    assert row(engine, 5).paths == (highest, higher)
    engine.commit([records.FileUnnamed(name(5), highest, 9)])
    assert row(engine, 5).paths == (higher,)


def test_a_file_that_gets_a_lower_name_in_one_commit_supports_nothing(engine: Engine) -> None:
    loaded(engine, 2, 3)
    retire(engine, 2)
    rest(engine, 2, 3)
    named = records.FileNamed(name(3), path("1-1-0"))
    engine.commit([named, records.FileUnnamed(name(3), path("3-3-0"))])
    assert state_of(engine, 2) is FileState.RETIRED


def test_a_file_that_returns_under_a_lower_name_supports_nothing(engine: Engine) -> None:
    loaded(engine, 2, 3)
    retire(engine, 2, 3)
    rest(engine, 2, 3)
    engine.commit([records.FileReturned(name(3), path("1-1-0"))])
    assert state_of(engine, 2) is FileState.RETIRED


def test_a_proof_needs_visible_files_that_are_as_they_were_read(engine: Engine) -> None:
    loaded(engine, 1, 2)
    retire(engine, 1)
    before = row(engine, 2)
    engine.commit([records.FileNamed(name(2), path("9-9-0"))])
    with pytest.raises(GuardFailed):
        engine.commit(
            [records.FileSuperseded(name(1), [name(2)])],
            [Guard("file", before.physical, before.changed)],
        )
    engine.commit([records.FileQuarantined(name(2), "rot")])
    with pytest.raises(RefusedCommitError, match="quarantined"):
        rest(engine, 1, 2)
    assert state_of(engine, 1) is FileState.RETIRED


def test_what_the_caller_brings_back_or_deletes_itself_is_not_brought_back_twice(
    engine: Engine,
) -> None:
    loaded(engine, 1, 2, 3)
    retire(engine, 1, 2)
    rest(engine, 1, 3)
    rest(engine, 2, 3)
    engine.commit([
        records.FileRevived(name(2)),
        records.FileDeleted(name(3), "operator"),
        records.FileDeleted(name(1), "operator"),
    ])  # fmt: skip
    assert state_of(engine, 1) is FileState.DELETED
    assert state_of(engine, 2) is FileState.RETIRED


def test_a_proof_and_the_quarantine_of_what_it_rests_on_never_pass_each_other(
    engine: Engine,
) -> None:
    for number in range(10, 60, 2):
        loaded(engine, number, number + 1)
        retire(engine, number)
        begin = threading.Barrier(2)

        def prove(number: int = number, begin: threading.Barrier = begin) -> None:
            begin.wait()
            with suppress(RefusedCommitError):
                rest(engine, number, number + 1)

        thread = threading.Thread(target=prove)
        thread.start()
        begin.wait()
        engine.commit([records.FileQuarantined(name(number + 1), "rot")])
        thread.join()
        assert state_of(engine, number) is FileState.RETIRED


@pytest.mark.parametrize(
    "op",
    [
        records.FileQuarantined(name(2), "rot"),
        records.FileDeleted(name(2), "operator"),
        records.FileRetired(name(2), 3),
    ],
)
def test_a_proof_and_the_end_of_what_it_rests_on_are_never_in_one_batch(
    engine: Engine, op: records.Op
) -> None:
    loaded(engine, 1, 2)
    retire(engine, 1)
    with engine.reading() as state:
        proof = examine(state, [records.FileSuperseded(name(1), [name(2)])])
        end = examine(state, [op])
    assert not proof.allows(end)
    assert not end.allows(proof)


def test_a_row_of_before_there_were_looks_keeps_its_place_through_a_proof(engine: Engine) -> None:
    loaded(engine, 1, 2, first_look=0)
    retire(engine, 1, last=0)
    with engine.reading() as state:
        older = msgspec.structs.replace(whole(row(engine, 1)), last_look=0)
        state.files.young[name(1)] = older
    last = older.rank.last
    rest(engine, 1, 2)
    assert row(engine, 1).rank.last == last
    engine.commit([records.FileRevived(name(1))])
    assert row(engine, 1).rank.last == last
    engine.commit([records.FileQuarantined(name(1), "rot")])
    assert row(engine, 1).rank.last == last


def test_counts_of_what_is_retired_and_superseded_follow(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "e") as engine:
        engine.commit([seen()])
        loaded(engine, 1, 2, 3)
        retire(engine, 1, 2)
        rest(engine, 1, 3)
        size = row(engine, 1).size
        engine.checkpoint()
    with Engine.open(tmp_path / "e") as engine, engine.reading() as state:
        gone = state.file_table.gone
        assert (gone.retired_files, gone.retired_bytes) == (1, size)
        assert (gone.superseded_files, gone.superseded_bytes) == (1, size)
        assert gone.where() == [PARTITION]
        there = state.file_table.partition(*PARTITION)
        assert [row.physical for row in there if row.retired] == [name(2)]


def test_the_past_shows_what_a_proof_hid_later_and_what_came_back(engine: Engine) -> None:
    loaded(engine, 1, 2)
    retire(engine, 1)
    visible = engine.newest_commit
    hidden = rest(engine, 1, 2)
    engine.commit([records.FileQuarantined(name(2), "rot")])

    def at(ts: int) -> list[str]:
        return [each.physical for each in files_at(engine, ts).visible]

    assert at(visible) == [name(1), name(2)]
    assert at(hidden) == [name(2)]
    assert at(engine.newest_commit) == [name(1)]


def origin(number: int, first: int, last: int = 0, kind: str = "unsequence") -> FileOrigin:
    at = path(f"{number}-{number}-0").replace("sequence", kind, 1)
    looks = records.OriginLooks("b" * 32, first, first, last, 3, at)
    return FileOrigin("a" * 32, at, [looks])


def test_a_forwarded_file_that_stands_lower_below_supports_nothing(engine: Engine) -> None:
    """Two late files: the lower one ended below in look 5, and the upper one is made anew in 6."""

    for number in (2, 3):
        engine.commit([load(path(f"{number}-{number}-0"), number, origin=origin(number, 1))])
    engine.commit([records.OriginNoted(name(2), origin(2, 1, last=5))])
    retire(engine, 2)
    rest(engine, 2, 3)
    engine.commit([records.OriginNoted(name(3), origin(3, 6, kind="sequence"))])
    assert state_of(engine, 2) is FileState.SUPERSEDED, "it stands above what ended before"
    engine.commit([records.OriginNoted(name(3), origin(3, 4, kind="sequence"))])
    assert state_of(engine, 2) is FileState.RETIRED
    with pytest.raises(RefusedCommitError):
        engine.commit([records.OriginNoted(name(3), FileOrigin("a" * 32, path("3-3-0"), []))])
    with pytest.raises(RefusedCommitError):
        engine.commit([records.OriginNoted(name(9), origin(9, 1))])


@pytest.mark.parametrize("looks", [(4, 6), (6, 4)])
def test_what_is_told_twice_of_a_file_in_one_commit_supports_nothing_unless_both_do(
    engine: Engine, looks: tuple[int, int]
) -> None:
    for number in (2, 3):
        engine.commit([load(path(f"{number}-{number}-0"), number, origin=origin(number, 1))])
    engine.commit([records.OriginNoted(name(2), origin(2, 1, last=5))])
    retire(engine, 2)
    rest(engine, 2, 3)
    engine.commit([records.OriginNoted(name(3), origin(3, 6, kind="sequence"))])
    both = [origin(3, each, kind="sequence") for each in looks]
    engine.commit([records.OriginNoted(name(3), each) for each in both])
    assert state_of(engine, 2) is FileState.RETIRED
    assert row(engine, 3).origin == both[-1]
