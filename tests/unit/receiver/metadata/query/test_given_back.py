"""Files that are asked for once one of their devices came back."""

from __future__ import annotations

import pytest

from receiver.metadata.model import records
from receiver.metadata.query import given_back
from receiver.metadata.query.given_back import GivenBack
from tests.support.committing import do, fresh
from tests.support.metadata import A, B, load, path, physical, seen

D1 = "root.t.d1"


def test_all_files_are_looked_through_once_a_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    search = given_back._search
    monkeypatch.setattr(
        given_back, "_search", lambda state, sender: looks.append(sender) or search(state, sender)
    )
    state, finder = fresh(), GivenBack()
    do(state, seen(), seen(B))
    do(state, load(path("1-1-0"), 1, devices={D1: (1, 9)}))
    given = do(state, records.OwnerSet(D1, B, "why"))
    do(state, records.FileRetired(physical(path("1-1-0"), 1), given))
    assert finder.of(state, A) == []
    do(state, records.OwnerSet(D1, A, "back"))
    for number in range(2, 9):
        (found,) = finder.of(state, A)
        assert found.physical == physical(path("1-1-0"), 1)
        name = path(f"{number}-{number}-0")
        do(state, load(name, number, sender=B, devices={f"root.t.e{number}": (1, 9)}))
    assert looks == [A, A]
