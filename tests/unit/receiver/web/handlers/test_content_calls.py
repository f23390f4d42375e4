"""Readers have the bytes of files that they see, by ranges, and of nothing else."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from unittest import mock

import pytest

from common import wire
from common.config import load as load_layers
from common.digests import md5
from common.errors import BusyError, DamagedError, UnauthorizedError, UsageError
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.operator.edges.tokens import make_token
from receiver.storage.reading.block_digests import BLOCK_BYTES, BlockDigests
from receiver.storage.reading.file_tiers import NoTierError
from receiver.storage.reading.open_stores import OpenStores
from receiver.storage.reading.receiver_reads import TOKEN, TOKEN_PATH
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress, StoredPlace
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import StoreRefusedError
from receiver.web.app import close, create_app, site_of
from tests.support.node_world import READER, A, Edge, path_of, tsfile
from tests.support.spark_world import NORTH
from tests.support.stored_world import StoredWorld, large
from tests.support.web import running

CONTENT = f"{wire.BASE}/catalogue/content"
DIGESTS = f"{wire.BASE}/catalogue/digests"
SMALL = tsfile("root.sg.d1")


@pytest.fixture
def edge(node):
    return Edge(node, uuid=A)


@pytest.fixture
def files(node, edge):
    """Physical names of a small and a large file."""
    big, _ = large()
    edge.round({path_of(1): SMALL, path_of(2): big})
    with node.engine.reading() as state:
        rows = sorted(state.files.values(), key=lambda row: row.size)
        return [row.physical for row in rows]


@pytest.fixture
def reader(node):
    return make_token(node.engine, "reader").token


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def url(app):
    with running(app, gate=site_of(app).gate) as found:
        host, port = found.addresses[0]
        yield f"http://{host}:{port}"


def place_of(node, physical, url, store=None, key=None):
    with node.engine.reading() as state:
        row = state.files[physical]
    receiver = ReceiverAddress(url)
    return StoredPlace(store, key or physical, row.size, row.md5, "", receiver, physical)


def test_a_range_is_what_the_file_has_there(client, files, reader):
    def get(number, **headers):
        given = {**bearer(reader), **{k.replace("_", "-"): v for k, v in headers.items()}}
        return client.get(CONTENT, query_string={"path": files[number]}, headers=given)

    whole = get(0)
    assert (whole.status_code, whole.data) == (200, SMALL)
    assert whole.headers["ETag"] == f'"{md5(SMALL).hexdigest()}"'
    assert get(0, Range="bytes=2-5").data == SMALL[2:6]
    assert get(0, Range="bytes=-6").data == SMALL[-6:]
    assert get(0, Range=f"bytes={len(SMALL)}-").status_code == 416
    big, _ = large()
    assert get(1).status_code == 413
    first = get(1, Range=f"bytes=1-{len(big)}")
    assert first.data == big[1 : 1 + (8 << 20)]
    assert first.headers["Content-Range"] == f"bytes 1-{8 << 20}/{len(big)}"


def test_digests_are_those_of_the_blocks(client, files, reader):
    given = {"query_string": {"path": files[1]}, "headers": bearer(reader)}
    for _ in range(2):
        found = BlockDigests.unpack(client.get(DIGESTS, **given).data)
        big, _ = large()
        assert (found.size, found.md5) == (len(big), md5(big).hexdigest())
        assert found.is_block(3, big[3 * BLOCK_BYTES : 4 * BLOCK_BYTES])


@pytest.mark.parametrize(
    "path",
    ["../schema/metadata.log", "/etc/passwd", "sync-receiver/x", ".tsferry-receiver", "a/../b"],
)
def test_no_path_leads_to_another_file(client, files, reader, world, path):
    (world.root / "data" / "b").write_bytes(b"secret")
    for call in (CONTENT, DIGESTS):
        answer = client.get(call, query_string={"path": path}, headers=bearer(reader))
        assert answer.status_code == 404
    beside = files[0].replace(".tsfile", ".tsfile.resource")
    assert client.get(CONTENT, query_string={"path": beside}, headers=bearer(reader)).is_json
    sent = client.get(CONTENT, query_string={"path": path_of(1)}, headers=bearer(reader))
    assert sent.status_code == 404, "that is its name at the edge"


def test_who_is_no_reader_has_nothing(client, node, files, reader):
    query = {"path": files[0]}
    sender = make_token(node.engine, "sender", sender=A).token
    for call in (CONTENT, DIGESTS):
        assert client.get(call, query_string=query).status_code == 401
        assert client.get(call, query_string=query, headers=bearer("x")).status_code == 401
        assert client.get(call, query_string=query, headers=bearer(sender)).status_code == 403


def test_a_deleted_file_is_there_as_long_as_the_history_names_it(client, node, edge, files, reader):
    query = {"path": files[0]}
    edge.round({}, deleted=[path_of(1)], propagate=wire.Propagate.ALL)
    with node.engine.reading() as state:
        assert not state.files[files[0]].visible
    assert client.get(CONTENT, query_string=query, headers=bearer(reader)).data == SMALL
    with mock.patch.object(type(node.engine), "oldest_answerable", node.engine.newest_commit):
        gone = client.get(CONTENT, query_string=query, headers=bearer(reader))
    assert gone.status_code == 404


def test_senders_keep_their_part_of_the_threads(app, client, node, files, reader):
    content, held, going = node.content, threading.Event(), threading.Event()
    most = site_of(app).config.listen.threads
    under_way = []

    def slow(row):
        under_way.append(row)
        going.set()
        assert held.wait(60)

    with mock.patch.object(content, "_open", slow), ThreadPoolExecutor(most) as pool:
        row = content.find(READER, files[0])
        asked = [pool.submit(content.read, row, 0, 1) for _ in range(most)]
        assert going.wait(60)
        busy, _ = wait(asked, return_when=FIRST_COMPLETED)
        while len(busy) < most - most // 4 - most // 8:
            busy, _ = wait(asked, 0.01)
        assert all(isinstance(each.exception(), BusyError) for each in busy)
        assert len(under_way) <= most // 4
        held.set()


# -- whoever reads there -------------------------------------------------------------------------


@pytest.fixture
def stores(monkeypatch, reader):
    monkeypatch.setenv(TOKEN, reader)
    made = OpenStores()
    yield made
    made.close()


@pytest.mark.parametrize("number", [0, 1])
def test_a_reader_has_what_was_loaded(stores, node, files, url, number):
    content = [SMALL, large()[0]][number]
    with stores.file(place_of(node, files[number], url)) as file:
        assert file.read(len(content) - 100, 100) == content[-100:]
        assert file.fetched < 3 << 20, "the block, and its neighbours at most"
        assert (
            b"".join(
                file.read(at, min(1 << 20, len(content) - at))
                for at in range(0, len(content), 1 << 20)
            )
            == content
        )


@pytest.mark.parametrize("number", [0, 1])
def test_other_bytes_are_not_given(stores, node, world, files, url, number):
    place = place_of(node, files[number], url)
    with stores.file(place) as file:
        file.read(0, 1)  # the digests are known
    where = next(world.root.glob(f"data*/{files[number]}"))
    content = bytearray(where.read_bytes())
    content[-200] ^= 1
    where.write_bytes(content)
    fresh = OpenStores()
    with pytest.raises(ContentChangedError), fresh.file(place) as file:
        file.read(place.size - 250, 100)
    node.content._digests.clear()
    with pytest.raises((DamagedError, ContentChangedError)), fresh.file(place) as file:
        file.read(place.size - 250, 100)
    fresh.close()


def test_a_file_of_the_store_is_given_by_who_can_read_it(stores, tmp_path, clock, monkeypatch):
    (tmp_path / "bucket").mkdir()
    world = StoredWorld(tmp_path / "world")
    world.configure((tmp_path / "bucket").as_uri())
    big, _ = large()
    world.load(NORTH, "sequence/root.wind/0/0/1-1-0-0.tsfile", big)
    world.load(NORTH, "sequence/root.wind/0/0/2-2-0-0.tsfile", SMALL)
    world.upload()
    token = make_token(world.engine, "reader").token
    world.engine.close()
    monkeypatch.setenv(TOKEN, token)
    config = load_layers(
        ReceiverConfig, file=world.config, env_prefix=ENV_PREFIX, environ={}, flags={}
    ).value
    app = create_app(config)
    node = site_of(app).node
    with running(app, gate=site_of(app).gate) as found:
        there = f"http://127.0.0.1:{found.addresses[0][1]}"
        with node.engine.reading() as state:
            names = sorted(state.files)
        for physical, content in zip(names, (big, SMALL), strict=True):
            with stores.file(place_of(node, physical, there)) as file:
                assert file.read(100, len(content) - 100) == content[100:]
    assert not list(world.data.rglob("*.tsfile")), "nothing came to the disk for it"
    close(app)


def test_a_store_that_refuses_is_left_for_the_receiver(stores, tmp_path, node, files, url):
    """As it is for an executor without credentials; it is asked again after a while."""
    asked = []

    class Refusing(DirectoryStore):
        def read(self, key, offset, length):
            asked.append(key)
            raise StoreRefusedError("no credentials were found")

    (tmp_path / "bucket").mkdir()
    address = StoreAddress((tmp_path / "bucket").as_uri())
    stores._stores[address] = Refusing(tmp_path / "bucket")
    for physical, content in zip(files, (SMALL, large()[0]), strict=True):
        with stores.file(place_of(node, physical, url, address, f"1/{physical}")) as file:
            assert file.read(0, len(content)) == content
    assert len(asked) == 1


def test_damage_in_the_store_is_told_of_and_not_covered(stores, tmp_path, node, files, url):
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "x").write_bytes(bytes(len(SMALL)))
    address = StoreAddress((tmp_path / "bucket").as_uri())
    with (
        pytest.raises(ContentChangedError),
        stores.file(place_of(node, files[0], url, address, "x")) as file,
    ):
        file.read(0, 1)


def test_a_store_that_is_damaged_on_its_way_is_not_covered_up(stores, tmp_path, node, files, url):
    """A client of the store that finds other bytes says so, and nobody else is asked."""

    class Lying(DirectoryStore):
        def read(self, key, offset, length):
            raise ContentChangedError("the checksum of the answer is another")

    (tmp_path / "bucket").mkdir()
    address = StoreAddress((tmp_path / "bucket").as_uri())
    stores._stores[address] = Lying(tmp_path / "bucket")
    with (
        pytest.raises(ContentChangedError),
        stores.file(place_of(node, files[0], url, address, "x")) as file,
    ):
        file.read(0, 1)


@pytest.mark.parametrize("token", ["", "nobodys"])
def test_a_token_that_is_refused_says_where_one_is_expected(
    stores, node, files, url, monkeypatch, token
):
    monkeypatch.setenv(TOKEN, token)
    with pytest.raises(UnauthorizedError, match=TOKEN_PATH) as caught:
        stores.file(place_of(node, files[0], url)).read(0, 1)
    assert "nobodys" not in str(caught.value)
    address = StoreAddress("file:///not/there")
    with pytest.raises(NoTierError, match=r"not/there.*token") as neither:
        OpenStores().file(place_of(node, files[0], url, address)).read(0, 1)
    assert "nobodys" not in str(neither.value)


def test_the_token_may_stand_in_a_file(stores, node, files, url, monkeypatch, tmp_path, reader):
    monkeypatch.delenv(TOKEN)
    (tmp_path / "token").write_text(f"{reader}\n")
    monkeypatch.setenv(TOKEN_PATH, str(tmp_path / "token"))
    assert stores.file(place_of(node, files[0], url)).read(0, 4) == SMALL[:4]


def test_a_token_that_was_exchanged_in_its_file_is_taken(
    stores, node, files, url, monkeypatch, tmp_path, reader
):
    monkeypatch.delenv(TOKEN)
    (tmp_path / "token").write_text("of yesterday")
    monkeypatch.setenv(TOKEN_PATH, str(tmp_path / "token"))
    with pytest.raises(UnauthorizedError):
        stores.file(place_of(node, files[0], url)).read(0, 4)
    (tmp_path / "token").write_text(reader)
    assert stores.file(place_of(node, files[0], url)).read(0, 4) == SMALL[:4]


def test_no_token_travels_where_others_read_it(monkeypatch):
    monkeypatch.setenv(TOKEN, "secret")
    place = StoredPlace(None, "x", 1, "", "", ReceiverAddress("http://centre.example.com"), "x")
    with pytest.raises(UsageError, match="https"):
        OpenStores().file(place)
