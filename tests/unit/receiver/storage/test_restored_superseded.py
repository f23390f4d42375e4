"""A restore and what was superseded before it was copied: its bytes are nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.durable import Tree
from receiver.metadata.model import records
from receiver.storage.cache.file_restore import RestoredFiles, restore_files
from receiver.storage.stores.directory_store import DirectoryStore
from tests.support.copy_nodes import place_tablets
from tests.support.uploading import SENDER, Centre


class Superseded(Centre):
    """Two files, the first superseded by the second before either was copied."""

    def fill(self) -> tuple[str, str]:
        one, two = self.load(1), self.load(2)
        self.engine.commit([records.FileRetired(one, 1)])
        self.engine.commit([records.FileSuperseded(one, [two])])
        return one, two

    def restored(self, *, without_nodes: bool = False) -> RestoredFiles:
        """As a machine whose data directory is empty."""
        with Tree(self.root / "new", create=True) as data:
            return restore_files(self.store, self.engine, [data], without_nodes=without_nodes)

    def visible(self) -> set[str]:
        with self.engine.reading() as state:
            return {row.physical for row in state.files.values() if row.visible}


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Superseded]:
    (tmp_path / "bucket").mkdir()
    made = Superseded(tmp_path, DirectoryStore(tmp_path / "bucket"))
    yield made
    made.end()


def path_at_sender(physical: str) -> tuple[str, str]:
    return SENDER, f"{physical.partition('.tsfile')[0].rpartition('.')[0]}.tsfile"


def test_it_is_named_and_its_content_is_not_taken_to_be_here(centre: Superseded) -> None:
    one, two = centre.fill()
    centre.uploader.run_once()
    assert centre.uploaded() == {two}
    found = centre.restored()
    assert (found.fetched, found.lacking) == (1, [])
    assert found.given_up == [path_at_sender(one)]
    with centre.engine.reading() as state:
        assert state.files[one].state == "deleted"
    assert centre.restored().given_up == []  # it was told


def test_it_comes_back_into_sight_for_nobody_where_what_gives_it_is_nowhere_too(
    centre: Superseded,
) -> None:
    one, two = centre.fill()
    found = centre.restored()
    assert found.lacking == [path_at_sender(two)]
    assert found.given_up == [path_at_sender(one)]
    assert centre.visible() == set()


def test_what_is_in_the_store_comes_back_for_what_is_not(centre: Superseded) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    two = centre.load(2)
    centre.engine.commit([records.FileRetired(one, 1)])
    centre.engine.commit([records.FileSuperseded(one, [two])])
    found = centre.restored()
    assert (found.lacking, found.given_up) == ([path_at_sender(two)], [])
    assert centre.visible() == {one}


def test_what_nodes_are_to_have_stays_as_it_is_until_a_server_has_asked_them(
    centre: Superseded,
) -> None:
    one, two = centre.fill()
    place_tablets(centre.engine)
    found = centre.restored()
    assert (found.lacking, found.given_up, found.at_nodes) == ([], [], 2)
    assert centre.visible() == {two}
    with centre.engine.reading() as state:
        assert state.files[one].state == "superseded"


def test_where_nodes_are_gone_too_the_sender_is_asked(centre: Superseded) -> None:
    one, two = centre.fill()
    place_tablets(centre.engine)
    found = centre.restored(without_nodes=True)
    assert (found.lacking, found.at_nodes) == ([path_at_sender(two)], 0)
    assert found.given_up == [path_at_sender(one)]
    assert centre.visible() == set()


def test_what_nodes_that_are_lost_were_to_have_is_asked_of_its_sender(centre: Superseded) -> None:
    one, two = centre.fill()
    place_tablets(centre.engine)
    with centre.engine.reading() as state:
        nodes = list(state.node_table.rows)
    centre.engine.commit([records.NodeLost(each) for each in nodes])
    found = centre.restored()
    assert (found.lacking, found.at_nodes) == ([path_at_sender(two)], 0)
    assert found.given_up == [path_at_sender(one)]
