from __future__ import annotations

from typing import Any

import pytest

from common.errors import UsageError
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.file_tables.files import FileTable
from receiver.node import Node
from receiver.operator import paging
from receiver.operator.stored.files import list_files
from tests.support.node_world import (
    A,
    B,
    Edge,
    path_of,
    tsfile,
)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def test_files_come_in_pages_without_a_gap(edge: Edge) -> None:
    files = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(7)}
    edge.round(files)
    rows, after = [], None
    while True:
        page = list_files(edge.node.operator, after=after, limit=2)
        rows += [each.physical for each in page.files]
        if (after := page.next) is None:
            break
    assert rows == [each.physical for each in list_files(edge.node.operator).files]
    assert rows == sorted(rows)
    assert len(rows) == len(files)
    with pytest.raises(UsageError):
        list_files(edge.node.operator, limit=0)


def test_a_page_of_the_last_files_names_no_further_one(edge: Edge) -> None:
    files = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(7)}
    edge.round(files)
    every = list_files(edge.node.operator, limit=7)
    assert (len(every.files), every.next) == (7, None)
    first = list_files(edge.node.operator, limit=6)
    assert first.next == first.files[-1].physical


def test_each_state_is_asked_for_by_its_name_and_slices_leave_nothing_out(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "_SLICE", 2)
    files = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(7)}
    edge.round(files)
    other = Edge(edge.node, B)
    other.round({path_of(8): tsfile("root.sg.b")})
    there = edge.node.operator
    names = [each.physical for each in list_files(there, sender=A).files]
    edge.node.engine.commit([records.FileRetired(names[0])])
    edge.node.engine.commit([records.FileQuarantined(each, "bad") for each in names[1:3]])
    edge.node.engine.commit([records.FileDeleted(names[3], "expired")])
    edge.node.engine.commit([records.FileDeleted(names[4], "operator")])
    edge.node.engine.commit([records.FileVerified([names[5]])])

    def asked(**more: Any) -> list[str]:
        return [each.physical for each in list_files(there, **more).files]

    assert asked(sender=A) == [names[0], *names[5:]]
    assert asked(sender=A, state="live") == names[5:]
    assert asked(state="retired") == [names[0]]
    assert asked(state="quarantined") == names[1:3]
    assert asked(state="deleted") == names[3:5]
    assert asked(state="expired") == [names[3]]
    assert asked(sender=A, unverified=True) == [names[0], names[6]]
    assert asked(state="quarantined", after=names[1]) == [names[2]]
    with pytest.raises(UsageError, match="state: expected one of live, retired"):
        asked(state="odd")


def test_no_page_holds_the_lock_for_more_rows_than_a_slice(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "_SLICE", 2)
    files = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(7)}
    edge.round(files)
    asked: list[int] = []

    def counted(table: FileTable, state: FileState, after: str | None, limit: int) -> list[FileRow]:
        asked.append(limit)
        return among(table, state, after, limit)

    among = FileTable.among
    monkeypatch.setattr(FileTable, "among", counted)
    assert list_files(edge.node.operator, sender=B).files == []
    assert asked == [2] * 4
    asked.clear()
    assert len(list_files(edge.node.operator, limit=1).files) == 1
    assert asked == [2]
