"""What is noted of an heir's deletion file stands apart from the predecessor's own of that path."""

from __future__ import annotations

import msgspec
import pytest

from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from tests.support.committing import do, fresh
from tests.support.metadata import A, B, load, path, physical, seen

OWN = records.DeletionsNoted(A, path("1-1-0"), None, "mods", 0, b"DELETION,root.t.d1.s1,9,1,2\n", 5)
INHERITED = msgspec.structs.replace(OWN, content=b"DELETION,root.t.d1.s1,9,3,4\n", heir=B)


@pytest.mark.parametrize("notes", [(OWN, INHERITED), (INHERITED, OWN)])
def test_a_file_that_is_loaded_has_its_own_deletions_alone(notes) -> None:
    state = fresh()
    do(state, seen(), seen(B), *notes)
    do(state, load(path("1-1-0"), 1))
    table = state.deletion_table
    (mine,) = table.of_file(physical(path("1-1-0"), 1))
    (theirs,) = table.unloaded(A, path("1-1-0"), B)
    assert (mine.content, theirs.content) == (OWN.content, INHERITED.content)
    assert set(table.of_sender(A)) == {mine, theirs}


def test_an_heirs_deletion_file_is_of_no_file_of_its_predecessor() -> None:
    state = fresh()
    do(state, seen(), seen(B), load(path("1-1-0"), 1))
    with pytest.raises(RefusedCommitError, match=f"is no file of {B}"):
        do(state, msgspec.structs.replace(INHERITED, physical=physical(path("1-1-0"), 1)))
