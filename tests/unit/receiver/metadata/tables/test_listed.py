"""The sum of what a sender has listed follows every commit, and is what a new count gives."""

from __future__ import annotations

import random

import pytest

from common.digests import xxh3_128
from common.listed import KnownRecords, ListedSum, deletions_text
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import FileState
from tests.support.committing import do, fresh
from tests.support.metadata import A, B, load, path, physical, seen


def counted(state: State, sender: str = A) -> tuple[int, str]:
    """Counted anew from the rows."""
    made = ListedSum()
    for row in state.files.values():
        if row.sender == sender and row.state is FileState.LIVE:
            forms = {
                each.form: KnownRecords(len(each.content), xxh3_128(each.content).hex())
                for each in state.deletion_table.of_file(row.physical)
            }
            for each in row.paths:
                made.add(each, row.md5, deletions_text(forms))
    return made.files, made.digest


def noted(name: str, phys: str | None, content: bytes, base: int = 0) -> records.DeletionsNoted:
    return records.DeletionsNoted(A, name, phys, "mods", base, content, 0)


def _ops(chance: random.Random, state: State, tag: int) -> list[records.Op]:
    row = chance.choice([*state.files.values()]) if state.files else None
    name = path(f"{chance.randint(1, 6)}-1-0") if row is None or tag % 3 == 0 else row.path
    phys = physical(name, 1) if row is None else row.physical
    other = path(f"{chance.randint(1, 9)}-2-0")
    return chance.choice(
        [
            [load(name, tag, content=str(chance.randint(1, 3)))],
            [load(name, tag, content=str(chance.randint(1, 3)), sender=B, devices={})],
            [records.FileDeleted(phys, "expired")],
            [records.FileRetired(phys)],
            [records.FileReturned(phys, chance.choice([name, other]))],
            [records.FileQuarantined(phys, "bad")],
            [records.FileRestored(phys)],
            [records.FileNamed(phys, other)],
            [records.FileUnnamed(phys, chance.choice([name, other]))],
            [noted(name, phys, b"DELETION,root.t.d1.s1,9,1,2\n")],
            [noted(name, None, b"DELETION,root.t.d1.s1,9,3,4\n")],
            [records.KeptRecordsApplied(A, name, chance.choice([phys, None]), "mods", [28])],
            [records.FileForgotten(phys)],
        ]
    )


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_committed_the_sum_is_that_of_the_rows(seed: int) -> None:
    chance, state = random.Random(seed), fresh()
    do(state, seen(), seen(B))
    done = 0
    for tag in range(1, 300):
        try:
            do(state, *_ops(chance, state, tag))
        except RefusedCommitError:
            continue
        done += 1
        assert state.file_table.listed.of(A) == counted(state), tag
        assert state.file_table.listed.of(B) == counted(state, B), tag
    assert done > 60


@pytest.mark.parametrize("ends", [[], [0], [30], [-1, 29]])
def test_what_is_not_known_of_a_deletion_file_is_not_applied(ends: list[int]) -> None:
    state, name = fresh(), path("1-1-0")
    do(state, seen(), noted(name, None, b"DELETION,root.t.d1.s1,9,3,4\n"))
    with pytest.raises(RefusedCommitError, match="28 bytes of deletions are known"):
        do(state, records.KeptRecordsApplied(A, name, None, "mods", ends))
    do(state, records.KeptRecordsApplied(A, name, None, "mods", [28]))


def test_equal_rows_do_not_cancel() -> None:
    one, two = ListedSum(), ListedSum()
    for _ in range(2):
        one.add("p", "m")
    assert one.digest != two.digest
    one.remove("p", "m")
    two.add("p", "m")
    assert one == two
