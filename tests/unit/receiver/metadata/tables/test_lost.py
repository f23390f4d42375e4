"""Files that neither side has any more: told by their sender, or in quarantine and gone."""

from __future__ import annotations

import pytest

from receiver.metadata.log.freeze import freeze, thaw
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.query.lost import lost_files, unknown_here
from receiver.metadata.state.state import State
from tests.support.committing import do, fresh, refuse
from tests.support.metadata import A, B, digest, load, path, physical, seen

P, Q = path("1-1-0"), path("2-2-0")
PHYS = physical(P, 1)


@pytest.fixture
def state() -> State:
    state = fresh()
    do(state, seen(), seen(B))
    return state


def lost(
    name: str = P, content: str = "x", *, sender: str = A, first: int | None = 1
) -> records.FileLost:
    size = 100 + len(content)
    last = None if first is None else 9
    return records.FileLost(sender, name, digest(content), size, first, last, "freed")


def paths(state: State, sender: str | None = None) -> list[str]:
    return [row.path for row in lost_files(state, sender)]


def thawed(state: State) -> State:
    """As a checkpoint gives it back."""
    from array import array

    frozen = freeze(state, lsn=1, commits=array("Q"), tags_end=0, segment=1, oldest=0)
    return thaw({name: memoryview(content) for name, content in frozen.sections()}).state


def test_what_no_row_knows_is_lost_until_it_is_acknowledged(state: State) -> None:
    do(state, lost())
    (row,) = lost_files(state)
    assert (row.path, row.first, row.last, row.reason) == (P, 1, 9, "freed")
    assert paths(state, B) == []
    do(state, records.LossAcknowledged(A, P, digest("x")))
    assert paths(state) == []
    assert unknown_here(state, [lost()]) == []  # told again, it stays acknowledged


def test_its_content_is_found_under_whatever_name_it_comes(state: State) -> None:
    do(state, lost(), lost(Q))
    do(state, load(path("3-3-0"), content="y"))
    assert paths(state) == [P, Q]
    do(state, load(path("4-4-0"), content="x"))
    assert paths(state) == []
    assert state.lost_table.rows == {}


def test_a_row_of_the_content_says_what_became_of_it(state: State) -> None:
    do(state, load())
    assert unknown_here(state, [lost(Q)]) == []
    do(state, records.FileDeleted(PHYS, "expired"))
    assert unknown_here(state, [lost(), lost(Q)]) == [lost(Q)]  # it came once more since
    do(state, records.FileForgotten(PHYS))
    assert unknown_here(state, [lost(), lost()]) == [lost()]
    assert unknown_here(state, [lost(sender=B)]) == [lost(sender=B)]


def test_a_quarantined_file_whose_end_comes_is_lost(state: State) -> None:
    do(state, load())
    do(state, records.FileQuarantined(PHYS, "bits"))
    assert paths(state) == []  # its sender may send it again
    do(state, records.FileRetired(PHYS))
    (row,) = lost_files(state, A)
    assert (row.path, row.physical, row.reason) == (P, PHYS, "bits")


def test_a_retired_file_that_is_found_bad_is_lost_and_found_good_is_not(state: State) -> None:
    do(state, load())
    do(state, records.FileRetired(PHYS))
    do(state, records.FileQuarantined(PHYS, "bits"))
    assert paths(state) == [P]
    do(state, records.LossAcknowledged(A, P, digest("x"), PHYS))
    assert paths(state) == []
    do(state, records.FileRestored(PHYS))
    assert state.lost_table.rows == {}
    do(state, records.FileQuarantined(PHYS, "bits again"))
    assert paths(state) == [P]  # what was acknowledged was another loss


def held(*files: str, of_records: bool = False) -> records.DeletesHeld:
    digest_of = ("cd" if of_records else "ab") * 16
    return records.DeletesHeld(digest_of, A, "root.t", files, of_records, "much", look=1)


