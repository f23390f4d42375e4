"""A catalogue shows the same files by its directories and by the server's URL, at any time."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from common.config import load
from common.errors import NotFoundError, UnauthorizedError, UnreachableError, UsageError
from receiver.config import ReceiverConfig
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.ranks import NOW, stands_above
from receiver.metadata.model.timestamps import to_seconds
from receiver.operator.edges.tokens import make_token
from receiver.spark.catalogue import Catalogue, _locations
from receiver.spark.catalogue_opening import unit_of
from receiver.spark.remote_catalogue import RemoteCatalogue
from receiver.spark.source.inferring import catalogue_of, columns_of, list_sources, plan_of
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress
from receiver.web.app import close, create_app, site_of
from tests.support.spark_world import NORTH, SOUTH, World
from tests.support.stored_world import StoredWorld, large
from tests.support.tsfile_bytes import build
from tests.support.web import running

PATH = "{1}/root.wind/0/0/{0}-{0}-0-0.tsfile"
CONTENT = build({"root.wind.d1": {"s1": [(1, 1), (9, 1)]}})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.engine.close()


def add(world: World, number: int, kind: str = "sequence") -> str:
    place = world.load(NORTH, PATH.format(number, kind), CONTENT)
    return str(place.relative_to(world.data))


def opened(world: World, where: str | None = None, **given: str) -> Catalogue:
    return catalogue_of(parse_options({"catalog": where or str(world.config), **given}))


def names(catalogue: Catalogue, at: int, since: int = 0) -> tuple[list[str], list[str]]:
    found = catalogue.loads(at, since)
    return [each.name for each in found.visible], [each.name for each in found.held]


@contextmanager
def served(world: World) -> Iterator[tuple[str, str]]:
    """(URL, token of a reader) of a server over what the world has loaded."""
    world.engine.close()
    config = load(ReceiverConfig, file=world.config, env_prefix="X_", environ={}, flags={}).value
    app = create_app(config)
    try:
        token = make_token(site_of(app).node.engine, "reader").token
        with running(app, gate=site_of(app).gate) as server:
            host, port = server.addresses[0]
            yield f"http://{host}:{port}", token
    finally:
        close(app)


def test_directories_and_url_show_the_same_files_at_each_commit(world: World):
    a, b = add(world, 1), add(world, 2, "unsequence")
    loaded = world.engine.newest_commit
    world.engine.commit([records.FileQuarantined(b, "bad")])
    held = world.engine.newest_commit
    world.engine.commit([records.FileDeleted(a, "gone")])
    deleted = world.engine.newest_commit
    c = add(world, 3)
    newest = world.engine.newest_commit
    expected = {
        (loaded, 0): ([a, b], []),
        (held, 0): ([a], [b]),
        (deleted, 0): ([], [b]),
        (newest, 0): ([c], [b]),
        (newest, deleted): ([c], []),
    }
    with opened(world) as local:
        assert {key: names(local, *key) for key in expected} == expected
        (file,) = local.files(newest)
        uuid = local.uuid
    assert file.locations == (str(world.data / c),)
    assert (file.size, file.created, file.first, file.last) == (len(CONTENT), newest, 1, 9)
    assert (file.database, file.is_known) == ("root.wind", True)
    assert list(file.devices.ranges()) == [("root.wind.d1", 1, 9)]
    with served(world) as (url, token), opened(world, url, token=token) as remote:
        assert {key: names(remote, *key) for key in expected} == expected
        (again,) = remote.files(newest)
        assert again.locations == file.locations
        assert (again.created, again.first, again.last) == (newest, 1, 9)
        assert remote.uuid == uuid


def test_a_page_of_the_server_is_not_the_whole(world: World, monkeypatch: pytest.MonkeyPatch):
    files = sorted(add(world, number) for number in range(1, 6))
    monkeypatch.setattr("receiver.spark.remote_catalogue._PAGE", 2)
    with served(world) as (url, token), opened(world, url, token=token) as remote:
        assert names(remote, remote.newest)[0] == files


def test_a_server_that_refuses_or_is_not_there_is_named(world: World):
    with served(world) as (url, _), pytest.raises(UnauthorizedError):
        opened(world, url, token="wrong")
    with pytest.raises(UnreachableError, match=url):
        opened(world, url)
    with pytest.raises(UsageError, match="expected https"):
        opened(world, "http://centre.example:8765", token="t")


def test_as_of_is_a_commit_or_a_moment(world: World):
    a = add(world, 1)
    first = world.engine.newest_commit
    world.engine.commit([records.FileDeleted(a, "gone")])

    def seen(as_of: str | None) -> list[str]:
        given = {} if as_of is None else {"asOf": as_of}
        return [each.name for each in list_sources(parse_options(
            {"catalog": str(world.config), "form": "long", **given}))]  # fmt: skip

    assert seen(None) == []
    assert seen(str(first)) == [a]
    moment = datetime.datetime.fromtimestamp(to_seconds(first) - 3600, datetime.UTC)
    assert seen(moment.isoformat()) == []
    assert seen("2100-01-01") == []
    with opened(world) as catalogue:
        catalogue.engine.window.move(first)
        with pytest.raises(HistoryGoneError):
            catalogue.files(first - 1)


def test_what_is_committed_meanwhile_shows_after_a_look(world: World):
    with opened(world) as catalogue:
        assert catalogue.files(catalogue.newest) == []
        a = add(world, 1)
        catalogue.refresh()
        assert names(catalogue, catalogue.newest)[0] == [a]


def test_where_the_data_is_comes_from_the_option_the_configuration_or_the_rows(world: World):
    a = add(world, 1, "unsequence")
    schema = str(world.root / "schema")
    with opened(world, schema) as catalogue:
        (file,) = catalogue.files(catalogue.newest)
        assert file.locations == (str(world.data / a),)
    with pytest.raises(UsageError, match="option dataDirs"):
        _locations([""], a)
    with opened(world, schema, dataDirs="/mnt/a, /mnt/b") as catalogue:
        (file,) = catalogue.files(catalogue.newest)
        assert file.locations == (f"/mnt/a/{a}", f"/mnt/b/{a}")
    with opened(world, kind="sequence") as catalogue:
        assert catalogue.files(catalogue.newest) == []
    assert unit_of(schema) is None
    assert unit_of(str(world.config)) == "ms"


def test_only_files_of_the_kind_that_is_asked_for_are_there_now_and_then_packed_or_not(
    world: World,
):
    a, b = add(world, 1), add(world, 2, "unsequence")
    then = world.engine.newest_commit
    world.engine.checkpoint()
    c = add(world, 3, "unsequence")
    for kind, expected in (("sequence", [a]), ("unsequence", [b]), ("all", sorted([a, b]))):
        later = sorted([*expected, *([c] if kind != "sequence" else [])])
        with opened(world, kind=kind) as catalogue:
            assert names(catalogue, then) == (expected, [])
            assert names(catalogue, catalogue.newest) == (later, [])


def test_nothing_at_the_place_is_named(world: World):
    with pytest.raises(UsageError, match=r"option catalog = '/nowhere': expected"):
        opened(world, "/nowhere")
    with pytest.raises(NotFoundError):
        opened(world, str(world.data))


def test_an_older_record_names_what_it_did_when_its_file_is_left_out_by_url_too(world: World):
    a, b = add(world, 1), add(world, 2)
    with world.engine.reading() as state:
        floor = state.files[b].rank.closed
    line = f"DELETION,root.*,{2**63 - 1},1,1\n".encode()
    world.engine.commit([
        records.DeletionsNoted(NORTH, PATH.format(1, "sequence"), a, "mods", 0, line, floor),
        records.FileDeleted(a, "superseded"),
    ])  # fmt: skip
    with opened(world) as local:
        (here,) = local.files(local.newest)
    with served(world) as (url, token), opened(world, url, token=token) as remote:
        (there,) = remote.files(remote.newest)
    assert here.deletions == there.deletions
    assert here.deletions is not None
    assert [each.older for each in here.deletions.others] == [{"root.*"}]


def test_directories_and_url_know_the_same_ranks_and_deletions(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    a, b, c = add(world, 1), add(world, 2, "unsequence"), add(world, 3)
    world.engine.commit([records.FileRetired(c, last_look=7)])
    with world.engine.reading() as state:
        looks = {each: state.files[each].rank for each in (a, b, c)}
    line = f"DELETION,root.wind.d1.*,{2**63 - 1},1,1\n".encode()

    def note(physical: str | None, number: int, kind: str, base: int, floor: int) -> None:
        path = PATH.format(number, kind)
        world.engine.commit(
            [records.DeletionsNoted(NORTH, path, physical, "mods", base, line, floor)]
        )

    note(a, 1, "sequence", 0, 0)
    note(b, 2, "unsequence", 0, looks[a].closed)
    note(None, 9, "sequence", 0, looks[c].closed)
    then = world.engine.newest_commit
    note(b, 2, "unsequence", len(line), looks[c].closed)
    newest = world.engine.newest_commit
    monkeypatch.setattr("receiver.spark.remote_catalogue._PAGE", 1)
    with opened(world) as local:
        expected = {at: local.files(at) for at in (then, newest)}
    with served(world) as (url, token), opened(world, url, token=token) as remote:
        found = {at: remote.files(at) for at in (then, newest)}
    for at in (then, newest):
        assert [each.rank for each in expected[at]] == sorted(
            looks.values(), key=lambda rank: rank.physical
        )
        for one, other in zip(expected[at], found[at], strict=True):
            assert (one.rank, one.deletions) == (other.rank, other.deletions)
            assert list(one.devices.ranges()) == list(other.devices.ranges())
    hidden = {
        at: {each.name: (len(each.deletions.own), len(each.deletions.others)) for each in files}
        for at, files in expected.items()
    }
    assert hidden[then] == {a: (1, 2), b: (1, 1), c: (0, 1)}
    assert hidden[newest] == {a: (1, 3), b: (1, 1), c: (0, 2)}


def test_directories_and_url_know_the_same_of_forwarded_files(world: World) -> None:
    """Only the deletions of their own edge reach them, by the looks of the engine below."""
    a, b = add(world, 1), add(world, 2)
    edges = {a: "a" * 32, b: "b" * 32}
    for physical, edge in edges.items():
        looks = records.OriginLooks("e" * 32, 3, 4, 0, 9, physical)
        origin = records.FileOrigin(edge, PATH.format(7, "unsequence"), [looks])
        world.engine.commit([records.OriginNoted(physical, origin)])
    line = f"DELETION,root.wind.**,{2**63 - 1},1,1\n".encode()
    for number, floor in ((8, 4), (9, 3)):
        note = records.DeletionsNoted(
            NORTH, PATH.format(number, "sequence"), None, "mods", 0, line, floor,
            author=f"{edges[a]}@{'e' * 32}",
        )  # fmt: skip
        world.engine.commit([note])
    with opened(world) as local:
        here = local.files(local.newest)
    with served(world) as (url, token), opened(world, url, token=token) as remote:
        there = remote.files(remote.newest)
    assert [each.rank.below[0].closed for each in here if each.rank] == [4, 4]
    assert [(each.rank, each.deletions) for each in here] == [
        (each.rank, each.deletions) for each in there
    ]
    assert {each.name: len(each.deletions.others) for each in here} == {a: 1, b: 0}


def test_directories_and_url_know_the_same_of_transferred_devices(world: World) -> None:
    devices = [f"root.wind.d{number}" for number in (1, 2, 3)]
    content = build({each: {"s1": [(1, 1)]} for each in devices})
    world.load(NORTH, PATH.format(1, "unsequence"), content)
    loaded = world.engine.newest_commit
    moved = world.engine.commit([records.OwnerSet(each, SOUTH, "x") for each in devices[:2]])
    back = world.engine.commit([records.OwnerSet(devices[0], NORTH, "x")])

    def cuts(catalogue: Catalogue, at: int) -> set[tuple[int, int, frozenset[str]]]:
        (file,) = catalogue.files(at)
        assert file.for_worker().cuts == file.cuts
        return {(each.first, each.last, each.devices) for each in file.cuts}

    with opened(world) as local:
        expected = {at: cuts(local, at) for at in (loaded, moved, back)}
        (file,) = local.files(moved)
        assert file.rank is not None
        first = file.rank.first
    assert expected[loaded] == set()
    assert expected[moved] == {(first, moved, frozenset(devices[:2]))}
    gone, returned = frozenset([devices[1]]), frozenset([devices[0]])
    assert expected[back] == {(first, moved, gone), (back + 1, NOW, returned)}
    with served(world) as (url, token), opened(world, url, token=token) as remote:
        assert {at: cuts(remote, at) for at in (loaded, moved, back)} == expected


def test_what_was_deleted_since_is_read_of_the_past_by_url_too(world: World) -> None:
    """Its ranges are forgotten, and the transfers of its devices are not."""
    file = add(world, 1)
    moved = world.engine.commit([records.OwnerSet("root.wind.d1", SOUTH, "x")])
    world.engine.commit([records.FileDeleted(file, "gone")])

    def past(catalogue: Catalogue) -> list[tuple[str, bool, int]]:
        options = parse_options({"catalog": "x", "form": "long"})
        picker = plan_of(options, columns_of(options)).picker()
        files = catalogue.files(moved)
        return [(each.name, picker.takes_file(each), each.cuts[0].last) for each in files]

    with opened(world) as local:
        assert past(local) == [(file, True, moved)]
    with served(world) as (url, token), opened(world, url, token=token) as remote:
        assert past(remote) == [(file, True, moved)]


def test_an_older_server_is_read_by_commits_and_names(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    a, b = add(world, 1), add(world, 2, "unsequence")
    plain = RemoteCatalogue._get

    def older(self: RemoteCatalogue, what: str, kind: type, **query: object) -> object:
        if what:
            raise NotFoundError(what)
        query.pop("devices", None)
        answer = plain(self, what, kind, **query)
        entries = [
            msgspec.structs.replace(each, first_look=0, closed_look=0, last_look=0)
            for each in answer.entries
        ]
        return msgspec.structs.replace(answer, entries=entries)

    monkeypatch.setattr(RemoteCatalogue, "_get", older)
    with served(world) as (url, token), opened(world, url, token=token) as remote:
        files = remote.files(remote.newest)
    assert [each.name for each in files] == [a, b]
    assert [(each.deletions, each.devices) for each in files] == [(None, None)] * 2
    early, late = (each.standing for each in files)
    assert stands_above(late, early)
    assert (early.first, early.last) == (files[0].created, NOW)


def test_directories_and_url_say_the_same_of_where_the_store_has_a_file(tmp_path: Path):
    (tmp_path / "bucket").mkdir()
    world = StoredWorld(tmp_path)
    world.configure((tmp_path / "bucket").as_uri())
    one, two = (
        str(world.load(NORTH, PATH.format(n, "sequence"), content).relative_to(world.data))
        for n, content in ((1, CONTENT), (2, large()[0]))
    )
    world.upload(keep=True)
    three = add(world, 3)
    newest = world.engine.newest_commit
    with opened(world) as catalogue:
        local = {each.name: each.place for each in catalogue.files(newest)}
    with served(world) as (url, token), opened(world, url, token=token) as catalogue:
        places = {each.name: each.place for each in catalogue.files(newest)}
        assert all(each.receiver == ReceiverAddress(url) for each in places.values() if each)
        stored = {name: each for name, each in places.items() if each and each.store}
        assert {name: replace(each, receiver=None) for name, each in stored.items()} == {
            name: each for name, each in local.items() if each and each.key
        }
        assert places[three] == replace(places[three], store=None, key=three, physical=three)
    assert local[three] is not None
    assert not local[three].key, "no commit told of its upload"
    assert local[one] is not None
    assert not local[one].blocks
    assert local[two] is not None
    assert local[two].blocks
    assert local[two].key == world.key(two)
    given = {"store": "s3://elsewhere/x", "storeEndpoint": "http://127.0.0.1:9", "storeRegion": "r"}
    with opened(world, **given, storePathStyle="true") as catalogue:
        place = next(each.place for each in catalogue.files(newest) if each.name == one)
    assert place is not None
    assert place.store == StoreAddress("s3://elsewhere/x", "http://127.0.0.1:9", "r", None, True)
