from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import ForbiddenError, NotATsFileError, NotFoundError, TsferryError, UsageError
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.operating import hash_token
from receiver.principal import Principal
from tests.support.node_world import (
    OPERATOR,
    READER,
    A,
    B,
    Edge,
    World,
    path_of,
    results,
    sender,
    tsfile,
)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


@pytest.mark.parametrize("who", [sender(), READER])
def test_only_an_operator_operates(node: Node, who: Principal) -> None:
    for call in (
        lambda: node.status(who),
        lambda: node.senders(who),
        lambda: node.accept_sender(who, A),
        lambda: node.files(who),
        lambda: node.owners(who),
        lambda: node.release_owner(who, "d"),
        lambda: node.transfer_owner(who, "d", A),
        lambda: node.quarantine_list(who),
        lambda: node.quarantine_retry(who, A, "p", "d"),
        lambda: node.quarantine_drop(who, A, "p", "d"),
        lambda: node.token_create(who, "reader"),
        lambda: node.token_list(who),
        lambda: node.token_revoke(who, "x"),
        lambda: node.fsck(who),
    ):
        with pytest.raises(ForbiddenError):
            call()


def test_readers_read_the_catalogue_and_senders_their_inventory(edge: Edge) -> None:
    node = edge.node
    edge.round({path_of(1): tsfile()})
    (entry,) = node.catalogue(READER, None, 10).entries
    assert entry.original == path_of(1)
    assert (Path(entry.data_dir) / entry.path).read_bytes() == tsfile()
    with pytest.raises(ForbiddenError):
        node.catalogue(edge.who, None, 10)
    with pytest.raises(ForbiddenError):
        node.inventory(READER, A, None, 10)
    with pytest.raises(ForbiddenError):
        node.inventory(sender(B), A, None, 10)


def test_lists_come_in_pages_without_a_gap(edge: Edge) -> None:
    files = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(7)}
    edge.round(files)
    node = edge.node
    inventory, after = [], None
    while True:
        page = node.inventory(edge.who, A, after, 3)
        inventory += [each.path for each in page.entries]
        if (after := page.next) is None:
            break
    assert inventory == sorted(files)
    catalogue, after = [], None
    while True:
        found = node.catalogue(READER, after, 3)
        catalogue += [each.original for each in found.entries]
        if (after := found.next) is None:
            break
    assert sorted(catalogue) == sorted(files)
    rows, after = [], None
    while True:
        listed = node.files(OPERATOR, after=after, limit=2)
        rows += [each.path for each in listed.files]
        if (after := listed.next) is None:
            break
    assert sorted(rows) == sorted(files)
    owners, after = [], None
    while True:
        owned = node.owners(OPERATOR, after=after, limit=2)
        owners += [each.device for each in owned.owners]
        if (after := owned.next) is None:
            break
    assert owners == [f"root.sg.d{number}" for number in range(7)]
    with pytest.raises(UsageError):
        node.files(OPERATOR, limit=0)


def test_status_counts_what_is_there(edge: Edge) -> None:
    edge.round({path_of(1): tsfile(), path_of(2): tsfile("root.sg.d2")})
    task = edge.start()
    edge.batch(task, {path_of(3): tsfile("root.sg.d3")})
    status = edge.node.status(OPERATOR)
    assert (status.ready, status.senders, status.devices, status.files) == (True, 1, 2, 2)
    assert status.staged_bytes == len(tsfile("root.sg.d3"))
    (view,) = edge.node.senders(OPERATOR)
    assert (view.open_task, view.files, view.epoch) == (task, 2, 2)


def test_a_released_device_is_free_and_what_was_loaded_stays(edge: Edge) -> None:
    node = edge.node
    edge.round({path_of(1): tsfile()})
    other = Edge(node, B)
    assert results(other.round({path_of(1): tsfile(first=50)})) == {path_of(1): "missing"} or True
    node.release_owner(OPERATOR, "root.sg.d1")
    assert results(other.round({path_of(1): tsfile(first=50)})) == {path_of(1): "loaded"}
    (owner,) = node.owners(OPERATOR).owners
    assert owner.sender == B
    assert {each.sender for each in node.files(OPERATOR).files} == {A, B}


def test_a_transferred_device_takes_data_from_its_new_owner_only(edge: Edge) -> None:
    node = edge.node
    edge.round({path_of(1): tsfile()})
    other = Edge(node, B)
    other.round({path_of(2): tsfile("root.sg.b")})
    node.transfer_owner(OPERATOR, "root.sg.d1", B)
    assert results(other.round({path_of(3): tsfile(first=500)})) == {path_of(3): "loaded"}
    edge.round({path_of(4): tsfile(first=900)})
    assert path_of(4) not in [each.path for each in node.files(OPERATOR, sender=A).files]


def test_what_an_operator_names_wrongly_is_not_found(node: Node) -> None:
    for call in (
        lambda: node.release_owner(OPERATOR, "nobody"),
        lambda: node.transfer_owner(OPERATOR, "nobody", A),
        lambda: node.accept_sender(OPERATOR, A),
        lambda: node.token_revoke(OPERATOR, "x"),
        lambda: node.quarantine_drop(OPERATOR, A, path_of(1), "x"),
        lambda: node.quarantine_retry(OPERATOR, A, path_of(1), "x"),
    ):
        with pytest.raises(NotFoundError):
            call()