def test_a_quarantined_file_whose_end_is_held_is_lost_as_well(state: State) -> None:
    do(state, load(), load(Q, 2, content="q"))
    do(state, records.FileQuarantined(PHYS, "bits"))
    do(state, held(PHYS, of_records=True))
    assert paths(state) == []  # its deletion file was told of; it may come again
    refuse(state, RefusedCommitError, "not lost", records.LossAcknowledged(A, P, digest("x"), PHYS))
    do(state, held(PHYS, physical(Q, 2)))
    assert paths(state) == [P]  # and not what is visible
    assert lost_files(thawed(state)) == lost_files(state)
    do(state, records.LossAcknowledged(A, P, digest("x"), PHYS))
    assert paths(state) == []
    do(state, records.DeletesSettled("ab" * 16, "drop", 0), records.FileRetired(PHYS))
    assert paths(state) == []  # what was acknowledged stays so
    do(state, records.FileRestored(PHYS), records.FileQuarantined(PHYS, "bits again"))
    assert paths(state) == [P]


def test_a_bad_file_whose_content_is_visible_elsewhere_is_not_lost(state: State) -> None:
    do(state, load())
    do(state, records.FileQuarantined(PHYS, "bits"), records.FileRetired(PHYS))
    do(state, load(Q, 2))
    assert paths(state) == []
    do(state, records.FileQuarantined(physical(Q, 2), "bits"))
    assert paths(state) == [P]


def test_what_is_lost_is_found_in_a_file_of_whoever_took_its_senders_place(state: State) -> None:
    do(state, load())
    do(state, records.FileQuarantined(PHYS, "bits"), records.FileRetired(PHYS))
    do(state, lost(path("9-9-0")))
    assert paths(state) == [P, path("9-9-0")]
    do(state, records.OwnerSet("root.t.d1", B, "replaced"))
    do(state, load(Q, 2, sender=B))
    assert paths(state) == []


def test_deleting_what_is_lost_ends_it(state: State) -> None:
    do(state, load())
    do(state, records.FileQuarantined(PHYS, "bits"), records.FileRetired(PHYS))
    do(state, records.LossAcknowledged(A, P, digest("x"), PHYS))
    do(state, records.FileDeleted(PHYS, "expired"))
    assert paths(state) == []
    assert state.lost_table.rows == {}


def test_a_checkpoint_keeps_what_is_lost_and_what_is_acknowledged(state: State) -> None:
    do(state, load())
    do(state, records.FileQuarantined(PHYS, "bits"), records.FileRetired(PHYS))
    do(state, load(Q, 2, content="q"))
    do(state, records.FileQuarantined(physical(Q, 2), "bits"), records.FileRetired(physical(Q, 2)))
    do(state, records.LossAcknowledged(A, Q, digest("q"), physical(Q, 2)))
    do(state, lost(path("3-3-0"), "z", first=None))
    other = thawed(state)
    assert lost_files(other) == lost_files(state)
    assert paths(other) == [P, path("3-3-0")]
    for each in (state, other):
        do(each, records.FileRestored(physical(Q, 2)))
    assert other.lost_table.rows == state.lost_table.rows


def test_rules(state: State) -> None:
    refuse(state, RefusedCommitError, "not known", lost(sender="cc" * 16))
    refuse(state, RefusedCommitError, "content", records.FileLost(A, P, "no md5", 1))
    refuse(state, RefusedCommitError, "content", records.FileLost(A, P, digest("x"), -1))
    refuse(state, RefusedCommitError, "range", records.FileLost(A, P, digest("x"), 1, 9, 1))
    refuse(state, RefusedCommitError, "lost already", lost(), lost())
    refuse(state, RefusedCommitError, "not lost", records.LossAcknowledged(A, P, digest("x")))
    do(state, load())
    op = records.LossAcknowledged(A, P, digest("x"), PHYS)
    refuse(state, RefusedCommitError, "live", op)
    do(state, records.FileQuarantined(PHYS, "bits"))
    refuse(state, RefusedCommitError, "not lost", op)
    do(state, records.FileRetired(PHYS))
    refuse(state, RefusedCommitError, "not lost", records.LossAcknowledged(A, Q, digest("x"), PHYS))
