"""Released files that are nowhere are counted a piece at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from receiver.metadata.state.tables.sender_tables.released import ReleasedRow, ReleasedTable
from receiver.metrics.files_nowhere import FilesNowhere
from receiver.placement.copies_there.released_files import ReleasedFiles


def test_a_scrape_looks_at_so_many_files_and_the_number_comes_in_the_end() -> None:
    there: set[str] = set()
    looked: list[str] = []
    files = {
        name: SimpleNamespace(physical=name, size=9)
        for name in (f"sequence/root.sg/0/0/{n}-{n}-0-0.tsfile" for n in range(25))
    }
    table = ReleasedTable(files)  # type: ignore[arg-type]
    for name in files:
        row = {"tablet": "a" * 32, "generation": 1, "nodes": ("b",), "created": 1, "changed": 1}
        table.restore(ReleasedRow(physical=name, **row))  # type: ignore[arg-type]
    none = SimpleNamespace(rows={})
    state = SimpleNamespace(
        released_table=table, files=files, placement_table=none, tablet_table=none
    )

    class Engine:
        @contextmanager
        def reading(self) -> Iterator[SimpleNamespace]:
            yield state

    def seems_here(name: str) -> bool:
        looked.append(name)
        return name in there

    released = ReleasedFiles(
        Engine(),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        dict,
        lambda *_: False,
        seems_here,
    )
    nowhere = FilesNowhere(released.looks_for_nowhere, most=10)
    assert [nowhere.count() for _ in range(3)] == [10, 20, 25]
    assert len(looked) == 25 == released.nowhere().files
    there.update(list(files)[:20])
    assert [nowhere.count() for _ in range(3)] == [25, 25, 5]