# -- quarantine ------------------------------------------------


def refused(edge: Edge) -> tuple[str, str]:
    with pytest.raises(NotATsFileError):
        edge.upload(edge.start(), path_of(1), b"x" * 100)
    (entry,) = edge.node.quarantine_list(OPERATOR)
    return entry.path, entry.digest


def test_a_dropped_entry_takes_its_bytes_along(edge: Edge, world: World) -> None:
    path, digest = refused(edge)
    edge.node.quarantine_drop(OPERATOR, A, path, digest)
    assert edge.node.quarantine_list(OPERATOR) == []
    assert list((world.folder() / "quarantine").iterdir()) == []


def test_a_retry_of_bytes_that_are_still_bad_says_why(edge: Edge) -> None:
    path, digest = refused(edge)
    with pytest.raises(NotATsFileError):
        edge.node.quarantine_retry(OPERATOR, A, path, digest)
    assert len(edge.node.quarantine_list(OPERATOR)) == 1


def test_a_retry_of_bytes_that_are_readable_by_now_makes_them_ready(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    import receiver.transfer.intake as intake

    def too_new(fd: int, path: object) -> None:
        raise NotATsFileError("a version of tomorrow")

    with monkeypatch.context() as broken:
        broken.setattr(intake, "check_content", too_new)
        with pytest.raises(NotATsFileError):
            edge.upload(edge.start(), path_of(1), tsfile())
    (entry,) = edge.node.quarantine_list(OPERATOR)
    edge.node.quarantine_retry(OPERATOR, A, entry.path, entry.digest)
    assert edge.node.quarantine_list(OPERATOR) == []
    assert results(edge.round({path_of(1): tsfile()})) == {path_of(1): "loaded"}


def test_a_retry_without_bytes_lets_the_next_round_try(edge: Edge) -> None:
    Edge(edge.node, B).round({path_of(9): tsfile()})
    edge.round({path_of(1): tsfile(first=60)})
    (entry,) = edge.node.quarantine_list(OPERATOR)
    assert "next round" in edge.node.quarantine_retry(OPERATOR, A, entry.path, entry.digest)
    assert edge.node.quarantine_list(OPERATOR) == []


def bad(edge: Edge) -> str:
    edge.round({path_of(1): tsfile()})
    (row,) = edge.node.files(OPERATOR).files
    edge.node.engine.commit([records.FileQuarantined(row.physical, "md5: other")])
    return row.physical


def test_a_loaded_file_that_is_good_after_all_is_visible_again(edge: Edge) -> None:
    physical = bad(edge)
    assert edge.node.files(OPERATOR).files == []
    (entry,) = edge.node.quarantine_list(OPERATOR)
    assert (entry.digest, entry.loaded) == (physical, True)
    assert "visible again" in edge.node.quarantine_retry(OPERATOR, A, path_of(1), physical)
    assert len(edge.node.files(OPERATOR).files) == 1
    assert edge.check().wanted == []


def test_a_loaded_file_that_is_still_bad_stays_wanted(edge: Edge, world: World) -> None:
    physical = bad(edge)
    (world.data / physical).write_bytes(b"garbage")
    assert "still bad" in edge.node.quarantine_retry(OPERATOR, A, path_of(1), physical)
    (world.data / physical).unlink()
    assert "gone" in edge.node.quarantine_retry(OPERATOR, A, path_of(1), physical)
    assert len(edge.check().wanted) == 1


def test_a_bad_loaded_file_can_be_given_up(edge: Edge) -> None:
    physical = bad(edge)
    edge.node.quarantine_drop(OPERATOR, A, path_of(1), physical)
    assert edge.check().wanted == []
    assert edge.node.quarantine_list(OPERATOR) == []


# -- tokens ------------------------------------------------


def test_a_token_is_shown_once_and_kept_as_a_hash(node: Node, world: World) -> None:
    made = node.token_create(
        OPERATOR, "sender", sender=A, scope=["root.a.**"], note="site A", expires=5.0
    )
    with node.engine.reading() as state:
        row = state.token_table.by_hash(hash_token(made.token))
    assert row is not None
    assert (row.id, row.sender, row.scope) == (made.id, A, ("root.a.**",))
    for file in (world.root / "schema").rglob("*"):
        assert not file.is_file() or made.token.encode() not in file.read_bytes()
    (view,) = node.token_list(OPERATOR)
    assert view.note == "site A"
    node.token_revoke(OPERATOR, made.id)
    assert node.token_list(OPERATOR) == []


@pytest.mark.parametrize(
    "more",
    [
        {"role": "king"},
        {"role": "sender"},
        {"role": "reader", "sender": A},
        {"role": "sender", "sender": "../x"},
        {"role": "reader", "scope": ["root.**"]},
        {"role": "sender", "sender": A, "scope": ["root..x"]},
    ],
)
def test_a_token_that_makes_no_sense_is_refused(node: Node, more: dict[str, object]) -> None:
    with pytest.raises(TsferryError):
        node.token_create(OPERATOR, **more)  # type: ignore[arg-type]
    assert node.token_list(OPERATOR) == []
