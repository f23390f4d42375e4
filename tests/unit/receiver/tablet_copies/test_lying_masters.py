"""What a master that is wrong, or lies, can bring about at a node: a trouble that is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from receiver.tablet_copies.copies_wire import CopyPage, GoneAsked, GoneSaid
from tests.support.copy_nodes import CopyCentre, Machine


@pytest.fixture
def centre(tmp_path: Path):
    centre = CopyCentre(tmp_path, 1)
    yield centre
    centre.close()


def copied(centre: CopyCentre, files: int = 5) -> tuple[Machine, list[str]]:
    node = centre.add()
    loaded = [centre.load() for _ in range(files)]
    centre.settle()
    assert node.names() == sorted(loaded)
    return node, loaded


def with_pages(centre: CopyCentre, **changes: object) -> None:
    """Have each page of a list be another one."""
    real = centre.lists.page

    def page(node: str, tablet: str, after: str | None, digest: str, since: int) -> CopyPage:
        return msgspec.structs.replace(real(node, tablet, after, "", 0), **changes)

    centre.lists.page = page  # type: ignore[method-assign]


def test_a_list_that_never_ends_is_given_up(centre: CopyCentre):
    node = centre.add()
    for _ in range(4):
        centre.load()
    with_pages(centre, next="sequence/a")
    centre.settle()
    assert any("does not go on" in each for each in node.store.troubles.values())
    assert node.puller.behind


def test_an_empty_list_takes_nothing_away(centre: CopyCentre):
    node, files = copied(centre)
    with_pages(centre, files=(), next=None)
    centre.load()
    centre.settle()
    assert node.names() == sorted(files)


def test_what_was_not_asked_about_does_not_go(centre: CopyCentre):
    node, files = copied(centre)
    centre.end(files[0])
    real = centre.lists.gone

    def gone(uuid: str, tablet: str, asked: GoneAsked) -> GoneSaid:
        return msgspec.structs.replace(real(uuid, tablet, asked), files=files)

    centre.lists.gone = gone  # type: ignore[method-assign]
    centre.settle()
    assert node.names() == sorted(files)
    assert any("was not asked about" in each for each in node.store.troubles.values())


def test_other_bytes_under_a_name_that_is_here_are_refused(centre: CopyCentre):
    node, files = copied(centre, 1)
    [tablet] = node.store.tablets()
    listed = node.store.replica(tablet).files()[files[0]]
    with_pages(centre, files=(msgspec.structs.replace(listed, md5="0" * 32),), next=None)
    centre.load()
    centre.settle()
    assert any("other bytes than before" in each for each in node.store.troubles.values())
    assert node.store.replica(tablet).files()[files[0]] == listed


def test_a_node_without_any_directory_says_so(centre: CopyCentre):
    node = centre.add()
    node.stop()
    node.paths = []
    node.start()
    centre.load()
    node.free = {Path("x"): 1 << 40}  # as its last heartbeat had it
    centre.assignment.run_once()
    node.puller.run_once()
    assert any("no data directory of this node" in each for each in node.store.troubles.values())


def test_a_replica_that_has_no_room_keeps_nothing_else_waiting(centre: CopyCentre):
    node, files = copied(centre, 3)
    for each in files[:2]:
        centre.end(each)
    centre.load(7)
    centre.make = lambda *_: None  # type: ignore[method-assign]  # the call is lost
    centre.assignment.run_once()
    node.free = dict.fromkeys(node.paths, 0)
    node.puller.run_once()
    assert node.names() == files[2:]  # what makes room goes on
    assert any("too little" in each for each in node.store.troubles.values())
    node.free = dict.fromkeys(node.paths, 1 << 30)
    node.puller.run_once()
    assert len(node.names()) == 2
    assert node.store.troubles == {}


def test_a_list_of_what_changed_that_comes_from_another_life_is_asked_for_whole(
    centre: CopyCentre,
):
    """Its commit of that number may be none that the copy here was ever complete as of."""
    node, _ = copied(centre, 1)
    real, asked, marks = centre.lists.page, [], centre.lists.mark
    centre.lists.mark = lambda: msgspec.structs.replace(marks(), life="another")
    node.store.must_be_noted = lambda master: None  # type: ignore[method-assign]

    def page(uuid: str, tablet: str, after: str | None, digest: str, since: int) -> CopyPage:
        asked.append(since)
        return real(uuid, tablet, after, digest, since)

    centre.lists.page = page  # type: ignore[method-assign]
    centre.load()
    centre.pull(node)
    assert len(asked) > 1
    assert asked[0] > 0
    assert set(asked[1:]) == {0}
    assert len(node.names()) == 2
